"""Test kernels: arithmetic of elements."""
import math

import cuda.tile as ct


def clamp(v, low, high):
    return ct.minimum(ct.maximum(v, low), high)


# args: x: f32[300], y: f32[300], T = 128; grid: 3; near: 1e-6
@ct.kernel
def gelu(x, y, T: ct.Constant[int]):
    v = clamp(ct.load(x, (ct.bid(0),), (T,)), -8.0, 8.0)
    inner = math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)
    ct.store(y, (ct.bid(0),), 0.5 * v * (1 + ct.tanh(inner)))


# args: x: f16[300], y: f16[300], T = 128; grid: 3; near: 2e-3
@ct.kernel
def silu(x, y, T: ct.Constant[int]):
    v = clamp(ct.load(x, (ct.bid(0),), (T,)).astype(ct.float32), -20.0, 20.0)
    ct.store(y, (ct.bid(0),), (v / (1 + ct.exp(-v))).astype(y.dtype))


# args: x: f32[200], y: bf16[200], T = 64; grid: 4
@ct.kernel
def to_bfloat(x, y, T: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (T,)).astype(y.dtype))


# args: x: i32[200], y: i32[200], T = 64; grid: 4
@ct.kernel
def collatz(x, y, T: ct.Constant[int]):
    v = ct.abs(ct.load(x, (ct.bid(0),), (T,))) % 1000
    steps = ct.zeros((T,), ct.int32)
    for _ in range(10):
        odd = v % 2 == 1
        v = ct.where(odd, 3 * v + 1, v // 2)
        steps += ct.where(odd, 2, 1)
    ct.store(y, (ct.bid(0),), steps)


# args: x: i64[100], y: i64[100], T = 32; grid: 4
@ct.kernel
def hash_wide(x, y, T: ct.Constant[int]):
    v = ct.load(x, (ct.bid(0),), (T,))
    v = (v ^ (v >> 30)) * 0x1F123BB5159A55E5
    v = (v ^ (v >> 27)) * 0x0A0B37DD5555AAAB
    ct.store(y, (ct.bid(0),), v ^ (v >> 31))


# args: x: f64[100], y: f64[100], T = 32; grid: 4; near: 1e-13
@ct.kernel
def doubles(x, y, T: ct.Constant[int]):
    v = clamp(ct.load(x, (ct.bid(0),), (T,)), -5.0, 5.0)
    ct.store(y, (ct.bid(0),), ct.exp(v) / (1.0 + v * v) + ct.sqrt(ct.abs(v)))


# args: x: f32[256], y: f32[256]; grid: 2
@ct.kernel
def rotate_pairs(x, y):
    t = ct.load(x, (ct.bid(0),), (128,)).reshape((64, 2))
    even, odd = ct.extract(t, (0, 0), (64, 1)), ct.extract(t, (0, 1), (64, 1))
    ct.store(y, (ct.bid(0),), ct.cat((-odd, even), 1).reshape((128,)))


# args: x: f32[128], q: f8e4m3[128], s: f32[1]; grid: 1
@ct.kernel
def quantise(x, q, s):
    v = ct.load(x, (0,), (128,))
    scale = ct.max(ct.abs(v)) / 448.0
    ct.store(q, (0,), (v / scale).astype(q.dtype))
    ct.store(s, (0,), scale.reshape((1,)))


# args: x: f32[128], down: u8[128], up: u8[128]; grid: 1
@ct.kernel
def scales(x, down, up):
    v = ct.load(x, (0,), (128,))
    v = ct.where(ct.abs(v) < 1000.0, v, v * 1e-42)
    ct.store(down, (0,), ct.pack_to_bytes(ct.astype(v, ct.float8_e8m0fnu)))
    ct.store(up, (0,), ct.pack_to_bytes(ct.astype(v, ct.float8_e8m0fnu, rounding_mode=ct.RoundingMode.RP)))
