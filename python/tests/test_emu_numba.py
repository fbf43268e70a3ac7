"""Kernels of Numba's and in CUDA C++ on the emulator: compiled without a GPU, right, and their mistakes found at their lines."""

import numpy as np
import pytest

import tessera
import tessera.emu as emu


def line_of(text):
    """The line of this file that ends in a text, the first one."""
    with open(__file__, encoding="utf-8") as lines:
        return next(number for number, line in enumerate(lines, 1) if line.rstrip().endswith(text))


@pytest.fixture(scope="module")
def cuda():
    """Numba, where its compiler library is there too."""
    numba = pytest.importorskip("numba", reason="needs Numba: pip install 'numba-cuda[cu13]'")
    from numba import cuda

    try:
        cuda.compile_ptx(lambda x: None, (numba.float32[::1],), cc=(9, 0))
    except cuda.cudadrv.error.NvvmSupportError:
        pytest.skip("Numba's compiler library is not there: pip install 'numba-cuda[cu13]'")
    return cuda


def test_arrays_and_numbers(cuda):
    @cuda.jit
    def scale(x, y, factor, n):
        i = cuda.grid(1)
        if i < n:
            y[i] = x[i] * factor

    x, y = np.arange(1000, dtype=np.float32), np.empty(1000, np.float32)
    report = emu.numba(scale, 4, 256, x, emu.Unwritten(y), 2.5, 1000)
    assert np.array_equal(y, np.float32(2.5) * x) and report.kernel == "scale" and not report.findings
    with pytest.raises(tessera.SanitizerError, match="out-of-bounds") as caught:
        emu.numba(scale, 4, 256, x, y, 2.5, 1001, target="sm_80")
    assert caught.value.report.findings[0].line == line_of("y[i] = x[i] * factor")


def test_axes_strides_and_tuples(cuda):
    def shifted(x, y, corner):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            y[j, i] = x[i, j] + corner[0] * corner[1]

    x = np.arange(600.0).reshape(20, 30)[::2]
    y = np.zeros((30, 10)).T.copy().T
    emu.numba(shifted, (2, 2), (16, 16), x, y, (3, 0.5))
    assert np.array_equal(y, x.T + 1.5)


def test_a_race_in_shared_memory(cuda):
    import numba

    @cuda.jit
    def reverse(x, y, WAIT):
        own = cuda.shared.array(128, numba.float32)
        i = cuda.threadIdx.x
        own[i] = x[i]
        if WAIT:
            cuda.syncthreads()
        y[i] = own[127 - i]

    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    explored = emu.prepare_numba(reverse, 1, 128, x, y, True).explore()
    assert not explored.findings and np.array_equal(y, x[::-1])
    with pytest.raises(tessera.SanitizerError, match="race: ") as caught:
        emu.numba(reverse, 1, 128, x, y, False)
    races = [finding for finding in caught.value.report.findings if finding.kind == "race"]
    assert {finding.line for finding in races} == {line_of("own[i] = x[i]"), line_of("y[i] = own[127 - i]")}
    assert races[0].file == __file__


def test_atomics_and_dynamic_shared_memory(cuda):
    import numba

    @cuda.jit
    def total(x, out):
        own = cuda.shared.array(0, numba.int32)
        i = cuda.threadIdx.x
        own[i] = x[cuda.grid(1)]
        cuda.syncthreads()
        if i == 0:
            part = 0
            for k in range(cuda.blockDim.x):
                part += own[k]
            cuda.atomic.add(out, 0, part)

    x, out = np.arange(256, dtype=np.int32), np.zeros(1, np.int32)
    emu.numba(total, 4, 64, x, out, shared=256)
    assert out[0] == x.sum()


def test_mistakes_of_a_call_are_told(cuda):
    with pytest.raises(tessera.ArgumentError, match="argument 0 is a `object`"):
        emu.numba(lambda x: None, 1, 1, object())
    with pytest.raises(tessera.ArgumentError, match="given by position"):
        emu.numba(lambda x: None, 1, 1, x=3)
    with pytest.raises(tessera.ArgumentError, match="target='hopper'"):
        emu.numba(lambda x: None, 1, 1, np.zeros(1), target="hopper")


SOURCE = """
struct Both { const float* x; int n; };

extern "C" __global__ void scale(Both both, float* y, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < both.n)
        y[i] = both.x[i] * factor;
}
"""


@pytest.fixture(scope="module")
def nvrtc():
    """NVIDIA's runtime compiler."""
    return pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVIDIA's runtime compiler: pip install cuda-bindings nvidia-cuda-nvrtc")


def test_cuda_as_a_raw_kernel_of_cupys(nvrtc):
    ptx = emu.compile_cuda(SOURCE, target="sm_80", name="scale.cu")
    x, y = np.arange(1000, dtype=np.float32), np.empty(1000, np.float32)
    emu.run(ptx, 4, 256, ((x, 1000), emu.Unwritten(y), 3.0))
    assert np.array_equal(y, 3 * x)
    with pytest.raises(tessera.SanitizerError) as caught:
        emu.run(ptx, 4, 256, ((x, 1001), y, 3.0))
    assert caught.value.report.findings[0].line == 7 and caught.value.report.findings[0].file.endswith("scale.cu")


def test_cuda_that_is_none(nvrtc):
    with pytest.raises(tessera.TileError, match="expected a"):
        emu.compile_cuda("__global__ void k( {")
    with pytest.raises(tessera.ArgumentError, match="gpu-architecture"):
        emu.compile_cuda(SOURCE, target="sm_7")
