"""A Fourier transform of 64 points as two steps of products with the matrices of 8 points."""

import math

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


def times(ar, ai, br, bi):
    return ct.matmul(ar, br) - ct.matmul(ai, bi), ct.matmul(ar, bi) + ct.matmul(ai, br)


@ct.kernel
def fft_kernel(x, y, F, T, N: ConstInt):
    # x is [batch, N, N, 2]: point n1 * N + n2, real and imaginary part. T holds the twiddles, F the transform of N points.
    v = ct.load(x, (ct.bid(0), 0, 0, 0), (1, N, N, 2)).reshape((N, N, 2))
    xr, xi = [ct.extract(v, (0, 0, part), (N, N, 1)).reshape((N, N)) for part in (0, 1)]
    fr, fi = [ct.load(F, (part, 0, 0), (1, N, N)).reshape((N, N)) for part in (0, 1)]
    tr, ti = [ct.load(T, (part, 0, 0), (1, N, N)).reshape((N, N)) for part in (0, 1)]
    xr, xi = times(fr, fi, xr, xi)
    xr, xi = xr * tr - xi * ti, xr * ti + xi * tr
    xr, xi = times(xr, xi, fr, fi)
    # What stands at [k1, k2] is point k2 * N + k1.
    out = ct.cat((xr.transpose()[:, :, None], xi.transpose()[:, :, None]), 2)
    ct.store(y, (ct.bid(0), 0, 0, 0), out.reshape((1, N, N, 2)))


def parts(angles):
    return torch.stack([angles.cos(), angles.sin()]).to(device="cuda", dtype=torch.float32)


def main():
    n = 8
    k = torch.arange(n, dtype=torch.float64)
    F = parts(-2 * math.pi / n * k[:, None] * k[None, :])
    T = parts(-2 * math.pi / (n * n) * k[:, None] * k[None, :])
    x = torch.randn(5, n * n, dtype=torch.complex64, device="cuda")
    y = torch.zeros(5, n, n, 2, device="cuda")
    ct.launch(torch.cuda.current_stream(), (5,), fft_kernel, (torch.view_as_real(x).reshape(5, n, n, 2), y, F, T, n))
    got = torch.view_as_complex(y).reshape(5, n * n)
    torch.testing.assert_close(got.to(torch.complex128), torch.fft.fft(x.to(torch.complex128)), atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    main()
