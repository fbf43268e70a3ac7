"""Times kernels of ported.py on arrays whose lines are no whole vectors, beside PyTorch's: python3 odd_bench.py [NAME...], as ported_bench.py does."""

from timing import *

for dt, sizes in ((bf, (131, 301, 389, 451, 509, 601, 1001, 2047, 4097, 8191, 12345)), (torch.float32, (301, 509, 1001, 4097)), (torch.float16, (50257,))):
  for cols in sizes:
    m = (32 << 20) // cols
    x, y = R(m, cols, dtype=dt), E(m, cols, dtype=dt)
    case(f"softmax {dt} {m}x{cols}", launch((m,), K.softmax, (x, y, pow2(cols))), lambda: y, lambda: F.softmax(x.float(), -1), {"compiled": lambda: F.softmax(x, -1)}, x.nbytes * 2)
for dt, sizes in ((bf, (131, 301, 389, 451, 509, 601, 1001, 2047, 4097, 8191)), (torch.float32, (301, 1001, 4097))):
  for cols in sizes:
    m = (32 << 20) // cols
    x, y, w, b = R(m, cols, dtype=dt), E(m, cols, dtype=dt), R(cols, dtype=dt), R(cols, dtype=dt)
    ref = lambda: F.layer_norm(x.float(), (cols,), w.float(), b.float())
    peers = {"compiled": lambda: F.layer_norm(x, (cols,), w, b)}
    case(f"layer norm {dt} {m}x{cols}", launch((m,), K.layer_norm, (x, w, b, y, cols, 1e-5, pow2(cols))), lambda: y, ref, peers, x.nbytes * 2)
    case(f"layer norm loop {dt} {m}x{cols}", launch((m,), K.layer_norm_loop, (x, w, b, y, cols, 1e-5, 1024)), lambda: y, ref, {}, x.nbytes * 2)
for cols, r in ((257, 16), (1001, 4), (2881, 2)):
    m = (32 << 20) // cols
    x, y, w = R(m, cols), E(m, cols), R(cols)
    f = lambda x: F.rms_norm(x, (cols,), w.to(x.dtype), 1e-6)
    case(f"rms norm {r} rows {m}x{cols}", launch((-(-m // r),), K.rms_several, (x, w, y, cols, 1e-6, r, pow2(cols))), lambda: y, lambda: f(x.float()), {"compiled": lambda: f(x)}, x.nbytes * 2)
for m, n, t in [(3001, 14337, 2048), (30001, 1431, 512)]:
    a, b, y = R(m, n), R(m, n), E(m, n)
    f = lambda a, b: F.silu(a) * b
    case(f"swiglu {m}x{n} by {t}", launch((m, -(-n // t)), K.swiglu, (a, b, y, t)), lambda: y, lambda: f(a.float(), b.float()), {"compiled": lambda: f(a, b)}, 3 * a.nbytes)
for m, n, t in [(4096, 50257, 4096), (8192, 4097, 4096)]:
    x, lab, y = R(m, n), torch.randint(0, n, (m,), device=DEV), E(m, dtype=torch.float32)
    f = lambda x: F.cross_entropy(x, lab, reduction="none")
    case(f"cross entropy {m}x{n} by {t}", launch((m,), K.cross_entropy, (x, lab, y, n, t)), lambda: y, lambda: f(x.float()), {"compiled": lambda: f(x)}, x.nbytes)
for m, n, tm, tn in [(16384, 4099, 64, 64), (8192, 5001, 32, 128)]:
    x, y = R(m, n), E(n, dtype=torch.float32)
    case(f"column sum {m}x{n} {tm}x{tn}", launch((-(-n // tn),), K.column_sum, (x, y, m, tm, tn)), lambda: y, lambda: x.double().sum(0), {"torch": lambda: x.sum(0, dtype=torch.float32), "compiled": lambda: x.float().sum(0)}, x.nbytes)
for m, n, tm, tn, dt in [(5001, 3003, 64, 64, bf), (8191, 8193, 64, 64, bf)]:
    x = R(m, n, dtype=dt)
    y = torch.zeros(n, m, device=DEV, dtype=dt)
    case(f"transpose {dt} {m}x{n} {tm}x{tn}", launch((-(-m // tm), -(-n // tn)), K.transpose, (x, y, tm, tn)), lambda: y, lambda: x.T.double(), {"torch": lambda: x.T.contiguous()}, 2 * x.nbytes)
for m, n in [(8192, 4001)]:
    x, y = R(m, n), E(m, n, dtype=torch.float32)
    case(f"cumsum {m}x{n}", launch((m,), K.cumsum, (x, y, pow2(n))), lambda: y, lambda: x.double().cumsum(-1), {"compiled": lambda: torch.cumsum(x.float(), -1)}, 6 * m * n)
for m, n, tm, tn in [(8191, 8191, 16, 128), (8192, 8192, 8, 256)]:
    x, y = R(m, n, dtype=torch.float32), E(m, n, dtype=torch.float32)
    def f(x):
        p = F.pad(x, (1, 1, 1, 1)); return 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    case(f"stencil {m}x{n} {tm}x{tn}", launch((-(-m // tm), -(-n // tn)), K.stencil, (x, y, tm, tn)), lambda: y, lambda: f(x.double()), {"compiled": lambda: f(x)}, 2 * x.nbytes)
for m, n in [(8192, 5001)]:
    x, y = R(m, n), torch.zeros(m, device=DEV, dtype=torch.int32)
    case(f"argmax {m}x{n}", launch((m,), K.argmax, (x, y, pow2(n))), lambda: y, lambda: x.float().argmax(-1), {"compiled": lambda: x.argmax(-1)}, x.nbytes)
for m, n in [(16384, 2881)]:
    x, q, s = R(m, n), torch.zeros(m, n, device=DEV, dtype=torch.float8_e4m3fn), E(m, dtype=torch.float32)
    def f(x):
        k = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448.0
        return (x.float() / k).to(torch.float8_e4m3fn), k
    case(f"fp8 quantise rows {m}x{n}", launch((m,), K.quant_rows, (x, q, s, pow2(n))), lambda: q.float(), lambda: f(x)[0].float(), {"compiled": lambda: f(x)}, x.nbytes + q.nbytes)
for (M, N, Kk), t, dt in [((3000, 5001, 2002), (128, 128, 64), torch.float16), ((2049, 2049, 2049), (128, 128, 64), bf)]:
    A, B, O = R(M, Kk, dtype=dt), R(Kk, N, dtype=dt), E(M, N, dtype=dt)
    case(f"matmul {dt} {M}x{N}x{Kk} {t}", launch((-(-M // t[0]), -(-N // t[1])), K.matmul, (A, B, O, *t)), lambda: O, lambda: A.double() @ B.double(), {"torch": lambda: A @ B}, 0, 2 * M * N * Kk)
    A, B, O = R(M, 2048, dtype=dt), R(2048, 4096, dtype=dt)[:, :N], E(M, N, dtype=dt)
    B = R(N, 2048, dtype=dt).T
    case(f"matmul odd result only {dt} {M}x{N}x2048 {t}", launch((-(-M // t[0]), -(-N // t[1])), K.matmul, (A, B, O, *t)), lambda: O, lambda: A.double() @ B.double(), {"torch": lambda: A @ B}, 0, 2 * M * N * 2048)
