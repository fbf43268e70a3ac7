"""PyTorch (and Triton, through torch.compile) as a baseline process of the benchmark harness.

    tessera bench --device cuda --baseline "torch=python3 baselines/torch_baseline.py"
    tessera bench --device cuda --baseline "compiled=python3 baselines/torch_baseline.py --compile"

Reads one JSON request a line and answers one JSON line; the protocol is described in `crates/tessera-bench/src/device/worker.rs`.
The work is done on the harness's own tensors, so it passes the same correctness gate, and is timed as the harness times: a
block of samples is queued behind a spinning kernel, each between two events, after reading through the cache when cold.
"""
import ctypes
import importlib
import json
import pathlib
import sys

import torch

COMPILE = "--compile" in sys.argv
DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8,
}


class Unsupported(Exception):
    """The baseline has no such case; that is an answer, not a failure."""


class Memory:
    """Device bytes of another process, as PyTorch takes foreign memory."""

    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (pointer, False), "version": 3}


class Handle(ctypes.Structure):
    """The driver's interprocess handle."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


class Case:
    """Tensors and work of one case."""

    driver = ctypes.CDLL("libcuda.so.1")
    flush = None

    def __init__(self, request, operators):
        self.opened = {}
        self.tensors = {}
        self.work = None
        self.make = None
        self.into = None
        self.tf32 = False
        try:
            self.prepare(request, operators)
        except Exception:
            self.release()
            raise

    def memory(self, handle):
        if handle not in self.opened:
            raw = Handle()
            ctypes.memmove(ctypes.byref(raw), bytes.fromhex(handle), 64)
            pointer = ctypes.c_uint64()
            status = self.driver.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), raw, 1)
            if status != 0:
                raise Unsupported(f"memory of the harness cannot be opened here (driver code {status})")
            self.opened[handle] = pointer.value
        return self.opened[handle]

    def tensor(self, spec):
        if spec["dtype"] not in DTYPES:
            raise Unsupported(f"elements of type {spec['dtype']}")
        dtype = DTYPES[spec["dtype"]]
        count = spec["step"]
        for size in spec["shape"]:
            count *= size
        pointer = self.memory(spec["handle"]) + spec["offset"]
        flat = torch.as_tensor(Memory(pointer, count * dtype.itemsize), device="cuda").view(dtype)
        return flat[:: spec["step"]].view(spec["shape"]) if spec["step"] > 1 else flat.view(spec["shape"])

    def prepare(self, request, operators):
        self.tensors = {spec["name"]: self.tensor(spec) for spec in request["tensors"]}
        self.tf32 = request["precision"].startswith("tf32")
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self.make = lambda: operators[request["operator"]](request, self.tensors)
        self.renew()
        for _ in range(2):
            self.work()
        torch.cuda.synchronize()

    def renew(self):
        """The work on what the tensors hold now: operators find labels of another type, statistics and patterns before what is timed."""
        work = self.make()
        self.into = getattr(work, "into", None)
        self.work = torch.compile(work, mode="max-autotune-no-cudagraphs") if COMPILE else work

    def release(self):
        self.work, self.make, self.tensors = None, None, {}
        torch.cuda.synchronize()
        for pointer in self.opened.values():
            self.driver.cuIpcCloseMemHandle(ctypes.c_uint64(pointer))
        self.opened = {}
        return {}

    def run(self):
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        self.renew()
        result = self.work()
        if isinstance(self.into, (list, tuple)):
            for into, own in zip(self.into, result, strict=True):
                into.copy_(own)
        elif self.into is not None:
            self.into.copy_(result)
        torch.cuda.synchronize()
        return {}

    def time(self, request):
        cold, samples, launches = request["timing"] == "cold", request["samples"], request["launches"]
        if cold and (Case.flush is None or Case.flush.numel() != request["flush_bytes"] // 4):
            Case.flush = torch.zeros(request["flush_bytes"] // 4, device="cuda", dtype=torch.float32)
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(samples)]
        graph = None
        self.work()
        if request["timing"] == "graph":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(launches):
                    self.work()
        torch.cuda.synchronize()
        # Host work for a sample stays below 100 us: the spinning kernel holds the queue until all of it is there.
        torch.cuda._sleep(int(2e9 * 1e-4 * min(samples * max(launches, 1), 400)))
        for start, end in pairs:
            if cold:
                Case.flush.sum()
            start.record()
            if graph is not None:
                graph.replay()
            else:
                for _ in range(launches):
                    self.work()
            end.record()
        torch.cuda.synchronize()
        return {"ns": [start.elapsed_time(end) * 1e6 / launches for start, end in pairs]}


def numbers(request):
    """The numbers of a variant by name: alpha for `nt alpha=0.5`."""
    words = (word.split("=") for word in request["variant"].split(" ") if "=" in word)
    return {name: float(value) for name, value in words}


def gemm(request, t):
    a, b, c = t["A"], t["B"], t["C"]
    letters, given = request["variant"].split(" "), numbers(request)
    a = a.transpose(-1, -2) if "tn" in letters or "tt" in letters else a
    b = b.transpose(-1, -2) if "nt" in letters or "tt" in letters else b
    if given:
        if a.dtype != c.dtype:
            raise Unsupported("alpha and beta with results of another type")
        blend = torch.addmm if a.dim() == 2 else torch.baddbmm
        alpha, beta = given.get("alpha", 1.0), given.get("beta", 0.0)
        return lambda: blend(c, a, b, alpha=alpha, beta=beta, out=c)
    if a.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        if b.is_contiguous() or a.dim() != 2:
            raise Unsupported("eight-bit products of this layout")
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=c.dtype, out=c)
    if a.dtype == torch.int8:
        return lambda: torch._int_mm(a, b, out=c)
    if a.dtype == c.dtype:
        return lambda: torch.matmul(a, b, out=c)
    product = torch.mm if a.dim() == 2 else torch.bmm
    return lambda: product(a, b, out_dtype=c.dtype, out=c)


def gemm_grouped(request, t):
    """PyTorch's grouped product, which allocates its result; only the gate copies it."""
    a, b, c = t["A"], t["B"], t["C"]
    grouped = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if grouped is None or a.dtype != torch.bfloat16 or c.dtype != a.dtype:
        raise Unsupported("grouped products of these types")
    b = b.transpose(-1, -2) if request["variant"] == "nt" else b
    ends = t["offsets"][1:].contiguous()

    def work():
        return grouped(a, b, offs=ends)
    work.into = c
    return work


def attention(request, t):
    """FlashAttention-3 where its wheel is installed, else PyTorch's own choice. Both allocate their result; only the gate copies it."""
    q, k, v, o = t["Q"], t["K"], t["V"], t["O"]
    causal = request["variant"] == "causal"
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        if causal and q.shape[2] != k.shape[2]:
            raise Unsupported("a causal mask that ends with the last key")
        attend = torch.nn.functional.scaled_dot_product_attention

        def work():
            return attend(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
        work.into = o
        return work
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def work():
        result = flash_attn_func(q, k, v, causal=causal)
        return result[0] if isinstance(result, tuple) else result
    work.into = o.transpose(1, 2)
    return work


def softmax(request, t):
    if request["variant"] not in ("", "plain"):
        raise Unsupported(f"the variant {request['variant']}")
    return lambda: torch.softmax(t["x"], -1, out=t["y"])


def layer_norm(request, t):
    x, y = t["x"], t["y"]
    return lambda: y.copy_(torch.nn.functional.layer_norm(x, x.shape[-1:], t["weight"], t["bias"], 1e-5))


def rms_norm(request, t):
    x, y = t["x"], t["y"]
    return lambda: y.copy_(torch.nn.functional.rms_norm(x, x.shape[-1:], t["weight"], 1e-5))


def outputs(request, t):
    """Input tensors by name and the output."""
    given = {spec["name"]: t[spec["name"]] for spec in request["tensors"] if spec["role"] == "input"}
    results = [t[spec["name"]] for spec in request["tensors"] if spec["role"] in ("output", "inout")]
    return list(given.values()), results[0]


def vector(request, t):
    given, out = outputs(request, t)
    word = request["variant"].split(" ")[0]
    if word == "axpy":
        return lambda: torch.add(given[1], given[0], alpha=1.5, out=out)
    if word == "add":
        return lambda: torch.add(given[0], given[1], out=out)
    if word == "mul":
        return lambda: torch.mul(given[0], given[1], out=out)
    if word == "reduce_sum":
        return lambda: torch.sum(given[0], 0, keepdim=True, dtype=out.dtype, out=out)
    if word == "norm":
        return lambda: torch.linalg.vector_norm(given[0], keepdim=True, dtype=out.dtype, out=out)
    if word == "reduce_max" and given[0].dtype == out.dtype:
        return lambda: torch.amax(given[0], 0, keepdim=True, out=out)
    if word == "dot" and given[0].dtype == out.dtype:
        return lambda: torch.dot(given[0], given[1], out=out[0])
    raise Unsupported(f"the variant {request['variant']}")


def bandwidth(request, t):
    given, out = outputs(request, t)
    words = request["variant"].split(" ")
    if "random" in words:
        raise Unsupported("random access")
    if words[0] == "copy":
        return lambda: out.copy_(given[0])
    integers = not out.dtype.is_floating_point
    if words[0] == "scale":
        return lambda: torch.mul(given[0], 3 if integers else 1.5, out=out)
    if words[0] == "add":
        return lambda: torch.add(given[0], given[1], out=out)
    if words[0] == "triad":
        return lambda: torch.add(given[0], given[1], alpha=3 if integers else 1.5, out=out)
    raise Unsupported(f"the variant {request['variant']}")


def histogram(request, t):
    """Bins of floats between the suite's bounds; of integers one a value, where a further bin takes what `histc` would put into the last one."""
    x, counts = t["x"], t["counts"]
    bins = counts.numel()
    if x.is_floating_point():
        return lambda: counts.copy_(torch.histc(x, bins, -4, 4))
    return lambda: counts.copy_(torch.histc(x, bins + 1, 0, bins + 1)[:bins])


def permute(request, t):
    """Axes in the order of the variant's digits, the last ones where there are fewer than four."""
    (x,), y = outputs(request, t)
    digits = [int(digit) for digit in request["variant"].split(" ")[0]]
    lacking = 4 - len(digits)
    order = [*range(lacking), *(lacking + digit for digit in digits)]
    return lambda: y.copy_(x.permute(order))


def linear(request, t):
    """The product with its bias, and ReLU behind it. Other layers round between their launches, to more than the layer's bound allows."""
    word = request["variant"].split(" ")[0]
    if t["x"].dtype != t["y"].dtype or word not in ("bias", "relu"):
        raise Unsupported(f"the variant {word} in one rounding")
    after = torch.relu if word == "relu" else lambda y: y

    def work():
        return after(torch.nn.functional.linear(t["x"], t["weight"], t["bias"]))
    work.into = t["y"]
    return work


OPERATORS = {
    "gemm": gemm, "linear": linear, "permute": permute, "gemm_grouped": gemm_grouped, "attention": attention, "softmax": softmax, "layer_norm": layer_norm,
    "rms_norm": rms_norm, "vector": vector, "histogram": histogram, "bandwidth": bandwidth,
}


def families():
    """Operators of the files in `families/`, which say by NotImplementedError what they have no counterpart of."""
    folder = pathlib.Path(__file__).resolve().parent / "families"
    sys.path.insert(0, str(folder))
    modules = [importlib.import_module(file.stem) for file in sorted(folder.glob("*.py"))]
    return {name: work for module in modules for name, work in module.OPERATORS.items()}


def answer(cases, operators, request):
    ask = request["ask"]
    if ask == "describe":
        name = f"torch {torch.__version__} on {torch.cuda.get_device_name()}"
        return {"name": name, "operators": list(operators)}
    if ask == "prepare":
        cases[request["case"]] = Case(request, operators)
        return {"config": f"torch {torch.__version__}{', compiled' if COMPILE else ''}"}
    if ask == "release":
        case = cases.pop(request["case"], None)
        return case.release() if case else {}
    case = cases[request["case"]]
    return case.run() if ask == "run" else case.time(request)


def serve(operators):
    """Answers requests for these operators: functions, by name, of a request and the tensors by name, each of which gives the work."""
    torch.zeros(1, device="cuda")
    cases = {}
    for line in sys.stdin:
        try:
            reply = {"ok": True, **answer(cases, operators, json.loads(line))}
        except Unsupported as why:
            reply = {"error": str(why), "unsupported": True}
        except Exception as error:  # every failure is an answer
            missing = isinstance(error, NotImplementedError) or "not implemented" in str(error)
            reply = {"error": f"{type(error).__name__}: {error}"[:400], "unsupported": missing}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    serve(OPERATORS | families())
