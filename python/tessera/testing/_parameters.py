"""Shapes, element types and devices as parameters of pytest functions.

::

    @tessera.testing.shapes((1000,), (7, 33))
    @tessera.testing.dtypes("float32", "bfloat16")
    def test_add(shape, dtype): ...
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import find


def shapes(*given: Sequence[int], name: str = "shape"):
    """A parameter ``shape`` that takes each of these; a test's name has it as ``7x33``.

    Args:
        given: Shapes, or single sizes.
        name: What the parameter is called.
    """
    import pytest

    whole = [shape if isinstance(shape, tuple) else (shape,) if isinstance(shape, int) else tuple(shape) for shape in given]
    return pytest.mark.parametrize(name, whole, ids=["x".join(str(size) for size in shape) or "scalar" for shape in whole])


def dtypes(*given: str, name: str = "dtype"):
    """A parameter ``dtype`` that takes NumPy's type (with ``ml_dtypes``) of each of these names.

    Args:
        given: Names as ``tessera`` has them: ``float32``, ``bf16``, ``float8_e4m3fn``.
        name: What the parameter is called.

    Raises:
        KeyError: no type has the name.
    """
    import pytest

    from ._arrays import numpy_dtype

    return pytest.mark.parametrize(name, [numpy_dtype(find(own)) for own in given], ids=list(given))


def devices(*given: str, name: str = "tessera_device"):
    """A parameter ``tessera_device`` that takes each of these, ``cpu`` and ``emu`` where none is named. With the plugin, kernels of the test run
    there, in the emulator with all sanitizers.

    Args:
        given: ``cpu``, ``emu``.
        name: What the parameter is called, where the plugin is not to see it.
    """
    import pytest

    return pytest.mark.parametrize(name, given or ("cpu", "emu"), indirect=name == "tessera_device")
