"""Arrays of any library as NumPy's, and random ones."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..ops import library_of

#: What NumPy and ``ml_dtypes`` call the types whose names differ.
_NUMPY = {"bool_": "bool", "tfloat32": "float32"}


def dtype_of(array) -> DType:
    """The element type of an array, or of a number of Python's.

    Raises:
        TypeError: an array of something else.
    """
    if isinstance(array, (bool, int, float)):
        return dtypes.ALL["bool_" if isinstance(array, bool) else "int64" if isinstance(array, int) else "float64"]
    found = dtypes.of(getattr(array, "dtype", None))
    if found is None:
        raise TypeError(f"a `{type(array).__name__}` of `{getattr(array, 'dtype', '?')}` is no array that a kernel could write")
    return found


def numpy_dtype(dtype) -> np.dtype:
    """NumPy's or ``ml_dtypes``' type of an element type of any library, or of its name."""
    found = dtypes.of(dtype)
    if found is None and not isinstance(dtype, str):
        return np.dtype(dtype)
    name = dtype if found is None else found.name
    name = dtypes.SHORT.get(name, name)
    name = _NUMPY.get(name, name)
    if name in np.sctypeDict or name == "bool":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def is_array(value) -> bool:
    """Whether a value is an array and no number."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic)


def on_host(array) -> np.ndarray:
    """The same elements in a NumPy array on the host. NumPy arrays are given as they are."""
    library = library_of(array)
    if library == "torch":
        import torch

        array = array.detach().as_subclass(torch.Tensor).cpu().resolve_neg()
        dtype = numpy_dtype(array.dtype)
        if dtype.type.__module__ == "numpy":
            return array.numpy()
        # NumPy has no such type of its own: the bytes go over.
        whole = torch.uint16 if dtype.itemsize == 2 else torch.uint8
        return array.contiguous().view(whole).numpy().view(dtype)
    if library == "cupy":
        return array.get()
    return np.asarray(array)


def random(shape: tuple[int, ...], dtype="float32", *, seed: int = 0, low: float | None = None, high: float | None = None) -> np.ndarray:
    """A NumPy array of random elements: normal ones of mean 0 and deviation 1 for floats, uniform ones for the rest.

    Args:
        shape: Its sizes.
        dtype: Its element type, of any library, or a name.
        seed: The same seed gives the same elements.
        low: With ``high``, uniform elements from ``low`` on, below ``high``. Integers are from -8 to 7 (0 to 15 without sign) where they are left
            out.
    """
    generator = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if kind == np.bool_:
        return generator.integers(0, 2, shape).astype(kind)
    if np.issubdtype(kind, np.integer):
        first, end = (0, 16) if np.issubdtype(kind, np.unsignedinteger) else (-8, 8)
        return generator.integers(first if low is None else int(low), end if high is None else int(high), shape).astype(kind)
    if low is None and high is None:
        return generator.standard_normal(shape).astype(kind)
    return generator.uniform(0.0 if low is None else low, 1.0 if high is None else high, shape).astype(kind)
