"""What ported_bench.py and odd_bench.py have in common: tensors, peers that take turns over a cold cache, and a line for each case."""
import os
import statistics
import sys
import time

import tessera.tile as ct
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(__file__))
import ported as K
DEV = os.environ.get("DEV", "cuda")
CUDA = DEV == "cuda"
only = sys.argv[1:]
torch.manual_seed(1)
bf = torch.bfloat16
def R(*s, dtype=bf): return torch.randn(*s, device=DEV, dtype=torch.float32).to(dtype)
def E(*s, dtype=bf): return torch.full(s, float("nan"), device=DEV).to(dtype) if dtype.is_floating_point else torch.zeros(s, device=DEV, dtype=dtype)
flush = torch.empty(256 << 20, dtype=torch.int8, device=DEV) if CUDA else None
def pow2(n): return 1 << (n - 1).bit_length()
def stream(): return torch.cuda.current_stream() if CUDA else None

def times(fs, n=15):
    ts = [[] for _ in fs]
    for f in fs:
        for _ in range(3): f()
    torch.cuda.synchronize()
    for _ in range(n):
        for i, f in enumerate(fs):
            flush.zero_()
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); f(); b.record()
            ts[i].append((a, b))
    torch.cuda.synchronize()
    return [statistics.median(a.elapsed_time(b) * 1e3 for a, b in t) for t in ts]

def case(name, ours, result, reference, peers, nbytes=0, flops=0, tol=2e-2):
    if only and not any(o in name for o in only): return
    try:
        t0 = time.time(); ours()
        if CUDA: torch.cuda.synchronize()
        first = time.time() - t0
        got, want = result(), reference()
        err = ((got.double() - want.double()).norm() / want.double().norm()).item()
        verdict = "ok" if err < tol else f"WRONG {err:.2e}"
        if not CUDA:
            print(f"{name:46s} {verdict} {err:.1e} {first*1e3:.0f} ms", flush=True); return
        fs = [ours]
        names = []
        if WARPS: peers = variants(ours)
        for n, p in peers.items():
            if n == "compiled":
                torch._dynamo.reset()
                p = torch.compile(p, dynamic=False)
            try:
                p(); torch.cuda.synchronize(); fs.append(p); names.append(n)
            except Exception as e:
                print("   peer", n, type(e).__name__, str(e)[:100])
        ts = times(fs)
        rate = f"{nbytes / ts[0] / 1e3:6.0f} GB/s" if nbytes else f"{flops / ts[0] / 1e6:6.0f} TF/s"
        peer = "  ".join(f"{n} {t:.1f} ({t / ts[0]:.2f})" for n, t in zip(names, ts[1:]))
        print(f"{name:46s} {verdict} {ts[0]:8.1f} us {rate}  {peer}  first {first*1e3:.0f} ms", flush=True)
    except Exception as e:
        print(f"{name:46s} FAILED {type(e).__name__}: {str(e)[:300]}", flush=True)

def launch(grid, k, args):
    st = stream()
    f = lambda: ct.launch(st, grid, k, args)
    f.parts = (grid, k, args)
    return f
WARPS = [w for w in os.environ.get("WARPS", "").split(",") if w]
def variants(ours):
    grid, k, args = ours.parts
    made = {}
    for w in WARPS:
        named = [part.split("=") for part in w.split("+") if "=" in part]
        h = {name: int(value) for name, value in named} or dict(zip(("num_warps", "occupancy"), map(int, w.split("x"))))
        v = type(k)(k.__tessera_function__)
        v._hints = {**k._hints, **h}
        made["w" + w if w[0].isdigit() else w] = lambda v=v: ct.launch(stream(), grid, v, args)
    return made
