"""PyTorch's prefix sums, sorts and sparse matrices, the latter through cuSPARSE. What allocates its result is copied by the gate alone."""
import torch


def into(work, *results):
    """A work whose results the gate copies to these."""
    work.into = results[0] if len(results) == 1 else list(results)
    return work


def matrix(t, m, n):
    return torch.sparse_csr_tensor(t["row_offsets"], t["columns"], t["values"], size=(m, n), check_invariants=False)


def prefix_sum(request, t):
    if request["variant"] != "inclusive":
        raise NotImplementedError("sums without the element itself")
    x, y = t["x"], t["y"]
    return lambda: torch.cumsum(x, 0, dtype=y.dtype, out=y)


def masked_select(request, t):
    """PyTorch has the host wait for the count; zeros behind what is packed and the count as an array are made as well."""
    x, mask, y = t["x"], t["mask"] != 0, t["y"]

    def work():
        packed = torch.masked_select(x, mask)
        result = torch.zeros_like(y)
        result[: packed.numel()] = packed
        return result, torch.full_like(t["count"], packed.numel())
    return into(work, y, t["count"])


def sort(request, t):
    x, kind = t["x"], request["variant"]
    if kind == "keys":
        return into(lambda: torch.sort(x, stable=True)[0], t["y"])
    if kind == "order":
        return into(lambda: torch.sort(x, stable=True), t["y"], t["order"])

    def work():
        keys, order = torch.sort(x, stable=True)
        return keys, t["v"][order]
    return into(work, t["y"], t["w"])


def spmv(request, t):
    x, y = t["x"], t["y"]
    a = matrix(t, y.numel(), x.numel())
    return into(lambda: a @ x, y)


def spmm(request, t):
    b, c = t["B"], t["C"]
    a = matrix(t, c.shape[0], b.shape[0])
    return into(lambda: a @ b, c)


def sddmm(request, t):
    a, b, y = t["A"], t["B"], t["y"]
    pattern = torch.sparse_csr_tensor(t["row_offsets"], t["columns"], torch.zeros_like(y), size=(a.shape[0], b.shape[0]))
    return into(lambda: torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values(), y)


def csr_to_coo(request, t):
    offsets, columns = t["row_offsets"], t["columns"]
    return into(lambda: torch._convert_indices_from_csr_to_coo(offsets, columns, out_int32=True)[0], t["rows"])


def coo_to_csr(request, t):
    rows, m = t["rows"], t["row_offsets"].numel() - 1
    return into(lambda: torch._convert_indices_from_coo_to_csr(rows, m, out_int32=True), t["row_offsets"])


def csr_to_csc(request, t):
    a = matrix(t, t["row_offsets"].numel() - 1, t["column_offsets"].numel() - 1)

    def work():
        c = a.to_sparse_csc()
        return c.values(), c.row_indices(), c.ccol_indices()
    return into(work, t["by_columns"], t["rows"], t["column_offsets"])


def csr_to_dense(request, t):
    m = t["row_offsets"].numel() - 1
    a = matrix(t, m, t["x"].numel() // m)
    return into(lambda: a.to_dense().reshape(-1), t["x"])



def sparse24_gemm(request, t):
    """Through cuSPARSELt, which makes its own form of the dense matrix before what is measured."""
    values, places, b = t["values"], t["places"], t["B"]
    m, k = values.shape[0], b.shape[0]
    if m % 32 or k % 64 or b.shape[1] % 8:
        raise NotImplementedError("half stored matrices of other than 32 rows and 64 columns at a time, times 8 columns at a time")
    pair = (places.unsqueeze(2) >> (4 * torch.arange(8, dtype=torch.int32, device=places.device))).reshape(m, -1)[:, : k // 4]
    index = torch.stack((pair & 3, pair >> 2 & 3), 2) + 4 * torch.arange(k // 4, dtype=torch.int32, device=places.device)[:, None]
    dense = torch.zeros((m, k), dtype=values.dtype, device=values.device).scatter_(1, index.reshape(m, -1).long(), values)
    a = torch.sparse.to_sparse_semi_structured(dense)
    return into(lambda: torch.mm(a, b), t["C"])


OPERATORS = {
    "prefix_sum": prefix_sum, "masked_select": masked_select, "sort": sort, "spmv": spmv, "spmm": spmm, "sddmm": sddmm,
    "csr_to_coo": csr_to_coo, "coo_to_csr": coo_to_csr, "csr_to_csc": csr_to_csc, "csr_to_dense": csr_to_dense,
    "sparse24_gemm": sparse24_gemm,
}
