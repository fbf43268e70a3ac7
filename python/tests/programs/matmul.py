"""Matrix products: blocks in groups that share operands, and one block a multiprocessor that takes tile after tile."""

from math import ceil

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


def swizzle_2d_from_bid(M, N, tm, tn, GROUP_SIZE_M, bid):
    num_bid_m = ct.cdiv(M, tm)
    num_bid_n = ct.cdiv(N, tn)
    num_bid_in_group = GROUP_SIZE_M * num_bid_n
    group_id = bid // num_bid_in_group
    first_bid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_bid_m - first_bid_m, GROUP_SIZE_M)
    return first_bid_m + (bid % group_size_m), (bid % num_bid_in_group) // group_size_m


def product(A, B, bidx, bidy, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    zero = ct.PaddingMode.ZERO
    dtype = ct.tfloat32 if A.dtype == ct.float32 else A.dtype
    accumulator = ct.full((tm, tn), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(tm, tk))):
        a = ct.load(A, index=(bidx, k), shape=(tm, tk), padding_mode=zero).astype(dtype)
        b = ct.load(B, index=(k, bidy), shape=(tk, tn), padding_mode=zero).astype(dtype)
        accumulator = ct.mma(a, b, accumulator)
    return accumulator


@ct.kernel(num_ctas=ct.ByTarget(sm_100=2, default=1))
def matmul_kernel(A, B, C, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    bidx, bidy = swizzle_2d_from_bid(A.shape[0], B.shape[1], tm, tn, 8, ct.bid(0))
    ct.store(C, index=(bidx, bidy), tile=ct.astype(product(A, B, bidx, bidy, tm, tn, tk), C.dtype))


@ct.kernel
def persistent_kernel(A, B, C, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    M, N = A.shape[0], B.shape[1]
    for tile in range(ct.bid(0), ct.cdiv(M, tm) * ct.cdiv(N, tn), ct.num_blocks(0)):
        bidx, bidy = swizzle_2d_from_bid(M, N, tm, tn, 8, tile)
        ct.store(C, index=(bidx, bidy), tile=ct.astype(product(A, B, bidx, bidy, tm, tn, tk), C.dtype))


def matmul(A, B, persistent):
    if A.shape[1] != B.shape[0] or A.device != B.device or not A.is_cuda:
        raise ValueError("operands do not fit")
    tm, tn, tk = (32, 32, 32) if A.dtype == torch.float32 else (64, 32, 32)
    C = torch.empty((A.shape[0], B.shape[1]), device=A.device, dtype=A.dtype)
    blocks = ceil(A.shape[0] / tm) * ceil(B.shape[1] / tn)
    if persistent:
        blocks = min(torch.cuda.get_device_properties("cuda").multi_processor_count, blocks)
    kernel = persistent_kernel if persistent else matmul_kernel
    ct.launch(torch.cuda.current_stream(), (blocks, 1, 1), kernel, (A, B, C, tm, tn, tk))
    return C


def main():
    for dtype, bound in ((torch.float16, 2**-10), (torch.bfloat16, 2**-7), (torch.float32, 2**-10)):
        A = torch.randn(100, 120, dtype=dtype, device="cuda")
        B = torch.randn(120, 90, dtype=dtype, device="cuda")
        want = A.double() @ B.double()
        size = A.double().abs() @ B.double().abs()
        for persistent in (False, True):
            assert ((matmul(A, B, persistent).double() - want).abs() <= bound * (want.abs() + size / 2)).all()


if __name__ == "__main__":
    main()
