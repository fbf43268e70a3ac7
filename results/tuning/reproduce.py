"""Tunes everything twice, from nothing, in other orders, and compares the winners: reproduce.py TESSERA OUT.jsonl [SECONDS].

A row for each kernel: the two winners, what the second takes over the first (the mean of both searches, where both timed both), and what the choice without a
lockfile takes over the winner. Rows are taken until SECONDS are over (all without)."""
import json, math, os, subprocess, sys, tempfile, time

tessera, out = sys.argv[1:3]
until = time.monotonic() + float(sys.argv[3]) if len(sys.argv) > 3 else math.inf
here = os.path.dirname(os.path.abspath(__file__))
kernels = os.path.join(here, "..", "plans", "kernels.py")


def array(kind, *extents, seed=1):
    return f"randn:{kind}[{','.join(map(str, extents))}];seed={seed}"


def product(m, n, k, tm, tn, result="f32"):
    return [f"{kernels}::product", "A=" + array("bf16", m, k), "B=" + array("bf16", k, n, seed=2), f"C=empty:{result}[{m},{n}]", f"TM={tm}", f"TN={tn}",
            "TK=64", "--grid", f"{-(-m // tm)},{-(-n // tn)}"]


def operator(name, precision, sizes):
    return [name, "--precision", precision, "--sizes", sizes]


rows = [
    operator("gemm", "bf16->bf16", "batch=1,m=4096,n=4096,k=4096,variant=nn"),
    operator("gemm", "bf16->bf16", "batch=1,m=3000,n=3000,k=3000,variant=nn"),
    operator("gemm", "bf16->bf16", "batch=1,m=1536,n=1536,k=1536,variant=nn"),
    operator("gemm", "bf16->bf16", "batch=1,m=64,n=4096,k=14336,variant=nt"),
    operator("gemm", "bf16->bf16", "batch=1,m=16,n=8192,k=8192,variant=nt"),
    operator("gemm", "fp16->fp16", "batch=1,m=2048,n=2048,k=2048,variant=nt"),
    operator("gemm", "fp8_e4m3@accum(fp32)", "batch=1,m=4096,n=4096,k=4096,variant=nt"),
    operator("linear_w4", "bf16", "m=1,n=8192,k=8192,group=128,variant=symmetric"),
    operator("linear_w4", "bf16", "m=16,n=8192,k=8192,group=128,variant=symmetric"),
    operator("linear_w4", "bf16", "m=64,n=8192,k=8192,group=128,variant=symmetric"),
    operator("attention", "bf16", "batch=4,heads=16,group=1,queries=4096,keys=4096,dim=128,variant=causal"),
    operator("softmax", "bf16", "batch=1,heads=8,queries=4096,keys=4096"),
    operator("layer_norm", "bf16", "batch=4,sequence=4096,hidden=8192"),
    operator("rms_norm", "fp16", "batch=4,sequence=4096,hidden=4096"),
    product(4096, 4096, 4096, 128, 256),
    product(2048, 8192, 1024, 128, 128, "bf16"),
    product(512, 1024, 8192, 128, 128),
    product(1000, 1000, 1000, 64, 128),
    product(128, 28672, 8192, 128, 128, "bf16"),
    [f"{kernels}::attention", "Q=" + array("bf16", 32, 4096, 128), "K=" + array("bf16", 32, 4096, 128, seed=2), "V=" + array("bf16", 32, 4096, 128, seed=3),
     "O=empty:bf16[32,4096,128]", "scale=0.1275", "TM=128", "TN=128", "D=128", "--grid", "32,32"],
]


def search(row, seed):
    with tempfile.TemporaryDirectory() as folder:
        command = [tessera, "tune", *row, "--device", "cuda", "--json", "--seed", str(seed), "--lock", os.path.join(folder, "tessera.lock")]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        took = time.monotonic() - began
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [record for record in records if record.get("kind") == "plan"], took, done


def name(record):
    return json.dumps([record.get("kernel"), record.get("config"), record.get("plan")])


agree = close = total = 0
firsts = []
with open(out, "w") as file:
    for row in rows:
        if time.monotonic() > until:
            print("time is over before", row[0])
            break
        label = " ".join([os.path.basename(row[0]), *row[1:]])
        (one, first_took, done), (two, second_took, _) = search(row, 1), search(row, 2)
        winners = [[record for record in run if record["chosen"]] for run in (one, two)]
        if not all(winners):
            print(f"{label}: no choice: {done.stderr.strip().splitlines()[-3:]}")
            continue
        for first in winners[0]:
            second = next((record for record in winners[1] if record["kernel"] == first["kernel"]), None)
            if second is None:
                continue
            ratios = []
            for run in (one, two):
                times = {name(record): record["us"] for record in run if record["us"]}
                if name(first) in times and name(second) in times:
                    ratios.append(times[name(second)] / times[name(first)])
            ratio = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
            own = next((record for record in one if record["kernel"] == first["kernel"] and record["is_own_plan"] and record["us"]), None)
            untuned = own["us"] / first["us"] if own and first["us"] else math.nan
            same = name(first) == name(second)
            total += 1
            agree += same
            close += same or abs(math.log(ratio)) <= 0.01 if ratios else same
            if not math.isnan(untuned):
                firsts.append(untuned)
            timed = sum(record["us"] is not None for record in one)
            wrong = sum(record["status"] == "incorrect" for record in one)
            file.write(json.dumps({"row": label, "kernel": first["kernel"], "same": same, "second_over_first": ratio, "untuned_over_winner": untuned,
                                   "us": first["us"], "timed": timed, "wrong": wrong, "seconds": [first_took, second_took],
                                   "winners": [[w["config"], w["plan"]] for w in (first, second)]}) + "\n")
            file.flush()
            print(f"{label[:110]:110} {first['kernel'][:24]:24} {first['us'] or 0:9.1f} us  same {str(same):5} {ratio:.4f}  untuned {untuned:.3f}  "
                  f"{timed} timed, {wrong} wrong, {first_took:.1f} s", flush=True)
geometric = math.exp(sum(map(math.log, firsts)) / len(firsts)) if firsts else math.nan
print(f"the same winner in {agree} of {total}, or one within 1 % in {close}; without a lockfile {geometric:.3f} of the winner's time (geometric mean of {len(firsts)})")
