"""Test kernels: matrix products alone and with work around them."""
import math

import cuda.tile as ct


# args: A: f32[40, 24], B: f32[24, 36], C: f32[40, 36], T = 32; grid: 2, 2; near: 1e-2
@ct.kernel
def product_f32(A, B, C, T: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((T, T), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 16)):
        a = ct.load(A, (i, k), (T, 16), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, ct.load(B, (k, j), (16, T), padding_mode=ct.PaddingMode.ZERO), acc)
    ct.store(C, (i, j), acc)


# args: A: f16[70, 64], B: f16[64, 80], C: f16[70, 80]; grid: 2, 2; near: 1e-1
@ct.kernel
def product_with_bias_and_cut(A, B, C):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.full((64, 64), 0.25, ct.float32)
    for k in range(2):
        a = ct.load(A, (i, k), (64, 32), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (32, 64), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(ct.where(ct.abs(a) < 100, a, 0), ct.where(ct.abs(b) < 100, b, 0), acc)
    ct.store(C, (i, j), ct.maximum(acc, 0).astype(C.dtype))


# args: A: bf16[130, 72], B: bf16[72, 264], C: bf16[130, 264]; grid: 3, 2; near: 1e-1
@ct.kernel
def product_with_gelu(A, B, C):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 256), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (i, k), (64, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (64, 256), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    inner = 0.7978845608 * (acc + 0.044715 * acc * acc * acc)
    ct.store(C, (i, j), (0.5 * acc * (1 + ct.tanh(inner))).astype(C.dtype))


# args: A: i8[64, 96], B: i8[96, 64], C: i32[64, 64]; grid: 1
@ct.kernel
def product_i8(A, B, C):
    acc = ct.zeros((64, 64), ct.int32)
    for k in range(3):
        acc = ct.mma(ct.load(A, (0, k), (64, 32)), ct.load(B, (k, 0), (32, 64)), acc)
    ct.store(C, (0, 0), acc)


# args: A: f64[32, 32], B: f64[32, 32], C: f64[32, 32]; grid: 1; near: 1e-9
@ct.kernel
def product_f64(A, B, C):
    acc = ct.zeros((32, 32), ct.float64)
    for k in range(2):
        acc = ct.mma(ct.load(A, (0, k), (32, 16)), ct.load(B, (k, 0), (16, 32)), acc)
    ct.store(C, (0, 0), acc)


# args: A: bf16[3, 32, 32], B: bf16[3, 32, 32], C: f32[3, 32, 32]; grid: 3; near: 1e-1
@ct.kernel
def products_in_a_batch(A, B, C):
    n = ct.bid(0)
    a = ct.load(A, (n, 0, 0), (1, 32, 32))
    b = ct.load(B, (n, 0, 0), (1, 32, 32))
    a, b = ct.where(ct.abs(a) < 100, a, 0), ct.where(ct.abs(b) < 100, b, 0)
    ct.store(C, (n, 0, 0), ct.mma(a, b, ct.zeros((1, 32, 32), ct.float32)))


# args: A: u8[32, 32], B: bf16[64, 32], C: f32[32, 32]; grid: 1; near: 1e-1
@ct.kernel
def product_of_packed_fp4(A, B, C):
    packed = ct.load(A, (0, 0), (32, 32))
    a = ct.unpack_from_bytes(packed.reshape((1024,)), ct.float4_e2m1fn).reshape((32, 64)).astype(ct.bfloat16)
    b = ct.load(B, (0, 0), (64, 32))
    ct.store(C, (0, 0), ct.mma(a, ct.where(ct.abs(b) < 100, b, 0), ct.zeros((32, 32), ct.float32)))


# args: Q: f16[64, 64], K: f16[96, 64], V: f16[96, 64], O: f32[64, 64], scale: f32; grid: 1; near: 2e-2
@ct.kernel
def online_softmax_of_products(Q, K, V, O, scale: float):
    q = ct.load(Q, (0, 0), (64, 64))
    q = ct.where(ct.abs(q) < 5, q, 0)
    m = ct.full((64, 1), -math.inf, ct.float32)
    l = ct.zeros((64, 1), ct.float32)
    acc = ct.zeros((64, 64), ct.float32)
    for j in range(3):
        k = ct.load(K, (0, j), (64, 32), order=(1, 0))
        s = ct.mma(q, ct.where(ct.abs(k) < 5, k, 0), ct.zeros((64, 32), ct.float32)) * (scale * 0.02)
        next = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p, alpha = ct.exp2(s - next), ct.exp2(m - next)
        v = ct.load(V, (j, 0), (32, 64))
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(ct.float16), ct.where(ct.abs(v) < 5, v, 0), acc * alpha)
        m = next
    ct.store(O, (0, 0), acc / l)
