"""Arrays of other libraries, as they lie in memory, on the CPU and in the emulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tessera
import tessera.tile as ct

PLACES = {"cpu": {}, "emu": {"sanitize": "all"}}


@pytest.fixture(params=PLACES, autouse=True)
def place(request):
    with tessera.use(request.param, **PLACES[request.param]):
        yield request.param


@ct.kernel
def copy(x, out, T: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (T,)).astype(out.dtype))


@ct.kernel
def copy_rows(x, out, T: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(out, (i, j), ct.load(x, (i, j), (T, T)))


def copied(x, out=None):
    """A copy of an array, made by a kernel."""
    out = np.zeros(np.shape(x), x.dtype) if out is None else out
    kernel, grid = (copy, (ct.cdiv(out.shape[0], 16),)) if out.ndim == 1 else (copy_rows, tuple(ct.cdiv(n, 16) for n in out.shape))
    ct.launch(None, grid, kernel, (x, out, 16))
    return out


def same(a, b) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_]
NARROW = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu]


@pytest.mark.parametrize("dtype", DTYPES + NARROW, ids=lambda dtype: np.dtype(dtype).name)
def test_every_type(dtype):
    x = np.random.default_rng(1).uniform(0, 2, 100).astype(np.float32).astype(dtype)
    assert same(copied(x), x)


def test_truth_values_are_gathered():
    @ct.kernel
    def kernel(x, out, T: ct.Constant[int]):
        ct.store(out, (0,), ct.gather(x, ct.arange(T, dtype=ct.int32) + 95))

    x, out = np.ones(100, np.bool_), np.ones(16, np.bool_)
    ct.launch(None, (1,), kernel, (x, out, 16))
    assert out.tolist() == [True] * 5 + [False] * 11


def test_steps_views_and_transposes():
    base = np.arange(200, dtype=np.float32)
    out = np.zeros(300, np.float32)
    copied(base[::2], out[::3])
    assert same(out[::3], base[::2]) and not out.reshape(-1, 3)[:, 1:].any(), "what lies between the elements stays"
    square = np.arange(60 * 50, dtype=np.float32).reshape(60, 50)
    assert same(copied(square.T), square.T)
    part = np.zeros((60, 50), np.float32)
    copied(square[3:40, 5:], part[3:40, 5:])
    part[3:40, 5:] -= square[3:40, 5:]
    assert not part.any()


def test_one_place_for_many_elements_may_be_read():
    rows = np.broadcast_to(np.arange(50, dtype=np.float32), (60, 50))
    assert same(copied(rows), rows)
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(60, dtype=np.float32), 20)
    assert same(copied(windows), windows)


def test_one_place_for_many_elements_is_not_written():
    windows = np.lib.stride_tricks.as_strided(np.zeros(60, np.float32), (41, 20), (4, 4))
    with pytest.raises(tessera.ArgumentError, match="share memory|overlap|the same"):
        copied(np.ones((41, 20), np.float32), windows)


def test_addresses_that_are_not_aligned(place):
    for offset in (4, 1):
        memory = np.zeros(400 + offset, np.uint8)
        x = memory[offset:].view(np.float32)
        x[:] = np.arange(100)
        if offset == 1 and place == "emu":
            with pytest.raises(tessera.ArgumentError, match="at multiples of that"):
                copied(x)
        else:
            assert same(copied(x), x)


def test_no_elements_and_no_axes():
    empty = np.zeros(0, np.float32)
    ct.launch(None, (0,), copy, (empty, empty.copy(), 16))
    ct.launch(None, (1,), copy, (empty, empty.copy(), 16))
    assert copied(np.zeros((0, 5), np.float32)).shape == (0, 5)

    @ct.kernel
    def increment(x, out):
        ct.store(out, (), ct.load(x, (), ()) + 1)

    out = np.zeros((), np.float32)
    ct.launch(None, (1,), increment, (np.array(3, np.float32), out))
    assert out == 4


def test_numbers_of_numpy():
    @ct.kernel
    def fill(out, a, b, c, T: ct.Constant[int]):
        ct.store(out, (0,), ct.full((T,), a, dtype=ct.float32) + b + ct.where(c, 1.0, 0.0))

    out = np.zeros(16, np.float32)
    ct.launch(None, (1,), fill, (out, np.float32(2), np.int64(3), np.bool_(True), np.int32(16)))
    assert (out == 6).all()
    ct.launch(None, (1,), fill, (out, ml_dtypes.bfloat16(2.5), np.uint8(3), np.bool_(False), np.int32(16)))
    assert (out == 5.5).all()


def test_subclasses_and_files(tmp_path):
    class Sub(np.ndarray):
        pass

    x = np.arange(100, dtype=np.float32).view(Sub)
    file = np.memmap(tmp_path / "file", dtype=np.float32, mode="w+", shape=100)
    assert same(copied(x, file), x)


class Speaks:
    """An object that speaks DLPack and nothing else."""

    def __init__(self, array, **wrong):
        self.array, self.wrong = array, wrong

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (1, 0)


class SpeaksOld(Speaks):
    """The same before version 1."""

    def __dlpack__(self):
        return self.array.__dlpack__()


@pytest.mark.parametrize("speaks", [Speaks, SpeaksOld])
def test_dlpack(speaks):
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    ct.launch(None, (7,), copy, (speaks(x), speaks(out), 16))
    assert same(x, out)


def test_jax_arrays_are_read_and_never_written():
    jnp = pytest.importorskip("jax.numpy")
    for dtype in ("float32", "bfloat16", "int32", "bool"):
        x = jnp.arange(100).astype(dtype)
        assert same(copied(x, np.zeros(100, x.dtype)), x)
    with pytest.raises(tessera.ArgumentError, match="must not be written"):
        copied(np.zeros(100, np.float32), Shaped(jnp.arange(100.0)))
    x.delete()
    with pytest.raises(tessera.ArgumentError, match="deleted"):
        copied(x, np.zeros(100, bool))


def test_axes_of_results_by_name():
    x = np.array([[3, 1, 2], [7, 9, 8]], np.float32)
    values, indices = tessera.ops.top_k(x, k=2)
    assert values.tolist() == [[3, 2], [9, 8]] and indices.tolist() == [[0, 2], [1, 2]]
    dense = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    parts = np.array([1, 2, 3], np.float32), np.array([0, 2, 2], np.int64), np.array([0, 2, 3], np.uint32)
    vector = np.array([1, 10, 100], np.float32)
    for sizes in ({}, {"m": 2}):
        assert same(tessera.ops.spmv(*parts, vector, **sizes), dense @ vector)
    assert same(tessera.ops.csr_to_dense(*parts, n=3), dense)
    given = np.zeros((2, 2), np.float32)
    assert tessera.ops.top_k(x, k=2, out=given)[0] is given and same(given, values)
    for wrong, error in ((-1, "cannot be"), ("a", "is none"), (1.5, "is none"), (4, "not 4 of 3")):
        with pytest.raises(tessera.ArgumentError, match=error):
            tessera.ops.top_k(x, k=wrong)


def test_operators_give_jax_what_is_jax_s():
    jax = pytest.importorskip("jax")
    x = jax.numpy.linspace(-1, 1, 40, dtype=jax.numpy.bfloat16).reshape(4, 10)
    y = tessera.ops.relu(x)
    assert isinstance(y, jax.Array) and y.dtype == x.dtype and y.devices() == x.devices() and (y == jax.nn.relu(x)).all()
    values, indices = tessera.ops.top_k(x, variant="largest", out={"values": np.zeros((4, 3), x.dtype), "indices": np.zeros((4, 3), np.int32)})
    assert isinstance(values, np.ndarray) and (indices == [9, 8, 7]).all(), "results that were given are their own"
    assert isinstance(tessera.ops.relu(np.ones(3, np.float32)), np.ndarray)


NUMBERS = [2, np.float32(2), np.int64(2), np.float64(2), ml_dtypes.bfloat16(2), np.array(2.0)]


@pytest.mark.parametrize("alpha", NUMBERS, ids=lambda value: type(value).__name__)
def test_numbers_of_operators(alpha):
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    assert (tessera.ops.vector(x, y, variant="axpy", alpha=alpha) == 2 * x + y).all()


class Shaped(Speaks):
    """A result that NumPy does not see."""

    shape, ndim = (100,), 1

    def __new__(cls, array):
        return array


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.bool):
        x = torch.arange(100).to(dtype)
        out = torch.zeros(100, dtype=dtype)
        ct.launch(None, (7,), copy, (x, out, 16))
        assert torch.equal(out.float(), x.float())
    square = torch.randn(40, 30, requires_grad=True)
    out = torch.zeros(30, 40)
    ct.launch(None, (2, 3), copy_rows, (square.t(), out, 16))
    assert torch.equal(out, square.t())


def test_classes_made_from_pytorch_s():
    torch = pytest.importorskip("torch")

    class Sub(torch.Tensor):
        pass

    x = torch.arange(100.0).as_subclass(Sub)
    for given in (x, torch.nn.Parameter(torch.arange(100.0)), torch.arange(100.0).as_subclass(Sub).requires_grad_()):
        out = torch.zeros(100)
        ct.launch(None, (7,), copy, (given, out, 16))
        assert torch.equal(out, torch.arange(100.0))
    assert isinstance(tessera.ops.relu(x), torch.Tensor)


class Waits:
    """An array on a GPU that says on which stream it is asked for."""

    def __dlpack__(self, *, stream=None, max_version=None):
        raise RuntimeError(f"stream {stream}")

    def __dlpack_device__(self):
        return (2, 0)


def test_arrays_on_a_gpu_are_asked_for_on_the_stream_of_the_launch():
    for stream, says in ((None, "stream 1$"), (0, "stream 1$"), (2, "stream 2$"), (4096, "stream 4096$")):
        with pytest.raises(tessera.ArgumentError, match=says):
            ct.launch(stream, (1,), copy, (Waits(), Waits(), 16))
        with pytest.raises(tessera.ArgumentError, match=says):
            tessera.ops.relu(Waits(), stream=stream)


def test_streams_of_interfaces():
    class Stream:
        device = 0

        def __init__(self, stream):
            self.__cuda_array_interface__ = {"shape": (100,), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": stream}

    for stream in (0, -1, "one"):
        with pytest.raises(tessera.ArgumentError, match=f"the stream {stream}, which is none"):
            ct.launch(None, (1,), copy, (Stream(stream), Stream(stream), 16))
    for stream in (None, 1, 2, 4096):
        with pytest.raises(tessera.DeviceError, match="GPU 0"):
            ct.launch(None, (1,), copy, (Stream(stream), Stream(stream), 16))


def test_arrays_that_share_memory():
    memory = np.arange(110, dtype=np.float32)
    with pytest.raises(tessera.ArgumentError, match="overlap"):
        copied(memory[:100], memory[10:])
    # Those that are only read may.
    @ct.kernel
    def add(x, y, out, T: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(out, (i,), ct.load(x, (i,), (T,)) + ct.load(y, (i,), (T,)))

    out = np.zeros(100, np.float32)
    ct.launch(None, (7,), add, (memory[:100], memory[10:], out, 16))
    assert same(out, memory[:100] + memory[10:])


@pytest.mark.parametrize("device", ["cpu", "emu"])
def test_results_of_operators_share_no_memory(device):
    ops, random = tessera.ops, lambda *shape: np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)  # noqa: E731
    x, weight, dy = random(1, 2, 5, 5), random(3, 2, 3, 3), random(1, 3, 3, 3)
    queries, rows = random(1, 2, 5, 8), random(1, 2, 5)
    cache, new = np.zeros((2, 8, 2, 4), np.float32), random(1, 2, 4)
    attend = lambda **out: ops.attention_backward(*(queries,) * 4, rows, queries, rows, out=out)  # noqa: E731
    one = np.empty_like(queries)
    for call in (
        lambda: ops.conv2d_backward(x, weight, dy, variant="nchw", out={"dx": x}),
        lambda: attend(dQ=one, dK=one),
        lambda: attend(dV=queries),
        lambda: ops.kv_append(new, new + 1, np.array([1]), out=(cache, cache)),
        lambda: ops.kv_append(new, new + 1, np.array([1]), out=(cache[:1], cache.reshape(1, 16, 2, 4)[:, 1:9])),
    ):
        with tessera.use(device), pytest.raises(tessera.ArgumentError, match="is written in the memory of"):
            call()
    assert not cache.any()
    # Parts of one array that lie between each other share none.
    fused = np.zeros((1, 2, 5, 3, 8), np.float32)
    with tessera.use(device):
        want, parts = attend(), [fused[:, :, :, at] for at in range(3)]
        attend(dQ=parts[0], dK=parts[1], dV=parts[2])
    assert all(same(part, right) for part, right in zip(parts, want, strict=True))


@pytest.mark.parametrize("device", ["cpu", "emu"])
def test_arrays_between_each_other_share_nothing(device):
    @ct.kernel
    def doubled(x, y):
        ct.store(y, (ct.bid(0), 0), ct.load(x, (ct.bid(0), 0), (1, 16)) * 2)

    fused = np.arange(4 * 3 * 16, dtype=np.float32).reshape(4, 3, 16)
    want = fused.copy()
    want[:, 1] = fused[:, 0] * 2
    with tessera.use(device):
        ct.launch(None, (4,), doubled, (fused[:, 0], fused[:, 1]))
        assert same(fused, want)
        columns = np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
        ct.launch(None, (4,), doubled, (columns[:, ::2], columns[:, 1::2]))
        assert (columns[:, 1::2] == columns[:, ::2] * 2).all() and (columns[:, ::2] == np.arange(0, 128, 2).reshape(4, 16)).all()
        for other in (columns[:, 1:17], columns[:, 2:18]):
            with pytest.raises(tessera.ArgumentError, match="overlap"):
                ct.launch(None, (4,), doubled, (columns[:, ::2], other))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_of_an_array_s_library_pass(kind):
    class Interrupted:
        calls = 0

        def __dlpack__(self, **_):
            Interrupted.calls += 1
            raise kind

    with pytest.raises(kind):
        ct.launch(None, (7,), copy, (Interrupted(), np.zeros(100, np.float32), 16))
    assert Interrupted.calls == 1
    with pytest.raises(tessera.ArgumentError, match="not today") as found:
        ct.launch(None, (7,), copy, (Fails(), np.zeros(100, np.float32), 16))
    assert isinstance(found.value.__cause__, RuntimeError)


@pytest.mark.parametrize("device", ["cpu", "emu"])
def test_autograd_knows_that_a_kernel_has_written(device):
    torch = pytest.importorskip("torch")
    x, y = torch.arange(100.0), torch.zeros(100)
    versions = x._version, y._version
    with tessera.use(device):
        ct.launch(None, (7,), copy, (x, y, 16))
        assert x._version == versions[0] and y._version > versions[1]
        version = y._version
        tessera.ops.relu(x, out=y)
        assert x._version == versions[0] and y._version > version
        weight = torch.ones(100, requires_grad=True)
        product = (weight * y).sum()
        ct.launch(None, (7,), copy, (x, y, 16))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        with torch.inference_mode():
            free = torch.zeros(100)
        ct.launch(None, (7,), copy, (x, free, 16))
        assert same(free.numpy(), x.numpy())


def test_read_only_arrays():
    x = np.arange(100, dtype=np.float32)
    x.flags.writeable = False
    assert same(copied(x), x)
    with pytest.raises(tessera.ArgumentError, match="`copy` writes `out`, and that array must not be written"):
        copied(np.zeros(100, np.float32), x)


class OnGpu:
    device = 0
    __cuda_array_interface__ = {"shape": (100,), "typestr": "<f4", "data": (4096, False), "version": 3}


class NoData:
    __cuda_array_interface__ = {"shape": (100,), "typestr": "<f4", "version": 3}


class NoDictionary:
    __cuda_array_interface__ = "x"


class NoCapsule:
    def __dlpack__(self, **_):
        return 5


class Fails:
    def __dlpack__(self, **_):
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: np.zeros(100, ">f4"), "byte order"),
        (lambda: np.zeros(100, np.float32)[::-1], "backwards"),
        (lambda: np.zeros(100, [("b", "i1"), ("a", "f4")])["a"], "whole elements"),
        (lambda: np.zeros(100, np.complex64), "complex64"),
        (lambda: np.zeros(100, np.longdouble), "no kernel takes"),
        (lambda: np.array([None] * 100), "object"),
        (lambda: np.array(["a"] * 100), "no kernel takes"),
        (lambda: np.zeros(100, "M8[s]"), "datetime64"),
        (lambda: np.zeros(100, [("a", "f4")]), "no kernel takes"),
        (lambda: np.zeros(100, ml_dtypes.int4), "int4"),
        (lambda: np.ma.zeros(100, np.float32), "masked"),
        (lambda: [1, 2], r"`x\[0\]` is a `int`"),
        (lambda: {}, "`x` is a `dict`"),
        (lambda: b"text", "`x` is a `bytes`"),
        (lambda: 1j, "`x` is a `complex`"),
        (lambda: 1 << 70, "64 bits"),
        (lambda: NoData(), "has no `data`"),
        (lambda: NoDictionary(), "is no dictionary"),
        (lambda: NoCapsule(), "no capsule"),
        (lambda: Fails(), "not today"),
        (lambda: OnGpu(), "copy some of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_array_for_kernels(make, says):
    with pytest.raises(tessera.ArgumentError, match=says):
        ct.launch(None, (7,), copy, (make(), np.zeros(100, np.float32), 16))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda torch: torch.zeros(100, device="meta"), "`meta`"),
        (lambda torch: torch.zeros(10, 10).to_sparse(), "layout"),
        (lambda torch: torch.zeros(100, dtype=torch.complex64).conj(), "complex64"),
        (lambda torch: torch.zeros(100, dtype=torch.complex64).conj().imag, "lazily"),
        (lambda torch: torch.zeros(100, dtype=torch.complex64).conj().imag[:, None], "lazily"),
        (lambda torch: torch.zeros(100, dtype=torch.complex64), "complex64"),
        (lambda torch: freed(torch), "freed"),
        (lambda torch: torch.zeros(10, 10).to_mkldnn(), "layout"),
        (lambda torch: traced(torch), "`FakeTensor` has no memory.*custom_op"),
    ],
    ids=["meta", "sparse", "conjugated", "negated", "negated column", "complex", "freed", "mkldnn", "traced"],
)
def test_tensors_that_have_no_memory_for_kernels(make, says):
    torch = pytest.importorskip("torch")
    with pytest.raises(tessera.ArgumentError, match=says):
        ct.launch(None, (7,), copy, (make(torch), np.zeros(100, np.float32), 16))


def freed(torch):
    tensor = torch.zeros(100)
    tensor.untyped_storage().resize_(0)
    return tensor


def traced(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(100)


def test_a_tensor_on_a_gpu_that_is_not_there(place):
    with pytest.raises(tessera.DeviceError, match="GPU 0"):
        ct.launch(None, (1,), copy, (OnGpu(), OnGpu(), 16))
