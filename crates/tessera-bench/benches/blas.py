"""NumPy's side of the comparison: reads `gemm N` lines, does one float32 product each, prints the seconds it took."""
import sys
import time

import numpy as np

operands = {}
for line in sys.stdin:
    n = int(line.split()[1])
    if n not in operands:
        random = np.random.default_rng(n)
        operands[n] = [random.standard_normal((n, n), dtype=np.float32) for _ in range(2)]
    a, b = operands[n]
    start = time.perf_counter()
    a @ b
    print(time.perf_counter() - start, flush=True)
