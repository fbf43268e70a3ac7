"""Prints the public surface of a module in the manner of ``cuda.tile`` as JSON: kinds, members and parameters of its names.

``python surface.py cuda.tile`` makes ``cutile-1.7.json``.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import sys


def _parameters(value) -> list | None:
    """Name, kind and whether there is a default, of each parameter."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    return [[own.name, own.kind.name, own.default is not own.empty] for own in signature.parameters.values()]


def _described(value, public: dict) -> dict:
    if isinstance(value, type):
        members = sorted(name for name in dir(value) if not name.startswith("_") and not hasattr(BaseException, name))
        found: dict = {"kind": "class", "members": members}
        if issubclass(value, enum.Enum):
            found["values"] = {name: member.value for name, member in value.__members__.items()}
        else:
            functions = {name: getattr(value, name) for name in members}
            found["methods"] = {name: _parameters(own) for name, own in functions.items() if callable(own)}
        if issubclass(value, BaseException):
            found["bases"] = sorted(name for name, base in public.items() if isinstance(base, type) and issubclass(value, base))
        return found
    if inspect.ismodule(value):
        return {"kind": "module", "members": {name: _described(getattr(value, name), {}) for name in sorted(value.__all__)}}
    if callable(value) and hasattr(value, "__name__") and not hasattr(value, "__metadata__") and not hasattr(value, "bitwidth"):
        return {"kind": "function", "parameters": _parameters(value)}
    return {"kind": "value"}


def surface(module: str) -> dict:
    """The surface of a module, by its ``__all__``."""
    found = importlib.import_module(module)
    public = {name: getattr(found, name) for name in sorted(found.__all__)}
    return {name: _described(value, public) for name, value in public.items()}


if __name__ == "__main__":
    json.dump(surface(sys.argv[1]), sys.stdout, indent=1, sort_keys=True)
    print()
