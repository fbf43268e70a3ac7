"""Triton kernels of our own, compiled to PTX: python3 triton_kernels.py OUT [NAME].

Each file begins with what a launch needs to know: `// warps 4, shared 8192, scratch 0`. No GPU is needed.
"""

import re
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), mask=at < n)


@triton.jit
def layer_norm(x, gain, bias, out, n, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = tl.where(at < n, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + epsilon)
    y = d * scale * tl.load(gain + at, mask=at < n) + tl.load(bias + at, mask=at < n)
    tl.store(out + row * n + at, y.to(tl.bfloat16), mask=at < n)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, tl.cdiv(k, BK)):
        x = tl.load(a + rows[:, None] * k + ks[None, :], mask=(rows[:, None] < m) & (ks[None, :] < k), other=0.0)
        y = tl.load(b + ks[:, None] * n + cols[None, :], mask=(ks[:, None] < k) & (cols[None, :] < n), other=0.0)
        acc = tl.dot(x, y, acc)
        ks += BK
    tl.store(c + rows[:, None] * n + cols[None, :], acc.to(tl.float16), mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def matmul_boxes(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same by tensor maps that the kernel itself makes in scratch memory."""
    am = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    bm = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BK, BN])
    cm = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, tl.cdiv(k, BK)):
        acc = tl.dot(am.load([row, i * BK]), bm.load([i * BK, col]), acc)
    cm.store([row, col], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, out, length, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr):
    head = tl.program_id(1) * length * D
    qs = tl.program_id(0) * BQ + tl.arange(0, BQ)
    ds = tl.arange(0, D)
    x = tl.load(q + head + qs[:, None] * D + ds[None, :], mask=qs[:, None] < length, other=0.0)
    most = tl.full((BQ,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BQ,), dtype=tl.float32)
    acc = tl.zeros((BQ, D), dtype=tl.float32)
    for start in range(0, length, BK):
        ks = start + tl.arange(0, BK)
        y = tl.load(k + head + ks[None, :] * D + ds[:, None], mask=ks[None, :] < length, other=0.0)
        s = tl.dot(x, y) * scale
        s = tl.where(ks[None, :] < length, s, float("-inf"))
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        fade = tl.exp2(most - new)
        total = total * fade + tl.sum(p, 1)
        z = tl.load(v + head + ks[:, None] * D + ds[None, :], mask=ks[:, None] < length, other=0.0)
        acc = tl.dot(p.to(tl.float16), z, acc * fade[:, None])
        most = new
    tl.store(out + head + qs[:, None] * D + ds[None, :], (acc / total[:, None]).to(tl.float16), mask=qs[:, None] < length)


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(bins + v, 1, mask=at < n)
    tl.atomic_max(bins + 256 + at * 0, v, mask=at < n)
    tl.atomic_add(bins + 257 + tl.program_id(0), tl.sum(tl.where(at < n, v, 0), 0))


@triton.jit
def multiply_add(al, bl, ar, br):
    return al * ar, bl * ar + br


@triton.jit
def scans(x, sums, decayed, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0)
    tl.store(sums + row * n + at, tl.cumsum(v, 0), mask=at < n)
    f = v.to(tl.float32)
    factor = tl.full((BLOCK,), 0.5, dtype=tl.float32)
    _, d = tl.associative_scan((factor, f), 0, multiply_add)
    tl.store(decayed + row * n + at, d, mask=at < n)


@triton.jit
def extremes(x, most, where, sorted_out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + at)
    tl.store(most + row, tl.max(v, 0))
    tl.store(where + row, tl.argmax(v, 0))
    tl.store(sorted_out + row * BLOCK + at, tl.sort(v))


@triton.jit
def dropout(x, out, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > 0.5
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(keep, v * 2.0, 0.0), mask=at < n)


@triton.jit
def quantize(x, codes, back, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    q = v.to(tl.float8e4nv)
    tl.store(codes + at, q, mask=at < n)
    tl.store(back + at, q.to(tl.float16), mask=at < n)


# Name, kernel, signature, constants, warps, stages, targets; `:16` marks what 16 divides.
KERNELS = [
    ("add", add, "*fp32:16 *fp32:16 *fp32:16 i32:16", {"BLOCK": 512}, 4, 2, (80,)),
    ("softmax", softmax, "*fp32:16 *fp32:16 i32", {"BLOCK": 1024}, 4, 2, (80,)),
    ("layer_norm", layer_norm, "*bf16:16 *fp32:16 *fp32:16 *bf16:16 i32 fp32", {"BLOCK": 512}, 4, 2, (80, 90)),
    ("matmul", matmul, "*fp16:16 *fp16:16 *fp16:16 i32 i32:16 i32:16", {"BM": 64, "BN": 64, "BK": 32}, 4, 3, (80, 90)),
    ("matmul_boxes", matmul_boxes, "*fp16:16 *fp16:16 *fp16:16 i32 i32:16 i32:16", {"BM": 64, "BN": 64, "BK": 64}, 4, 3, (90,)),
    ("attention", attention, "*fp16:16 *fp16:16 *fp16:16 *fp16:16 i32 fp32", {"D": 64, "BQ": 64, "BK": 32}, 4, 2, (80, 90)),
    ("histogram", histogram, "*i32:16 *i32:16 i32", {"BLOCK": 256}, 4, 2, (90,)),
    ("scans", scans, "*i32:16 *i32:16 *fp32:16 i32", {"BLOCK": 256}, 4, 2, (80,)),
    ("extremes", extremes, "*fp32:16 *fp32:16 *i32:16 *fp32:16 i32", {"BLOCK": 128}, 2, 2, (90,)),
    ("dropout", dropout, "*fp32:16 *fp32:16 i32 i32", {"BLOCK": 256}, 2, 2, (80,)),
    ("quantize", quantize, "*fp32:16 *fp8e4nv:16 *fp16:16 i32", {"BLOCK": 256}, 2, 2, (90,)),
]


def compiled(kernel, signature, constants, warps, stages, arch):
    types, attrs = {}, {}
    for index, (name, ty) in enumerate(zip(kernel.arg_names, signature.split())):
        types[name] = ty.removesuffix(":16")
        if ty.endswith(":16"):
            attrs[(index,)] = [["tt.divisibility", 16]]
    types.update(dict.fromkeys(constants, "constexpr"))
    source = ASTSource(kernel, types, constants, attrs)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, "num_stages": stages})


def main():
    out = Path(sys.argv[1])
    for name, kernel, signature, constants, warps, stages, arches in KERNELS:
        if len(sys.argv) > 2 and sys.argv[2] != name:
            continue
        for arch in arches:
            binary = compiled(kernel, signature, constants, warps, stages, arch)
            text = binary.asm["ptx"]
            # Debug data holds this machine's paths; comments hold tools' names.
            text = re.sub(r"\n\t\.section\t\.debug.*?\n\t}", "", text, flags=re.S)
            lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("//")]
            lines = [re.sub(r"\t+//.*$|\s+// .*$", "", line) for line in lines]
            lines = [re.sub(r'"[^"]*/([^"/]*\.py)"', r'"\1"', line) for line in lines]
            lines = [line for line in lines if not line.lstrip().startswith('.file') or ".py" in line]
            meta = binary.metadata
            head = f"// warps {meta.num_warps}, shared {meta.shared}, scratch {meta.global_scratch_size}"
            (out / f"triton_{name}.sm_{arch}.ptx").write_text("\n".join([head, *lines, ""]))


if __name__ == "__main__":
    main()
