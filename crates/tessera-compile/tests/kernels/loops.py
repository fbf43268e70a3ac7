"""Loops of products that all warps pipeline: factors that are shared, computed, summed up beside, of several loops and branches."""
import cuda.tile as ct

Z = ct.PaddingMode.ZERO


# args: X: f16[64, 200], G: f16[200, 64], U: f16[200, 64], Y: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def shared_factor(X, G, U, Y):
    g, u = ct.zeros((64, 64), ct.float32), ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(X.shape[1], 32)):
        x = ct.load(X, (0, k), (64, 32), padding_mode=Z)
        g = ct.mma(x, ct.load(G, (k, 0), (32, 64), padding_mode=Z), g)
        u = ct.mma(x, ct.load(U, (k, 0), (32, 64), padding_mode=Z), u)
    ct.store(Y, (0, 0), g * u)


# args: X: bf16[64, 200], Q: bf16[200, 32], K: bf16[200, 32], V: bf16[200, 32], Y: f32[64, 32]; grid: 1; near: 1e-1
@ct.kernel
def three(X, Q, K, V, Y):
    a, b, c = ct.zeros((64, 32), ct.float32), ct.zeros((64, 32), ct.float32), ct.zeros((64, 32), ct.float32)
    for k in range(ct.cdiv(X.shape[1], 32)):
        x = ct.load(X, (0, k), (64, 32), padding_mode=Z)
        a = ct.mma(x, ct.load(Q, (k, 0), (32, 32), padding_mode=Z), a)
        b = ct.mma(x, ct.load(K, (k, 0), (32, 32), padding_mode=Z), b)
        c = ct.mma(x, ct.load(V, (k, 0), (32, 32), padding_mode=Z), c)
    ct.store(Y, (0, 0), a + b * c)


# args: A: f16[64, 200], B: i8[200, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def dequantised(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        b = ct.load(B, (k, 0), (32, 64), padding_mode=Z)
        acc = ct.mma(ct.load(A, (0, k), (64, 32), padding_mode=Z), (b.astype(ct.float32) * 0.5).astype(A.dtype), acc)
    ct.store(C, (0, 0), acc)


# args: A: f16[64, 200], B: f16[200, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def both_computed(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        a, b = ct.load(A, (0, k), (64, 32), padding_mode=Z), ct.load(B, (k, 0), (32, 64), padding_mode=Z)
        acc = ct.mma(ct.maximum(a, 0), ct.maximum(b, 0), acc)
    ct.store(C, (0, 0), acc)


# args: A: f16[64, 200], B: f16[200, 64], C: f32[64, 64], S: f32[64]; grid: 1; near: 1e-1
@ct.kernel
def with_sums(A, B, C, S):
    acc, total = ct.zeros((64, 64), ct.float32), ct.zeros((64,), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        a = ct.load(A, (0, k), (64, 32), padding_mode=Z)
        acc = ct.mma(a, ct.load(B, (k, 0), (32, 64), padding_mode=Z), acc)
        total = total + ct.sum(a.astype(ct.float32), axis=1)
    ct.store(C, (0, 0), acc)
    ct.store(S, (0,), total)


# args: A: f16[64, 200], B: f16[200, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def every_other(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(1, ct.cdiv(A.shape[1], 32), 2):
        acc = ct.mma(ct.load(A, (0, k), (64, 32), padding_mode=Z), ct.load(B, (k, 0), (32, 64), padding_mode=Z), acc)
    ct.store(C, (0, 0), acc)


# args: A: f32[64, 200], B: f32[200, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def by_threads(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 16)):
        acc = ct.mma(ct.load(A, (0, k), (64, 16), padding_mode=Z), ct.load(B, (k, 0), (16, 64), padding_mode=Z), acc)
    ct.store(C, (0, 0), acc)


# args: A: f16[150, 200], B: f16[200, 64], C: f32[150, 64]; grid: 1; near: 1e-1
@ct.kernel
def in_a_loop(A, B, C):
    for i in range(ct.cdiv(A.shape[0], 64)):
        acc = ct.zeros((64, 64), ct.float32)
        for k in range(ct.cdiv(A.shape[1], 32)):
            acc = ct.mma(ct.load(A, (i, k), (64, 32), padding_mode=Z), ct.load(B, (k, 0), (32, 64), padding_mode=Z), acc)
        ct.store(C, (i, 0), acc)


# args: A: f16[128, 100], B: f16[100, 128], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def two_loops(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        acc = ct.mma(ct.load(A, (0, k), (64, 32), padding_mode=Z), ct.load(B, (k, 0), (32, 64), padding_mode=Z), acc)
    acc = ct.maximum(acc, 0)
    for k in range(ct.cdiv(A.shape[1], 32)):
        acc = ct.mma(ct.load(A, (1, k), (64, 32), padding_mode=Z), ct.load(B, (k, 1), (32, 64), padding_mode=Z), acc)
    ct.store(C, (0, 0), acc)


# args: A: f16[2, 64, 100], B: f16[2, 100, 64], C: f32[2, 64, 64]; grid: 2; near: 1e-1
@ct.kernel
def batch(A, B, C):
    n = ct.bid(0)
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[2], 32)):
        a, b = ct.load(A, (n, 0, k), (1, 64, 32), padding_mode=Z), ct.load(B, (n, k, 0), (1, 32, 64), padding_mode=Z)
        acc = ct.mma(a.reshape((64, 32)), b.reshape((32, 64)), acc)
    ct.store(C, (n, 0, 0), acc.reshape((1, 64, 64)))


# args: A: f16[64, 200], B: f16[200, 64], C: f32[64, 64], last: i32; grid: 1; near: 1e-1
@ct.kernel
def branches(A, B, C, last):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        acc = ct.mma(ct.load(A, (0, k), (64, 32), padding_mode=Z), ct.load(B, (k, 0), (32, 64), padding_mode=Z), acc)
        if k == 3:
            acc = acc * 0.5
    ct.store(C, (0, 0), acc)


# args: A: f16[64, 200], C: f32[64, 32]; grid: 1; near: 1e-1
@ct.kernel
def no_product(A, C):
    acc = ct.zeros((64, 32), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        acc = acc + ct.load(A, (0, k), (64, 32), padding_mode=Z).astype(ct.float32)
    ct.store(C, (0, 0), acc)


# args: A: f16[64, 256], B: f16[256, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def carried_place(A, B, C):
    acc, at = ct.zeros((64, 64), ct.float32), 0
    for k in range(ct.cdiv(A.shape[1], 32)):
        acc = ct.mma(ct.load(A, (0, at), (64, 32), padding_mode=Z), ct.load(B, (at, 0), (32, 64), padding_mode=Z), acc)
        at = (at * 3 + 1) % 8
    ct.store(C, (0, 0), acc)


# args: A: f16[64, 256], B: f16[256, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def written(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 32)):
        a, b = ct.load(A, (0, k), (64, 32), padding_mode=Z), ct.load(B, (k, 0), (32, 64), padding_mode=Z)
        ct.store(A, (0, k + 1), a * 2)
        ct.store(B, (k + 1, 0), b * 2)
        acc = ct.mma(a, b, acc)
    ct.store(C, (0, 0), acc)


# args: A: f32[64, 100], B: f32[100, 64], C: f32[64, 64]; grid: 1; near: 1e-1
@ct.kernel
def computed_by_threads(A, B, C):
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 16)):
        a = ct.load(A, (0, k), (64, 16), padding_mode=Z)
        acc = ct.mma(a * 2, ct.load(B, (k, 0), (16, 64), padding_mode=Z), acc)
    ct.store(C, (0, 0), acc)
