"""``cuda.tile.jax``: kernels in programs of JAX, on the CPU."""

# This module is imported under both names, so that relative names would mean two things.
try:
    from tessera._jax import InputOutput, OutputPlaceholder, cutile_call
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError("`cuda.tile.jax` needs JAX, which is not installed: `pip install jax`", name="jax") from error

__all__ = ["InputOutput", "OutputPlaceholder", "cutile_call"]
