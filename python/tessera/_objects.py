"""Arguments of launches that are compiled in: objects of dataclasses and enumerations, which no launch can pass, and named tuples of constants, which
would lose their names."""

from __future__ import annotations

import dataclasses
import enum

from . import dtypes

#: Of classes whose objects were arguments, whether these are dataclasses and enumerations, which are compiled in.
_COMPILED_IN: dict[type, bool] = {}
#: Those of them that are not.
_PASSED: set[type] = set()


def is_compiled_in(value) -> bool:
    """Whether an argument is an object that a launch cannot pass, and that stands for itself in the kernel's text: one of a dataclass or an
    enumeration, or a named tuple without arrays; one with arrays is passed as a plain tuple."""
    kind = type(value)
    known = _COMPILED_IN.get(kind)
    if known is None:
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _is_constant(value)
        is_enum = issubclass(kind, enum.Enum) and not issubclass(kind, (int, float, str))
        known = (is_enum or dataclasses.is_dataclass(kind)) and not hasattr(kind, "__dlpack__") and dtypes.of(value) is None
        _COMPILED_IN[kind] = known
        if not known:
            _PASSED.add(kind)
    return known


def _is_constant(value) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    plain = value is None or isinstance(value, (bool, int, float, str)) or _is_number(value) or dtypes.of(value) is not None
    return plain or is_compiled_in(value)


def some_are_compiled_in(values) -> bool:
    """Whether any of these arguments is such an object. A launch asks that of types that it has seen."""
    kinds = set(map(type, values))
    return not kinds <= _PASSED and any(map(is_compiled_in, values))


def key_of(value):
    """What tells objects apart that make different texts; equal objects are one, and what may change without a trace is itself."""
    if isinstance(value, enum.Enum):
        return type(value), value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(key_of(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    if isinstance(value, (tuple, list, dict)):
        items = value.items() if isinstance(value, dict) else value
        return type(value), tuple(key_of(item) for item in items)
    if isinstance(value, (bool, int, float, str)) or value is None or _is_number(value):
        # Of numbers, what is read: 0.0 and -0.0 are equal, and NaN is not.
        return type(value), repr(value)
    return type(value), id(value)


def _is_number(value) -> bool:
    """Whether it is a number of NumPy's or of ``ml_dtypes``, which never changes, as an array without axes may."""
    return type(value).__module__ in ("numpy", "ml_dtypes") and not hasattr(value, "ctypes") and hasattr(value, "__float__")
