"""Answers with NumPy's and ml_dtypes' conversions, for the test `against_ml_dtypes`.

Arguments: pairs NAME COUNT. Standard input: for each pair, COUNT float32 numbers. Standard output: for each pair, their
codes as uint16, then the float64 value of every code in order.
"""

import sys

import ml_dtypes
import numpy as np

FORMATS = {
    "f16": (np.float16, 16),
    "bf16": (ml_dtypes.bfloat16, 16),
    "f8e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "f8e5m2": (ml_dtypes.float8_e5m2, 8),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 8),
    "f6e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "f6e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "f4e2m1": (ml_dtypes.float4_e2m1fn, 4),
}

numbers = np.frombuffer(sys.stdin.buffer.read(), dtype="<f4")
pairs = list(zip(sys.argv[1::2], map(int, sys.argv[2::2])))
for name, count in pairs:
    dtype, bits = FORMATS[name]
    word = np.uint16 if bits == 16 else np.uint8
    mine, numbers = numbers[:count], numbers[count:]
    codes = mine.astype(dtype).view(word).astype("<u2")
    values = np.arange(1 << bits, dtype=np.uint32).astype(word).view(dtype).astype("<f8")
    sys.stdout.buffer.write(codes.tobytes() + values.tobytes())
