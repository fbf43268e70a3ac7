"""What the operators' pages say of one chip, in one command: measure.py TESSERA OUT.csv [--only WORD,...] [--seconds N] [--records FILE].

Every row passes the gate and is timed in turns with PyTorch, where it has a counterpart (`baselines/`), and with the rungs of the operator's ladder. `OUT.csv` has a row an
implementation: operator; precision; problem; implementation; microseconds; share of the chip's ceiling. Groups are taken in their order until the seconds are over."""
import argparse, collections, json, pathlib, statistics, subprocess, sys, tempfile, time

here = pathlib.Path(__file__).resolve().parent
TORCH = f"torch={sys.executable} {here.parent.parent / 'baselines' / 'torch_baseline.py'}"
# Name of a group, then its rows: operator, precisions, sizes, whether the ladder is run.
GROUPS = json.loads((here / "rows.json").read_text())


def run(arguments, row, folder, number):
    operator, precisions, sizes, rungs = row
    shapes, out = folder / f"{number}.txt", folder / f"{number}.jsonl"
    shapes.write_text("\n".join(sizes) + "\n")
    command = [arguments.tessera, "bench", operator, "--precision", precisions, "--sizes", f"@{shapes}", "--device", "cuda", "--out", str(out), "--baseline", TORCH]
    command += ["--rungs"] if rungs else []
    done = subprocess.run(command, capture_output=True, text=True)
    if "it offers none of the chosen cases" in done.stderr:
        command = [word for word in command if word not in ("--baseline", TORCH)]
        done = subprocess.run(command, capture_output=True, text=True)
    if not out.exists():
        print(f"{operator}: exit {done.returncode}: {done.stderr.strip()[:300]}")
        return []
    return [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]


def rows_of(records):
    """Each implementation of each case: its median, or why it has none."""
    keys = {record["case"]: record["key"] for record in records if record["kind"] == "case"}
    blocks = collections.defaultdict(list)
    for record in records:
        if record["kind"] == "block":
            blocks[record["case"], record["impl"]].append(statistics.median(record["samples_ns"]))
    for record in records:
        if record["kind"] != "summary":
            continue
        key, implementation = keys[record["case"]], record["impl"]
        extents = ",".join(f"{name}={value}" for name, value in key["size"].items())
        problem = f"{key['variant']} {extents}".strip()
        times = blocks.get((record["case"], implementation))
        share = record.get("efficiency")
        yield (key["operator"], key["precision"], problem, implementation, statistics.median(times) / 1e3 if times else None,
               f"{share:.2f}" if share else "", record["status"], record.get("reason") or "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--records")
    arguments = parser.parse_args()
    words = [word for word in arguments.only.split(",") if word]
    until = time.monotonic() + arguments.seconds
    chip = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    lines, kept = [], []
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        for name, rows in GROUPS.items():
            if words and not any(word in name for word in words):
                continue
            for row in rows:
                if time.monotonic() > until:
                    print(f"time is over before {name}: {row[0]}")
                    break
                number += 1
                records = run(arguments, row, pathlib.Path(folder), number)
                kept += records
                for operator, precision, problem, implementation, us, share, status, reason in rows_of(records):
                    if us is None:
                        print(f"    {operator} {precision} {problem} {implementation}: {status} {reason[:160]}")
                        continue
                    lines.append(f"{operator};{precision};{problem};{implementation};{us:.2f};{share}")
                    print(lines[-1])
    pathlib.Path(arguments.out).write_text(f"# {chip}\noperator;precision;problem;implementation;us;ceiling\n" + "\n".join(lines) + "\n")
    if arguments.records:
        pathlib.Path(arguments.records).write_text("\n".join(json.dumps(record) for record in kept) + "\n")


main()
