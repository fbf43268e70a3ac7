"""Groups of `ptx_forms.py`: video instructions, conversions, halves, moves."""
import random
from fractions import Fraction

import numpy as np

EDGES = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]
MASK = 0xFFFFFFFF


def words(threads, count, seed):
    """Random words with edges among them."""
    source = random.Random(seed)
    pick = lambda: source.choice(EDGES) if source.random() < 0.4 else source.getrandbits(32)
    return np.array([[pick() for _ in range(count)] for _ in range(threads)], np.uint64).astype(np.uint32)


def by_thread(each):
    """A reference from a function of one thread's words, as Python integers."""
    return lambda rows: np.array([[value & MASK for value in each([int(word) for word in row])] for row in rows], np.uint64)


def part(word, bits, place, signed):
    value = word >> (bits * place) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def clamp(value, bits, signed):
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
           "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}
COMBINE = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "absdiff": lambda a, b: abs(a - b), "min": min, "max": max,
           "avrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1}


def scalar_video(source):
    """A scalar video instruction and its meaning: PTX ISA, "Scalar Video Instructions"."""
    name = source.choice(["add", "sub", "absdiff", "min", "max", "shl", "shr", "set"])
    signed = [source.random() < 0.5 for _ in range(3)]
    to_signed, a_signed, b_signed = signed
    if name in ("shl", "shr"):
        b_signed = False
    if name == "set":
        to_signed = False
    types = [f".{'s' if flag else 'u'}32" for flag in (to_signed, a_signed, b_signed)]
    parts = [source.choice(["", "", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"]) for _ in range(2)]
    # What ptxas makes for sm_90a of other forms departs from the manual, as an H200 showed; the emulator refuses them.
    how = source.choice(["plain", "add", "merge"])
    into = source.choice([".b0", ".b1", ".b2", ".b3", ".h0"]) if how == "merge" else ""
    compare, mode = source.choice(list(COMPARE)), source.choice(["clamp", "wrap"])
    text = f"v{name}" + "".join(types[1:] if name == "set" else types)
    text += f".{compare}" if name == "set" else ""
    text += f".{mode}" if name in ("shl", "shr") else ""
    text += ".add" if how == "add" else ""

    def take(word, selected, signed):
        if not selected:
            return part(word, 32, 0, signed)
        return part(word, 8 if selected[1] == "b" else 16, int(selected[2]), signed)

    def meaning(a, b, c):
        ta, tb = take(a, parts[0], a_signed), take(b, parts[1], b_signed)
        if name == "set":
            value = int(COMPARE[compare](ta, tb))
        elif name in ("shl", "shr"):
            by = min(tb, 32) if mode == "clamp" else tb & 31
            value = ta << by if name == "shl" else ta >> by
        else:
            value = COMBINE[name](ta, tb)
        if how == "merge":
            bits = 8 if into[1] == "b" else 16
            mask = ((1 << bits) - 1) << (bits * int(into[2]))
            return c & ~mask | value << (bits * int(into[2])) & mask
        return value + c if how == "add" else value

    operands = f"%i0{parts[0]}, %i1{parts[1]}" + ("" if how == "plain" else ", %i2")
    return text, into, operands, meaning


def vmad(source):
    """PTX ISA, "Scalar Video Instructions: vmad"."""
    signed = [source.random() < 0.5 for _ in range(2)]
    parts = [source.choice(["", ".b0", ".b3", ".h0", ".h1"]) for _ in range(2)]
    plus_one = source.random() < 0.3
    minus = [not plus_one and source.random() < 0.3 for _ in range(3)]
    # Only the product or the summand is negated.
    minus[2] = minus[2] and minus[0] == minus[1]
    negated, final = minus[0] != minus[1], any(signed) or minus[0] != minus[1] or minus[2]
    types = f".{'s' if final else 'u'}32" + "".join(f".{'s' if flag else 'u'}32" for flag in signed)
    text = "vmad" + types + (".po" if plus_one else "")

    def take(word, selected, signed):
        return part(word, {"": 32, "b": 8, "h": 16}[selected[1:2]], int(selected[2:] or 0), signed)

    def meaning(a, b, c):
        product = take(a, parts[0], signed[0]) * take(b, parts[1], signed[1])
        c = ~c & MASK if minus[2] else c
        one = int(plus_one or negated or minus[2])
        return (~product if negated else product) + part(c, 32, 0, final) + one

    sign = ["-" if flag else "" for flag in minus]
    return text, "", f"{sign[0]}%i0{parts[0]}, {sign[1]}%i1{parts[1]}, {sign[2]}%i2", meaning


def simd_video(source):
    """PTX ISA, "SIMD Video Instructions"."""
    lanes = source.choice([2, 4])
    bits, letter = 32 // lanes, "h" if lanes == 2 else "b"
    name = source.choice(["add", "sub", "avrg", "absdiff", "min", "max", "set"])
    to_signed, a_signed, b_signed = [source.random() < 0.5 for _ in range(3)]
    compare, then = source.choice(list(COMPARE)), source.choice(["", "sat", "add"])
    then = "" if name == "set" and then == "sat" else then
    sides, masked = [], ""
    for side in range(2):
        chosen = [source.randrange(2 * lanes) for _ in range(lanes)] if source.random() < 0.6 else None
        sides.append(chosen)
    if source.random() < 0.5:
        picked = sorted(source.sample(range(lanes), source.randint(1, lanes)), reverse=True)
        masked = f".{letter}" + "".join(map(str, picked))
    mask = [int(digit) for digit in masked[2:]] if masked else list(range(lanes))
    types = [f".{'s' if flag else 'u'}32" for flag in (to_signed, a_signed, b_signed)]
    text = f"v{name}{lanes}" + "".join(types[1:] if name == "set" else types)
    text += (f".{compare}" if name == "set" else "") + (f".{then}" if then else "")

    def meaning(a, b, c):
        both = a | b << 32
        result, total = 0, c
        for lane in range(lanes):
            va, vb = [part(both, bits, chosen[lanes - 1 - lane] if chosen else lane + first, signed)
                      for chosen, first, signed in ((sides[0], 0, a_signed), (sides[1], lanes, b_signed))]
            value = int(COMPARE[compare](va, vb)) if name == "set" else COMBINE[name](va, vb)
            if then == "sat":
                value = clamp(value, bits, to_signed)
            if lane in mask:
                result |= (value & ((1 << bits) - 1)) << (bits * lane)
                total += value
            else:
                result |= c & ((1 << bits) - 1) << (bits * lane)
        return total if then == "add" else result

    selected = ["" if chosen is None else f".{letter}" + "".join(map(str, chosen)) for chosen in sides]
    return text, masked, f"%i0{selected[0]}, %i1{selected[1]}, %i2", meaning


def video(Group, name, make, count, seed):
    source = random.Random(seed)
    made = [make(source) for _ in range(count)]
    body = "".join(f"    {text} %o{index}{into}, {operands};\n" for index, (text, into, operands, _) in enumerate(made))
    reference = by_thread(lambda row: [meaning(*row) for _, _, _, meaning in made])
    return Group(name, body, words(192, 3, seed), count, reference)


def pack(Group):
    """`cvt.pack.sat`: two integers, saturated, in the low part of what the third was shifted up by."""
    forms = [(letter, bits) for letter in "us" for bits in (2, 4, 8, 16)]
    body = ""
    for index, (letter, bits) in enumerate(forms):
        last = "" if bits == 16 else ".b32"
        body += f"    cvt.pack.sat.{letter}{bits}.s32{last} %o{index}, %i0, %i1{', %i2' if last else ''};\n"

    def each(row):
        a, b, c = part(row[0], 32, 0, True), part(row[1], 32, 0, True), row[2]
        for letter, bits in forms:
            low, high = [clamp(value, bits, letter == "s") & ((1 << bits) - 1) for value in (b, a)]
            yield (0 if bits == 16 else c << (2 * bits)) | high << bits | low

    return Group("cvt_pack", body, words(192, 3, 11), len(forms), by_thread(each))


def number(code, kind):
    """A 16-bit code as (sign, magnitude) or NaN, or a Fraction."""
    mantissa, bias = (10, 15) if kind == "f16" else (7, 127)
    sign, exponent, rest = code >> 15, code >> mantissa & ((1 << (15 - mantissa)) - 1), code & ((1 << mantissa) - 1)
    top = (1 << (15 - mantissa)) - 1
    if exponent == top:
        return float("nan") if rest else float("-inf" if sign else "inf")
    value = Fraction(rest + (1 << mantissa if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - bias - mantissa)
    return float(-value if sign else value)


HALF_EDGES = [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x83FF, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7FFF, 0xFFFF, 0x3F80,
              0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x80, 0x7F]


def halves(threads, count, seed):
    source = random.Random(seed)
    pick = lambda: source.choice(HALF_EDGES) if source.random() < 0.6 else source.getrandbits(16)
    return np.array([[pick() | pick() << 16 for _ in range(count)] for _ in range(threads)], np.uint64).astype(np.uint32)


def magnitude(a, b, name, kind, ftz, nan):
    """`min.xorsign.abs` of two codes: the magnitude, with the product of the signs; a NaN's sign is left open."""
    def flushed(code):
        return code & 0x8000 if ftz and code & 0x7C00 == 0 else code

    a, b = flushed(a), flushed(b)
    x, y = number(a & 0x7FFF, kind), number(b & 0x7FFF, kind)
    sign = (a ^ b) & 0x8000
    if x != x and y != y or nan and (x != x or y != y):
        return 0x7FFF
    if x != x or y != y:
        return sign | (b if x != x else a) & 0x7FFF
    first = x <= y if name == "min" else x >= y
    return sign | (a if first else b) & 0x7FFF


def xorsign(Group, kind):
    forms = [(name, ftz, nan) for name in ("min", "max") for ftz in ([False, True] if kind == "f16" else [False]) for nan in (False, True)]
    body = ""
    for index, (name, ftz, nan) in enumerate(forms):
        text = name + (".ftz" if ftz else "") + (".NaN" if nan else "") + ".xorsign.abs"
        body += f"    {text}.{kind}x2 %o{2 * index}, %i0, %i1;\n    cvt.u16.u32 %h0, %i0;\n    cvt.u16.u32 %h1, %i1;\n"
        body += f"    {text}.{kind} %h2, %h0, %h1;\n    cvt.u32.u16 %o{2 * index + 1}, %h2;\n"

    def each(row):
        for form in forms:
            low, high = [magnitude(row[0] >> shift & 0xFFFF, row[1] >> shift & 0xFFFF, *(form[0], kind) + form[1:]) for shift in (0, 16)]
            yield low | high << 16
            yield low

    def same(found, wanted):
        # All NaN are one.
        quiet = lambda codes: np.where(np.vectorize(lambda code: number(int(code) & 0x7FFF, kind) != number(int(code) & 0x7FFF, kind))(codes), 0x7FFF, codes)
        halves_of = lambda value: (quiet(value & 0xFFFF), quiet(value >> 16))
        return np.logical_and(*[a == b for a, b in zip(halves_of(found), halves_of(wanted))])

    return Group(f"xorsign_{kind}", body, halves(192, 2, 13), 2 * len(forms), by_thread(each), same=same)


def moves(Group):
    """Vectors, 128 bits as words and as halves, special registers as a vector."""
    body = """
    mov.v2.b32 {%r0, %r1}, {%i1, %i0};
    mov.v4.u32 {%r2, %r3, %r4, %r5}, {%r1, %i2, 7, %r0};
    mov.v2.b32 {%r0, %r1}, {%r1, %r0};
    mov.b32 %o0, %r0; mov.b32 %o1, %r1; mov.b32 %o2, %r2; mov.b32 %o3, %r3; mov.b32 %o4, %r4; mov.b32 %o5, %r5;
    mov.b128 %q0, {%i0, %i1, %i2, %i3};
    mov.b128 %q1, %q0;
    mov.b128 {%d0, %d1}, %q1;
    mov.b64 {%o6, %o7}, %d0;
    mov.b64 {%r0, %o8}, %d1;
    mov.b128 {%o9, _, %o10, _}, %q1;
    mov.v4.u32 {%o11, %o12, %o13, %o14}, %ntid;
    mov.v4.u32 {%o15, %r6, %r7, %r8}, %tid;
    mov.b32 {%c0, %c1, %c2, %c3}, %i0;
    mov.b32 %o16, {%c3, %c2, %c1, %c0};
"""

    def reference(rows):
        out = np.zeros((len(rows), 17), np.uint32)
        i = rows.T
        columns = [i[0], i[1], i[0], i[2], 7, i[1], i[0], i[1], i[3], i[0], i[2], len(rows), 1, 1, 0, np.arange(len(rows)), i[0].byteswap()]
        for index, column in enumerate(columns):
            out[:, index] = column
        return out

    return Group("moves", body, words(64, 4, 17), 17, reference)


def groups(Group):
    return [
        video(Group, "scalar_video", scalar_video, 400, 1),
        video(Group, "vmad", vmad, 160, 2),
        video(Group, "simd_video", simd_video, 300, 3),
        pack(Group),
        xorsign(Group, "f16"),
        xorsign(Group, "bf16"),
        moves(Group),
    ]
