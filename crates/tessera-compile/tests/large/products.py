"""Matrix products with large tiles, and with much around them."""
import math

import cuda.tile as ct

Z = ct.PaddingMode.ZERO


# args: A: bf16[257, 72], B: bf16[72, 264], C: bf16[257, 264], TM = 256, TN = 256, TK = 64; grid: 2, 2; near: 2e-2
# args: A: bf16[130, 72], B: bf16[72, 520], C: f32[130, 520], TM = 128, TN = 512, TK = 32; grid: 2, 2; near: 2e-2
# args: A: f16[260, 72], B: f16[72, 520], C: f32[260, 520], TM = 256, TN = 512, TK = 32; grid: 2, 2; near: 2e-2
# args: A: bf16[70, 72], B: bf16[72, 520], C: f32[70, 520], TM = 64, TN = 512, TK = 64; grid: 2, 2; near: 2e-2
# args: A: f16[520, 72], B: f16[72, 72], C: f32[520, 72], TM = 512, TN = 64, TK = 64; grid: 2, 2; near: 2e-2
# args: A: f32[257, 40], B: f32[40, 264], C: f32[257, 264], TM = 256, TN = 256, TK = 16; grid: 2, 2; near: 1e-3
# args: A: f32[130, 40], B: f32[40, 264], C: f32[130, 264], TM = 128, TN = 256, TK = 32; grid: 2, 2; near: 1e-3
# args: A: f32[70, 40], B: f32[40, 520], C: f32[70, 520], TM = 64, TN = 512, TK = 16; grid: 2, 2; near: 1e-3
# args: A: f64[130, 24], B: f64[24, 136], C: f64[130, 136], TM = 128, TN = 128, TK = 16; grid: 2, 2; near: 1e-9
# args: A: f64[260, 24], B: f64[24, 264], C: f64[260, 264], TM = 256, TN = 256, TK = 16; grid: 2, 2; near: 1e-9
@ct.kernel
def product(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float64 if A.dtype == ct.float64 else ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=Z)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=Z)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: f8e4m3[257, 160], B: f8e4m3[160, 272], C: f32[257, 272], TM = 256, TN = 256, TK = 128; grid: 2, 2; near: 2e-2
# args: A: f8e5m2[130, 160], B: f8e5m2[160, 528], C: f32[130, 528], TM = 128, TN = 512, TK = 64; grid: 2, 2; near: 2e-2
# args: A: f8e4m3[70, 160], B: f8e4m3[160, 264], C: f32[70, 264], TM = 64, TN = 256, TK = 64; grid: 2, 2; near: 2e-2
@ct.kernel
def product_8(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=Z)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=Z)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc)


# args: A: i8[257, 160], B: i8[160, 272], C: i32[257, 272], TM = 256, TN = 256, TK = 128; grid: 2, 2
# args: A: i8[130, 160], B: i8[160, 528], C: i32[130, 528], TM = 128, TN = 512, TK = 64; grid: 2, 2
@ct.kernel
def product_i8(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.int32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=Z)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=Z)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc)


# args: A: f32[257, 40], B: f32[40, 264], C: f32[257, 264], TM = 256, TN = 256, TK = 32; grid: 2, 2; near: 2e-2
# args: A: f32[130, 40], B: f32[40, 520], C: f32[130, 520], TM = 128, TN = 512, TK = 32; grid: 2, 2; near: 2e-2
@ct.kernel
def product_tf32(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=Z).astype(ct.tfloat32)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=Z).astype(ct.tfloat32)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc)


# args: A: bf16[130, 72], B: bf16[72, 264], bias: f32[264], R: bf16[130, 264], C: bf16[130, 264], TM = 128, TN = 256; grid: 2, 2; near: 3e-2
# args: A: bf16[257, 72], B: bf16[72, 264], bias: f32[264], R: bf16[257, 264], C: bf16[257, 264], TM = 256, TN = 256; grid: 2, 2; near: 3e-2
# args: A: f16[130, 72], B: f16[72, 520], bias: f32[520], R: f16[130, 520], C: f16[130, 520], TM = 128, TN = 512; grid: 2, 2; near: 3e-2
@ct.kernel
def gelu_of_biased_with_residual(A, B, bias, R, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (i, k), (TM, 64), padding_mode=Z)
        b = ct.load(B, (k, j), (64, TN), padding_mode=Z)
        acc = ct.mma(a, b, acc)
    x = acc + ct.load(bias, (j,), (TN,), padding_mode=Z)[None, :]
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    y = 0.5 * x * (1 + ct.tanh(inner))
    ct.store(C, (i, j), (y + ct.load(R, (i, j), (TM, TN), padding_mode=Z).astype(ct.float32)).astype(C.dtype))


# args: A: bf16[130, 72], B: bf16[72, 256], C: f32[130, 256], TM = 128, TN = 256; grid: 2; near: 3e-2
# args: A: bf16[130, 72], B: bf16[72, 512], C: f32[130, 512], TM = 128, TN = 512; grid: 2; near: 3e-2
# args: A: f16[260, 72], B: f16[72, 256], C: f32[260, 256], TM = 256, TN = 256; grid: 2; near: 3e-2
# args: A: f16[70, 72], B: f16[72, 512], C: f32[70, 512], TM = 64, TN = 512; grid: 2; near: 3e-2
@ct.kernel
def softmax_of_product(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    i = ct.bid(0)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        a = ct.load(A, (i, k), (TM, 32), padding_mode=Z)
        acc = ct.mma(a, ct.load(B, (k, 0), (32, TN), padding_mode=Z), acc)
    e = ct.exp((acc - ct.max(acc, axis=1, keepdims=True)) * 0.01)
    ct.store(C, (i, 0), e / ct.sum(e, axis=1, keepdims=True))


# args: A: bf16[130, 72], B: bf16[72, 256], w: f32[256], C: bf16[130, 256], S: f32[256], TM = 128, TN = 256; grid: 2; near: 3e-2
# args: A: bf16[130, 72], B: bf16[72, 512], w: f32[512], C: bf16[130, 512], S: f32[512], TM = 128, TN = 512; grid: 2; near: 3e-2
# args: A: bf16[260, 72], B: bf16[72, 256], w: f32[256], C: bf16[260, 256], S: f32[256], TM = 256, TN = 256; grid: 2; near: 3e-2
@ct.kernel
def layer_norm_of_product(A, B, w, C, S, TM: ct.Constant[int], TN: ct.Constant[int]):
    i = ct.bid(0)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        a = ct.load(A, (i, k), (TM, 32), padding_mode=Z)
        acc = ct.mma(a, ct.load(B, (k, 0), (32, TN), padding_mode=Z), acc)
    mean = ct.sum(acc, axis=1, keepdims=True) / TN
    d = acc - mean
    var = ct.sum(d * d, axis=1, keepdims=True) / TN
    y = d * ct.rsqrt(var + 1e-5) * ct.load(w, (0,), (TN,))[None, :]
    ct.store(C, (i, 0), y.astype(C.dtype))
    if i == 0:
        ct.store(S, (0,), ct.sum(y, axis=0))


# args: X: bf16[130, 72], G: bf16[72, 136], U: bf16[72, 136], Y: bf16[130, 136], TM = 128, TN = 128; grid: 2, 2; near: 3e-2
# args: X: bf16[130, 72], G: bf16[72, 264], U: bf16[72, 264], Y: bf16[130, 264], TM = 128, TN = 256; grid: 2, 2; near: 3e-2
# args: X: f16[260, 72], G: f16[72, 264], U: f16[72, 264], Y: f16[260, 264], TM = 256, TN = 256; grid: 2, 2; near: 3e-2
# args: X: f32[130, 40], G: f32[40, 136], U: f32[40, 136], Y: f32[130, 136], TM = 128, TN = 128; grid: 2, 2; near: 3e-2
@ct.kernel
def swiglu(X, G, U, Y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    g, u = ct.zeros((TM, TN), ct.float32), ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(X.shape[1], 32)):
        x = ct.load(X, (i, k), (TM, 32), padding_mode=Z)
        g = ct.mma(x, ct.load(G, (k, j), (32, TN), padding_mode=Z), g)
        u = ct.mma(x, ct.load(U, (k, j), (32, TN), padding_mode=Z), u)
    ct.store(Y, (i, j), (g / (1 + ct.exp(-g * 0.01)) * u).astype(Y.dtype))


# args: X: bf16[130, 72], Q: bf16[72, 136], K: bf16[72, 136], V: bf16[72, 136], A: bf16[130, 136], B: bf16[130, 136], C: bf16[130, 136], TM = 128, TN = 128; grid: 2, 2; near: 3e-2
# args: X: bf16[130, 72], Q: bf16[72, 264], K: bf16[72, 264], V: bf16[72, 264], A: bf16[130, 264], B: bf16[130, 264], C: bf16[130, 264], TM = 128, TN = 256; grid: 2, 2; near: 3e-2
# args: X: f16[70, 72], Q: f16[72, 136], K: f16[72, 136], V: f16[72, 136], A: f16[70, 136], B: f16[70, 136], C: f16[70, 136], TM = 64, TN = 128; grid: 2, 2; near: 3e-2
@ct.kernel
def three_projections(X, Q, K, V, A, B, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    zero = ct.zeros((TM, TN), ct.float32)
    a, b, c = zero, zero, zero
    for k in range(ct.cdiv(X.shape[1], 32)):
        x = ct.load(X, (i, k), (TM, 32), padding_mode=Z)
        a = ct.mma(x, ct.load(Q, (k, j), (32, TN), padding_mode=Z), a)
        b = ct.mma(x, ct.load(K, (k, j), (32, TN), padding_mode=Z), b)
        c = ct.mma(x, ct.load(V, (k, j), (32, TN), padding_mode=Z), c)
    ct.store(A, (i, j), a.astype(A.dtype))
    ct.store(B, (i, j), b.astype(B.dtype))
    ct.store(C, (i, j), c.astype(C.dtype))


# args: A: bf16[130, 72], B: i8[72, 264], s: f32[264], C: bf16[130, 264], TM = 128, TN = 256, TK = 64; grid: 2, 2; near: 3e-2
# args: A: bf16[260, 72], B: i8[72, 264], s: f32[264], C: bf16[260, 264], TM = 256, TN = 256, TK = 32; grid: 2, 2; near: 3e-2
# args: A: f16[130, 72], B: i8[72, 520], s: f32[520], C: f16[130, 520], TM = 128, TN = 512, TK = 64; grid: 2, 2; near: 3e-2
@ct.kernel
def product_of_dequantised(A, B, s, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    scale = ct.load(s, (j,), (TN,), padding_mode=Z)[None, :] * 0.001
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=Z)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=Z)
        acc = ct.mma(a, (b.astype(ct.float32) * scale).astype(A.dtype), acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: bf16[130, 72], w: f32[130], B: bf16[72, 264], C: bf16[130, 264], TM = 128, TN = 256, TK = 64; grid: 2, 2; near: 3e-2
# args: A: bf16[260, 72], w: f32[260], B: bf16[72, 264], C: bf16[260, 264], TM = 256, TN = 256, TK = 64; grid: 2, 2; near: 3e-2
# args: A: bf16[130, 72], w: f32[130], B: bf16[72, 520], C: bf16[130, 520], TM = 128, TN = 512, TK = 128; grid: 2, 2; near: 3e-2
@ct.kernel
def product_of_computed(A, w, B, C, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    scale = ct.load(w, (i,), (TM,), padding_mode=Z)[:, None] * 0.01
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], TK)):
        a = ct.load(A, (i, k), (TM, TK), padding_mode=Z).astype(ct.float32) * scale
        b = ct.load(B, (k, j), (TK, TN), padding_mode=Z).astype(ct.float32)
        a = a / (1 + ct.exp(-a))
        acc = ct.mma(a.astype(A.dtype), ct.maximum(b, 0).astype(B.dtype), acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: bf16[257, 72], B: bf16[72, 264], C: f32[264, 257], TM = 256, TN = 256; grid: 2, 2; near: 2e-2
# args: A: bf16[130, 72], B: bf16[72, 520], C: f32[520, 130], TM = 128, TN = 512; grid: 2, 2; near: 2e-2
@ct.kernel
def product_stored_transposed(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        a = ct.load(A, (i, k), (TM, 32), padding_mode=Z)
        acc = ct.mma(a, ct.load(B, (k, j), (32, TN), padding_mode=Z), acc)
    ct.store(C, (j, i), ct.transpose(acc))


# args: A: bf16[257, 72], B: bf16[72, 264], C: f32[257, 264], TM = 256, TN = 256; grid: 2, 2; near: 2e-2
# args: A: f32[130, 40], B: f32[40, 264], C: f32[130, 264], TM = 128, TN = 256; grid: 2, 2; near: 2e-2
@ct.kernel
def product_on_top(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.load(C, (i, j), (TM, TN), padding_mode=Z)
    old = acc
    for k in range(ct.cdiv(A.shape[1], 32)):
        a = ct.load(A, (i, k), (TM, 32), padding_mode=Z)
        acc = acc + a @ ct.load(B, (k, j), (32, TN), padding_mode=Z)
    ct.store(C, (i, j), acc * old)


# args: A: bf16[256, 64], B: bf16[64, 256], C: f32[256, 256], TM = 256, TN = 256; grid: 1, 1, 2; near: 2e-2
# args: A: bf16[128, 64], B: bf16[64, 512], C: f32[128, 512], TM = 128, TN = 512; grid: 1, 1, 2; near: 2e-2
@ct.kernel
def product_split(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j, s = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(s, ct.cdiv(A.shape[1], 16), 2):
        a = ct.load(A, (i, k), (TM, 16), padding_mode=Z)
        acc = ct.mma(a, ct.load(B, (k, j), (16, TN), padding_mode=Z), acc)
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
    ct.atomic_add(C, (rows, columns), acc)


# args: A: bf16[260, 72], B: bf16[72, 264], D: bf16[264, 136], C: f32[260, 136], TM = 128, TN = 256, TD = 128; grid: 3; near: 5e-2
# args: A: bf16[260, 72], B: bf16[72, 264], D: bf16[264, 256], C: f32[260, 256], TM = 256, TN = 128, TD = 256; grid: 2; near: 5e-2
# args: A: f16[130, 72], B: f16[72, 264], D: f16[264, 512], C: f32[130, 512], TM = 64, TN = 64, TD = 512; grid: 3; near: 5e-2
@ct.kernel
def two_layers(A, B, D, C, TM: ct.Constant[int], TN: ct.Constant[int], TD: ct.Constant[int]):
    i = ct.bid(0)
    out = ct.zeros((TM, TD), ct.float32)
    a = ct.load(A, (i, 0), (TM, 128), padding_mode=Z)
    for n in range(ct.cdiv(B.shape[1], TN)):
        h = ct.mma(a, ct.load(B, (0, n), (128, TN), padding_mode=Z), ct.zeros((TM, TN), ct.float32))
        h = ct.maximum(h, 0) * 0.05
        out = ct.mma(h.astype(A.dtype), ct.load(D, (n, 0), (TN, TD), padding_mode=Z), out)
    ct.store(C, (i, 0), out)


# args: X: bf16[1, 18, 18, 64], W: bf16[576, 256], Y: bf16[256, 256], TM = 256, TN = 256; grid: 1, 1; near: 3e-2
# args: X: f16[1, 18, 18, 64], W: f16[576, 512], Y: f16[256, 512], TM = 128, TN = 512; grid: 2, 1; near: 3e-2
@ct.kernel
def convolution(X, W, Y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    width = X.shape[2] - 2
    place = i * TM + ct.arange(TM, dtype=ct.int32)
    row, column = place // width, place % width
    acc = ct.zeros((TM, TN), ct.float32)
    channels = ct.arange(64, dtype=ct.int32)[None, :]
    for s in range(9):
        x = ct.gather(X, (0, (row + s // 3)[:, None], (column + s % 3)[:, None], channels))
        acc = ct.mma(x, ct.load(W, (s, j), (64, TN), padding_mode=Z), acc)
    ct.store(Y, (i, j), acc.astype(Y.dtype))


# args: A: bf16[300, 72], B: bf16[72, 520], C: bf16[300, 520], TM = 128, TN = 256; grid: 2; near: 2e-2
# args: A: bf16[300, 72], B: bf16[72, 520], C: bf16[300, 520], TM = 256, TN = 256; grid: 2; near: 2e-2
@ct.kernel
def persistent(A, B, C, TM: ct.Constant[int], TN: ct.Constant[int]):
    columns = ct.cdiv(B.shape[1], TN)
    tiles = ct.cdiv(A.shape[0], TM) * columns
    for t in range(ct.bid(0), tiles, ct.num_blocks(0)):
        i, j = t // columns, t % columns
        acc = ct.zeros((TM, TN), ct.float32)
        for k in range(ct.cdiv(A.shape[1], 32)):
            a = ct.load(A, (i, k), (TM, 32), padding_mode=Z)
            acc = ct.mma(a, ct.load(B, (k, j), (32, TN), padding_mode=Z), acc)
        ct.store(C, (i, j), acc.astype(C.dtype))


# args: A: bf16[2, 256, 64], B: bf16[2, 64, 256], C: f32[2, 256, 256], T = 256; grid: 2; near: 3e-2
# args: A: f32[2, 128, 64], B: f32[2, 64, 128], C: f32[2, 128, 128], T = 128; grid: 2; near: 3e-2
@ct.kernel
def batch(A, B, C, T: ct.Constant[int]):
    n = ct.bid(0)
    a = ct.load(A, (n, 0, 0), (1, T, 64))
    b = ct.load(B, (n, 0, 0), (1, 64, T))
    ct.store(C, (n, 0, 0), ct.mma(a, b, ct.zeros((1, T, T), ct.float32)))
