"""Gradients against differences.

For a direction ``v`` and a random gradient ``g`` of the result, both sides of ::

    sum g (f(x + h v) - f(x - h v))  =  sum (gradient of x for g) 2 h v

are computed, with ``2 h v`` as what is left of it after rounding. The step is the third root of the format's unit round-off ``u``, times ``|x|``
where that is more than 1: at it what is left out of the series and what rounding loses are of one size.

The sides may be a part of the right one apart, at most a quarter, and what the rounding of values makes of the left one, ``4 u |g f|``. In a format
of few bits the latter can be more than the right side itself. So every second direction follows the signs of the gradient: there all terms of the
right side add up, while what is rounded does not. Directions are added until what is rounded is a tenth of the right side at most, so that a gradient
of twice or half the size, or of the other sign, cannot be taken for right; where they do not get there, nothing is said of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import errors
from ..ops import library_of
from ._arrays import dtype_of, on_host
from ._close import Model

#: What sides may be apart at most. A gradient of twice the size is half of itself away from what differences give.
_MOST = 0.25
#: What rounding may be at most, as a part of the gradient's side, and how many directions are tried for that.
_CLEAR = 0.1
_DIRECTIONS = 64


@dataclass
class _Sides:
    """Both sides of some directions, added up.

    Attributes:
        numeric: What differences give.
        analytic: What the gradient gives.
        size: How large its terms are.
        rounded: The square of what rounding may have made of the differences.
    """

    numeric: float = 0.0
    analytic: float = 0.0
    size: float = 0.0
    rounded: float = 0.0

    def __add__(self, other: _Sides) -> _Sides:
        return _Sides(self.numeric + other.numeric, self.analytic + other.analytic, self.size + other.size, self.rounded + other.rounded)

    @property
    def is_clear(self) -> bool:
        """Whether rounding could not hide a gradient of twice the size."""
        return self.rounded**0.5 <= _CLEAR * self.size

    def ratio(self, allowed: float, at: int) -> float:
        """How far they are apart, over what is allowed.

        Raises:
            AssertionError: more than 1.
        """
        most = allowed * self.size + self.rounded**0.5
        ratio = abs(self.numeric - self.analytic) / (most + 1e-300)
        # A gradient that is no number is wrong, too.
        if not ratio <= 1:
            raise AssertionError(
                f"the gradient of input {at} along a direction is {self.analytic:.6g}, and differences of values give {self.numeric:.6g}, "
                f"{ratio:.3g} times further off than {allowed:.3g} of its magnitude and what rounding makes of values"
            )
        return ratio


def gradcheck(
    function: Callable,
    inputs: Sequence,
    *,
    backward: Callable | None = None,
    directions: int = 4,
    step: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> float:
    """Compares the gradients of a function with differences of its values.

    Args:
        function: From float arrays to one.
        inputs: Where it is differentiated: NumPy arrays, or PyTorch tensors. Those of PyTorch that do not require a gradient are constant.
        backward: ``backward(gradient, *inputs)`` gives the gradient of each input, or ``None`` for one that is constant; PyTorch's autograd where it
            is left out.
        directions: Directions that are tried, at random and along the gradient in turn; more of them where the format needs more.
        step: How far, in units of the inputs; the third root of the unit round-off, times ``|x|`` where that is more than 1, where it is ``None``.
        rtol: Allowed distance, as a part of the sides' magnitude; 100 times the square of the unit round-off's third root, and at most a quarter,
            where it is ``None``. What rounding makes of values is allowed, too.
        seed: Fixes the directions.

    Returns:
        The largest distance over what is allowed.

    Raises:
        AssertionError: a gradient is wrong.
        ArgumentError: there is nothing to check: no input has a gradient, there are no elements, or a step is lost to rounding; or the format is too coarse for these inputs to tell a right gradient from a wrong one.
    """
    generator = np.random.default_rng(seed)
    result = on_host(function(*inputs))
    unit = max(Model.of(dtype_of(array)).u_out for array in (*inputs, result))
    root = unit ** (1 / 3)
    allowed = min(100 * root * root, _MOST) if rtol is None else rtol
    worst, along = 0.0, {}
    for number in range(max(_DIRECTIONS, directions)):
        if number >= max(directions, 2) and all(sides.is_clear for sides in along.values()):
            break
        g = on_host(_like(inputs[0], generator.standard_normal(result.shape))).astype(np.float64)
        gradients = _gradients(function, inputs, backward, g)
        if all(gradient is None for gradient in gradients):
            raise errors.ArgumentError("no input has a gradient, so there is nothing to check")
        if not result.size or not any(on_host(array).size for array, gradient in zip(inputs, gradients, strict=True) if gradient is not None):
            raise errors.ArgumentError("the result, or every input that has a gradient, is without elements, so there is nothing to check")
        for at, gradient in enumerate(gradients):
            if gradient is None:
                continue
            x, gradient = on_host(inputs[at]).astype(np.float64), on_host(gradient).astype(np.float64)
            if gradient.shape != x.shape:
                raise AssertionError(f"the gradient of input {at} has the shape {gradient.shape}, and the input {x.shape}")
            v = generator.choice((-1.0, 1.0), x.shape)
            if number % 2:
                # Weights tell elements apart.
                v = np.where(gradient == 0, v, np.sign(gradient)) * generator.choice((0.5, 1.0), x.shape)
            far = v * (root * np.maximum(np.abs(x), 1) if step is None else step)
            ends = [_like(inputs[at], x + sign * far) for sign in (1, -1)]
            _refuse_no_way(inputs[at], at, x, *(on_host(end).astype(np.float64) for end in ends))
            values = [on_host(function(*inputs[:at], end, *inputs[at + 1 :])).astype(np.float64) for end in ends]
            # The way that was really gone, after rounding.
            terms = gradient * (on_host(ends[0]).astype(np.float64) - on_host(ends[1]).astype(np.float64))
            analytic = float(terms.sum())
            size = float(np.abs(terms).sum()) if number % 2 else float(np.sqrt((terms**2).sum())) + abs(analytic)
            rounded = float((16 * unit * unit * g * g * (values[0] ** 2 + values[1] ** 2)).sum())
            sides = _Sides(float((g * (values[0] - values[1])).sum()), analytic, size, rounded)
            worst = max(worst, sides.ratio(allowed, at))
            if number % 2:
                along[at] = along.get(at, _Sides()) + sides
    for at, sides in along.items():
        worst = max(worst, sides.ratio(allowed, at))
        # A gradient of nothing but zeros has no size: it is held against all directions.
        if sides.size and not sides.is_clear:
            raise errors.ArgumentError(
                f"rounding in `{dtype_of(inputs[at]).name}` may change differences of values by {sides.rounded**0.5 / sides.size:.2g} of what the "
                f"gradient of input {at} comes to in {_DIRECTIONS} directions, so that a wrong one could pass: check in a wider format, or with more elements"
            )
    return worst


def _refuse_no_way(given, at: int, x: np.ndarray, end: np.ndarray, other: np.ndarray) -> None:
    """Refuses a step that rounding takes away: along it, every gradient is right."""
    stays = int((end == other).sum())
    if stays:
        raise errors.ArgumentError(
            f"rounding to `{dtype_of(given).name}` leaves {stays} of {x.size} elements of input {at} as they are, "
            "so that their gradients are not checked: take a longer `step`"
        )


def _like(array, values):
    """Values as an array of the library and the type of another."""
    values = np.asarray(values)
    if library_of(array) == "torch":
        import torch

        return torch.from_numpy(values).to(device=array.device, dtype=array.dtype).requires_grad_(array.requires_grad)
    return values.astype(array.dtype)


def _gradients(function: Callable, inputs: Sequence, backward: Callable | None, g: np.ndarray) -> list:
    if backward is not None:
        found = backward(_like(inputs[0], g) if not hasattr(inputs[0], "detach") else _like(inputs[0].detach(), g), *inputs)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(found) != len(inputs):
            raise errors.ArgumentError(f"`backward` gives {len(found)} gradients for {len(inputs)} inputs")
        return found
    if not all(hasattr(array, "requires_grad") for array in inputs):
        raise errors.ArgumentError("without `backward`, inputs are PyTorch tensors, which know their gradients")
    import torch

    wanted = [array for array in inputs if array.requires_grad]
    if not wanted:
        raise errors.ArgumentError("no input requires a gradient: call `requires_grad_()`")
    found = iter(torch.autograd.grad(function(*inputs), wanted, _like(inputs[0].detach(), g)))
    return [next(found) if array.requires_grad else None for array in inputs]
