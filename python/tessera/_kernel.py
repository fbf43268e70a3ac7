"""Kernels of the running program, and their launches."""

from __future__ import annotations

import functools
import inspect
import logging
import operator
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterable

from . import _device, _live, _native, _objects, errors


#: Kernels that are kept of one function for objects that are compiled in; beyond them the oldest is let go of.
_MOST = 256

#: Says what is warned of, too, to programs that set up logging; others hear nothing of it.
_LOG = logging.getLogger("tessera")
_LOG.addHandler(logging.NullHandler())


def _decorator(hints: dict) -> str:
    """The decorator of a block program, as the compiler reads it."""
    texts = [f"{name}={_hint(value)}" for name, value in hints.items() if value is not None]
    return f"__tile__.kernel({', '.join(texts)})" if texts else "__tile__.kernel"


def _hint(value) -> str:
    by_target = getattr(value, "_value_by_target", None)
    if by_target is None:
        return repr(operator.index(value))
    texts = [f"{name}={_hint(own)}" for name, own in by_target.items()]
    default = getattr(value, "_default", None)
    if default is not None:
        texts.append(f"default={_hint(default)}")
    return f"__tile__.ByTarget({', '.join(texts)})"


class Kernel:
    """A function of the kernel language. It is compiled when it is launched, once for each form of its arguments."""

    _style = "own"

    def __init__(self, function: types.FunctionType, hints: dict | None = None):
        if not isinstance(function, types.FunctionType):
            raise TypeError(f"a kernel is a Python function, not {type(function).__name__}: write `@kernel` directly before `def`")
        if function.__name__ == "<lambda>" or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"a kernel is a function that is made by `def` and neither waits nor yields, which `{function.__qualname__}` is not")
        stars = [(flag, sign) for flag, sign in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")) if function.__code__.co_flags & flag]
        if stars:
            raise TypeError(f"a kernel has one parameter for each argument, and `{function.__qualname__}` has a `{stars[0][1]}` parameter: pass a tuple")
        self.__tessera_function__ = function
        self._hints = dict(hints or {})
        self._lock = threading.RLock()
        # The kernel as the compiler has it: without objects that are compiled in, and by these.
        self._compiled: _native.Kernel | None = None
        self._compiled_with: dict[tuple, _native.Kernel] = {}
        functools.update_wrapper(self, function)

    def _native(self) -> _native.Kernel:
        """The kernel as the compiler has it: read again where a name that it uses stands for something else."""
        compiled = self._compiled
        if compiled is None or not compiled.holds():
            with self._lock:
                compiled = self._compiled = self._read(None)
        return compiled

    def _native_with(self, objects: dict[str, object]) -> _native.Kernel:
        """The same for objects that are compiled in, by the names of parameters."""
        key = tuple((name, _objects.key_of(value)) for name, value in objects.items())
        compiled = self._compiled_with.get(key)
        if compiled is None or not compiled.holds():
            with self._lock:
                compiled = self._read(objects)
                self._compiled_with.pop(key, None)
                while len(self._compiled_with) >= _MOST:
                    del self._compiled_with[next(iter(self._compiled_with))]
                self._compiled_with[key] = compiled
        return compiled

    def _read(self, objects: dict[str, object] | None) -> _native.Kernel:
        captured = _live.capture(self.__tessera_function__, self._style, self._decorator(), objects)
        return _native.Kernel(captured.root, captured.kernel, captured.modules, captured.guards)

    def _for(self, args: tuple, keywords: dict | None) -> tuple[_native.Kernel, tuple, dict | None]:
        """The kernel for arguments, and those of them that it still takes: objects of dataclasses and enumerations are compiled in."""
        if not _objects.some_are_compiled_in(args) and not (keywords and _objects.some_are_compiled_in(keywords.values())):
            return self._native(), args, keywords
        keywords = keywords or {}
        code = self.__tessera_function__.__code__
        named = list(zip(code.co_varnames[: code.co_argcount], args, strict=False))
        objects = {name: value for name, value in [*named, *keywords.items()] if _objects.is_compiled_in(value)}
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if len(named) < len(args) or not set(objects) <= set(parameters) or not set(keywords).isdisjoint(name for name, _ in named):
            # What is wrong is said as for other arguments.
            return self._native(), args, keywords
        passed = tuple(value for name, value in named if name not in objects)
        return self._native_with(objects), passed, {name: value for name, value in keywords.items() if name not in objects}

    def _decorator(self) -> str:
        """The decorator, as the compiler reads it: ``__tile__`` is ``cuda.tile`` there, and ``__tessera__`` this package."""
        raise NotImplementedError

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return self._native().parameters

    def launch(self, args, *, grid=None, stream=None, block=None, keywords=None, **config) -> None:
        """Runs it.

        Args:
            args: Arguments by position.
            grid: Blocks along one to three axes; may be left out where the compiler chooses the tiles.
            stream: The stream on which it is queued, for arrays on a GPU; the current one of PyTorch, else the default one, where it is
                ``None``.
            block: Threads of a block, for a per-thread kernel.
            keywords: Arguments by name.
            config: Choices of the schedule, such as ``BLOCK_M=64``.

        Raises:
            ArgumentError: arguments that the kernel does not take.
            TileError: a kernel that does not compile.
            KernelFault: a kernel that does something wrong while it runs.
        """
        self._launch(args, grid, stream, block, keywords, _choices(config))

    def _launch(self, args, grid, stream, block=None, keywords=None, config=None) -> None:
        # A launch costs a few microseconds: there is little here.
        host = _device.host()
        if not isinstance(args, tuple):
            if not isinstance(args, list):
                raise errors.ArgumentError(f"the arguments of a launch are a tuple, not `{type(args).__name__}`: write `(x,)` for one")
            args = tuple(args)
        native, passed, by_name = self._for(args, keywords)
        told = native.launch(passed, by_name, grid, stream, block, config, host)
        if _device.WATCHERS:
            _device.tell(host, (*args, *(keywords or {}).values()))
        if told is not None:
            _tell(*told)

    def written(self, args, *, grid=None, block=None, **config) -> tuple[str, ...]:
        """Names of the parameters through which a launch with these arguments, on the host, may write; ``xs.0`` is an item of a tuple.

        Raises:
            ArgumentError: arguments that the kernel does not take.
            TileError: a kernel that does not compile.
        """
        native, passed, _ = self._for(tuple(args), None)
        return tuple(native.written(passed, grid, block, _choices(config)))

    def compile(self, *args, target: str | None = None, emit: str = "ptx", **keywords) -> str:
        """The kernel's text at a level, for arguments like these: ``schedule`` or ``ptx``.

        Args:
            args: Arguments as for a launch.
            target: What it is compiled for, such as ``sm_90a``.
            emit: The level.
        """
        native, passed, by_name = self._for(args, keywords)
        return native.compile(passed, by_name, target or "sm_90a", emit)

    def __getitem__(self, grid):
        """``kernel[grid](x, y, N=3)`` launches it."""

        def run(*args, stream=None, **keywords):
            self._launch(args, grid, stream, keywords=keywords)

        return run

    def __call__(self, *args, **keywords):
        raise TypeError(f"a kernel is not called but launched: `{self.__name__}[grid](...)` or `launch(stream, grid, {self.__name__}, args)`")

    def __get__(self, instance, owner=None):
        return self

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, _) -> Kernel:
        # As functions, which never are copied.
        return self

    def __reduce__(self) -> str:
        """A kernel is pickled as functions are: by its name in its module.

        Raises:
            PicklingError: the name does not stand for it there.
        """
        function = self.__tessera_function__
        found = sys.modules.get(function.__module__)
        for name in function.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is not self:
            raise pickle.PicklingError(
                f"`{function.__module__}.{function.__qualname__}` is not this kernel: kernels are pickled by name, so that one has to stand in a module "
                "or a class, under its function's name"
            )
        return function.__qualname__

    def __repr__(self) -> str:
        return f"<kernel {self.__qualname__}>"


def _plain(value):
    """Options of a tuning space with tuples, ranges and numbers of other libraries as lists and integers."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, str):
        return value
    try:
        return int(operator.index(value))
    except TypeError as error:
        if not isinstance(value, Iterable):
            raise TypeError(f"a choice of a tuning space is an integer or a truth value, not {value!r}") from error
    return [_plain(inner) for inner in value]


def _choices(config: dict) -> dict[str, int]:
    """Choices of a schedule as integers."""
    try:
        return {name: operator.index(value) for name, value in config.items()}
    except TypeError as error:
        raise errors.ArgumentError(f"choices of a schedule are integers: {config!r}") from error


def launch(stream, grid, kernel, kernel_args, /, *, programmatic_dependent_launch: bool = False) -> None:
    """Launches a kernel as ``cuda.tile.launch`` does.

    Args:
        stream: The stream on which it is queued; what host arrays are given has no meaning and may be ``None``.
        grid: Blocks along one to three axes.
        kernel: The kernel.
        kernel_args: Arguments by position.
        programmatic_dependent_launch: Not done; ``True`` is refused.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"`{kernel!r}` is no kernel: decorate its function with `@kernel`")
    if programmatic_dependent_launch:
        raise errors.TileUnsupportedFeatureError("launches that depend on each other programmatically are not done")
    if grid is None:
        raise errors.ArgumentError("a grid is one to three integers, not None")
    kernel._launch(kernel_args, grid, stream)


def _tell(printed: str, notes: list[str]) -> None:
    """Gives what a kernel printed, and what there is to say of how it was compiled."""
    # A program without a console has nowhere to print.
    if printed and sys.stdout is not None:
        sys.stdout.write(printed)
    for note in notes:
        _LOG.warning("%s", note)
        warnings.warn(note, errors.TesseraWarning, stacklevel=4)


class BlockKernel(Kernel):
    """A kernel of ``tessera.tile``: what one block does.

    Args:
        function: The function.
        num_ctas: Blocks of a cluster.
        occupancy: Blocks that a multiprocessor should hold.
        opt_level: How much work the compiler puts in, 0 to 3.
        num_worker_warps: Warps of a block that compute.

    Each but the function may be a :class:`ByTarget`.
    """

    _style = "block"

    def __new__(cls, function=None, /, **hints):
        if function is None:
            return lambda inner: cls(inner, **hints)
        return super().__new__(cls)

    def __init__(self, function=None, /, *, num_ctas=None, occupancy=None, opt_level=3, num_worker_warps=None):
        hints = {"num_ctas": num_ctas, "occupancy": occupancy, "opt_level": opt_level, "num_worker_warps": num_worker_warps}
        super().__init__(function, hints)

    def _decorator(self) -> str:
        return _decorator(self._hints)

    @property
    def _pyfunc(self) -> types.FunctionType:
        return self.__tessera_function__

    def replace_hints(self, **hints) -> BlockKernel:
        """A kernel with other hints, which is compiled anew.

        Raises:
            TypeError: a hint that there is none of.
        """
        return type(self)(self.__tessera_function__, **{**self._hints, **hints})


class OwnKernel(Kernel):
    """A kernel of the declarative or the per-thread style, or a block program without the limits of cuTile."""

    def __new__(cls, function=None, /, **options):
        if function is None:
            return lambda inner: cls(inner, **options)
        return super().__new__(cls)

    def __init__(self, function=None, /, **options):
        super().__init__(function, options)

    def _decorator(self) -> str:
        if not self._hints:
            return "__tessera__.kernel"
        texts = [f"{name}={_plain(value)!r}" for name, value in self._hints.items()]
        return f"__tessera__.kernel{'.autotune' if 'space' in self._hints else ''}({', '.join(texts)})"

    @classmethod
    def autotune(cls, **options):
        """A kernel with a space of choices: ``space=dict(BLOCK_M=[64, 128])``, ``key=["M", "N"]``. The compiler's model chooses; ``tessera tune``
        measures.

        Raises:
            TypeError: there is no space.
        """
        if not options.get("space"):
            raise TypeError("a kernel is tuned over a space of choices: `autotune(space=dict(BLOCK_M=[64, 128]))`")
        return lambda inner: cls(inner, **options)
