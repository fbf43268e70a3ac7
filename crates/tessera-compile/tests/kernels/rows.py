"""Test kernels: reductions and scans along rows."""
import math

import cuda.tile as ct


# args: x: f32[10, 300], y: f32[10], N = 512; grid: 10; near: 1e-5
@ct.kernel
def log_sum_exp(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    t = ct.minimum(ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF), 50.0)
    m = ct.max(t, axis=1, keepdims=True)
    ct.store(y, (row,), (m + ct.log(ct.sum(ct.exp(t - m), axis=1, keepdims=True))).reshape((1,)))


# args: x: f32[12, 200], y: f32[12], T = 64; grid: 12; near: 1e-4
@ct.kernel
def online_mean_of_squares(x, y, T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1, T), ct.float32)
    for j in range(ct.cdiv(x.shape[1], T)):
        t = ct.load(x, (row, j), (1, T), padding_mode=ct.PaddingMode.ZERO)
        total += t * t
    ct.store(y, (row,), ct.sum(total, axis=1) / x.shape[1])


# args: x: f32[9, 100], y: i32[9], N = 128; grid: 9
@ct.kernel
def arg_max(x, y, N: ct.Constant[int]):
    t = ct.load(x, (ct.bid(0), 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(y, (ct.bid(0),), ct.argmax(t, axis=1))


# args: x: i32[5, 64], y: i32[5, 64]; grid: 5
@ct.kernel
def running_sum(x, y):
    ct.store(y, (ct.bid(0), 0), ct.cumsum(ct.load(x, (ct.bid(0), 0), (1, 64)), axis=1))


# args: x: i32[64, 32], y: i32[32]; grid: 1
@ct.kernel
def column_maxima(x, y):
    ct.store(y, (0,), ct.max(ct.load(x, (0, 0), (64, 32)), axis=0))


def largest(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return ct.where(first, a, b), ct.where(first, i, j)


# args: x: i32[4, 64], best: i32[4], place: i32[4]; grid: 4
@ct.kernel
def reduce_pairs(x, best, place):
    t = ct.load(x, (ct.bid(0), 0), (1, 64))
    at = ct.broadcast_to(ct.arange(64, dtype=ct.int32)[None, :], (1, 64))
    value, index = ct.reduce((t, at), 1, lambda a, i, b, j: largest(a, i, b, j), (-2147483648, 2147483647))
    ct.store(best, (ct.bid(0),), value)
    ct.store(place, (ct.bid(0),), index)


# args: x: f32[8, 128], w: f32[128], b: f32[128], y: f32[8, 128], eps: f32; grid: 8; near: 1e-4
@ct.kernel
def standardise(x, w, b, y, eps: float):
    row = ct.bid(0)
    t = ct.load(x, (row, 0), (1, 128)).astype(ct.float32)
    mean = ct.sum(t, axis=1, keepdims=True) / 128
    centred = t - mean
    deviation = ct.sqrt(ct.sum(centred * centred, axis=1, keepdims=True) / 128 + eps * eps)
    ct.store(y, (row, 0), centred / deviation * ct.load(w, (0,), (128,)) + ct.load(b, (0,), (128,)))
