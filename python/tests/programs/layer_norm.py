"""Layer norm as a function of autograd; gradients of the weights are summed up under locks."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]
PAD_ZERO = ct.PaddingMode.ZERO


@ct.kernel
def forward(X, W, B, Y, Mean, Rstd, eps, TILE_N: ConstInt):
    row = ct.bid(0)
    N = X.shape[1]
    tiles = ct.num_tiles(X, axis=1, shape=(1, TILE_N))
    total = ct.full((1, TILE_N), 0, dtype=ct.float32)
    for j in range(tiles):
        total += ct.load(X, index=(row, j), shape=(1, TILE_N), padding_mode=PAD_ZERO)
    mean = ct.sum(total, axis=1) / N
    ct.store(Mean, index=(row,), tile=mean)
    squares = ct.full((1, TILE_N), 0, dtype=ct.float32)
    for j in range(tiles):
        x = ct.load(X, index=(row, j), shape=(1, TILE_N), padding_mode=PAD_ZERO)
        d = ct.where(j * TILE_N + ct.arange(TILE_N, dtype=ct.int32) < N, x - mean, 0)
        squares += d * d
    rstd = 1 / ct.sqrt(ct.sum(squares, axis=1) / N + eps)
    ct.store(Rstd, index=(row,), tile=rstd)
    for j in range(tiles):
        x = ct.load(X, index=(row, j), shape=(1, TILE_N), padding_mode=PAD_ZERO)
        w = ct.load(W, index=(j,), shape=(TILE_N,), padding_mode=PAD_ZERO)
        b = ct.load(B, index=(j,), shape=(TILE_N,), padding_mode=PAD_ZERO)
        ct.store(Y, index=(row, j), tile=((x - mean) * rstd * w + b).astype(Y.dtype))


@ct.kernel
def backward(DX, DY, DW, DB, X, W, Mean, Rstd, Locks, TILE_N: ConstInt):
    row = ct.bid(0)
    N = X.shape[1]
    group = row % DW.shape[0]
    mean = ct.load(Mean, index=(row,), shape=(1,))
    rstd = ct.load(Rstd, index=(row,), shape=(1,))
    x = ct.load(X, index=(row, 0), shape=(1, TILE_N), padding_mode=PAD_ZERO)
    w = ct.load(W, index=(0,), shape=(TILE_N,), padding_mode=PAD_ZERO)
    dy = ct.load(DY, index=(row, 0), shape=(1, TILE_N), padding_mode=PAD_ZERO)
    inside = ct.arange(TILE_N, dtype=ct.int32) < N
    xhat = ct.where(inside, (x - mean) * rstd, 0)
    wdy = ct.where(inside, w * dy, 0)
    c1, c2 = ct.sum(xhat * wdy, axis=1) / N, ct.sum(wdy, axis=1) / N
    ct.store(DX, index=(row, 0), tile=((wdy - (xhat * c1 + c2)) * rstd).astype(DX.dtype))
    dw, db = (dy * xhat).astype(DW.dtype), dy.astype(DB.dtype)
    while ct.atomic_cas(Locks, group, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 1:
        pass
    dw += ct.load(DW, index=(group, 0), shape=(1, TILE_N), padding_mode=PAD_ZERO)
    db += ct.load(DB, index=(group, 0), shape=(1, TILE_N), padding_mode=PAD_ZERO)
    ct.store(DW, index=(group, 0), tile=dw)
    ct.store(DB, index=(group, 0), tile=db)
    ct.atomic_xchg(Locks, group, 0, memory_order=ct.MemoryOrder.RELEASE)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = torch.empty_like(x)
        mean, rstd = (torch.empty(x.shape[0], dtype=torch.float32, device="cuda") for _ in range(2))
        ct.launch(torch.cuda.current_stream(), (x.shape[0],), forward, (x, weight, bias, y, mean, rstd, eps, 64))
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dx = torch.empty_like(x)
        dw, db = (torch.zeros((4, x.shape[1]), dtype=torch.float32, device="cuda") for _ in range(2))
        locks = torch.zeros(4, dtype=torch.int32, device="cuda")
        ct.launch(torch.cuda.current_stream(), (x.shape[0],), backward, (dx, dy.contiguous(), dw, db, x, weight, mean, rstd, locks, 256))
        return dx, dw.sum(0).to(weight.dtype), db.sum(0).to(weight.dtype), None


def main():
    x = (torch.randn(30, 200, device="cuda") - 2.3).requires_grad_()
    weight, bias = (torch.randn(200, device="cuda", requires_grad=True) for _ in range(2))
    dy = torch.randn(30, 200, device="cuda")
    y = LayerNorm.apply(x, weight, bias, 1e-5)
    got = [y, *torch.autograd.grad(y, (x, weight, bias), dy)]
    wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    want = torch.nn.functional.layer_norm(wide[0], (200,), wide[1], wide[2], 1e-5)
    for own, right in zip(got, [want, *torch.autograd.grad(want, wide, dy.double())], strict=True):
        torch.testing.assert_close(own.double(), right, atol=2e-5, rtol=2e-5)


if __name__ == "__main__":
    main()
