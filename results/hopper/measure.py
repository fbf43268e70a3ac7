"""What `docs/performance.md` says of one chip, in one command: measure.py TESSERA OUT.csv [--cublaslt FILE] [--only WORD,...] [--records FILE].

Every row of the tables below is timed in turns with its peers (cublasLt where a file is given, PyTorch where it is installed) and passes the gate; rows of memory
stand beside the chip's own rates, which the harness measures, and beside copies of as many bytes. Prints the tables: geometric mean and worst row against the goal. `OUT.csv` has a row a case:
microseconds with their 95 % interval, clock and power while it was timed, the fastest peer, the interval of our time over its, the share of the chip's ceiling, and
what the goal is about. `--records` keeps all that the harness wrote, or reads it again where the file is there. A run takes about ten minutes.
"""
import argparse, collections, csv, json, math, os, pathlib, random, statistics, subprocess, sys, tempfile

here = pathlib.Path(__file__).resolve().parent
TORCH = f"torch={sys.executable} {here.parent.parent / 'baselines' / 'torch_baseline.py'}"
# What PyTorch's baseline has no counterpart of: these are held against products of 16 bits and against a figure.
PEERLESS = ["linear_w4", "gemm_scaled"]
LETTERS = ["nn", "nt", "tn", "tt"]
MODELS = [(8192, 4096, 4096), (4096, 11008, 4096), (2048, 14336, 4096), (16384, 5120, 5120), (2048, 2048, 8192)]
PRIMES = [127, 257, 509, 1021, 2039, 3001, 4099, 1000, 1500, 2501, 3333, 5000, 7001, 777]


def product(m, n, k, variant="nn", batch=1):
    return f"batch={batch},m={m},n={n},k={k},variant={variant}"


def cubes(extents, variant="nn"):
    return [product(n, n, n, variant) for n in extents]


def turns(shapes):
    """Each shape in one of the four transposes."""
    return [product(*shape, LETTERS[at % 4]) for at, shape in enumerate(shapes)]


def odd(count):
    draw = random.Random(15)
    return [tuple(draw.choice(PRIMES) for _ in range(3)) for _ in range(count)]


def weights(rows):
    return [product(m, n, k, "nt") for m in rows for n, k in [(4096, 4096), (11008, 4096), (28672, 8192), (8192, 28672)]]


def norm(rows, hidden):
    return f"batch=1,sequence={rows},hidden={hidden}"


def softmax(rows, keys, variant=""):
    return f"batch=1,heads=1,queries={rows},keys={keys},variant={variant}"


def permuted(order, *extents):
    """Axes by name, the last ones where there are fewer than four."""
    names = "abcd"[4 - len(extents):]
    return ",".join(f"{name}={extent}" for name, extent in zip(names, extents)) + f",variant={order}"


ROWS = [(131072, 128), (32768, 512), (16384, 1000), (8192, 4096), (4096, 8192), (1024, 32768), (512, 65536), (64, 262144), (16, 1048576)]
# Name of the table, what its goal is of, the goal, and its rows: operator, precision, sizes, further options.
TABLES = [
    ("16-bit products", "speed of cublasLt", 1.05, [
        ("gemm", "bf16->bf16", cubes([2048, 3072, 4096, 6144, 8192, 16384]) + cubes([2048, 4096, 8192], "nt") + turns(MODELS), []),
        ("gemm", "bf16", cubes([2048, 4096, 8192]) + turns(MODELS), []),
        ("gemm", "fp16->fp16", turns([(n, n, n) for n in (2048, 4096, 8192, 3072)]), []),
        ("gemm", "bf16->bf16", turns(odd(28)), []),
        ("gemm", "fp16", turns(odd(40)[28:]), []),
    ]),
    ("short contractions", "speed of cublasLt", 1.10, [
        ("gemm", "bf16->bf16", turns([(4096, 4096, 128), (8192, 8192, 512), (16384, 4096, 256), (8192, 8192, 64), (16384, 2048, 512), (4096, 8192, 320)]), []),
        ("gemm", "bf16", turns([(4096, 4096, 128), (8192, 8192, 512), (16384, 4096, 256)]), []),
    ]),
    ("batches of small products", "speed of cublasLt", 1.0, [
        ("gemm", "bf16->bf16", [product(*shape, LETTERS[at % 4], batch) for at, (batch, *shape) in enumerate(
            [(64, 512, 512, 64), (128, 512, 512, 64), (64, 1024, 1024, 128), (32, 2048, 128, 2048), (256, 128, 128, 128), (16, 512, 512, 512)])], []),
    ]),
    ("small products, few rows, long contractions", "speed of cublasLt", 1.25, [
        ("gemm", "bf16->bf16", cubes([256, 512, 768, 1024, 1536]) + weights([1, 16, 64, 128]) + [product(128, 128, 65536)], []),
    ]),
    ("products of 8-bit floats", "speed of cublasLt", 1.02, [
        ("gemm", "fp8_e4m3->bf16", cubes([2048, 3072, 4096, 8192, 16384], "nt") + [product(*shape, "nt") for shape in MODELS], []),
    ]),
    ("products of tf32", "speed of cublasLt", 1.03, [("gemm", "tf32", turns([(n, n, n) for n in (2048, 4096, 8192, 3000)] + MODELS), [])]),
    ("products of int8", "speed of cublasLt", 1.0, [("gemm", "int8", cubes([2048, 3072, 4096, 8192], "nt") + [product(*shape, "nt") for shape in MODELS], [])]),
    ("products of fp32", "speed of cublasLt", 1.03, [("gemm", "fp32", turns([(n, n, n) for n in (1024, 2048, 4096, 3000)] + [(512, 2048, 512), (1024, 4096, 1024)]), [])]),
    ("softmax and norms", "copy rate", 0.95, [
        ("softmax", "fp32,bf16", [softmax(*size) for size in ROWS] + [softmax(4096, 4096, "causal")], []),
        ("softmax", "fp8_e4m3@accum(fp32)", [softmax(*size) for size in ROWS[3:6]], []),
        ("layer_norm", "fp32,bf16", [norm(*size) for size in ROWS[1:8]], []),
        ("rms_norm", "fp32,bf16", [norm(*size) for size in ROWS[1:8]], []),
        ("rms_norm", "fp8_e4m3@accum(fp32)", [norm(*size) for size in ROWS[3:6]], []),
    ]),
    ("elementwise and reductions", "copy and read rates", 0.98, [
        ("vector", "fp32,bf16", [f"n={n},variant={word}" for n in (1 << 24, 1 << 26) for word in ("add", "mul", "reduce_sum", "dot")], []),
        ("vector", "fp32", [f"n={1 << 26},variant={word}" for word in ("axpy", "reduce_max", "norm")], []),
    ]),
    ("transposes and permutations", "copy rate", 0.92, [
        ("permute", "fp32,bf16,int8,fp64", [permuted("10", 8192, 4096), permuted("0213", 8, 1024, 32, 128), permuted("021", 16, 256, 4096)], []),
    ]),
    ("1 MiB and smaller, in a graph", "speed of the best peer", 1.0, [
        ("vector", "fp32", [f"n={n},variant={word}" for n in (1 << 12, 1 << 16, 1 << 18) for word in ("add", "reduce_sum")], ["--timing", "graph"]),
        ("softmax", "bf16", [softmax(256, 1024), softmax(64, 4096)], ["--timing", "graph"]),
        ("rms_norm", "bf16", [norm(256, 1024), norm(64, 8192)], ["--timing", "graph"]),
    ]),
    ("weights of 4 bits", "speed of cublasLt in bf16", 3.2, [
        ("linear_w4", "bf16", [f"m={m},n={n},k={k},group=128,variant=symmetric" for n, k in [(8192, 8192), (28672, 8192)] for m in (1, 16, 64)], []),
        ("gemm", "bf16->bf16", [product(m, n, k, "nt") for n, k in [(8192, 8192), (28672, 8192)] for m in (1, 16, 64)], []),
    ]),
    ("block-scaled 8-bit floats", "1250 TFLOP/s", 1.0, [("gemm_scaled", "fp8_e4m3->bf16", ["m=8192,n=8192,k=8192,variant=blocks"], [])]),
]


def run(arguments, number, row):
    """The records of one command."""
    operator, precision, sizes, options = row
    shapes, out = (os.path.join(arguments.folder, f"{number}.{end}") for end in ("txt", "jsonl"))
    pathlib.Path(shapes).write_text("\n".join(dict.fromkeys(sizes)) + "\n")
    command = [arguments.tessera, "bench", operator, "--precision", precision, "--sizes", "@" + shapes, "--device", "cuda", "--out", out, *options]
    if arguments.cublaslt and operator == "gemm":
        command += ["--cublaslt", arguments.cublaslt]
    elif arguments.torch and operator not in PEERLESS:
        command += ["--baseline", TORCH]
    done = subprocess.run(command, capture_output=True, text=True)
    if not os.path.exists(out):
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in open(out)]


def is_asked(key, commands):
    """An operator does all variants that a word stands for: rows of those that are not asked for are left out."""
    own = {**{name: str(extent) for name, extent in key["size"].items()}, "variant": key.get("variant") or ""}
    for operator, precision, sizes, _ in commands:
        if operator == key["operator"] and key["precision"] in precision.split(","):
            wanted = (dict(word.split("=", 1) for word in size.split(",")) for size in sizes)
            if any(own == {**dict.fromkeys(own, "1"), "variant": "", **size} for size in wanted):
                return True
    return False


class Row:
    """A case: its key, what each implementation took in microseconds, and how we did."""

    def __init__(self, key, work, summaries, blocks):
        self.key, self.summaries, self.copied = key, summaries, None
        self.bytes = work["read_bytes"] + work["write_bytes"]
        self.times = {name: summary["median_ns"] / 1e3 for name, summary in summaries.items()}
        self.own = summaries["tessera"]
        self.states = [block["device"] for block in blocks if block.get("device")]

    def half(self):
        """Half of the bytes that must move, in whole 256 KiB: a copy's buffer."""
        return max(self.bytes // 2 >> 18, 1) << 18

    def state(self, name):
        """The median over blocks of what the chip said while they ran; nothing where it said nothing."""
        return f"{statistics.median(state[name] for state in self.states):.0f}" if self.states else ""

    def fields(self, title, score):
        key, own = self.key, self.own
        low, high = (f"{bound / 1e3:.2f}" for bound in own["ci95_ns"])
        peers = {name: time for name, time in self.times.items() if name != "tessera"}
        peer = min(peers, key=peers.get) if peers else ""
        ratio = (own.get("versus") or {}).get("ci95") or ["", ""]
        copied = f"{self.copied / self.times['tessera']:.3f}" if self.copied else ""
        return [title, key["operator"], key["precision"], key.get("variant") or "", "x".join(map(str, key["size"].values())), own["status"],
                f"{self.times['tessera']:.2f}", low, high, self.state("mhz"), self.state("power_w"), peer,
                f"{peers[peer]:.2f}" if peer else "", *(f"{bound:.3f}" if bound else "" for bound in ratio), "" if own.get("efficiency") is None else f"{own['efficiency']:.3f}",
                copied, f"{score:.3f}" if score else ""]


COLUMNS = ["table", "operator", "precision", "variant", "extents", "status", "us", "us_low", "us_high", "mhz", "watt", "peer", "peer_us", "over_low", "over_high",
           "of_ceiling", "of_copy", "score"]


def rows(records, commands):
    cases = {record["case"]: record for record in records if record["kind"] == "case"}
    summaries, blocks = collections.defaultdict(dict), collections.defaultdict(list)
    for record in records:
        if record["kind"] == "summary" and record.get("median_ns"):
            summaries[record["case"]][record["impl"]] = record
        if record["kind"] == "block" and record["impl"] == "tessera":
            blocks[record["case"]].append(record)
    return [Row(cases[case]["key"], cases[case]["work"], by, blocks[case])
            for case, by in summaries.items() if "tessera" in by and is_asked(cases[case]["key"], commands)]


def copies(found):
    """The command that copies as many bytes as rows move."""
    sizes = {f"bytes={row.half()},variant=copy sequential" for row in found}
    return ("bandwidth", "fp32", sorted(sizes), [])


def score(title, of, row, products):
    """What the goal is about: more is better. Nothing for a row that no peer has."""
    key, ours = row.key, row.times["tessera"]
    peers = [time for name, time in row.times.items() if name != "tessera"]
    if title == "weights of 4 bits":
        other = products.get(tuple(key["size"][axis] for axis in "mnk"))
        return other / ours if key["operator"] == "linear_w4" and other else None
    if title == "block-scaled 8-bit floats":
        return row.own["flops_s"] / 1250e12
    if "rate" in of:
        return row.own.get("efficiency")
    return min(peers) / ours if peers else None


def table(title, of, goal, commands, records, out):
    found = rows([record for record in records if not record.get("copies")], commands)
    copied = rows([record for record in records if record.get("copies")], [copies(found)])
    copied = {row.key["size"]["bytes"]: row.times["tessera"] for row in copied}
    for row in found:
        row.copied = copied.get(row.half())
    products = {tuple(row.key["size"][axis] for axis in "mnk"): row.times["cublaslt"]
                for row in found if row.key["operator"] == "gemm" and "cublaslt" in row.times}
    scored = [(score(title, of, row, products), row) for row in found]
    out.writerows(row.fields(title, value) for value, row in scored)
    scored = sorted(((value, row) for value, row in scored if value), key=lambda pair: pair[0])
    keys = {record["case"]: record["key"] for record in records if record["kind"] == "case"}
    untimed = [record for record in records if record["kind"] == "summary" and not record.get("copies") and record["impl"] == "tessera" and not record.get("median_ns")
               and is_asked(keys[record["case"]], commands)]
    for record in untimed:
        print(f"{title}: {keys[record['case']]}: {record['status']}: {record['reason']}", flush=True)
    if not scored:
        print(f"{title}: no row")
        return len(untimed)
    mean = math.exp(statistics.fmean(math.log(value) for value, _ in scored))
    print(f"{title}: {len(scored)} rows, {len(untimed)} without a time; of the {of}: geometric mean {mean:.3f}, goal {goal}, worst {scored[0][0]:.3f}")
    beside = [row.copied / row.times["tessera"] for row in found if row.copied]
    if beside:
        print(f"    of the speed of a copy of as many bytes: geometric mean {math.exp(statistics.fmean(map(math.log, beside))):.3f}, worst {min(beside):.3f}")
    for value, row in scored[:6]:
        key = row.key
        name = " ".join([key["operator"], "x".join(map(str, key["size"].values())), key["precision"], key.get("variant") or ""])
        print(f"    {value:.3f}  {name}  " + ", ".join(f"{who} {time:.1f}" for who, time in row.times.items()), flush=True)
    return len(untimed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera"), parser.add_argument("out")
    parser.add_argument("--cublaslt"), parser.add_argument("--only", default=""), parser.add_argument("--records")
    arguments = parser.parse_args()
    arguments.torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    words = [word for word in arguments.only.split(",") if word]
    known = [json.loads(line) for line in open(arguments.records)] if arguments.records and os.path.exists(arguments.records) else []
    untimed, beside = 0, os.path.dirname(os.path.abspath(arguments.out))
    with tempfile.TemporaryDirectory(dir=beside) as arguments.folder, open(arguments.out, "w") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for title, of, goal, commands in TABLES:
            if words and not any(word in title for word in words):
                continue
            records = [record for record in known if record["table"] == title]
            if not known:
                records = [record for number, row in enumerate(commands) for record in run(arguments, number, row)]
                if of == "copy rate":
                    asked = copies(rows(records, commands))
                    records += [{"copies": True, **record} for record in run(arguments, len(commands), asked)]
                if arguments.records:
                    with open(arguments.records, "a") as kept:
                        kept.writelines(json.dumps({"table": title, **record}) + "\n" for record in records)
            untimed += table(title, of, goal, commands, records, writer)
    if untimed:
        sys.exit(f"{untimed} rows have no time")


main()
