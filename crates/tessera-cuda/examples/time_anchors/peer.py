"""What users would pick instead, timed the way the anchors are timed.

Reads one JSON request a line, answers one JSON line. A request names an operation, its sizes, `mode` (cold or warm) and
`reps`; the answer holds the milliseconds of each repetition, or an error. Inputs are N(0, 1) bf16, made once a case.
"""
import json
import sys

import torch

CASES = {}


def gemm(r):
    a = torch.randn(r["m"], r["k"], device="cuda", dtype=torch.bfloat16)
    if r["layout"] == "nn":
        b = torch.randn(r["k"], r["n"], device="cuda", dtype=torch.bfloat16)
    else:
        b = torch.randn(r["n"], r["k"], device="cuda", dtype=torch.bfloat16).t()
    c = torch.empty(r["m"], r["n"], device="cuda", dtype=torch.bfloat16)
    return lambda: torch.matmul(a, b, out=c)


def softmax(r):
    x = torch.randn(r["rows"], r["columns"], device="cuda", dtype=torch.bfloat16)
    return lambda: torch.softmax(x, -1)


def attention(r):
    shape = (r["batch"], r["length"], r["heads"], 128)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    if r["peer"] == "fa3":
        from fa3_fwd_interface import flash_attn_func
        return lambda: flash_attn_func(q, k, v, causal=False)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))

    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return cudnn


def case(r):
    key = json.dumps({k: v for k, v in r.items() if k not in ("mode", "reps")}, sort_keys=True)
    if key not in CASES:
        CASES.clear()
        torch.cuda.empty_cache()
        CASES[key] = {"gemm": gemm, "softmax": softmax, "attention": attention}[r["op"]](r)
        for _ in range(3):
            CASES[key]()
        torch.cuda.synchronize()
    return CASES[key]


def measure(r, flush):
    run = case(r)
    times = []
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(r["reps"]):
        inner = 1 if r["mode"] == "cold" else 10
        if r["mode"] == "cold":
            flush.sum()
        else:
            run()
        start.record()
        for _ in range(inner):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / inner)
    return times


def main():
    flush = torch.zeros(64 << 20, device="cuda", dtype=torch.float32)
    ready = {"ready": True, "torch": torch.__version__, "device": torch.cuda.get_device_name()}
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        try:
            answer = {"ms": measure(json.loads(line), flush)}
        except Exception as error:  # the error is the answer
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


main()
