"""Products of a batch: the batch is an axis of the grid and of the tiles."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def bmm_kernel(A, B, C, tm: ConstInt, tn: ConstInt, tk: ConstInt):
    batch, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.zeros((tm, tn), ct.float32)
    for k in range(ct.cdiv(A.shape[2], tk)):
        a = ct.load(A, (batch, i, k), (1, tm, tk), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (batch, k, j), (1, tk, tn), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(ct.reshape(a, (tm, tk)), b.reshape((tk, tn)), acc=acc)
    ct.store(C, (batch, i, j), ct.reshape(acc.astype(C.dtype), (1, tm, tn)))


def main():
    for dtype, out in ((torch.float16, torch.float16), (torch.float8_e4m3fn, torch.float32)):
        a = torch.randn(3, 70, 48, device="cuda").to(dtype)
        b = torch.randn(3, 48, 50, device="cuda").to(dtype)
        c = torch.empty(3, 70, 50, dtype=out, device="cuda")
        ct.launch(torch.cuda.current_stream(), (3, ct.cdiv(70, 32), ct.cdiv(50, 32)), bmm_kernel, (a, b, c, 32, 32, 16))
        torch.testing.assert_close(c.double(), a.double() @ b.double(), atol=2e-3, rtol=2e-3)


if __name__ == "__main__":
    main()
