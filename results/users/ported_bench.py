"""Times kernels of ported.py beside PyTorch's eager and compiled ones, which take turns with them over a cold cache: python3 ported_bench.py [NAME...].

`DEV=cpu` only checks them, small. `WARPS=1,2,4x8` times them with so many warps, and blocks a multiprocessor, instead of beside peers; `WARPS=num_ctas=2+sharing=1`
with these hints.
"""
from timing import *

for cols in (128, 320, 512, 1000, 2048, 4096, 4097, 8192, 12345) if CUDA else (100, 257):
    m = (32 << 20) // cols if CUDA else 3
    x, y = R(m, cols), E(m, cols)
    case(f"softmax row {m}x{cols}", launch((m,), K.softmax, (x, y, pow2(cols))), lambda: y, lambda: F.softmax(x.float(), -1), {"torch": lambda: F.softmax(x, -1), "compiled": lambda: F.softmax(x, -1)}, x.nbytes * 2)
for cols in (256, 768, 1536, 2048, 4096, 5120, 8191) if CUDA else (100,):
    m = (32 << 20) // cols if CUDA else 3
    x, y, w, b = R(m, cols), E(m, cols), R(cols), R(cols)
    ref = lambda: F.layer_norm(x.float(), (cols,), w.float(), b.float())
    peers = {"torch": lambda: F.layer_norm(x, (cols,), w, b), "compiled": lambda: F.layer_norm(x, (cols,), w, b)}
    case(f"layer norm row {m}x{cols}", launch((m,), K.layer_norm, (x, w, b, y, cols, 1e-5, pow2(cols))), lambda: y, ref, peers, x.nbytes * 2)
    case(f"layer norm loop 1024 {m}x{cols}", launch((m,), K.layer_norm_loop, (x, w, b, y, cols, 1e-5, 1024)), lambda: y, ref, {}, x.nbytes * 2)
for cols, r in ((256, 16), (1000, 4), (2880, 2)) if CUDA else ((100, 4),):
    m = (32 << 20) // cols if CUDA else 8
    x, y, w = R(m, cols), E(m, cols), R(cols)
    f = lambda x: F.rms_norm(x, (cols,), w.to(x.dtype), 1e-6)
    case(f"rms norm {r} rows {m}x{cols}", launch((-(-m // r),), K.rms_several, (x, w, y, cols, 1e-6, r, pow2(cols))), lambda: y, lambda: f(x.float()), {"torch": lambda: f(x), "compiled": lambda: f(x)}, x.nbytes * 2)
for (M, N, Kk), t, dt in [((4096, 4096, 4096), (128, 256, 64), bf), ((3000, 5000, 2000), (128, 128, 64), bf), ((3000, 5001, 2002), (128, 128, 64), torch.float16), ((1024, 1024, 4096), (64, 64, 64), bf), ((640, 5120, 2880), (64, 128, 64), bf), ((4096, 4096, 4096), (128, 128, 32), torch.float32)] if CUDA else [((100, 70, 90), (32, 32, 32), bf)]:
    A, B, O = R(M, Kk, dtype=dt), R(Kk, N, dtype=dt), E(M, N, dtype=dt)
    torch.backends.cuda.matmul.allow_tf32 = False
    case(f"matmul {dt} {M}x{N}x{Kk} {t}", launch((-(-M // t[0]), -(-N // t[1])), K.matmul, (A, B, O, *t)), lambda: O, lambda: A.double() @ B.double(), {"torch": lambda: A @ B}, 0, 2 * M * N * Kk)
for (M, N, Kk), t in [((4096, 4096, 4096), (128, 128, 64)), ((2048, 7168, 2048), (128, 64, 64))] if CUDA else [((100, 70, 90), (32, 32, 32))]:
    A, B, G, O = R(M, Kk), R(Kk, N), R(Kk, N), E(M, N)
    B, G = B * 0.02, G * 0.02
    f = lambda A: (A @ B.to(A.dtype)) * F.silu(A @ G.to(A.dtype))
    case(f"gated {M}x{N}x{Kk} {t}", launch((-(-M // t[0]), -(-N // t[1])), K.matmul_silu_gate, (A, B, G, O, *t)), lambda: O, lambda: f(A.double()), {"torch": lambda: f(A)}, 0, 4 * M * N * Kk)
for (Z, M, N, Kk), t in [((64, 512, 512, 128), (128, 128, 64)), ((96, 300, 200, 300), (64, 64, 32))] if CUDA else [((3, 50, 40, 30), (32, 32, 16))]:
    A, B, O = R(Z, M, Kk), R(Z, Kk, N), E(Z, M, N)
    case(f"bmm {Z}x{M}x{N}x{Kk} {t}", launch((-(-M // t[0]), -(-N // t[1]), Z), K.bmm, (A, B, O, *t)), lambda: O, lambda: A.double() @ B.double(), {"torch": lambda: A @ B}, 0, 2 * Z * M * N * Kk)
for (b, h, g, n, d), (tm, tn), causal in [((4, 16, 1, 4096, 128), (128, 128), False), ((4, 16, 1, 4096, 128), (128, 128), True), ((4, 32, 4, 2048, 64), (128, 128), True), ((4, 16, 1, 3001, 128), (128, 64), True), ((8, 16, 2, 1000, 64), (64, 64), False)] if CUDA else [((1, 2, 2, 100, 32), (32, 32), True), ((1, 2, 1, 70, 32), (32, 32), False)]:
    q, k, v, o = R(b, h, n, d), R(b, h // g, n, d), R(b, h // g, n, d), E(b, h, n, d)
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=g > 1)
    case(f"attention {b}x{h}/{g}x{n}x{d} {'causal' if causal else 'full'} {tm}x{tn}", launch((-(-n // tm), b * h), K.attention, (q, k, v, o, d ** -0.5, h, g, tm, tn, d, causal)), lambda: o, lambda: torch.cat([f(q[i:i+1].float(), k[i:i+1].float(), v[i:i+1].float()) for i in range(b)]), {"torch": lambda: f(q, k, v)}, 0, 4 * b * h * n * n * d // (2 if causal else 1))
for m, n, t in [(4096, 11008, 1024), (3001, 14337, 2048)] if CUDA else [(5, 100, 64)]:
    a, b, y = R(m, n), R(m, n), E(m, n)
    f = lambda a, b: F.silu(a) * b
    case(f"swiglu {m}x{n} by {t}", launch((m, -(-n // t)), K.swiglu, (a, b, y, t)), lambda: y, lambda: f(a.float(), b.float()), {"compiled": lambda: f(a, b)}, 3 * a.nbytes)
for m, n, t in [(4096, 50257, 4096), (2048, 128256, 8192), (8192, 4096, 4096)] if CUDA else [(4, 100, 64)]:
    x, lab, y = R(m, n), torch.randint(0, n, (m,), device=DEV), E(m, dtype=torch.float32)
    f = lambda x: F.cross_entropy(x, lab, reduction="none")
    case(f"cross entropy {m}x{n} by {t}", launch((m,), K.cross_entropy, (x, lab, y, n, t)), lambda: y, lambda: f(x.float()), {"compiled": lambda: f(x)}, x.nbytes)
for m, n, tm, tn in [(16384, 4096, 64, 64), (8192, 5000, 32, 128)] if CUDA else [(50, 70, 16, 32)]:
    x, y = R(m, n), E(n, dtype=torch.float32)
    case(f"column sum {m}x{n} {tm}x{tn}", launch((-(-n // tn),), K.column_sum, (x, y, m, tm, tn)), lambda: y, lambda: x.double().sum(0), {"torch": lambda: x.sum(0, dtype=torch.float32), "compiled": lambda: x.float().sum(0)}, x.nbytes)
for m, n, tm, tn, dt in [(8192, 8192, 64, 64, bf), (8192, 8192, 128, 128, torch.uint8), (8192, 8192, 32, 32, torch.float32), (5001, 3003, 64, 64, bf)] if CUDA else [(50, 70, 16, 32, bf)]:
    x = R(m, n, dtype=dt) if dt.is_floating_point else torch.randint(0, 255, (m, n), device=DEV, dtype=dt)
    y = torch.zeros(n, m, device=DEV, dtype=dt)
    case(f"transpose {dt} {m}x{n} {tm}x{tn}", launch((-(-m // tm), -(-n // tn)), K.transpose, (x, y, tm, tn)), lambda: y, lambda: x.T.double(), {"torch": lambda: x.T.contiguous()}, 2 * x.nbytes)
for t, h, d in [(8192, 32, 128), (8192, 40, 64)] if CUDA else [(5, 4, 16)]:
    x, y, c, s = R(t, h, d), E(t, h, d), R(t, d // 2, dtype=torch.float32), R(t, d // 2, dtype=torch.float32)
    def f(x):
        a, b = x.float().chunk(2, -1); cc, ss = c[:, None], s[:, None]
        return torch.cat((a * cc - b * ss, b * cc + a * ss), -1).to(x.dtype)
    case(f"rope {t}x{h}x{d}", launch((t, h // 8 if h % 8 == 0 else 1), K.rope, (x, c, s, y, 8 if h % 8 == 0 else h, d)), lambda: y, lambda: f(x.float()), {"compiled": lambda: f(x)}, 2 * x.nbytes + c.nbytes * 2)
for v, m, n, t in [(32000, 16384, 4096, 1024), (50257, 16384, 768, 1024)] if CUDA else [(50, 9, 64, 32)]:
    tab, ids, y = R(v, n), torch.randint(0, v, (m,), device=DEV), E(m, n)
    case(f"embedding {v}x{n} {m}", launch((m, -(-n // t)), K.embed, (tab, ids, y, t)), lambda: y, lambda: tab[ids].double(), {"torch": lambda: F.embedding(ids, tab)}, 2 * y.nbytes)
for b, l, c, tl, tc in [(8, 4096, 2048, 32, 64), (8, 4001, 1536, 16, 128)] if CUDA else [(2, 20, 32, 8, 16)]:
    x, w, y = R(b, l, c), R(4, c), E(b, l, c)
    f = lambda x: F.silu(F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), w.to(x.dtype).T[:, None].contiguous(), groups=c)).transpose(1, 2)
    case(f"causal conv {b}x{l}x{c} {tl}x{tc}", launch((b, -(-l // tl), -(-c // tc)), K.conv1d, (x, w, y, tl, tc, 4)), lambda: y, lambda: f(x.float()), {"torch": lambda: f(x)}, 2 * x.nbytes)
for m, n in [(16384, 2048), (8192, 4001)] if CUDA else [(3, 100)]:
    x, y = R(m, n), E(m, n, dtype=torch.float32)
    case(f"cumsum {m}x{n}", launch((m,), K.cumsum, (x, y, pow2(n))), lambda: y, lambda: x.double().cumsum(-1), {"torch": lambda: torch.cumsum(x, -1, dtype=torch.float32), "compiled": lambda: torch.cumsum(x.float(), -1)}, x.nbytes + y.nbytes)
for m, n, tm, tn in [(8192, 8192, 8, 256), (8191, 8191, 16, 128)] if CUDA else [(20, 30, 4, 16)]:
    x, y = R(m, n, dtype=torch.float32), E(m, n, dtype=torch.float32)
    def f(x):
        p = F.pad(x, (1, 1, 1, 1)); return 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    case(f"stencil {m}x{n} {tm}x{tn}", launch((-(-m // tm), -(-n // tn)), K.stencil, (x, y, tm, tn)), lambda: y, lambda: f(x.double()), {"compiled": lambda: f(x)}, 2 * x.nbytes)
for b, h, g, n, d, tn in [(64, 8, 16, 4096, 128, 128), (128, 4, 8, 2000, 64, 64)] if CUDA else [(2, 2, 8, 50, 32, 32)]:
    q, k, v, o = R(b, h, g, d), R(b, h, n, d), R(b, h, n, d), E(b, h, g, d)
    if n % tn: n0 = n // tn * tn; k, v = k[:, :, :n0].contiguous(), v[:, :, :n0].contiguous()
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)
    case(f"decode {b}x{h}x{g} keys {k.shape[2]}x{d} by {tn}", launch((b, h), K.decode, (q, k, v, o, d ** -0.5, g, tn, d)), lambda: o, lambda: f(q.float(), k.float(), v.float()), {"torch": lambda: f(q, k, v)}, k.nbytes * 2)
for b, n, d, t in [(512, 2048, 64, 64), (256, 4096, 128, 64)] if CUDA else [(2, 64, 32, 32)]:
    q, k, v, o = R(b, n, d) * d ** -0.5, R(b, n, d) * d ** -0.5, R(b, n, d), E(b, n, d)
    def f(q, k, v):
        low = torch.ones(n, n, device=DEV, dtype=torch.bool).tril()
        return torch.cat([((q[i] @ k[i].T) * low @ v[i])[None] for i in range(q.shape[0])])
    case(f"linear attention {b}x{n}x{d} by {t}", launch((b,), K.linear_attention, (q, k, v, o, t, d)), lambda: o[:8], lambda: f(q[:8].float(), k[:8].float(), v[:8].float()), {}, 4 * q.nbytes)
for m, n in [(32768, 1024), (8192, 5000)] if CUDA else [(3, 100)]:
    x, y = R(m, n), torch.zeros(m, device=DEV, dtype=torch.int32)
    case(f"argmax {m}x{n}", launch((m,), K.argmax, (x, y, pow2(n))), lambda: y, lambda: x.float().argmax(-1), {"torch": lambda: x.argmax(-1), "compiled": lambda: x.argmax(-1)}, x.nbytes)
for (M, N, Kk), t in [((2048, 4096, 4096), (128, 128, 64)), ((16, 8192, 8192), (16, 128, 128))] if CUDA else [((20, 40, 60), (16, 32, 32))]:
    A, W, s, O = R(M, Kk), torch.randint(-127, 127, (N, Kk), device=DEV, dtype=torch.int8), R(N), E(M, N)
    f = lambda A: (A @ W.to(A.dtype).T) * s.to(A.dtype)
    case(f"int8 weights {M}x{N}x{Kk} {t}", launch((-(-M // t[0]), -(-N // t[1])), K.dequant, (A, W, s, O, *t)), lambda: O, lambda: f(A.double()), {"torch": lambda: f(A)}, 0, 2 * M * N * Kk)
for m, n in [(8192, 8192), (16384, 2880)] if CUDA else [(3, 100)]:
    x, q, s = R(m, n), torch.zeros(m, n, device=DEV, dtype=torch.float8_e4m3fn), E(m, dtype=torch.float32)
    def f(x):
        k = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448.0
        return (x.float() / k).to(torch.float8_e4m3fn), k
    case(f"fp8 quantise rows {m}x{n}", launch((m,), K.quant_rows, (x, q, s, pow2(n))), lambda: q.float(), lambda: f(x)[0].float(), {"compiled": lambda: f(x)}, x.nbytes + q.nbytes)
for n, t in [(1 << 26, 1024), (50_000_001, 2048)] if CUDA else [(1000, 128)]:
    p, g, m_, v_ = R(n, dtype=torch.float32), R(n), R(n, dtype=torch.float32), R(n, dtype=torch.float32).abs()
    p0, m0, v0 = p.clone(), m_.clone(), v_.clone()
    def f():
        mm = 0.9 * m0 + 0.1 * g.float(); vv = 0.999 * v0 + 0.001 * g.float() ** 2
        return p0 * (1 - 1e-3 * 0.1) - 1e-3 * (mm / 0.1) / ((vv / 0.001).sqrt() + 1e-8)
    k = launch((-(-n // t),), K.adamw, (p, g, m_, v_, 1e-3, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001, t))
    def fc():
        mm = 0.9 * m0 + 0.1 * g.float(); vv = 0.999 * v0 + 0.001 * g.float() ** 2
        m0.copy_(mm); v0.copy_(vv); p0.mul_(1 - 1e-3 * 0.1).sub_(1e-3 * (mm / 0.1) / ((vv / 0.001).sqrt() + 1e-8))
    saved = {}
    def once(k=k):
        k()
        if "p" not in saved: saved["p"] = p.clone()
    once.parts = k.parts
    case(f"adamw {n}", once, lambda: saved["p"], f, {"compiled": fc}, 26 * n)
for b, g, cg, s in [(8, 32, 10, 4096), (16, 32, 16, 4096), (32, 32, 2, 3136)] if CUDA else [(2, 4, 3, 50)]:
    x, y, w, bb = R(b, g, cg, s), E(b, g, cg, s), R(g, cg, dtype=torch.float32), R(g, cg, dtype=torch.float32)
    f = lambda x: F.group_norm(x.reshape(b, g * cg, s), g, w.reshape(-1).to(x.dtype), bb.reshape(-1).to(x.dtype)).reshape(x.shape)
    case(f"group norm {b}x{g}x{cg}x{s}", launch((b, g), K.group_norm, (x, w, bb, y, cg * s, 1e-5, pow2(cg), pow2(s), g)), lambda: y, lambda: f(x.float()), {"torch": lambda: f(x), "compiled": lambda: f(x)}, 2 * x.nbytes)
for b, h, c, tc in [(32, 112, 64, 64), (64, 56, 256, 128)] if CUDA else [(2, 8, 32, 16)]:
    x, y = R(b, h, h, c), E(b, h // 2, h // 2, c)
    f = lambda x: x.reshape(b, h // 2, 2, h // 2, 2, c).amax((2, 4))
    case(f"max pool {b}x{h}x{c}", launch((b, h // 2, h // 2 * (c // tc)) if c == tc else (b, h // 2, h // 2), K.maxpool, (x, y, c if c != tc else tc)), lambda: y, lambda: f(x.float()), {"torch": lambda: F.max_pool2d(x.permute(0, 3, 1, 2), 2)}, x.nbytes * 5 // 4)
