"""Element types.

Each is an object with a ``name`` and a ``bitwidth``; ``tessera.float32`` and ``tessera.tile.float32`` are one object. Called on the host, a
type makes a number of Python: ``tessera.int32(3)``.
"""

from __future__ import annotations


class DType:
    """The type of one element of an array or a tile."""

    __slots__ = ("_bitwidth", "_name")

    def __init__(self, name: str, bitwidth: int):
        self._name = name
        self._bitwidth = bitwidth

    @property
    def name(self) -> str:
        """The name, as in ``tessera.NAME``."""
        return self._name

    @property
    def bitwidth(self) -> int:
        """Bits of one element."""
        return self._bitwidth

    def __repr__(self) -> str:
        return f"<DType '{self._name}'>"

    def __str__(self) -> str:
        return self._name

    def __reduce__(self):
        return (find, (self._name,))

    def __call__(self, value):
        if self._name == "bool_":
            return bool(value)
        return int(value) if "int" in self._name else float(value)


_ROWS = {
    "bool_": 8,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "float16": 16,
    "float32": 32,
    "float64": 64,
    "bfloat16": 16,
    "tfloat32": 32,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e8m0fnu": 8,
    "float8_e5m3fnu": 8,
    "float4_e2m1fn": 4,
}

ALL = {name: DType(name, bits) for name, bits in _ROWS.items()}

#: Short names of the declarative and the per-thread styles.
SHORT = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "tf32": "tfloat32",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}

#: Names that other libraries have for the same types.
_OTHERS = {"bool": "bool_", "float": "float32", "double": "float64", "half": "float16"}


def find(name: str) -> DType:
    """The type of a name.

    Raises:
        KeyError: no type has the name.
    """
    return ALL[SHORT.get(name, name)]


def of(value) -> DType | None:
    """The type that an object of this or another library stands for (``torch.float32``, ``numpy.float32``, ``ml_dtypes.bfloat16``); ``None``
    where it is none."""
    if isinstance(value, DType):
        return value
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        name = str(value).removeprefix("torch.")
    elif kind.__module__.startswith("cuda.tile") and kind.__name__ == "DType":
        name = value.name
    elif isinstance(value, type) and value.__module__ in ("numpy", "ml_dtypes"):
        name = value.__name__
    elif kind.__module__.split(".")[0] == "numpy" and hasattr(value, "itemsize") and hasattr(value, "kind"):
        name = value.name
    elif kind.__module__.startswith("jax") and isinstance(getattr(value, "dtype", None), object) and kind.__name__ == "_ScalarMeta":
        name = value.dtype.name
    else:
        return None
    return ALL.get(_OTHERS.get(name, name))
