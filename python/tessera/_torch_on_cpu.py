"""PyTorch programs that are written for a GPU, on the host: ``device="cuda"`` stands for the CPU.

Tensors go through PyTorch's own ``TorchFunctionMode``: what makes or moves one with a CUDA device gets the CPU, and ``Tensor.is_cuda`` says what
the program expects. Streams, events and questions about the device are functions of ``torch.cuda`` that no mode sees: inside the ``with`` those
of :data:`_STAND_INS` stand in their places. Whatever else of ``torch.cuda`` a program uses raises what it raises without a GPU.
"""

from __future__ import annotations

import contextlib
import os
import time
import types
from collections.abc import Iterator

import torch
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode


def _host(value):
    """The CPU in the place of a CUDA device."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.split(":")[0] == "cuda" else value


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        if func == torch.Tensor.is_cuda.__get__:
            return True
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            # A number is one of a GPU.
            kwargs["device"] = "cpu" if isinstance(kwargs["device"], int) else _host(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.Tensor.to:
            args = tuple(_host(value) for value in args)
        return func(*args, **kwargs)


class _Stream:
    """The order in which calls are made, which is that of the host."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_, **__):
        pass

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def wait_stream(self, _) -> None:
        """Nothing is outstanding."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class _Event:
    """A moment of the host's clock."""

    def __init__(self, *_, **__):
        self._at: float | None = None

    def record(self, _stream=None) -> None:
        """Notes the moment."""
        self._at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds from this to another."""
        if self._at is None or end._at is None:
            raise RuntimeError("both events must be recorded before the time between them is asked for")
        return (end._at - self._at) * 1e3

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def query(self) -> bool:
        """Whether the moment is past."""
        return self._at is not None


def _properties(_device=None) -> types.SimpleNamespace:
    cores = os.cpu_count() or 1
    return types.SimpleNamespace(name="the host", major=9, minor=0, multi_processor_count=cores, warp_size=32)


#: What stands in the places of functions of ``torch.cuda``. The device says that it has compute capability 9.0, of which kernels' numerics are.
_STAND_INS = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda _device: None,
    "synchronize": lambda _device=None: None,
    "current_stream": lambda _device=None: _Stream(),
    "default_stream": lambda _device=None: _Stream(),
    "stream": lambda stream: contextlib.nullcontext(stream),
    "empty_cache": lambda: None,
    "get_device_capability": lambda _device=None: (9, 0),
    "get_device_name": lambda _device=None: "the host",
    "get_device_properties": _properties,
    "Stream": _Stream,
    "Event": _Event,
}


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Within the ``with``, programs of this thread that ask PyTorch for a GPU get the host."""
    before = {name: getattr(torch.cuda, name) for name in _STAND_INS}
    backward = BackwardCFunction.apply

    def apply(self, *args):
        with _Mode():
            return backward(self, *args)

    try:
        for name, stand_in in _STAND_INS.items():
            setattr(torch.cuda, name, stand_in)
        # A mode is off while a function that it sees runs, such as `backward`; what a program's own functions do there is to be seen again.
        BackwardCFunction.apply = apply
        with _Mode():
            yield
    finally:
        BackwardCFunction.apply = backward
        for name, own in before.items():
            setattr(torch.cuda, name, own)
