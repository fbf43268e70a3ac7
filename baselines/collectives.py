"""PyTorch's collectives as the ranks of a baseline: NCCL through torch.distributed, and the kernels of its symmetric memory.

    tessera bench all_reduce --ranks 2 --device cuda --baseline "torch=python3 baselines/collectives.py"

`tessera bench` starts it once a rank with torchrun's variables and gives it the device, `cuda` or `cpu` (where Gloo does the exchange). Reads one
JSON request a line and answers one JSON line; what is asked is described in `crates/tessera-bench/src/collectives/ask.rs`, inputs and
digests in `data.rs`. Results pass the same gate, and times are taken as `stopwatch.rs` takes them: events around launches, or around a graph of them,
behind a launch that is not timed.
"""
import json
import os
import sys
import time

MASK = 0xFFFFFFFF
# Significant bits of the types, and bytes of an element.
BITS = {"f32": 24, "f16": 11, "bf16": 8}
SIZES = {"f32": 4, "f16": 2, "bf16": 2}
# Elements that are made or digested at a time.
PIECE = 1 << 24


class Unsupported(Exception):
    """The baseline has no such case; that is an answer, not a failure."""


def mix(x):
    """The finaliser of 32 bits, of numbers or of tensors of 64-bit integers."""
    x = (x ^ (x >> 16)) * 0x7FEB352D & MASK
    x = (x ^ (x >> 15)) * 0x846CA68B & MASK
    return x ^ (x >> 16)


def values(index, seed, rank, ranks, exact, dtype):
    """A rank's inputs at an index, or at a tensor of them."""
    key = (seed * 0x85EBCA6B + rank * 0xC2B2AE35 + 0x165667B1) & MASK
    x = mix(index * 0x9E3779B1 + key & MASK)
    if exact:
        amplitude = 4 if ranks <= 64 else 1
        return x % (2 * amplitude + 1) - amplitude
    bits = BITS[dtype]
    return (x >> (32 - bits)) / 2 ** (bits - 1) - 1


def weights(index):
    """What codes at an index count in a digest."""
    return 2 * mix(index) + 1


def import_torch():
    """PyTorch and its symmetric memory, under this module's names."""
    global torch, dist, symmetric, DTYPES, VIEWS
    import torch
    import torch.distributed as dist

    try:
        import torch.distributed._symmetric_memory as symmetric
    except ImportError:
        symmetric = None
    DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    VIEWS = {"f32": (torch.int32, MASK), "f16": (torch.int16, 0xFFFF), "bf16": (torch.int16, 0xFFFF)}


class Case:
    """Memory and work of one case. `source` is never written; `work` is what is timed, `once` what is judged."""

    def __init__(self, ask, device):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        if ask["ranks"] != self.ranks:
            raise RuntimeError(f"there are {self.ranks} ranks, not {ask['ranks']}")
        self.dtype, self.collective, self.device = ask["dtype"], ask["collective"], device
        count = ask["bytes"] // SIZES[self.dtype]
        part = count // self.ranks
        self.given = part if self.collective == "all_gather" else count
        self.got = part if self.collective == "reduce_scatter" else count
        self.graphs = {}
        self.way = ask["implementation"]
        kind = {"dtype": DTYPES[self.dtype], "device": device}
        if self.way in ("one-shot", "two-shot"):
            self.source = symmetric.empty(self.given, **kind)
            self.handle = symmetric.rendezvous(self.source, dist.group.WORLD.group_name)
        else:
            self.source = torch.empty(self.given, **kind)
        self.result = torch.empty(self.got, **kind)
        self.prepare()

    def prepare(self):
        source, result = self.source, self.result
        name = dist.group.WORLD.group_name

        def copied():
            result.copy_(source)

        nothing = lambda: None
        self.before, self.after = nothing, nothing
        if self.way == "one-shot":
            self.work = lambda: torch.ops.symm_mem.one_shot_all_reduce_out(source, "sum", name, result)
        elif self.way == "two-shot":
            # In place on the symmetric memory, which holds the input again before each launch that is judged.
            kept = torch.empty_like(source)
            self.kept = kept
            self.before = lambda: source.copy_(kept)
            self.work = lambda: torch.ops.symm_mem.two_shot_all_reduce_(source, "sum", name)

            def moved():
                result.copy_(source)
                source.copy_(kept)

            self.after = moved
        elif self.collective == "all_reduce":
            self.before, self.work = copied, lambda: dist.all_reduce(result)
        elif self.collective == "reduce_scatter":
            self.work = lambda: dist.reduce_scatter_tensor(result, source)
        elif self.collective == "all_gather":
            self.work = lambda: dist.all_gather_into_tensor(result, source)
        elif self.collective == "all_to_all":
            self.work = lambda: dist.all_to_all_single(result, source)
        elif self.collective == "broadcast":
            if self.rank == 0:
                self.before = copied
            self.work = lambda: dist.broadcast(result, 0)
        elif self.collective == "send_recv":
            following, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks

            def exchange():
                pair = [dist.P2POp(dist.isend, source, following), dist.P2POp(dist.irecv, result, before)]
                for request in dist.batch_isend_irecv(pair):
                    request.wait()

            self.work = exchange
        else:
            raise Unsupported(f"`{self.collective}`")
        self.source.zero_()
        if self.way == "two-shot":
            self.kept.zero_()
        try:
            self.once()
        except (RuntimeError, NotImplementedError) as error:
            raise Unsupported(str(error).splitlines()[0]) from error

    def settle(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def once(self):
        self.before()
        self.work()
        self.after()
        self.settle()

    def pieces(self, tensor):
        for first in range(0, tensor.numel(), PIECE):
            piece = tensor[first:first + PIECE]
            yield piece, torch.arange(first, first + piece.numel(), dtype=torch.int64, device=self.device)

    def fill(self, ask):
        for piece, index in self.pieces(self.source):
            made = values(index, ask["seed"], self.rank, self.ranks, ask["exact"], self.dtype)
            piece.copy_(made.to(DTYPES[self.dtype]))
        if self.way == "two-shot":
            self.kept.copy_(self.source)
        self.settle()
        return {}

    def poison(self, ask):
        if self.collective == "broadcast" and self.rank == 0:
            self.result.copy_(self.source)
        else:
            self.result.view(torch.uint8).fill_(ask["byte"])
        self.settle()
        return {}

    def codes(self, tensor):
        view, mask = VIEWS[self.dtype]
        return tensor.view(view).to(torch.int64) & mask

    def digest(self, ask):
        tensor = self.source if ask["of"] == "source" else self.result
        total = 0
        for piece, index in self.pieces(tensor):
            total += int((self.codes(piece) * weights(index)).sum().item())
        return {"digest": f"{total & 0xFFFFFFFFFFFFFFFF:016x}"}

    def read(self, ask):
        if ask["rank"] != self.rank:
            return {}
        some = self.result[ask["start"]:ask["start"] + ask["len"]].contiguous()
        if some.numel() != ask["len"]:
            raise RuntimeError(f"there are {self.result.numel()} elements")
        data = some.view(torch.uint8).cpu().tolist()
        return {"codes": bytes(data).hex()}

    def time(self, ask):
        samples, launches = ask["samples"], ask["launches"]
        answer = self.on_device(samples, launches, ask["graph"]) if self.device.type == "cuda" else self.on_host(samples, launches)
        # What was timed may have worked on its own results: the one that is looked at is made once more.
        self.once()
        return {"ns": answer}

    def on_host(self, samples, launches):
        times = []
        for _ in range(samples):
            dist.barrier()
            begin = time.perf_counter_ns()
            for _ in range(launches):
                self.work()
            times.append((time.perf_counter_ns() - begin) / launches)
        return times

    def on_device(self, samples, launches, as_graph):
        torch.cuda.synchronize()
        self.work()
        torch.cuda.synchronize()
        graph = self.graph(launches) if as_graph else None

        def launch():
            if graph is not None:
                graph.replay()
            else:
                for _ in range(launches):
                    self.work()

        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(samples)]
        launch()
        for start, end in pairs:
            start.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e6 / launches for start, end in pairs]

    def graph(self, launches):
        if launches not in self.graphs:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.work()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # The watchdog of NCCL asks for events from its own thread meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for _ in range(launches):
                    self.work()
            self.graphs[launches] = graph
        return self.graphs[launches]

    def release(self):
        self.settle()
        self.graphs.clear()
        return {}


def offers(device):
    """The ways that there are here."""
    every = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"]
    if device.type == "cpu":
        return [{"name": "gloo", "collectives": ["all_reduce", "all_gather", "broadcast", "send_recv"]}]
    found = [{"name": "nccl", "collectives": every}]
    if symmetric is not None and hasattr(torch.ops.symm_mem, "one_shot_all_reduce_out"):
        found += [{"name": name, "collectives": ["all_reduce"]} for name in ("one-shot", "two-shot")]
    return found


def answer(cases, device, ask):
    what = ask["ask"]
    if what == "describe":
        return {"name": f"torch {torch.__version__}", "offers": offers(device)}
    if what == "prepare":
        cases[ask["case"]] = Case(ask, device)
        return {"name": f"torch {torch.__version__}"}
    if what == "release":
        case = cases.pop(ask["case"], None)
        return case.release() if case else {}
    case = cases[ask["case"]]
    if what == "run":
        case.once()
        return {}
    if what == "guards":
        return {}
    return {"fill": case.fill, "poison": case.poison, "digest": case.digest, "read": case.read, "time": case.time}[what](ask)


def main():
    import_torch()
    kind = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    # What libraries print must not stand between answers.
    words = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        device = torch.device("cuda", torch.cuda.current_device())
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    cases = {}
    for line in sys.stdin:
        try:
            reply = answer(cases, device, json.loads(line))
        except Unsupported as why:
            reply = {"error": str(why), "status": "unsupported"}
        except Exception as error:  # every failure is an answer
            memory = "OutOfMemory" in type(error).__name__
            reply = {"error": f"{type(error).__name__}: {error}"[:400], "status": "oom" if memory else "runtime_error"}
        print(json.dumps(reply), file=words, flush=True)
    # Ranks end together, or the last ones wait for those that are gone.
    os._exit(0)


if __name__ == "__main__":
    main()
