# Kernels of known difference, to see what a comparison finds:
#
#   tessera compare --run planted.py::short,long,equal planted.py::short_slower,long_slower,equal_too \
#       x=randn:f32[8192] y=empty:f32[8192] N=1024 STEPS=4800 --grid 8
#
# Each walks a chain of multiplications that depend on each other; STEPS sets how long the shortest takes. On an H200 the
# short one takes 36 us with 4800, the long one 319 us. A `_slower` one goes on for so many more steps that it takes 3.3 per cent
# longer there, the long one 1.06 per cent; the result is the same but for rounding, since the chain has settled long
# before. STEPS is an argument and no constant: with the number of rounds known, the assembler unrolls 48,000 and 48,512 of them in
# two ways that differ by more than what is planted. `equal` and `equal_too` are as fast as `medium`.
import cuda.tile as ct


def chain(v, steps):
    for step in range(steps):
        v = v * 0.75 + 0.25
    return v


@ct.kernel
def short(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), STEPS))


@ct.kernel
def short_slower(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), STEPS + STEPS * 11 // 300))


@ct.kernel
def medium(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), 3 * STEPS))


@ct.kernel
def medium_slower(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), 3 * STEPS + 3 * STEPS * 29 // 900))


@ct.kernel
def long(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), 10 * STEPS))


@ct.kernel
def long_slower(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), 10 * STEPS + 10 * STEPS * 32 // 3000))


@ct.kernel
def equal(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), 3 * STEPS))


@ct.kernel
def equal_too(x, y, N: ct.Constant[int], STEPS: int):
    i = ct.bid(0)
    ct.store(y, (i,), chain(ct.load(x, (i,), (N,)), 3 * STEPS))
