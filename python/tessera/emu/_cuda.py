"""CUDA C++ from Python, as CuPy's raw kernels are: compiled by NVIDIA's runtime compiler as far as PTX, which needs no GPU and no driver."""

from __future__ import annotations

from collections.abc import Sequence

from .. import errors

_INSTALL = "`pip install cuda-bindings nvidia-cuda-nvrtc`, which need no GPU"


def compile_cuda(source: str, *, target: str = "sm_90a", options: Sequence[str] = (), name: str = "kernel.cu") -> str:
    """The PTX of a text in CUDA C++, with its lines.

    Args:
        source: What a ``cupy.RawKernel`` is made of; ``extern "C"`` keeps the kernel's name.
        target: What it is compiled for.
        options: Further options of the compiler, such as ``--use_fast_math`` or ``-DTILE=64``.
        name: The file that findings name.

    Returns:
        The text of a module, for :func:`run`.

    Raises:
        ImportError: the compiler is not installed.
        TileSyntaxError: what the compiler refuses, with what it says.
        ArgumentError: a target or an option that it does not know.
    """
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ImportError(f"`tessera.emu.compile_cuda` needs NVIDIA's runtime compiler: {_INSTALL}") from error
    done = nvrtc.nvrtcResult.NVRTC_SUCCESS
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, None, None)
    if status != done:
        raise errors.DeviceError(f"NVIDIA's runtime compiler does not start: {status.name}")
    try:
        given = [f"--gpu-architecture={target.replace('sm_', 'compute_')}", "--generate-line-info", *options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), [option.encode() for option in given])
        if status != done:
            said = _text(nvrtc.nvrtcGetProgramLogSize(program), lambda room: nvrtc.nvrtcGetProgramLog(program, room))
            if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
                raise errors.TileSyntaxError(said)
            raise errors.ArgumentError(f"{', '.join(given)}: {said or status.name}")
        return _text(nvrtc.nvrtcGetPTXSize(program), lambda room: nvrtc.nvrtcGetPTX(program, room))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(size: tuple, fill) -> str:
    """A text of a size that the compiler writes into a buffer."""
    room = bytearray(size[1])
    fill(room)
    return bytes(room).rstrip(b"\0").decode()
