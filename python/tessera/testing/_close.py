"""How far results may be from a reference: the project's error model.

For a sum of ``n`` products, with ``S = sum |a||b|``::

    bound = u_out |expected| + 4 u_acc S max(sqrt n, beta n) + floor

``u`` is half the distance between 1 and the next number, of the format of the results and of the format that they are accumulated in; ``beta``
is 0 for accumulation that rounds to nearest; ``floor`` is four times the smallest number of the results' format. Functions of single elements
are sums of one product. Integers and truth values are equal to what is expected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _native, errors
from ..dtypes import DType
from ._arrays import dtype_of, numpy_dtype, on_host


@dataclass(frozen=True)
class Model:
    """What results lose.

    Attributes:
        u_out: Unit round-off of the results' format; all four are 0 for integers and truth values.
        u_acc: Unit round-off of the accumulator.
        beta: 0 for accumulation that rounds to nearest.
        floor: Absolute error that is always allowed.
    """

    u_out: float
    u_acc: float
    beta: float
    floor: float

    @staticmethod
    def of(dtype, accumulator=None) -> Model:
        """The model of results of a type, accumulated in another: ``float32`` where it is ``None``, ``float64`` for results in it."""
        name = _name(dtype)
        if np.dtype(numpy_dtype(name)).kind in "iub":
            return Model(0.0, 0.0, 0.0, 0.0)
        return Model(*_native.error_model(name, _name(accumulator or ("float64" if name == "float64" else "float32"))))

    def bound(self, expected, reduction_length: int = 1, magnitude=None) -> np.ndarray:
        """How far each result may be from what is expected.

        Args:
            expected: The right results.
            reduction_length: Products that are summed up for each.
            magnitude: The sum of their absolute values; what is expected, where it is ``None``.

        Raises:
            ArgumentValueError: a length or a magnitude that bounds nothing: it is infinite where what is expected is finite, or no number.
        """
        size = np.abs(np.asarray(expected, np.float64))
        summed = size if magnitude is None else np.abs(np.asarray(on_host(magnitude), np.float64))
        if not np.isfinite(reduction_length):
            raise errors.ArgumentValueError(f"`reduction_length` is {reduction_length}: as many products are summed up for each result")
        if (np.isfinite(size) & ~np.isfinite(summed)).any():
            raise errors.ArgumentValueError("`magnitude` is infinite, or no number, where what is expected is finite: compute it in 64 bits")
        length = max(reduction_length, 1)
        return self.u_out * size + 4 * self.u_acc * max(length**0.5, self.beta * length) * summed + self.floor


def _name(dtype) -> str:
    return dtype.name if isinstance(dtype, DType) else numpy_dtype(dtype).name


def tolerance(expected, dtype, *, reduction_length: int = 1, magnitude=None, accumulator=None) -> np.ndarray:
    """The bounds that :func:`assert_close` takes."""
    return Model.of(dtype, accumulator).bound(on_host(expected), reduction_length, magnitude)


def _largest(dtype: np.dtype) -> float:
    if dtype.kind in "iub":
        return np.inf
    if dtype.type.__module__ == "numpy":
        return float(np.finfo(dtype).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


def _has_infinity(dtype: np.dtype) -> bool:
    return dtype.kind not in "iub" and bool(np.isinf(np.float64(np.inf).astype(dtype).astype(np.float64)))


def ratios(actual, expected, bound) -> np.ndarray:
    """The distance of each result over its bound: more than 1 is wrong. What is no number, or infinite, has to be so on both sides."""
    got, want = on_host(actual), np.asarray(on_host(expected), np.float64)
    values = got.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        distance = np.abs(values - want)
        found = np.where(distance == 0, 0.0, distance / bound)
        found = np.where(np.isnan(want) | np.isinf(want), np.where((values == want) | (np.isnan(values) & np.isnan(want)), 0.0, np.inf), found)
        # What is larger than the format's largest number may be that, infinite, or no number where there is no infinity.
        largest = _largest(got.dtype)
        beyond = np.isfinite(want) & (np.abs(want) + bound > largest)
        clipped = np.isinf(values) | (np.abs(values) == largest) | (np.isnan(values) & (not _has_infinity(got.dtype)))
        sign = np.isnan(values) | (np.sign(values) == np.sign(want))
    found = np.where(beyond & clipped & sign, 0.0, found)
    # Integers of more than 53 bits are equal in 64 bits of a float, and not themselves.
    whole = np.asarray(on_host(expected))
    if got.dtype.kind in "iu" and whole.dtype.kind in "iu":
        found = np.where((got != whole) & (distance == 0), np.inf, found)
    return np.where(np.isnan(found), np.inf, found)


def assert_close(actual, expected, *, reduction_length: int = 1, magnitude=None, dtype=None, accumulator=None) -> float:
    """Asserts that results are as right as their format and their accumulation allow.

    Args:
        actual: The results, of any library.
        expected: The right ones, best in 64 bits, of the same shape.
        reduction_length: Products that are summed up for each result: ``K`` of a matrix product, the length of a row that is summed up.
        magnitude: For each result the sum of the absolute values of these products, ``abs(a) @ abs(b)``; needed where they cancel each
            other out. What is expected, where it is ``None``.
        dtype: The format by which results count; their own where it is ``None``. Operands that were rounded to a narrower format than the
            results count by that format.
        accumulator: The format of the sums: ``float32`` where it is ``None``, ``float64`` for results in it.

    Returns:
        The largest distance over its bound, at most 1.

    Raises:
        AssertionError: a result is further off; the text says how many, and the worst.
    """
    got, want = on_host(actual), on_host(expected)
    if got.shape != want.shape:
        raise AssertionError(f"results have the shape {got.shape}, and {want.shape} is expected")
    if got.size == 0:
        return 0.0
    model = Model.of(dtype or dtype_of(actual), accumulator)
    bound = np.broadcast_to(model.bound(want, reduction_length, magnitude), want.shape)
    found = ratios(got, want, bound)
    worst = float(found.max())
    if worst <= 1:
        return worst
    wrong = int((found > 1).sum())
    at = np.unravel_index(int(found.argmax()), found.shape)
    first = np.unravel_index(int((found > 1).argmax()), found.shape)
    place = lambda index: f"[{', '.join(str(axis) for axis in index)}]"  # noqa: E731
    raise AssertionError(
        f"{wrong} of {got.size} results are further from what is expected than their format allows\n"
        f"  the worst is {place(at)}: {got[at]} for {want[at]}, {abs(float(got[at]) - float(want[at])):.3g} off, "
        f"{worst:.3g} times the bound {bound[at]:.3g}; the first is {place(first)}\n"
        + (
            f"  bound: {model.u_out:.3g} |expected| + 4 * {model.u_acc:.3g} sqrt({reduction_length}) magnitude + {model.floor:.3g}"
            if model.u_out
            else "  bound: none, they are whole numbers"
        )
        + ("\n  where terms cancel each other out, `magnitude` has to say how large they were" if magnitude is None and model.u_out else "")
    )
