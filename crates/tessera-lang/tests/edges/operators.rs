//! Operators on pairs of element types, shapes and constants; conversions; statements.

use super::calls::{DTYPES, Group};

/// Operations of two operands, as `{a}` and `{b}`.
const PAIRS: &[(&str, &str)] = &[
    ("add", "{a} + {b}"),
    ("subtract", "{a} - {b}"),
    ("truediv", "{a} / {b}"),
    ("floordiv", "{a} // {b}"),
    ("mod", "{a} % {b}"),
    ("pow", "{a} ** {b}"),
    ("shift", "{a} << {b}"),
    ("and", "{a} & {b}"),
    ("equal", "{a} == {b}"),
    ("less", "{a} < {b}"),
    ("matmul", "{a} @ {b}"),
    ("max", "max({a}, {b})"),
    ("minimum", "ct.minimum({a}, {b})"),
    ("cdiv", "ct.cdiv({a}, {b})"),
    ("atan2", "ct.atan2({a}, {b})"),
    ("where", "ct.where(ct.zeros((16, 16), ct.bool_), {a}, {b})"),
    ("truths", "{a} and {b}"),
    ("in", "{a} in ({b}, 1)"),
    ("is", "{a} is {b}"),
    ("choice", "{a} if n > 0 else {b}"),
];

const UNARY: &[(&str, &str)] = &[
    ("negative", "-{a}"),
    ("plus", "+{a}"),
    ("invert", "~{a}"),
    ("not", "not {a}"),
    ("truth", "1 if {a} else 2"),
    ("len", "len({a})"),
];

/// Statements that are tried as they are.
const STATEMENTS: &[(&str, &[&str])] = &[
    (
        "range",
        &[
            "for i in range(4):\n    r = i",
            "for i in range(n):\n    r = i",
            "for i in range(1, n):\n    r = i",
            "for i in range(0, n, 2):\n    r = i",
            "for i in range(n, 0, -1):\n    r = i",
            "for i in range(0, n, n):\n    r = i",
            "for i in range(0, n, 0):\n    r = i",
            "for i in range(u):\n    r = i",
            "for i in range(w):\n    r = i",
            "for i in range(f):\n    r = i",
            "for i in range(4.0):\n    r = i",
            "for i in range(p):\n    r = i",
            "for i in range(True):\n    r = i",
            "for i in range(None):\n    r = i",
            "for i in range():\n    r = i",
            "for i in range(1, 2, 3, 4):\n    r = i",
            "for i in range(ct.int8(4)):\n    r = i",
            "for i in range(ct.uint8(4)):\n    r = i",
            "for i in range(n, w):\n    r = i",
            "for i in range(n, u):\n    r = i",
            "for i in range(1 << 40):\n    r = i",
            "for i in range(ct.zeros(4, ct.int32)):\n    r = i",
            "for i in range(stop=4):\n    r = i",
            "for i in (1, 2):\n    r = i",
            "for i in 4:\n    r = i",
            "for i in n:\n    r = i",
            "for i in m:\n    r = i",
            "for i in l:\n    r = i",
            "for i, j in range(4):\n    r = i",
            "for i in \"ab\":\n    r = i",
            "for i in ct.static_iter(range(3)):\n    r = i",
            "for i in ct.static_iter((1, n)):\n    r = i",
            "for i in ct.static_iter(range(n)):\n    r = i",
            "for i in ct.static_iter(\"ab\"):\n    r = i",
            "for i in ct.static_iter(4):\n    r = i",
            "for i, j in ct.static_iter(((1, 2), (3, 4))):\n    r = j",
            "for i in ct.static_iter(range(3, 0, -1)):\n    r = i",
            "for i in ct.static_iter(range(2000)):\n    r = i",
            "for i in ct.static_iter([j * 2 for j in range(3)]):\n    r = i",
            "for i in ct.static_iter(zip((1, 2), (3, 4))):\n    r = i",
            "for i in ct.static_iter(enumerate((n, 2))):\n    r = i",
            "for i in ct.static_iter(reversed((n, 2))):\n    r = i",
            "for i in range(n):\n    r = i\nelse:\n    r = 2",
            "for i in ct.static_iter(range(3)):\n    if i == 1:\n        break",
            "for i in ct.static_iter(range(3)):\n    if i == 1:\n        continue",
            "for i in range(n):\n    if i == 1:\n        continue\n    if i == 2:\n        break",
            "r = range(4)",
            "r = range(n)[0]",
            "r = len(range(4))",
            "r = tuple(range(3))",
            "r = ct.static_eval(tuple(range(3)))",
            "r = n in range(4)",
            "i = 0\nfor i in range(n):\n    pass\nr = i",
        ],
    ),
    (
        "while",
        &[
            "while n > 0:\n    n -= 1",
            "while n:\n    n -= 1",
            "while f > 0.0:\n    f = f - 1.0",
            "while True:\n    if n > 0:\n        break\n    n += 1",
            "while False:\n    n = 1",
            "while True:\n    n += 1",
            "while ct.zeros(4, ct.bool_):\n    pass",
            "while None:\n    pass",
            "while m:\n    pass",
            "while \"s\":\n    break",
            "while n > 0:\n    n = n - 1\nelse:\n    n = 2",
            "while n > 0:\n    n = 1.5",
            "while n > 0:\n    n = n > 1",
            "while True:\n    k = n\n    if n > 0:\n        break\n    n += 1\nr = k",
            "while n > 0:\n    k = 1\n    n -= 1\nr = k",
            "while ct.static_eval(N == 3):\n    pass",
            "k = 0\nwhile n > k:\n    k = k + w",
            "k = 0\nwhile n > k:\n    k += 1\nr = k",
            "k = 0.5\nwhile f > k:\n    k = k + 1\nr = k",
            "k = None\nwhile n > 0:\n    k = 1\n    n -= 1",
            "t = ct.zeros(4, ct.float32)\nwhile n > 0:\n    t = t + 1\n    n -= 1\nr = t",
            "t = ct.zeros(4, ct.float16)\nwhile n > 0:\n    t = t + f\n    n -= 1\nr = t",
        ],
    ),
    (
        "if",
        &[
            "if n > 0:\n    r = 1\nelse:\n    r = 2",
            "if n:\n    r = 1\nelse:\n    r = 2",
            "if f:\n    r = 1\nelse:\n    r = 2",
            "if u:\n    r = 1\nelse:\n    r = 2",
            "if p:\n    r = 1\nelse:\n    r = 2",
            "if ct.zeros(4, ct.bool_):\n    r = 1\nelse:\n    r = 2",
            "if ct.zeros((), ct.bool_):\n    r = 1\nelse:\n    r = 2",
            "if ct.zeros((1,), ct.bool_):\n    r = 1\nelse:\n    r = 2",
            "if None:\n    r = 1\nelse:\n    r = 2",
            "if \"s\":\n    r = 1\nelse:\n    r = 2",
            "if ():\n    r = 1\nelse:\n    r = 2",
            "if (n,):\n    r = 1\nelse:\n    r = 2",
            "if m:\n    r = 1\nelse:\n    r = 2",
            "if ct.float32:\n    r = 1\nelse:\n    r = 2",
            "if x.dtype == ct.float32:\n    r = 1\nelse:\n    r = undefined_name",
            "if n > 0:\n    r = 1\nelse:\n    r = 2.0",
            "if n > 0:\n    r = n\nelse:\n    r = w",
            "if n > 0:\n    r = n\nelse:\n    r = 2",
            "if n > 0:\n    r = w\nelse:\n    r = 2",
            "if n > 0:\n    r = f\nelse:\n    r = 2.0",
            "if n > 0:\n    r = f\nelse:\n    r = 2",
            "if n > 0:\n    r = ct.float16(1)\nelse:\n    r = 2.0",
            "if n > 0:\n    r = True\nelse:\n    r = 1",
            "if n > 0:\n    r = None\nelse:\n    r = 1",
            "if n > 0:\n    k = 1\nr = k",
            "r = 1\nif n > 0:\n    r = 2.0",
            "if n > 0:\n    r = (1, 2)\nelse:\n    r = (3, 4)",
            "if n > 0:\n    r = (1, 2)\nelse:\n    r = (3, 4, 5)",
            "if n > 0:\n    r = (1, 2.0)\nelse:\n    r = (3, 4)",
            "if n > 0:\n    r = \"a\"\nelse:\n    r = \"b\"",
            "if n > 0:\n    r = \"a\"\nelse:\n    r = \"a\"",
            "if n > 0:\n    r = x\nelse:\n    r = y",
            "if n > 0:\n    r = x\nelse:\n    r = m",
            "if n > 0:\n    r = ct.float32\nelse:\n    r = ct.float16",
            "if n > 0:\n    r = lambda a: a\nelse:\n    r = lambda a: a + 1",
            "if n > 0:\n    r = ct.zeros(4, ct.float32)\nelse:\n    r = ct.zeros(8, ct.float32)",
            "if n > 0:\n    r = x.tiled_view((4,))\nelse:\n    r = y.tiled_view((4,))",
            "if n > 0:\n    return\nr = 1",
            "if n > 0:\n    return 1",
            "r = 1 if n > 0 else 2",
            "r = 1 if n > 0 else 2.0",
            "r = n if n > 0 else w",
            "r = ct.zeros(4, ct.float32) if n > 0 else ct.ones(4, ct.float32)",
            "r = None if n > 0 else 1",
            "r = (1, n) if n > 0 else (n, 2)",
            "r = x if n > 0 else y",
            "r = 1 if ct.zeros(4, ct.bool_) else 2",
        ],
    ),
    (
        "functions",
        &[
            "def g(a):\n    return a + 1\nr = g(n)",
            "def g(a, b=2):\n    return a + b\nr = g(n)",
            "def g(a, *b):\n    return a + len(b)\nr = g(n, 1, 2)",
            "def g(a, *, b):\n    return a + b\nr = g(n, b=1)",
            "def g(a, *, b):\n    return a + b\nr = g(n, 1)",
            "def g(a, /):\n    return a\nr = g(a=n)",
            "def g(a):\n    return a\nr = g()",
            "def g(a):\n    return a\nr = g(1, 2)",
            "def g(a):\n    return a\nr = g(b=1)",
            "def g(a):\n    return a\nr = g(1, a=2)",
            "def g(a, **k):\n    return a\nr = g(1, z=2)",
            "def g(a):\n    return a\nr = g(*(n,))",
            "def g(a):\n    return a\nr = g(**{\"a\": 1})",
            "k = 1\ndef g():\n    return k\nk = 2\nr = g()",
            "def g():\n    return k\nk = 2\nr = g()",
            "def g():\n    return k\nr = g()",
            "k = 1\ndef g():\n    k += 1\n    return k\nr = g()",
            "k = 1\ndef g():\n    nonlocal k\n    k = 2\ng()\nr = k",
            "def g(a):\n    global N\n    return a\nr = g(1)",
            "def g(a):\n    if a > 0:\n        return 1\n    return 2\nr = g(n)",
            "def g(a):\n    if a > 0:\n        return 1\n    return 2.0\nr = g(n)",
            "def g(a):\n    if a > 0:\n        return 1\nr = g(n)",
            "def g(a):\n    for i in range(a):\n        if i > 2:\n            return i\n    return 0\nr = g(n)",
            "def g(a):\n    while True:\n        a += 1\n        if a > 3:\n            return a\nr = g(n)",
            "def g(a):\n    return g(a)\nr = g(n)",
            "def g(a):\n    return 1 if a == 0 else a * g(a - 1)\nr = g(4)",
            "def d(g):\n    return g\n@d\ndef g(a):\n    return a\nr = g(n)",
            "@ct.function\ndef g(a):\n    return a\nr = g(n)",
            "g = lambda a, b=1: a + b\nr = g(n)",
            "g = lambda *a: len(a)\nr = g(1, 2)",
            "r = (lambda a: a)(n)",
            "def g():\n    yield 1\nr = g()",
            "async def g():\n    return 1",
            "class G:\n    pass",
            "def g(a: int = 3) -> int:\n    return a\nr = g()",
            "g = (lambda a: a) if n > 0 else (lambda a: a + 1)\nr = g(1)",
            "def mk(k):\n    def g(a):\n        return a + k\n    return g\nh2 = mk(1) if n > 0 else mk(2)\nr = h2(n)",
            "def mk(k):\n    return lambda a: a + k\nr = mk(n)(1)",
            "r = ct.load",
            "r = ct",
            "r = len",
        ],
    ),
    (
        "tuples",
        &[
            "a, b = 1, n\nr = a + b",
            "a, b = (1, 2, 3)",
            "a, *b = (1, 2, 3)\nr = b",
            "a, b = n",
            "a, b = x.shape[0], 1\nr = b",
            "(a, b), d = (1, 2), 3\nr = b",
            "a = b = n\nr = a",
            "[a, b] = 1, 2\nr = a",
            "r = (1, n)[0]",
            "r = (1, n)[-1]",
            "r = (1, n)[2]",
            "r = (1, n)[n]",
            "r = (1, n)[0:1]",
            "r = (1, n)[::-1]",
            "r = (1, n)[1.0]",
            "r = (1, n)[True]",
            "r = (1, n)[None]",
            "r = (1, n) + (2,)",
            "r = (1, n) * 2",
            "r = 2 * (1, n)",
            "r = (1, n) - (1,)",
            "r = (1, n) == (1, 2)",
            "r = (1, 2) == (1, 2)",
            "r = (1, n) != (1, 2)",
            "r = (1, n) < (1, 2)",
            "r = (1, 2) < (1, 3)",
            "r = (n, (1, n)) == (1, (1, 2))",
            "r = (1, n) == (1, 2, 3)",
            "r = (1, \"a\") == (n, \"a\")",
            "r = (1, None) == (n, None)",
            "r = (1, x.dtype) == (n, ct.float32)",
            "r = (ct.zeros(4, ct.int32), 1) == (ct.zeros(4, ct.int32), 1)",
            "r = (1, n) == 1",
            "r = n in (1, 2)",
            "r = n not in (1, 2)",
            "r = 1 in (1, n)",
            "r = 5 in (1, n)",
            "r = n in ()",
            "r = ct.zeros(4, ct.int32) in (1, 2)",
            "r = \"a\" in (\"a\", \"b\")",
            "r = \"a\" in \"abc\"",
            "r = (1, 2) in ((1, 2), (n, 3))",
            "r = None in (None, 1)",
            "r = len((1, n))",
            "r = not (1, n)",
            "r = not ()",
            "t = (1, n)\nt[0] = 3",
            "t = [1, 2]\nr = t[0]",
            "r = {1: 2}[1]",
            "r = {1, 2}",
            "r = [i for i in range(3)]",
            "r = tuple(i * 2 for i in ct.static_iter(range(3)))",
            "r = tuple(i * 2 for i in range(3))",
            "r = tuple(i for i in ct.static_iter(range(4)) if i % 2 == 0)",
            "r = (*(1, 2), n)",
            "r = tuple((1, n))",
            "r = tuple()",
            "r = tuple(n)",
            "r = (yield)",
            "r = (k := 3)",
            "r = x.shape[0]",
            "r = x.shape[1]",
            "r = x.strides[0]",
            "x.shape = (1,)",
            "r = x.size",
            "r = x.T",
            "r = n.dtype",
            "r = n.shape",
            "r = (3).dtype",
            "r = ct.float32.bitwidth",
            "r = ct.float32.name",
            "r = x.dtype.bitwidth",
            "del n",
            "r = n.real",
        ],
    ),
    (
        "indexing",
        &[
            "t = ct.zeros((4, 8), ct.float32)\nr = t[None]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[:, None]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[None, :, :]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[..., None]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[None, ...]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[0]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[0, 0]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[n]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[0:2]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[:, :, :]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[:]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[::1]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[..., ...]",
            "t = ct.zeros((4, 8), ct.float32)\nr = t[()]",
            "t = ct.zeros((), ct.float32)\nr = t[None]",
            "t = ct.zeros((), ct.float32)\nr = t[...]",
            "r = n[None]",
            "r = x[0]",
            "r = x[n]",
            "r = x[0:4]",
            "x[0] = 1.0",
            "r = l[0]",
            "r = l[n]",
            "r = l[u]",
            "r = l[-1]",
            "r = l[f]",
            "r = l[0:1]",
            "r = len(l)",
            "l[0] = x",
            "r = x.slice(0, u, 8)",
            "r = x.slice(0, 0, u)",
            "r = x.slice(0, n, w)",
            "r = m.slice(axis=1, start=n, stop=n)",
            "r = x.slice(0, 4, 2)",
            "r = x.slice(0, -4, 2)",
            "r = x.slice(0, ct.int8(1), 2)",
            "r = x.slice(0, ct.uint64(1), 2)",
            "r = \"abc\"[0]",
            "r = \"abc\"[1:]",
        ],
    ),
    (
        "strings",
        &[
            "r = \"a\" + \"b\"",
            "r = \"a\" * 2",
            "r = \"a\" == \"b\"",
            "r = \"a\" < \"b\"",
            "r = \"a\" + 1",
            "r = f\"{N}\" == \"16\"",
            "r = f\"{n}\" == \"16\"",
            "r = f\"{N:03d}\"",
            "r = f\"{N!r}\"",
            "r = f\"{N=}\"",
            "r = str(N)",
            "r = str(n)",
            "r = \"a\".upper()",
            "r = \",\".join((\"a\", \"b\"))",
            "r = len(\"abc\")",
            "r = \"a\" is \"a\"",
            "r = \"a\" and 1",
            "print(f\"{n}\")",
            "print(f\"{n:5d}\")",
            "print(f\"{f:.2f}\")",
            "print(f\"{n:.2f}\")",
            "print(f\"{n!r}\")",
            "print(f\"{n=}\")",
            "print(n, f, sep=\"-\")",
            "print(n, sep=1)",
            "print(m)",
            "print((n, 1))",
            "print(None)",
            "print(ct.float32)",
            "print(file=n)",
        ],
    ),
    (
        "statics",
        &[
            "ct.static_assert(N == 16)",
            "ct.static_assert(N)",
            "ct.static_assert(1)",
            "ct.static_assert(None is None)",
            "ct.static_assert(\"s\")",
            "ct.static_assert((1,))",
            "ct.static_assert(N > 3 and N)",
            "ct.static_assert(n == 1)",
            "ct.static_assert(N == 15)",
            "ct.static_assert(True, 3)",
            "ct.static_assert(True, None)",
            "ct.static_assert(True, f\"{n}\")",
            "ct.static_assert(condition=True)",
            "ct.static_assert()",
            "ct.static_assert(True, \"a\", \"b\")",
            "ct.static_assert(isinstance(n, ct.Scalar))",
            "ct.static_assert(x.dtype == ct.float32)",
            "ct.static_assert(x.ndim == 1)",
            "ct.static_assert(not N)",
            "r = ct.static_assert(True)",
            "ct.static_assert(ct.float32)",
            "ct.static_assert(1.0)",
            "ct.static_assert(x.dtype in (ct.float32, ct.float16))",
            "r = ct.static_eval(N * 2)",
            "r = ct.static_eval(n)",
            "r = ct.static_eval(n + 1)",
            "r = ct.static_eval([1, 2])",
            "r = ct.static_eval({1: 2})",
            "r = ct.static_eval((1, n))",
            "r = ct.static_eval(sum([1, 2]))",
            "r = ct.static_eval(max(3, 4))",
            "r = ct.static_eval(\"a\".upper())",
            "r = ct.static_eval(ct.zeros(4, ct.float32))",
            "r = ct.static_eval(x.dtype)",
            "r = ct.static_eval(lambda a: a)",
            "r = ct.static_eval(1, 2)",
            "r = ct.static_eval()",
            "r = ct.static_eval(undefined_name)",
            "r = ct.static_eval(1 // 0)",
            "g = ct.static_eval\nr = g(3)",
            "raise ValueError(\"x\")",
            "raise ct.static_exception(ValueError(\"x\"))",
            "if N == 3:\n    raise ct.static_exception(ValueError(\"x\"))",
            "if n == 3:\n    raise ct.static_exception(ValueError(\"x\"))",
            "raise",
            "assert n > 0",
            "assert N == 16",
            "try:\n    pass\nexcept ValueError:\n    pass",
            "with m:\n    pass",
            "import math",
            "pass",
            "\"docstring\"",
            "...",
            "n",
            "r: int = 3",
            "r: int",
            "r = 1\nr += 1",
            "r += 1",
            "n.x = 1",
            "global K",
            "match n:\n    case 1:\n        pass",
            "r = int(n)",
            "r = float(n)",
            "r = bool(n)",
            "r = int(2.5)",
            "r = int(\"3\")",
            "r = float(\"1.5\")",
            "r = bool(0)",
            "r = ct.int32(2.5)",
            "r = ct.int32(f)",
            "r = ct.float16(n)",
            "r = ct.int8(300)",
            "r = ct.uint8(-1)",
            "r = ct.float32(ct.zeros(4, ct.int32))",
            "r = ct.float32()",
            "r = ct.float32(1, 2)",
            "r = ct.bool_(2)",
            "r = ct.float8_e4m3fn(1.0)",
            "r = isinstance(n, ct.Tile)",
            "r = isinstance(N, int)",
            "r = isinstance(n, int)",
            "r = math.sqrt(4.0)",
            "r = math.pi",
            "r = operator.add(n, 1)",
            "r = n and 5",
            "r = n or 5",
            "r = N or 5",
            "r = n > 0 and f",
            "r = n > 0 or True",
            "r = 0 < n < 5",
            "r = 0 < N < 5",
            "r = 0 < n < f",
            "r = not n",
            "r = not f",
            "r = n is None",
            "r = None is None",
            "r = x is None",
            "r = x is y",
            "r = n is n",
            "r = x == None",
            "r = x == y",
            "r = n == None",
            "r = ct.float32 is ct.float32",
            "r = x.dtype != ct.float16",
            "r = x.dtype == \"float32\"",
            "r = ct.PaddingMode.ZERO == ct.PaddingMode.ZERO",
            "r = ct.load == ct.load",
            "r = (lambda: 1) == 1",
        ],
    ),
];

fn tile(dtype: &str) -> String {
    format!("ct.zeros((16, 16), ct.{dtype})")
}

fn scalar(dtype: &str) -> String {
    format!("ct.zeros((), ct.{dtype})")
}

/// Operators of two operands: every pair of element types, kinds of operands and shapes.
fn pairs(groups: &mut Vec<Group>) {
    for (name, form) in PAIRS {
        let write = |a: &str, b: &str| format!("r = {}", form.replace("{a}", a).replace("{b}", b));
        let is_scalar = matches!(*name, "truths" | "in" | "choice" | "max");
        let of = |dtype: &str| if is_scalar { scalar(dtype) } else { tile(dtype) };
        let mut statements = vec![write(&of("float32"), &of("float32"))];
        for a in DTYPES {
            for b in ["float32", "int32", "uint8", "bool_", "float16", "bfloat16", "int64", "float8_e5m2"] {
                statements.push(write(&of(a), &of(b)));
            }
            statements.push(write(&of(a), &of(a)));
            for constant in ["3", "-1", "300", "2.5", "True", "1 << 40"] {
                statements.push(write(&of(a), constant));
            }
            statements.push(write("2", &of(a)));
            statements.push(write(&of(a), &scalar(a)));
        }
        let kinds = [
            "n",
            "w",
            "u",
            "f",
            "p",
            "N",
            "3",
            "2.5",
            "True",
            "None",
            "\"s\"",
            "(1, n)",
            "m",
            "x.dtype",
            "ct.int8(3)",
            "(lambda a: a)",
            "1 << 70",
            "math.inf",
            "0",
        ];
        for a in kinds {
            for b in ["n", "u", "f", "p", "3", "2.5", "True", "None", "\"s\"", "(1, n)", "m", "-1", "ct.uint8(200)", "0"] {
                statements.push(write(a, b));
            }
        }
        for a in ["(16, 16)", "(1, 16)", "(16, 1)", "(16,)", "(1,)", "()", "(8, 16)", "(2, 16, 16)", "(16, 8)"] {
            statements.push(write(&format!("ct.zeros({a}, ct.float32)"), &tile("float32")));
            statements.push(write(&tile("float32"), &format!("ct.zeros({a}, ct.float32)")));
        }
        groups.push(Group { name: format!("operator.{name}"), statements });
    }
}

/// Operators of one operand.
fn unary(groups: &mut Vec<Group>) {
    for (name, form) in UNARY {
        let write = |a: &str| format!("r = {}", form.replace("{a}", a));
        let mut statements = vec![write("N")];
        for dtype in DTYPES {
            statements.push(write(&tile(dtype)));
            statements.push(write(&scalar(dtype)));
        }
        for other in [
            "n",
            "w",
            "u",
            "f",
            "p",
            "3",
            "2.5",
            "True",
            "None",
            "\"s\"",
            "(1, n)",
            "m",
            "l",
            "x.dtype",
            "ct.int8(3)",
            "ct.load",
            "(lambda a: a)",
            "range(3)",
            "()",
        ] {
            statements.push(write(other));
        }
        groups.push(Group { name: format!("operator.{name}"), statements });
    }
}

/// Conversions between every two element types.
fn conversions(groups: &mut Vec<Group>) {
    for (name, form) in [("astype", "ct.astype({a}, ct.{b})"), ("bitcast", "ct.bitcast({a}, ct.{b})"), ("stored", "")] {
        let mut statements = Vec::new();
        for a in DTYPES {
            for b in DTYPES {
                statements.push(match form {
                    "" => format!("r = ct.insert(ct.zeros((16, 16), ct.{b}), (0, 0), {})", tile(a)),
                    _ => format!("r = {}", form.replace("{a}", &tile(a)).replace("{b}", b)),
                });
            }
        }
        statements.swap(0, 11 * DTYPES.len() + 11);
        groups.push(Group { name: format!("conversion.{name}"), statements });
    }
}

/// Matrix products by element types and by shapes.
fn products() -> Group {
    let mut statements = Vec::new();
    for x in [
        "float16",
        "bfloat16",
        "float32",
        "tfloat32",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "int8",
        "uint8",
        "int32",
        "bool_",
        "float4_e2m1fn",
    ] {
        for y in [x, "float16", "int8", "float8_e5m2"] {
            for acc in ["float32", "float16", "float64", "int32", x] {
                let (x, y) = (format!("ct.zeros((16, 64), ct.{x})"), format!("ct.zeros((64, 8), ct.{y})"));
                statements.push(format!("r = ct.mma({x}, {y}, ct.zeros((16, 8), ct.{acc}))"));
            }
        }
    }
    for (x, y, acc) in [
        ("(16, 64)", "(32, 8)", "(16, 8)"),
        ("(64,)", "(64, 8)", "(8,)"),
        ("(2, 16, 64)", "(64, 8)", "(2, 16, 8)"),
        ("(2, 16, 64)", "(2, 64, 8)", "(2, 16, 8)"),
        ("(2, 16, 64)", "(4, 64, 8)", "(2, 16, 8)"),
        ("(1, 16, 64)", "(4, 64, 8)", "(4, 16, 8)"),
        ("(16, 64)", "(64,)", "(16,)"),
        ("()", "()", "()"),
        ("(16, 64)", "(64, 8)", "(16, 1)"),
        ("(16, 64)", "(64, 8)", "()"),
        ("(2, 2, 16, 64)", "(2, 2, 64, 8)", "(2, 2, 16, 8)"),
        ("(1, 1)", "(1, 1)", "(1, 1)"),
    ] {
        let of = |shape: &str, dtype: &str| format!("ct.zeros({shape}, ct.{dtype})");
        statements.push(format!("r = ct.mma({}, {}, {})", of(x, "float16"), of(y, "float16"), of(acc, "float32")));
        statements.push(format!("r = ct.matmul({}, {})", of(x, "float16"), of(y, "float16")));
    }
    Group { name: "conversion.products".to_string(), statements }
}

/// The groups of operators, conversions and statements.
pub(crate) fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    pairs(&mut groups);
    unary(&mut groups);
    conversions(&mut groups);
    groups.push(products());
    for (name, statements) in STATEMENTS {
        groups.push(Group {
            name: format!("statement.{name}"),
            statements: statements.iter().map(|text| text.to_string()).collect(),
        });
    }
    for group in &mut groups {
        let mut seen = std::collections::BTreeSet::new();
        group.statements.retain(|statement| seen.insert(statement.clone()));
    }
    groups
}
