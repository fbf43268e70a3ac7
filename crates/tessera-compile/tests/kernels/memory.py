"""Test kernels: reading and writing memory. The comment above a kernel says what it is run with."""
import math

import cuda.tile as ct


# args: x: f32[1000], y: f32[1000], a: f32, TILE = 256; grid: 4
@ct.kernel
def axpy(x, y, a: float, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), a * ct.load(x, (i,), (TILE,)) + ct.load(y, (i,), (TILE,)))


# args: x: f16[70, 90], y: f16[90, 70], T = 32; grid: 3, 3
@ct.kernel
def transpose(x, y, T: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.transpose(ct.load(x, (i, j), (T, T))))


# args: x: f32[70, 90], y: f32[90, 70], T = 32; grid: 3, 3
@ct.kernel
def transpose_by_order(x, y, T: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.load(x, (i, j), (T, T), order=(0, 1)).transpose())


# args: x: f32[100], at: i32[128], y: f32[128], T = 64; grid: 2
@ct.kernel
def gather_rows(x, at, y, T: ct.Constant[int]):
    i = ct.bid(0)
    index = ct.load(at, (i,), (T,))
    ct.store(y, (i,), ct.gather(x, index, padding_value=-1.0))


# args: table: f32[50, 64], ids: i32[20], out: f32[20, 64], D = 64; grid: 20
@ct.kernel
def embedding(table, ids, out, D: ct.Constant[int]):
    token = ct.bid(0)
    row = ct.load(ids, (token,), ()) % 50
    columns = ct.arange(D, dtype=ct.int32)
    ct.store(out, (token, 0), ct.gather(table, (ct.abs(row), columns)).reshape((1, D)))


# args: x: f32[64], at: i32[64], y: f32[64], T = 64; grid: 1
@ct.kernel
def scatter_reversed(x, at, y, T: ct.Constant[int]):
    i = ct.arange(T, dtype=ct.int32)
    ct.scatter(y, T - 1 - i, ct.load(x, (0,), (T,)), mask=i > 3)


# args: x: f32[33, 65], y: f32[33, 65], T = 16; grid: 3, 5
@ct.kernel
def padded_copy(x, y, T: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    t = ct.load(x, (i, j), (T, T), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(y, (i, j), ct.maximum(t, -1.0))


# args: x: f32[4, 6, 40], y: f32[40, 6, 4]; grid: 2
@ct.kernel
def permute_axes(x, y):
    i = ct.bid(0)
    t = ct.load(x, (0, 0, i), (4, 8, 32), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (i, 0, 0), ct.permute(t, (2, 1, 0)))


# args: x: f32[64, 64], y: f32[64, 64]; grid: 1
@ct.kernel
def quarters(x, y):
    t = ct.load(x, (0, 0), (64, 64))
    a, b = ct.extract(t, (0, 0), (32, 32)), ct.extract(t, (1, 1), (32, 32))
    c, d = ct.extract(t, (0, 1), (32, 32)), ct.extract(t, (1, 0), (32, 32))
    ct.store(y, (0, 0), ct.cat((ct.cat((b, d), 1), ct.cat((c, a), 1)), 0))


# args: x: u8[64], y: f32[128]; grid: 1
@ct.kernel
def unpack_fp4(x, y):
    codes = ct.unpack_from_bytes(ct.load(x, (0,), (64,)), ct.float4_e2m1fn)
    ct.store(y, (0,), codes.astype(ct.float32))


# args: x: f32[128], y: u8[64]; grid: 1
@ct.kernel
def pack_fp4(x, y):
    codes = ct.load(x, (0,), (128,)).astype(ct.float4_e2m1fn)
    ct.store(y, (0,), ct.pack_to_bytes(codes))


# args: x: f32[64], y: u8[256]; grid: 1
@ct.kernel
def bytes_of_floats(x, y):
    ct.store(y, (0,), ct.pack_to_bytes(ct.load(x, (0,), (64,))))


# args: x: i32[64], y: i16[128], z: f32[64]; grid: 1
@ct.kernel
def bitcasts(x, y, z):
    t = ct.load(x, (0,), (64,))
    ct.store(z, (0,), ct.bitcast(t & 0x3FFFFFFF, ct.float32))
    ct.store(y, (0,), ct.unpack_from_bytes(ct.pack_to_bytes(t), ct.int16))


# args: x: f32[96, 40], y: f32[96]; grid: 3
@ct.kernel
def tiled_view_rows(x, y):
    view = x.tiled_view((32, 16), padding_mode=ct.PaddingMode.ZERO)
    total = ct.zeros((32,), ct.float32)
    for j in range(view.num_tiles(1)):
        total += ct.max(view.load((ct.bid(0), j)), axis=1)
    ct.store(y, (ct.bid(0),), total)
