"""Runs the example kernels through the command line on .npy files and compares with NumPy. Usage: examples.py TESSERA FOLDER"""
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

TESSERA, FOLDER = sys.argv[1], sys.argv[2]
TOP = os.path.join(os.path.dirname(__file__), "..", "..")
KERNELS = os.path.join(TOP, "examples", "kernels.py")
SEED_GEMM = os.path.join(TOP, "crates", "tessera-lang", "tests", "seeds", "tessera_gemm.py")
random = np.random.default_rng(7)
checked = 0


def run(kernel, grid, arrays, outputs, extra=(), options=(), file=KERNELS):
    """Saves the arrays, runs the kernel, and returns the outputs; each array is passed by name."""
    global checked
    arguments = []
    for name, array in arrays.items():
        path = os.path.join(FOLDER, f"{kernel}.{name}.npy")
        np.save(path, array)
        arguments.append(f"{name}=@{path}")
    saves = []
    for name in outputs:
        saves += ["--save", f"{name}={os.path.join(FOLDER, f'{kernel}.{name}.out.npy')}"]
    command = [TESSERA, "run", f"{file}::{kernel}", *arguments, *extra, "--grid", grid, *saves, *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
    checked += 1
    return [np.load(os.path.join(FOLDER, f"{kernel}.{name}.out.npy")) for name in outputs]


def close(got, want, tolerance):
    error = np.max(np.abs(got.astype(np.float64) - want))
    assert error <= tolerance, f"error {error}, allowed {tolerance}"


def f32(*shape):
    return random.standard_normal(shape, dtype=np.float32)


a, b = f32(1000), f32(1000)
[c] = run("vector_add", "2", {"a": a, "b": b, "c": np.zeros_like(a)}, ["c"], ["TILE=512"])
assert (c == a + b).all()

x = f32(37, 1000) * 5
e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
[y] = run("softmax", "37", {"x": x, "y": np.zeros_like(x)}, ["y"], ["N=1024"])
close(y, e / e.sum(axis=1, keepdims=True), 1e-6)

for m, n, k in [(200, 300, 130), (64, 64, 64), (129, 1, 257)]:
    A, B = f32(m, k).astype(np.float16), f32(k, n).astype(np.float16)
    blocks = -(-m // 64) * -(-n // 64)
    arrays = {"A": A, "B": B, "C": np.zeros((m, n), np.float32)}
    [C] = run("matmul", str(blocks), arrays, ["C"], ["TM=64", "TN=64", "TK=32"])
    close(C, A.astype(np.float64) @ B.astype(np.float64), 1e-5 * np.sqrt(k) * 8)


def attention(q, k, v, causal):
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows, columns = np.ogrid[: s.shape[-2], : s.shape[-1]]
        s = np.where(columns <= rows + s.shape[-1] - s.shape[-2], s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ v


for causal in [False, True]:
    for heads, group, queries, keys in [(4, 2, 100, 100), (2, 1, 64, 130)]:
        Q, K, V = f32(2, heads, queries, 32), f32(2, heads // group, keys, 32), f32(2, heads // group, keys, 32)
        extra = [f"scale={32 ** -0.5!r}", "D=32", f"H={heads}", f"GROUP={group}", "TM=64", "TN=32", f"CAUSAL={causal}"]
        arrays = {"Q": Q, "K": K, "V": V, "O": np.zeros_like(Q)}
        [O] = run("flash_attention", f"{-(-queries // 64)},{2 * heads}", arrays, ["O"], extra)
        close(O, attention(*(t.astype(np.float64) for t in (Q, K, V)), causal), 1e-5)

values = random.integers(0, 17, 5000).astype(np.int32)
[bins] = run("histogram", "20", {"values": values, "bins": np.zeros(17, np.int32)}, ["bins"], ["TILE=256"])
assert (bins == np.bincount(values, minlength=17)).all()

x = f32(9, 256)
[y] = run("prefix_sum", "9", {"x": x, "y": np.zeros_like(x)}, ["y"], ["TILE=256"])
close(y, np.cumsum(x.astype(np.float64), axis=1), 1e-4)

x = f32(33, 100)
x[5, 17] = x[5, 60] = 9
[y] = run("argmax", "33", {"x": x, "y": np.zeros(33, np.int32)}, ["y"], ["N=128"])
assert (y == x.argmax(axis=1)).all()

A, B = random.integers(-128, 128, (100, 200)).astype(np.int8), random.integers(-128, 128, (200, 70)).astype(np.int8)
arrays = {"A": A, "B": B, "C": np.zeros((100, 70), np.int32)}
[C] = run("matmul_int8", "2,2", arrays, ["C"], ["TM=64", "TN=64", "TK=64"])
assert (C == A.astype(np.int32) @ B.astype(np.int32)).all()

A, B = f32(65, 96), f32(96, 64)
quantised = [t.astype(ml_dtypes.float8_e4m3fn).astype(np.float64) for t in (A, B)]
arrays = {"A": A, "B": B, "C": np.zeros((65, 64), np.float32)}
[C] = run("matmul_fp8", "2,1", arrays, ["C"], ["scale=0.5", "TM=64", "TN=64", "TK=32"])
close(C, quantised[0] @ quantised[1] * 0.5, 1e-4)

codes = random.integers(0, 256, (64, 64)).astype(np.uint8)
table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
numbers = np.stack([table[codes & 15], table[codes >> 4]], axis=-1).reshape(64, 128)
B = f32(128, 64)
arrays = {"A": codes, "C": np.zeros((64, 64), np.float32)}
b_path = os.path.join(FOLDER, "fp4.safetensors")

save_file({"B": B.astype(ml_dtypes.bfloat16)}, b_path)
[C] = run("matmul_fp4_packed", "1,1", arrays, ["C"], [f"B=@{b_path}#B", "TM=64", "TN=64", "TK=64"])
close(C, numbers @ B.astype(ml_dtypes.bfloat16).astype(np.float64), 1e-3)

# The seed suite's GEMM as given: every transpose, alpha and beta; with beta = 0, C is not read.
for level in ["-O0", "-O3"]:
    for transpose_a in [False, True]:
        for transpose_b in [False, True]:
            for alpha, beta in [(1.0, 0.0), (0.5, -2.0)]:
                A, B = f32(70, 130) if transpose_a else f32(130, 70), f32(90, 70) if transpose_b else f32(70, 90)
                C = f32(130, 90) if beta else np.full((130, 90), np.nan, np.float32)
                product = (A.T if transpose_a else A).astype(np.float64) @ (B.T if transpose_b else B).astype(np.float64)
                want = alpha * product + (beta * C if beta else 0)
                extra = [f"alpha={alpha}", f"beta={beta}", f"transpose_a={transpose_a}", f"transpose_b={transpose_b}"]
                [got] = run("tessera_gemm", "auto", {"A": A, "B": B, "C": C}, ["C"], extra, [level], SEED_GEMM)
                close(got, want, 1e-4)

print(f"{checked} runs agree with NumPy")
