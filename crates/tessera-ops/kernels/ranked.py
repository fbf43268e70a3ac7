"""What ranks do with each other's partial results: attention of two sets of keys by the logarithms of their sums of exponentials, and sums.
With `a = (O_a, lse_a)` and `b`: `lse = log(exp(lse_a) + exp(lse_b))`, `O = exp(lse_a - lse) O_a + exp(lse_b - lse) O_b`."""
import cuda.tile as ct
import tessera


@tessera.kernel
def merge_attention(total, lse, part, part_lse, O, TM: ct.Constant[int], D: ct.Constant[int]):
    """Rows of `total` and `lse` with those of another set of keys; as `O` they have its type. A row that has seen no key yet has -inf for `lse`."""
    row = ct.bid(0)
    a = ct.load(lse, (row, 0), (TM, 1), padding_mode=ct.PaddingMode.ZERO)
    b = ct.load(part_lse, (row, 0), (TM, 1), padding_mode=ct.PaddingMode.ZERO)
    largest = ct.maximum(a, b)
    weight_a, weight_b = ct.exp(a - largest), ct.exp(b - largest)
    whole = weight_a + weight_b
    x = ct.load(total, (row, 0), (TM, D), padding_mode=ct.PaddingMode.ZERO)
    y = ct.load(part, (row, 0), (TM, D), padding_mode=ct.PaddingMode.ZERO).astype(total.dtype)
    merged = (x * weight_a + y * weight_b) / whole
    ct.store(total, (row, 0), merged)
    ct.store(lse, (row, 0), largest + ct.log(whole))
    ct.store(O, (row, 0), merged.astype(O.dtype))


@tessera.kernel
def add_to(total, part, T: ct.Constant[int]):
    """`total += part`."""
    at = ct.bid(0)
    x = ct.load(total, (at,), (T,), padding_mode=ct.PaddingMode.ZERO)
    y = ct.load(part, (at,), (T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(total, (at,), x + y)
