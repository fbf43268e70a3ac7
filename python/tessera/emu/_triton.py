"""Kernels of Triton: compiled by Triton itself as far as PTX, which needs no GPU, and run on the emulator.

What Triton's launcher does is done here: specialisation of arguments (1, multiples of 16, aligned addresses), tuples, tensor descriptors, the two
hidden arguments (scratch memory), threads by the number of warps, shared memory by the metadata. The PTX is kept in Triton's own cache.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from .. import _native, errors
from ._arguments import TensorMap, Unwritten
from ._machine import HOW, Launch, Scratch
from ._report import Report

#: The version whose insides are known.
_VERSION = (3, 9)

_FORMATS = {
    "i1": "?",
    "u1": "?",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "fp16": "e",
    "fp32": "f",
    "f32": "f",
    "fp64": "d",
}

#: What of the compiler's metadata a launch needs.
_METADATA = ("name", "num_warps", "num_ctas", "shared", "global_scratch_size", "profile_scratch_size", "tensordesc_meta")


class _Pointer:
    """An array as Triton looks at one: an address and an element type."""

    def __init__(self, value: Any, name: str):
        self.value = value
        found = _native.describe(value.array if isinstance(value, Unwritten) else value, name)
        self.dtype = _ElementType(found.dtype)
        self.shape = found.shape
        self._found = found

    def data_ptr(self) -> int:
        return self._found.address

    def stride(self) -> tuple[int, ...]:
        return tuple(self._found.strides)


class _Pointers:
    """Memory that holds the addresses of arrays, as Triton looks at it: 64-bit integers at an aligned place."""

    dtype = "int64"

    def __init__(self, value: list):
        self.value = value

    def data_ptr(self) -> int:
        return 16


class _ElementType(str):
    """The name of an element type, with what Triton asks of types."""

    @property
    def itemsize(self) -> int:
        return 1 if self == "bool" else int("".join(filter(str.isdigit, self.split("_")[0]))) // 8

    @property
    def is_floating_point(self) -> bool:
        return "float" in self


def _library():
    """Triton.

    Raises:
        ImportError: it is not installed.
        DeviceError: another version than the one that is known.
    """
    try:
        import triton as library
    except ImportError as error:
        raise ImportError("`tessera.emu.triton` needs Triton: `pip install 'triton==3.9.*'`") from error
    if tuple(int(part) for part in library.__version__.split(".")[:2]) != _VERSION:
        raise errors.DeviceError(
            f"Triton {library.__version__} is installed, and the inside of 3.9 is known: `pip install 'triton==3.9.*'`, "
            "or pass its PTX to `tessera.emu.run`"
        )
    return library


def tensor_descriptor(array: Any, block_shape: list[int], padding: str = "zero"):
    """A ``TensorDescriptor`` of Triton's over an array of any library, NumPy's among them.

    Args:
        array: The array; its last axis is contiguous.
        block_shape: Elements of a block along each axis.
        padding: What is read outside: ``zero`` or ``nan``.
    """
    _library()
    from triton.tools.tensor_descriptor import TensorDescriptor

    pointer = _Pointer(array, "descriptor")
    return TensorDescriptor(pointer, list(pointer.shape), list(pointer.stride()), list(block_shape), padding)


def triton(kernel, grid, *args, target: str = "sm_90a", config=None, **keywords) -> Report:
    """Runs a kernel of Triton's on the emulator, and looks for mistakes.

    ::

        @triton.jit
        def double(x, n, BLOCK: tl.constexpr): ...

        tessera.emu.triton(double, (triton.cdiv(n, 256),), x, n, BLOCK=256, num_warps=4)

    Args:
        kernel: A function of ``@triton.jit``; ``@triton.heuristics`` are evaluated.
        grid: Programs along one to three axes, or a function of the arguments by name that gives them.
        args: Its arguments, constants among them: arrays of NumPy, PyTorch (on the CPU) or of whatever has DLPack, numbers, tuples,
            descriptors of :func:`tensor_descriptor`; :class:`Unwritten` arrays; a list of arrays for the address of 64-bit integers that
            hold their addresses.
        target: What it is compiled for and what is emulated: ``sm_80``, ``sm_90a``, ...
        config: Of a kernel with ``@triton.autotune``: which of its configurations.
        keywords: Arguments by name; Triton's options ``num_warps``, ``num_stages``, ``num_ctas``, ``maxnreg``, ...; ``sanitize``,
            ``schedule``, ``seed`` and the others of :class:`How`. A name that is a parameter of the kernel is always that: where it is called
            ``seed``, write ``prepare_triton(...).run(seed=3)``.

    Returns:
        What the launch did; arrays hold what the kernel wrote.

    Raises:
        SanitizerError: findings; each has the kernel's file and line. Arrays are as they were.
        ArgumentError: arguments that the kernel does not take.
        triton.CompilationError: what Triton refuses.
    """
    how = split_how(kernel, keywords)
    return prepare_triton(kernel, grid, *args, target=target, config=config, **keywords).run(**how)


def split_how(kernel, keywords: dict) -> dict:
    """Takes the names of :class:`How` that are no parameters of the kernel out of its keywords."""
    while hasattr(kernel, "fn") and not hasattr(kernel, "params"):
        kernel = kernel.fn
    names = {param.name for param in getattr(kernel, "params", ())}
    return {name: keywords.pop(name) for name in list(keywords) if name in HOW and name not in names}


def prepare_triton(kernel, grid, *args, target: str = "sm_90a", config=None, **keywords) -> Launch:
    """The launch of a kernel of Triton's: its PTX with its arguments, to be run or explored. Arguments are those of :func:`triton`, but for those of
    :class:`How`."""
    _library()
    inner, given = _inner(kernel, config)
    names = [param.name for param in inner.params]
    positional = dict(zip(names, args, strict=False))
    if len(args) > len(names):
        raise errors.ArgumentError(f"`{inner.__name__}` takes {len(names)} arguments, and {len(args)} are given: {', '.join(names)}")
    keywords = {**(config.all_kwargs() if config is not None else {}), **keywords}
    for name, heuristic in given:
        keywords[name] = heuristic({**positional, **keywords})
    compiled = _Compiled(inner, args, keywords, target)
    if callable(grid):
        grid = grid({**compiled.meta, **positional, **keywords})
    programs = (*((int(grid),) if hasattr(grid, "__index__") else (int(axis) for axis in grid)), 1, 1)[:3]
    clusters = compiled.metadata["num_ctas"]
    blocks = (programs[0] * clusters, *programs[1:])
    count = blocks[0] * blocks[1] * blocks[2]
    return Launch(
        ptx=compiled.ptx,
        grid=blocks,
        block=32 * compiled.metadata["num_warps"],
        args=[*compiled.arguments, *(_scratch(compiled.metadata[f"{which}_scratch_size"], count) for which in ("global", "profile"))],
        entry=compiled.metadata["name"],
        shared=compiled.metadata["shared"],
        cluster=(clusters, 1, 1) if clusters > 1 else None,
        target=target,
    )


def _scratch(size: int, count: int) -> Scratch | None:
    return Scratch(size * count) if size else None


def _inner(kernel, config):
    """The function under an autotuner and heuristics, and the heuristics."""
    heuristics = []
    while not hasattr(kernel, "params"):
        if hasattr(kernel, "configs"):
            if config is None:
                raise errors.ArgumentError(
                    f"the kernel is tuned over {len(kernel.configs)} configurations: say which one, as `config=kernel.configs[0]`"
                )
        elif isinstance(getattr(kernel, "values", None), dict):
            heuristics += kernel.values.items()
        else:
            raise errors.ArgumentError(
                f"`{type(kernel).__name__}` is no kernel of Triton's: pass the function of `@triton.jit`, with `TRITON_INTERPRET` not set"
            )
        kernel = kernel.fn
    return kernel, heuristics


class _Compiled:
    """A kernel as PTX, with the arguments that it was compiled for."""

    def __init__(self, kernel, args: tuple, keywords: dict, target: str):
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, make_backend
        from triton.runtime.jit import create_function_from_signature

        capability = target.removeprefix("sm_").rstrip("af")
        if not target.startswith("sm_") or not capability.isdigit():
            raise errors.ArgumentValueError(f"target={target!r}: Triton compiles for a target such as `sm_80` or `sm_90a`")
        gpu = GPUTarget("cuda", int(capability), 32)
        backend = make_backend(gpu)
        names = [param.name for param in kernel.params]
        wrapped = [_wrapped(value, name) for value, name in zip(args, names, strict=False)]
        named = {name: _wrapped(value, name) if name in names else value for name, value in keywords.items()}
        named.setdefault("debug", kernel.debug or False)
        binder = create_function_from_signature(kernel.signature, kernel.params, backend)
        try:
            bound, specialization, options = binder(*wrapped, **named)
            options, signature, constants, attributes = kernel._pack_args(backend, options, bound, specialization, options)
        except (TypeError, KeyError, OverflowError, AssertionError) as error:
            raise errors.ArgumentError(f"`{kernel.__name__}`: {error.args[0] if error.args else error}") from error
        if kernel.is_gluon():
            from triton.experimental.gluon._runtime import GluonASTSource

            source = GluonASTSource(kernel, signature, constants, attributes)
        else:
            source = ASTSource(kernel, signature, constants, attributes)
        self.ptx, self.metadata = _ptx(kernel, source, backend, options, gpu)
        self.meta = {name: _unwrapped(value) for name, value in bound.items()}
        maps = iter(self.metadata["tensordesc_meta"] or ())
        self.arguments: list = []
        for name, type_ in signature.items():
            self._flatten(name, type_, bound[name], maps)

    def _flatten(self, name: str, type_, value, maps) -> None:
        """Appends what the kernel's parameters get for a value."""
        if isinstance(type_, tuple):
            for index, (inner, item) in enumerate(zip(type_, value, strict=True)):
                self._flatten(f"{name}[{index}]", inner, item, maps)
        elif type_ == "constexpr":
            return
        elif type_.startswith("tensordesc"):
            self.arguments += _descriptor(name, value, next(maps, None))
        elif type_.startswith("*"):
            self.arguments.append(_unwrapped(value))
        else:
            self.arguments.append(_scalar(name, type_, value))


def _wrapped(value, name: str):
    """A value with its arrays as Triton looks at them."""
    if isinstance(value, tuple):
        items = [_wrapped(item, f"{name}[{index}]") for index, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return _Pointers(value)
    is_array = isinstance(value, Unwritten) or hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")
    if not is_array:
        return value
    # A number of NumPy's is a number to Triton too.
    if not isinstance(value, Unwritten) and type(value).__module__ == "numpy" and not hasattr(value, "ctypes"):
        return value.item()
    return _Pointer(value, name)


def _unwrapped(value):
    return value.value if isinstance(value, (_Pointer, _Pointers)) else value


def _scalar(name: str, type_: str, value) -> bytes:
    if type_ == "bf16":
        # Rounded to the nearest, ties to even.
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).to_bytes(2, "little")
    try:
        return struct.pack(f"<{_FORMATS[type_]}", value)
    except struct.error as error:
        raise errors.ArgumentValueError(f"`{name}` is an `{type_}`, and {value!r} is none: {error}") from error


def _descriptor(name: str, value, meta: dict | None) -> list:
    """The parameters of a tensor descriptor: a map where the copy engine is used, else its parts; then shape and strides."""
    shape = [struct.pack("<i", size) for size in value.shape]
    strides = [struct.pack("<q", stride) for stride in value.strides]
    array = _unwrapped(value.base)
    if meta is None:
        parts = [array, *(struct.pack("<q", size) for size in value.shape), *strides]
        return [*parts, struct.pack("?", value.padding == "nan"), struct.pack("?", value.round_f32_to_tf32), *shape, *strides]
    if meta.get("is_im2col") or meta["fp4_padded"]:
        raise errors.ArgumentError(
            f"`{name}`: descriptors of the im2col mode and of packed four-bit elements are not made here: use `tessera.emu.run`"
        )
    width = meta["elem_size"]
    made = TensorMap(
        array,
        tile=tuple(meta["block_size"]),
        shape=tuple(value.shape),
        strides=tuple(stride * width for stride in value.strides[:-1]),
        swizzle=(0, 32, 64, 128)[meta["swizzle"]],
        fill=value.padding,
        dtype="tf32" if value.round_f32_to_tf32 else None,
    )
    return [made, *shape, *strides]


def _ptx(kernel, source, backend, options, gpu) -> tuple[str, dict]:
    """The kernel's PTX and what a launch needs to know of it; both are kept in Triton's cache."""
    from triton._C.libtriton import get_cache_invalidating_env_vars, ir
    from triton.runtime.cache import get_cache_key, get_cache_manager

    environment = get_cache_invalidating_env_vars()
    key = f"tessera-ptx-{kernel.file_name}-{get_cache_key(source, backend, options, environment)}"
    _refuse_changed_globals(kernel)
    cache = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
    kept, about = cache.get_file("kernel.ptx"), cache.get_file("kernel.json")
    if kept is not None and about is not None:
        with open(kept, encoding="utf-8") as text, open(about, encoding="utf-8") as metadata:
            return text.read(), json.load(metadata)
    stages: dict = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(gpu, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    metadata = {"target": gpu, **options.__dict__, **environment}
    for name in list(stages)[list(stages).index(source.ext) :]:
        module = stages[name](module, metadata)
        if name == "ptx":
            break
    found = {name: metadata.get(name) for name in _METADATA}
    cache.put(module, "kernel.ptx", binary=False)
    cache.put(json.dumps(found), "kernel.json", binary=False)
    return module, found


def _refuse_changed_globals(kernel) -> None:
    """As Triton does: what a kernel has read of its module's variables is part of it."""
    nothing = object()
    for (name, _), (value, module) in kernel.used_global_vals.items():
        if module.get(name, nothing) != value:
            raise errors.ArgumentError(f"`{kernel.__name__}` was read with `{name}` = {value}, which has changed: decorate the function again")
