"""Gradients against differences.

For a random direction ``v`` and a random gradient ``g`` of the result, both sides of ::

    sum g (f(x + h v) - f(x - h v)) / 2h  =  sum (gradient of x for g) v

are computed. The step is the third root of the format's unit round-off, at which what is left out of the series and what rounding loses are
of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .. import errors
from ._arrays import dtype_of, on_host
from ._close import Model


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
        directions: Random directions that are tried.
        step: How far, in units of the inputs; the third root of the unit round-off where it is ``None``.
        rtol: Allowed distance, as a part of the sides' magnitude; 100 times the step's square where it is ``None``.
        seed: Fixes the directions.

    Returns:
        The largest distance over what is allowed.

    Raises:
        AssertionError: a gradient is wrong.
    """
    generator = np.random.default_rng(seed)
    unit = max(Model.of(dtype_of(array)).u_out for array in inputs)
    h = unit ** (1 / 3) if step is None else step
    allowed = 100 * h * h if rtol is None else rtol
    like = lambda array, values: _like(array, values)  # noqa: E731
    result = on_host(function(*inputs)).astype(np.float64)
    worst = 0.0
    for _ in range(directions):
        g = generator.standard_normal(result.shape)
        g = on_host(like(inputs[0], g)).astype(np.float64)
        gradients = _gradients(function, inputs, backward, g)
        if all(gradient is None for gradient in gradients):
            raise errors.ArgumentError("no input has a gradient, so there is nothing to check")
        for at, gradient in enumerate(gradients):
            if gradient is None:
                continue
            x = on_host(inputs[at]).astype(np.float64)
            v = generator.choice((-1.0, 1.0), x.shape)
            ends = [like(inputs[at], x + sign * h * v) for sign in (1, -1)]
            values = [on_host(function(*inputs[:at], end, *inputs[at + 1 :])).astype(np.float64) for end in ends]
            # The way that was really gone, after rounding.
            gone = (on_host(ends[0]).astype(np.float64) - on_host(ends[1]).astype(np.float64)) / (2 * h)
            numeric = float((g * (values[0] - values[1])).sum() / (2 * h))
            analytic = float((on_host(gradient).astype(np.float64) * gone).sum())
            size = float(np.sqrt(((on_host(gradient).astype(np.float64) * gone) ** 2).sum())) + abs(analytic)
            ratio = abs(numeric - analytic) / (allowed * size + 1e-300)
            # A gradient that is no number is wrong, too.
            if not ratio <= 1:
                raise AssertionError(
                    f"the gradient of input {at} along a direction is {analytic:.6g}, and differences of values give {numeric:.6g}, "
                    f"{ratio:.3g} times further off than {allowed:.3g} of its magnitude"
                )
            worst = max(worst, ratio)
    return worst


def _like(array, values: np.ndarray):
    """Values as an array of the library and the type of another."""
    if type(array).__module__.split(".")[0] == "torch":
        import torch

        return torch.from_numpy(values).to(device=array.device, dtype=array.dtype).requires_grad_(array.requires_grad)
    return values.astype(array.dtype)


def _gradients(function: Callable, inputs: Sequence, backward: Callable | None, g: np.ndarray) -> list:
    if backward is not None:
        found = backward(_like(inputs[0], g) if not hasattr(inputs[0], "detach") else _like(inputs[0].detach(), g), *inputs)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(found) != len(inputs):
            raise TypeError(f"`backward` gives {len(found)} gradients for {len(inputs)} inputs")
        return found
    if not all(hasattr(array, "requires_grad") for array in inputs):
        raise TypeError("without `backward`, inputs are PyTorch tensors, which know their gradients")
    import torch

    wanted = [array for array in inputs if array.requires_grad]
    if not wanted:
        raise TypeError("no input requires a gradient: call `requires_grad_()`")
    found = iter(torch.autograd.grad(function(*inputs), wanted, _like(inputs[0].detach(), g)))
    return [next(found) if array.requires_grad else None for array in inputs]
