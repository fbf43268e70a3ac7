"""The kernels of `kernels/anchors/`, PTX by hand, as a baseline process of the benchmark harness.

    tessera bench gemm --precision "bf16->bf16" --device cuda --baseline "anchor=python3 baselines/anchors_baseline.py"

They stand beside compiled kernels on the same tensors, in turns with them, behind the same gate. Each does one thing: bf16 products into bf16 (`nn`, `nt`),
and full attention of heads of 128. How they are launched is what `crates/tessera-cuda/examples/time_anchors` does.
"""
import ctypes
import math
import pathlib

import torch
from torch_baseline import Unsupported, serve

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "anchors"
DRIVER = ctypes.CDLL("libcuda.so.1")
# Of `CUtensorMapDataType`, `CUtensorMapSwizzle`, `CUtensorMapL2promotion`; of `CUfunction_attribute`.
BFLOAT16, SWIZZLE_128B, PROMOTE_256B = 9, 3, 3
MAX_DYNAMIC_SHARED = 8
FUNCTIONS = {}


def done(status, what):
    if status != 0:
        raise RuntimeError(f"{what}: driver code {status}")


def function(name, shared):
    """A kernel that is loaded, and allowed so many bytes of shared memory."""
    if name not in FUNCTIONS:
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        done(DRIVER.cuModuleLoadData(ctypes.byref(module), (FOLDER / f"{name}.ptx").read_bytes() + b"\0"), name)
        done(DRIVER.cuModuleGetFunction(ctypes.byref(found), module, name.encode()), name)
        FUNCTIONS[name] = found
    done(DRIVER.cuFuncSetAttribute(FUNCTIONS[name], MAX_DYNAMIC_SHARED, shared), name)
    return FUNCTIONS[name]


class Map:
    """A tensor map: extents of axes from the innermost, bytes from one to the next on all axes but that, and the extents of a box."""

    def __init__(self, tensor, extents, strides, box):
        memory = (ctypes.c_byte * 192)()
        address = (ctypes.addressof(memory) + 63) // 64 * 64
        self.memory, self.value = memory, (ctypes.c_byte * 128).from_address(address)
        of = lambda kind, numbers: (kind * len(numbers))(*numbers)
        ones = [1] * len(extents)
        status = DRIVER.cuTensorMapEncodeTiled(
            ctypes.c_void_p(address), BFLOAT16, len(extents), ctypes.c_void_p(tensor.data_ptr()), of(ctypes.c_uint64, extents),
            of(ctypes.c_uint64, strides), of(ctypes.c_uint32, box), of(ctypes.c_uint32, ones), 0, SWIZZLE_128B, PROMOTE_256B, 0)
        done(status, "cuTensorMapEncodeTiled")


def launch(name, grid, shared, arguments):
    """What launches a kernel of 384 threads a block on the stream of the moment."""
    kernel = function(name, shared)
    values = [argument.value if isinstance(argument, Map) else argument for argument in arguments]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])

    def work():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        done(DRIVER.cuLaunchKernel(kernel, grid, 1, 1, 384, 1, 1, shared, stream, pointers, None), name)
    work.kept = arguments, values
    return work


def multiprocessors():
    return torch.cuda.get_device_properties(0).multi_processor_count


def gemm(request, t):
    a, b, c = t["A"], t["B"], t["C"]
    layout = request["variant"]
    if layout not in ("nn", "nt") or a.dim() != 2 or any(x.dtype != torch.bfloat16 for x in (a, b, c)):
        raise Unsupported("products other than `nn` and `nt` of bf16 into bf16")
    (m, k), n = a.shape, c.shape[1]
    if k % 64 or n % 64:
        raise Unsupported("lines that are no multiple of 64")
    rows = Map(a, [k, m], [k * 2], [64, 128])
    if layout == "nt":
        columns = Map(b, [k, n], [k * 2], [64, 256])
    else:
        columns = Map(b, [64, k, n // 64], [n * 2, 128], [64, 64, 4])
    down, across = -(-m // 128), -(-n // 256)
    tiles = down * across
    grid = -(-tiles // -(-tiles // multiprocessors()))
    numbers = [ctypes.c_uint32(number) for number in (down, across, -(-k // 64))]
    arguments = [rows, columns, Map(c, [n, m], [n * 2], [64, 64]), *numbers]
    return launch(f"gemm_{layout}", grid, 4 * (49152 + 16) + 2 * 2 * 8192, arguments)


def attention(request, t):
    q, k, v, o = t["Q"], t["K"], t["V"], t["O"]
    if request["variant"] or q.shape != k.shape or q.shape[-1] != 128 or q.dtype != torch.bfloat16 or o.dtype != q.dtype:
        raise Unsupported("attention other than full, of bf16, with heads of 128")
    batch, heads, length, _ = q.shape

    def of(tensor, rows, halves):
        """Boxes of so many rows of one or both halves of a head."""
        plane = length * 256
        return Map(tensor, [64, length, 2, heads, batch], [256, 128, plane, heads * plane], [64, rows, halves, 1, 1])
    blocks = -(-length // 128)
    tiles = blocks * heads * batch
    numbers = [ctypes.c_uint32(number) for number in (length, blocks, heads, tiles)]
    scale = ctypes.c_float(math.log2(math.e) / math.sqrt(128))
    arguments = [of(q, 128, 2), of(k, 128, 2), of(v, 128, 2), of(o, 64, 1), *numbers, scale]
    return launch("attention", min(multiprocessors(), tiles), 32768 + 4 * 128 * 256 + 32768 + 80, arguments)


if __name__ == "__main__":
    serve({"gemm": gemm, "attention": attention})
