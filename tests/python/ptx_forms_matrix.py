"""Groups of `ptx_forms.py`: matrix products of a warp in rarer shapes, and sparse ones.

Factors are small integers, so that every sum is exact in every format. Where the elements stand is written after the figures and
formulas of the PTX ISA's section "Matrix Fragments".
"""
import random

import numpy as np

LANES = 32


def code(value, ty):
    """The code of a small integer."""
    if ty == "f16":
        return int(np.float16(value).view(np.uint16))
    if ty == "bf16":
        return int(np.float32(value).view(np.uint32)) >> 16
    if ty in ("tf32", "f32"):
        return int(np.float32(value).view(np.uint32))
    return int(value) & ((1 << bits_of(ty)) - 1)


def bits_of(ty):
    return {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32, "e4m3": 8, "e5m2": 8}[ty]


def value_of(word, ty):
    if ty == "f32":
        return float(np.uint32(word).view(np.float32))
    if ty == "f16":
        return float(np.uint16(word & 0xFFFF).view(np.float16))
    return int(np.uint32(word).view(np.int32))


def small(source, ty):
    low = 0 if ty[0] in "ub" else -3
    high = {"b1": 1, "u4": 15, "s4": 7, "u8": 40, "s8": 40}.get(ty, 5)
    return source.randint(low, high)


def packed(values, ty):
    """Registers of consecutive elements."""
    each = 32 // bits_of(ty)
    return [sum(code(value, ty) << (bits_of(ty) * place) for place, value in enumerate(values[start:start + each]))
            for start in range(0, len(values), each)]


def fragment(matrix, ty, rows, depth, is_a):
    """A or B of mma.m*n8k*: lane l has row (column) l / 4, and of A also 8 more; of K the elements of its place in each chunk."""
    each = 32 // bits_of(ty)
    lanes = []
    for lane in range(LANES):
        g, c = lane // 4, lane % 4
        registers = []
        for chunk in range(depth // (4 * each)):
            for row in ([g, g + 8] if is_a and rows == 16 else [g]):
                at = chunk * 4 * each + c * each
                registers += packed(list(matrix[row][at:at + each]), ty)
        lanes.append(registers)
    return lanes


def quad_pairs(Group, d_ty, c_ty, a_row, b_row):
    """`mma.m8n8k4` on halves: four products, of the lanes 4p to 4p + 3 and 16 more than those."""
    source = random.Random(f"{d_ty}{c_ty}{a_row}{b_row}")
    a = [[[source.randint(-4, 4) for _ in range(4)] for _ in range(8)] for _ in range(4)]
    b = [[[source.randint(-4, 4) for _ in range(8)] for _ in range(4)] for _ in range(4)]
    c = [[[source.randint(-9, 9) for _ in range(8)] for _ in range(8)] for _ in range(4)]

    def place(ty, lane, i):
        upper = 4 if lane >= 16 else 0
        if ty == "f16":
            return lane % 4 + upper, i
        return (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)

    rows = []
    for lane in range(LANES):
        p, upper, q = lane % 16 // 4, 4 if lane >= 16 else 0, lane % 4
        a_own = [a[p][q + upper][i] if a_row else a[p][i + upper][q] for i in range(4)]
        b_own = [b[p][q][i + upper] if b_row else b[p][i][q + upper] for i in range(4)]
        c_own = [c[p][r][k] for r, k in (place(c_ty, lane, i) for i in range(8))]
        rows.append(packed(a_own, "f16") + packed(b_own, "f16") + packed(c_own, c_ty))
    layout = lambda by_row: "row" if by_row else "col"
    count = lambda ty: 4 if ty == "f16" else 8
    take = lambda first, number: ", ".join(f"%i{first + i}" for i in range(number))
    own = "%o" if d_ty == "f16" else "%f"
    c_registers = take(4, 4) if c_ty == "f16" else ", ".join(f"%f{20 + i}" for i in range(8))
    body = "" if c_ty == "f16" else "".join(f"    mov.b32 %f{20 + i}, %i{4 + i};\n" for i in range(8))
    results = ", ".join(f"{own}{i}" for i in range(count(d_ty)))
    body += f"    mma.sync.aligned.m8n8k4.{layout(a_row)}.{layout(b_row)}.{d_ty}.f16.f16.{c_ty} {{{results}}}, {{{take(0, 2)}}}, {{{take(2, 2)}}}, {{{c_registers}}};\n"
    body += "" if d_ty == "f16" else "".join(f"    mov.b32 %o{i}, %f{i};\n" for i in range(8))

    def reference(_):
        out = []
        for lane in range(LANES):
            p = lane % 16 // 4
            product = np.array(a[p]) @ np.array(b[p]) + np.array(c[p])
            out.append(packed([product[place(d_ty, lane, i)] for i in range(8)], d_ty))
        return np.array(out, np.uint64)

    return Group(f"mma_m8n8k4_{d_ty}_{c_ty}_{layout(a_row)}_{layout(b_row)}", body, rows, count(d_ty), reference)


def placed(source, fields, ty, selector):
    """Each thread's register of metadata. Two bits a field, the rows g and g + 8 in the threads of quad g.

    Of elements of 8 and 4 bits an even thread has 32 bits of row g and the next one those of row g + 8; of wider ones a thread has
    16 bits of row g, and those of row g + 8 above them. An H200 said so.
    """
    metadata = [source.getrandbits(32) for _ in range(LANES)]
    join = lambda part: sum(field << (2 * i) for i, field in enumerate(part))
    for g in range(8):
        if bits_of(ty) <= 8:
            for piece in range(len(fields[0]) // 16):
                for upper in range(2):
                    metadata[4 * g + 2 * (selector + piece) + upper] = join(fields[g + 8 * upper][16 * piece:16 * piece + 16])
        else:
            pieces = max(len(fields[0]) // 8, 1)
            for piece in range(pieces):
                low, high = (join(fields[row][8 * piece:8 * piece + 8]) for row in (g, g + 8))
                metadata[4 * g + (selector * pieces + piece) % 4] = low | high << 16
    return metadata


def halved(source, rows, k, ty):
    """Rows of `k` elements, half of them nought; those that are stored, and the fields that say where they stood."""
    dense = [[0] * k for _ in range(rows)]
    stored, fields = [[] for _ in range(rows)], [[] for _ in range(rows)]
    for row in range(rows):
        if ty == "tf32":
            for start in range(0, k, 2):
                at = source.randrange(2)
                dense[row][start + at] = small(source, ty)
                stored[row].append(dense[row][start + at])
                fields[row] += [2, 3] if at else [0, 1]
            continue
        wide = 2 if bits_of(ty) == 4 else 1
        for start in range(0, k, 4 * wide):
            places = sorted(source.sample(range(4), 2))
            fields[row] += places
            for place in places:
                for element in range(wide):
                    at = start + place * wide + element
                    dense[row][at] = small(source, ty)
                    stored[row].append(dense[row][at])
    return dense, stored, fields


def sparse_group(Group, k, ty, selector, early=False):
    """`wgmma.mma_async.sp` of m64n8: A of four warps in registers, B in shared memory as core matrices of 8 rows of 16 bytes.

    With `early`, the results are read before the wait: the manual forbids it, and assemblers put a wait there.
    """
    source = random.Random(f"wgmma{k}{ty}{selector}")
    d_ty = "s32" if ty[0] in "us" else "f32"
    dense, stored, fields = halved(source, 64, k, ty)
    b = [[small(source, ty) for _ in range(k)] for _ in range(8)]
    per_core = 128 // bits_of(ty)
    cores = [packed(b[n][core * per_core:(core + 1) * per_core], ty) for core in range(k // per_core) for n in range(8)]
    memory = [word for core in cores for word in core]
    memory += [0] * (-len(memory) % 128)
    rows = []
    for warp in range(4):
        own = slice(16 * warp, 16 * warp + 16)
        metadata, a_own = placed(source, fields[own], ty, selector), fragment(stored[own], ty, 16, k // 2, True)
        for lane in range(LANES):
            each = len(memory) // 128
            at = (warp * LANES + lane) * each
            rows.append(a_own[lane] + [metadata[lane]] + memory[at:at + each])
    na, each = len(a_own[0]), len(memory) // 128
    bank = "%r" if d_ty == "s32" else "%f"
    body = f"    mov.u32 %r50, tile;\n    mad.lo.u32 %r51, %thread, {4 * each}, %r50;\n"
    body += "".join(f"    st.shared.b32 [%r51+{4 * i}], %i{na + 1 + i};\n" for i in range(each))
    body += "    fence.proxy.async.shared::cta;\n    bar.sync 0;\n"
    # Core matrices stand 128 bytes apart along K; there is one along N.
    body += "    shr.u32 %r50, %r50, 4;\n    cvt.u64.u32 %d0, %r50;\n"
    body += f"    or.b64 %d0, %d0, {(128 >> 4) << 16 | (256 >> 4) << 32};\n"
    body += "    wgmma.fence.sync.aligned;\n"
    take = lambda first, number, own="%i": "{" + ", ".join(f"{own}{first + i}" for i in range(number)) + "}"
    # Signs of A and B (of floating types), and whether B lies the other way (of 16 bits).
    tail = {"s32": "", "f32": ", 1, 1"}[d_ty] + (", 0" if bits_of(ty) == 16 else "")
    types = f"{d_ty}.{ty}.{ty}"
    body += "    setp.ne.u32 %p0, 0, 0;\n"
    body += f"    wgmma.mma_async.sp.sync.aligned.m64n8k{k}.{types} {take(0, 4, bank)}, {take(0, na)}, %d0, %i{na}, {selector}, %p0{tail};\n"
    wait = "    wgmma.wait_group.sync.aligned 0;\n"
    results = "".join(f"    mov.b32 %o{i}, {bank}{i};\n" for i in range(4))
    body += "    wgmma.commit_group.sync.aligned;\n" + (results + wait if early else wait + results)

    def reference(_):
        product = np.array(dense) @ np.array(b).T
        place = lambda thread, i: (16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2), 2 * (thread % 4) + i % 2)
        return np.array([[code(product[place(thread, i)], d_ty) for i in range(4)] for thread in range(128)], np.uint64)

    return Group(f"wgmma_sp_k{k}_{ty}_{selector}{'_early' if early else ''}", body, rows, 4, reference, variables=".shared .align 128 .b8 tile[4096];")


def sparse(Group, shape, ty, selector, b_ty=None):
    """`mma.sp::ordered_metadata`: half of A is stored, its places are the metadata's."""
    b_ty = b_ty or ty
    k = int(shape.split("k")[1])
    source = random.Random(f"{shape}{ty}{selector}")
    d_ty = "s32" if ty[0] in "us" else "f32"
    dense, stored, fields = halved(source, 16, k, ty)
    metadata = placed(source, fields, ty, selector)
    b = [[small(source, b_ty) for _ in range(k)] for _ in range(8)]
    c = [[source.randint(-9, 9) for _ in range(8)] for _ in range(16)]
    c_place = lambda lane, i: (lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2)
    a_own, b_own = fragment(stored, ty, 16, k // 2, True), fragment(b, b_ty, 8, k, False)
    rows = [a_own[lane] + b_own[lane] + [code(c[r][n], d_ty) for r, n in (c_place(lane, i) for i in range(4))] + [metadata[lane]]
            for lane in range(LANES)]
    na, nb = len(a_own[0]), len(b_own[0])
    bank = "%r" if d_ty == "s32" else "%f"
    body = "".join(f"    mov.b32 {bank}{20 + i}, %i{na + nb + i};\n" for i in range(4))
    take = lambda first, number, own="%i": "{" + ", ".join(f"{own}{first + i}" for i in range(number)) + "}"
    body += f"    mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.{d_ty}.{ty}.{b_ty}.{d_ty} {take(0, 4, bank)}, {take(0, na)}, {take(na, nb)}, {take(20, 4, bank)}, %i{na + nb + 4}, {selector};\n"
    body += "".join(f"    mov.b32 %o{i}, {bank}{i};\n" for i in range(4))

    def reference(_):
        product = np.array(dense) @ np.array(b).T + np.array(c)
        return np.array([[code(product[c_place(lane, i)], d_ty) for i in range(4)] for lane in range(LANES)], np.uint64)

    return Group(f"mma_sp_{shape}_{ty}_{selector}", body, rows, 4, reference)


def sub_byte_wmma(Group, ty, operation=None):
    """`wmma` on 4 bits and on single bits, through memory: loads, the product, the store."""
    k = 128 if ty == "b1" else 32
    source = random.Random(f"wmma{ty}{operation}")
    a = [[small(source, ty) for _ in range(k)] for _ in range(8)]
    b = [[small(source, ty) for _ in range(k)] for _ in range(8)]
    c = [[source.randint(-99, 99) for _ in range(8)] for _ in range(8)]
    flat = [packed(row, ty) for row in a] + [packed(row, ty) for row in b]
    memory = [word for row in flat for word in row] + [code(value, "s32") for row in c for value in row]
    memory += [0] * (-len(memory) % LANES)
    per_lane = len(memory) // LANES
    rows = [memory[lane * per_lane:(lane + 1) * per_lane] for lane in range(LANES)]
    body = f"    mov.u32 %r0, tile;\n    mad.lo.u32 %r1, %lane, {4 * per_lane}, %r0;\n"
    body += "".join(f"    st.shared.b32 [%r1+{4 * i}], %i{i};\n" for i in range(per_lane)) + "    bar.warp.sync -1;\n"
    words = 8 * k * (1 if ty == "b1" else 4) // 32
    body += f"    wmma.load.a.sync.aligned.row.m8n8k{k}.shared.{ty} {{%r10}}, [tile], {k};\n"
    body += f"    wmma.load.b.sync.aligned.col.m8n8k{k}.shared.{ty} {{%r11}}, [tile+{4 * words}], {k};\n"
    body += f"    wmma.load.c.sync.aligned.row.m8n8k{k}.shared.s32 {{%r12, %r13}}, [tile+{8 * words}], 8;\n"
    name = f".{operation}.popc" if operation else ""
    body += f"    wmma.mma{name}.sync.aligned.row.col.m8n8k{k}.s32.{ty}.{ty}.s32 {{%r14, %r15}}, {{%r10}}, {{%r11}}, {{%r12, %r13}};\n"
    body += f"    bar.warp.sync -1;\n    wmma.store.d.sync.aligned.row.m8n8k{k}.shared.s32 [tile], {{%r14, %r15}}, 8;\n    bar.warp.sync -1;\n"
    body += "    shl.b32 %r2, %lane, 3;\n    add.u32 %r2, %r2, %r0;\n    ld.shared.b32 %o0, [%r2];\n    ld.shared.b32 %o1, [%r2+4];\n"

    def reference(_):
        x, y = np.array(a)[:, None, :], np.array(b)[None, :, :]
        product = {"xor": x ^ y, "and": x & y, None: x * y}[operation].sum(axis=2) + np.array(c)
        return product.astype(np.int64).reshape(LANES, 2) & 0xFFFFFFFF

    return Group(f"wmma_{ty}_{operation or 'mul'}", body, rows, 2, reference, variables=".shared .align 32 .b8 tile[4096];")


def groups(Group):
    found = [quad_pairs(Group, d, c, a_row, b_row) for d, c in (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))
             for a_row in (True, False) for b_row in (True, False)]
    for shape, ty, selectors in (("m16n8k16", "f16", range(4)), ("m16n8k32", "f16", range(2)), ("m16n8k16", "bf16", range(1)),
                                 ("m16n8k32", "bf16", range(1, 2)), ("m16n8k8", "tf32", range(4)), ("m16n8k16", "tf32", range(2)),
                                 ("m16n8k32", "s8", range(2)), ("m16n8k32", "u8", range(1)), ("m16n8k64", "s8", range(1)),
                                 ("m16n8k64", "u4", range(2)), ("m16n8k64", "s4", range(1)), ("m16n8k128", "s4", range(1))):
        found += [sparse(Group, shape, ty, selector) for selector in selectors]
    found += [sparse_group(Group, k, ty, selector) for k, ty, selector in ((32, "f16", 0), (32, "bf16", 1), (16, "tf32", 0), (64, "s8", 0), (64, "u8", 0))]
    found += [sparse_group(Group, 32, "f16", 0, early=True), sparse_group(Group, 64, "s8", 0, early=True)]
    found += [sub_byte_wmma(Group, "s4"), sub_byte_wmma(Group, "u4"), sub_byte_wmma(Group, "b1", "xor"), sub_byte_wmma(Group, "b1", "and")]
    return found
