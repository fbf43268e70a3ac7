"""PyTorch programs that are written for a GPU, on the host: ``device="cuda"`` stands for the CPU.

Tensors go through PyTorch's own ``TorchFunctionMode``: what makes or moves one with a CUDA device gets the CPU, and ``Tensor.is_cuda`` says what
the program expects. Streams, events and questions about the device are functions of ``torch.cuda`` that no mode sees: inside the ``with`` those
of :data:`_STAND_INS` stand in their places. Whatever else of ``torch.cuda`` a program uses raises what it raises without a GPU.
"""

from __future__ import annotations

import contextlib
import functools
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
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.is_pinned:
            return False
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

    def wait_event(self, _) -> None:
        """Nothing is outstanding."""

    def record_event(self, event: _Event | None = None) -> _Event:
        """Notes the moment in an event, a new one where none is given."""
        event = event or _Event()
        event.record()
        return event

    def query(self) -> bool:
        """Whether all is done."""
        return True

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

    def wait(self, _stream=None) -> None:
        """Nothing is outstanding."""

    def query(self) -> bool:
        """Whether nothing of what came before the moment is outstanding."""
        return True


class _Device(contextlib.nullcontext):
    """A choice of a GPU, of which there is one."""

    def __init__(self, device=0):
        super().__init__(device)


def _pages(name: str) -> int:
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")


def _properties(_device=None) -> types.SimpleNamespace:
    said = {"name": "the host", "major": 9, "minor": 0, "multi_processor_count": os.cpu_count() or 1, "warp_size": 32}
    return types.SimpleNamespace(**said, total_memory=_pages("SC_PHYS_PAGES"))


class _AnyGenerator(type(torch.Generator)):
    def __instancecheck__(cls, value) -> bool:
        return isinstance(value, torch._C.Generator)


class _Generator(torch.Generator, metaclass=_AnyGenerator):
    """A generator of random numbers of the host. Those that PyTorch has are such, too."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, device=_host(device))


def _default(set_default, device) -> None:
    """``torch.set_default_device`` with the host in the place of CUDA devices."""
    set_default("cpu" if isinstance(device, int) else _host(device))


def _load(load, *args, **keywords):
    """``torch.load`` with the host in the place of CUDA devices."""
    if len(args) > 1:
        args = (args[0], _placed(args[1]), *args[2:])
    else:
        keywords["map_location"] = _placed(keywords.get("map_location"))
    return load(*args, **keywords)


def _placed(map_location):
    """Where storages of a file go. Those of a GPU go to the host, wherever the program does not say another place."""
    if isinstance(map_location, dict):
        return {_host(source): _host(target) for source, target in map_location.items()} | {"cuda:0": "cpu"}
    return "cpu" if map_location is None else map_location if callable(map_location) else _host(map_location)


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
    "device": _Device,
    "mem_get_info": lambda _device=None: (_pages("SC_AVPHYS_PAGES"), _pages("SC_PHYS_PAGES")),
    "memory_allocated": lambda _device=None: 0,
    "max_memory_allocated": lambda _device=None: 0,
    "memory_reserved": lambda _device=None: 0,
    "reset_peak_memory_stats": lambda _device=None: None,
    "is_bf16_supported": lambda *_, **__: True,
    "get_device_capability": lambda _device=None: (9, 0),
    "get_device_name": lambda _device=None: "the host",
    "get_device_properties": _properties,
    "Stream": _Stream,
    "Event": _Event,
}

#: The same for functions of ``torch``.
_OF_TORCH = {
    "Generator": _Generator,
    "load": functools.partial(_load, torch.load),
    "set_default_device": functools.partial(_default, torch.set_default_device),
}


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Within the ``with``, programs of this thread that ask PyTorch for a GPU get the host."""
    places = [(torch.cuda, name, stand_in) for name, stand_in in _STAND_INS.items()]
    places += [(torch, name, stand_in) for name, stand_in in _OF_TORCH.items()]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    backward = BackwardCFunction.apply

    def apply(self, *args):
        with _Mode():
            return backward(self, *args)

    try:
        for module, name, stand_in in places:
            setattr(module, name, stand_in)
        # A mode is off while a function that it sees runs, such as `backward`; what a program's own functions do there is to be seen again.
        BackwardCFunction.apply = apply
        with _Mode():
            yield
    finally:
        BackwardCFunction.apply = backward
        for module, name, own in before:
            setattr(module, name, own)
