"""What `docs/performance.md` says of one chip, in one command: measure.py TESSERA OUT.jsonl [--cublaslt FILE] [--only WORD,...].

Every row of the tables below is timed in turns with its peers (cublasLt where a file is given, PyTorch where it is installed) and passes the gate; rows of memory
stand beside the chip's own rates, which the harness measures. Prints the tables: geometric mean and worst row against the goal. A run takes about ten minutes.
"""
import argparse, collections, json, math, os, pathlib, random, statistics, subprocess, sys, tempfile

here = pathlib.Path(__file__).resolve().parent
TORCH = f"torch={sys.executable} {here.parent.parent / 'baselines' / 'torch_baseline.py'}"
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
    return f"batch=1,heads=1,queries={rows},keys={keys}" + (",variant=" + variant if variant else "")


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
        ("permute", "fp32,bf16,int8,fp64", ["a=8192,b=4096,variant=10", "a=8,b=1024,c=32,d=128,variant=0213", "a=16,b=256,c=4096,variant=021"], []),
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
    elif arguments.torch:
        command += ["--baseline", TORCH]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{operator} {precision}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
    return [json.loads(line) for line in open(out)] if os.path.exists(out) else []


def rows(records):
    """Of each case its key, microseconds by implementation, and the share of the bound that we reach."""
    keys = {record["case"]: record["key"] for record in records if record["kind"] == "case"}
    found = collections.defaultdict(dict)
    for record in records:
        if record["kind"] == "summary" and record.get("median_ns"):
            found[record["case"]][record["impl"]] = record
    for case, by in found.items():
        if "tessera" in by:
            yield keys[case], {name: record["median_ns"] / 1e3 for name, record in by.items()}, by["tessera"]


def name_of(key):
    return " ".join([key["operator"], "x".join(str(extent) for extent in key["size"].values()), key["precision"], key.get("variant") or ""]).strip()


def score(title, key, times, record, products):
    """What the goal is about: more is better. Nothing for a row that no peer has."""
    ours = times["tessera"]
    peers = [time for name, time in times.items() if name != "tessera"]
    if title == "weights of 4 bits":
        size = key["size"]
        other = products.get((size["m"], size["n"], size["k"]))
        return other / ours if key["operator"] == "linear_w4" and other else None
    if title == "block-scaled 8-bit floats":
        return record["flops_s"] / 1250e12
    if "rate" in dict((name, of) for name, of, *_ in TABLES)[title]:
        return record.get("efficiency")
    return min(peers) / ours if peers else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera"), parser.add_argument("out")
    parser.add_argument("--cublaslt"), parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    words = [word for word in arguments.only.split(",") if word]
    with tempfile.TemporaryDirectory() as arguments.folder, open(arguments.out, "w") as out:
        for title, of, goal, commands in TABLES:
            if words and not any(word in title for word in words):
                continue
            records = [record for number, row in enumerate(commands) for record in run(arguments, number, row)]
            for record in records:
                out.write(json.dumps({"table": title, **record}) + "\n")
            table(title, of, goal, records)


def table(title, of, goal, records):
    found = list(rows(records))
    products = {tuple(key["size"][axis] for axis in "mnk"): times["cublaslt"]
                for key, times, _ in found if key["operator"] == "gemm" and "cublaslt" in times}
    scored = [(score(title, key, times, record, products), key, times) for key, times, record in found]
    scored = sorted(((value, key, times) for value, key, times in scored if value), key=lambda row: row[0])
    failed = [record for record in records if record["kind"] == "summary" and record["impl"] == "tessera" and not record.get("median_ns")]
    if not scored:
        print(f"{title}: no row")
        return
    mean = math.exp(statistics.fmean(math.log(value) for value, *_ in scored))
    print(f"{title}: {len(scored)} rows, {len(failed)} failed; of the {of}: geometric mean {mean:.3f}, goal {goal}, worst {scored[0][0]:.3f}")
    for value, key, times in scored[:6]:
        print(f"    {value:.3f}  {name_of(key)}  " + ", ".join(f"{name} {time:.1f}" for name, time in times.items()), flush=True)


main()
