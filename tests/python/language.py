"""Runs every function of the language through the command line and compares with NumPy. Usage: language.py TESSERA FOLDER [DEVICE]

`language_expressions.py` is a table of expressions, `language_kernels.py`, `language_objects.py` and `language_programs.py` are tables of
whole kernels. Expressions of a group share a kernel, an output each. Everything is run at -O3, at -O0 and checked (`--sanitize
all`): the three must give equal bits. In the end, every public function of cuda.tile must have been run. On another device than the CPU (`emu`,
`cuda`) everything that prints nothing is run once: numbers that NumPy gives exactly are exact there too.
"""
import os
import re
import subprocess
import sys
import types

import numpy as np

import language_expressions
import language_kernels
import language_objects
import language_programs

TESSERA, FOLDER = sys.argv[1], sys.argv[2]
os.makedirs(FOLDER, exist_ok=True)
DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cpu"
ON_CPU = DEVICE == "cpu"
VARIANTS = {"O3": ["-O", "3"], "O0": ["-O", "0"], "checked": ["--sanitize", "all"]} if ON_CPU else {"O3": []}
HEAD = "import math\nimport operator\nimport cuda.tile as ct\n\n"
# Functions that no kernel runs: they stop the compiler, steer it, or name foreign memory.
NOT_RUN = {"static_exception", "compiler_timeout", "foreign_pointer_dtype", "launch"}
# A GPU makes some NaN of a negated NaN.
NAN_BITS = () if ON_CPU else ("ct.bitcast(-edge, ct.int32)",)
failures = []
executed = []
checked = 0


def command_of(label, kernel, arrays, constants, grid):
    """Writes the kernel and its arrays to files and returns the command that runs it."""
    source = os.path.join(FOLDER, f"{label}.py")
    with open(source, "w") as file:
        file.write(HEAD + kernel)
    arguments = list(constants)
    for name, array in arrays.items():
        path = os.path.join(FOLDER, f"{label}.{name}.npy")
        np.save(path, array)
        arguments.append(f"{name}=@{path}")
    return [TESSERA, "run", f"{source}::kernel", *arguments, "--grid", grid, "--device", DEVICE]


def execute(label, kernel, arrays, outputs, constants=(), grid="1"):
    """Runs a kernel in every variant on copies of the arrays. Returns the outputs and what was printed, or None and why not."""
    executed.append(kernel)
    command = command_of(label, kernel, arrays, constants, grid)
    results = {}
    for variant, options in VARIANTS.items():
        saved = {name: os.path.join(FOLDER, f"{label}.{name}.{variant}.npy") for name in outputs}
        saves = [word for name, path in saved.items() for word in ("--save", f"{name}={path}")]
        result = subprocess.run([*command, *saves, *options], capture_output=True, text=True)
        if result.returncode != 0:
            return None, f"{label} ({variant}): {result.stdout}{result.stderr}"
        results[variant] = ({name: np.load(path) for name, path in saved.items()}, result.stdout)
    plain = results["O3"][0]
    for variant, (arrays, _) in results.items():
        for name in outputs:
            if arrays[name].tobytes() != plain[name].tobytes():
                failures.append(f"{label}: `{name}` at {variant} is {arrays[name].ravel()[:8]}, at O3 {plain[name].ravel()[:8]}")
    return plain, results["O3"][1]


def compare(label, got, want, tolerance):
    """A tolerance of 0 asks for equality; else errors are relative to the larger of 1 and the value."""
    global checked
    checked += 1
    want = np.asarray(want)
    if got.dtype.kind == "f" and tolerance:
        got, want = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            wrong = np.abs(got - want) > tolerance * np.maximum(1, np.abs(want))
        wrong = np.where(np.isfinite(got) & np.isfinite(want), wrong, ~((got == want) | (np.isnan(got) & np.isnan(want))))
    else:
        wrong = ~((got == want) | ((got != got) & (want != want)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        failures.append(f"{label}: {int(wrong.sum())} wrong, first {at}: got {got[at]!r}, want {want[at]!r}")



def expression_kernel(cases, inputs):
    """One kernel that stores each case's value, of the type that NumPy's value has, into an output of its own."""
    names = [*inputs, *(f"o{i}" for i in range(len(cases)))]
    lines = [f"def kernel({', '.join(name.upper() for name in names)}):"]
    for name, array in inputs.items():
        lines.append(f"    {name} = ct.load({name.upper()}, {(0,) * array.ndim!r}, {array.shape!r})")
    for i, case in enumerate(cases):
        *statements, value = case.code.strip().split("\n")
        lines += [f"    {statement}" for statement in statements]
        lines.append(f"    r{i} = {value}")
        want = case.want
        dtype = "bool_" if want.dtype == np.bool_ else want.dtype.name
        lines.append(f"    ct.static_assert(r{i}.dtype == ct.{dtype})")
        lines.append(f"    ct.static_assert(r{i}.shape == {want.shape!r})")
        stored = f"r{i}.astype(ct.int8)" if want.dtype == np.bool_ else f"r{i}"
        shape = want.shape or (1,)
        lines.append(f"    ct.store(O{i}, {(0,) * len(shape)!r}, ct.reshape({stored}, {shape!r}))")
    return language_expressions.HELPERS + "\n\n@ct.kernel\n" + "\n".join(lines) + "\n"


def used(code, inputs):
    """The inputs that a text names."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in code.lower()).split())
    return {name: array for name, array in inputs.items() if name in words}


def run_expressions(label, cases):
    inputs = used("\n".join(case.code for case in cases), language_expressions.INPUTS)
    arrays = {name.upper(): array for name, array in inputs.items()}
    for i, case in enumerate(cases):
        dtype = np.int8 if case.want.dtype == np.bool_ else case.want.dtype
        arrays[f"O{i}"] = np.full(case.want.shape or (1,), 77, dtype)
    outputs = [f"O{i}" for i in range(len(cases))]
    got, message = execute(label, expression_kernel(cases, inputs), arrays, outputs)
    if got is None and len(cases) > 1:
        # One refused expression hides the others: each is run on its own.
        for i, case in enumerate(cases):
            run_expressions(f"{label}_{i}", [case])
    elif got is None:
        failures.append(f"{cases[0].code!r}: {message}")
    else:
        for i, case in enumerate(cases):
            compare(f"{label}: {case.code!r}", got[f"O{i}"].reshape(case.want.shape), case.want, case.tolerance)


for group, cases in language_expressions.GROUPS.items():
    cases = [case for case in cases if case.code not in NAN_BITS]
    for start in range(0, len(cases), 16):
        run_expressions(f"{group}{start // 16}", cases[start:start + 16])

for case in language_kernels.CASES:
    got, message = execute(case.name, case.source, case.arrays, list(case.want), case.constants, case.grid)
    if got is None:
        failures.append(message)
        continue
    for name, want in case.want.items():
        compare(f"{case.name}: {name}", got[name], want, case.tolerance)
    if case.printed is not None and case.printed not in message:
        failures.append(f"{case.name}: printed {message!r}, not {case.printed!r}")

for name, body, arrays, grid, options, message in language_programs.MISTAKES:
    if not ON_CPU and "assertion" not in message:
        continue
    lines = "\n".join("    " + line for line in body.split("\n"))
    command = command_of(name, f"@ct.kernel\ndef kernel({', '.join(arrays)}):\n{lines}\n", arrays, [], grid)
    result = subprocess.run([*command, *options], capture_output=True, text=True)
    checked += 1
    if result.returncode == 0 or message not in result.stderr:
        failures.append(f"{name}: exit {result.returncode}, not {message!r}: {result.stdout}{result.stderr}")

public = {}
if ON_CPU:
    import cuda.tile
    public = vars(cuda.tile)
text = "\n".join(executed)
for name, value in public.items():
    if isinstance(value, types.FunctionType) and name not in NOT_RUN and not re.search(rf"\bct\.{name}\b", text):
        failures.append(f"`{name}` was not run")

print("\n".join(failures))
print(f"{checked} results compared, {len(failures)} failures")
if not failures:
    print("the language agrees with NumPy")
sys.exit(bool(failures))
