"""Collectives over memory that all ranks of a node reach: NVLink, or devices of the emulator.

Each rank has a region of the same layout, and a table of the addresses at which it sees the regions of all ranks:

    int32 index    what
    0              status: 0, or 1 + a rank that did not come in time
    64 ..          for each block, how many calls this rank has made (all equal between calls)
    256 ..         flags: 2 phases x 128 blocks x 8 ranks; who they are of writes the number of its call
    byte 16384 ..  two sets of lines, used in turn: calls of odd numbers write one, calls of even numbers the other
    behind them    two sets of data, used in turn

Ranks push: a rank writes to others and reads what is its own. Two ways to know that data came:
- lines (`small_all_reduce`): words of 8 bytes, half data, half the call's number. Nothing else has to be waited for, so it is the
  fastest where little is sent. Where lines lie nothing else is ever written, or it could be taken for one.
- flags: 16 bytes at a time; when a block has written its part it releases a flag at system scope to the same block of each rank,
  which acquires it. Block b of a rank waits for blocks b alone.

Nothing is ever reset: numbers of calls grow, and a flag is there when it is not less than the call's (their difference is
looked at, which wraps). A set is written again two calls later; then every rank has ended the call in which it was read, because
the call between could not end before all ranks had come to it.

Elements are combined in the order of ranks, in fp32 where they are floats, so all ranks get equal bits. A wait ends after
`polls` looks; then the status says who was missing, the results are worth nothing, and later calls do nothing.
"""
import tessera
from tessera import Constant, tile

STATUS = 0
CALLS = 64
FLAGS = 256
MOST_BLOCKS = 128
MOST_RANKS = 8
DATA = 16384


def begin(control, gate):
    """Tells the block whether earlier calls went well."""
    if tile.thread_id() == 0:
        gate[0] = tile.load(control[STATUS], order="relaxed", scope="device")
    tile.barrier()


def end(control, call):
    """Counts the call, for this block and for those that this launch does not have."""
    tile.barrier()
    stride = tile.num_blocks() * tile.block_size()
    for block in range(tile.block_id() + tile.thread_id() * tile.num_blocks(), MOST_BLOCKS, stride):
        control[CALLS + block] = call


def signal(table, phase, rank, ranks, call):
    """What this block wrote is seen by the same block of every rank that waits for it."""
    tile.barrier()
    t = tile.thread_id()
    if t < ranks:
        flags = tile.array_at[int32](table[t], align=16)
        at = FLAGS + (phase * MOST_BLOCKS + tile.block_id()) * MOST_RANKS + rank
        tile.store(flags[at], call, order="release", scope="system")


def await_all(control, phase, ranks, call, polls):
    """Waits until the same block of every rank has signalled."""
    t = tile.thread_id()
    if t < ranks:
        at = FLAGS + (phase * MOST_BLOCKS + tile.block_id()) * MOST_RANKS + t
        left = polls
        while left > 0 and tile.load(control[at], order="acquire", scope="system") - call < 0:
            left -= 1
        if left == 0:
            tile.atomic_cas(control[STATUS], 0, t + 1)
    tile.barrier()


def fetch(x, parts, first, at, n, width, form):
    """`width` elements of `x` from `at` on. What is behind the end of `x` is nobody's.

    Forms: "whole", every 16 bytes are whole or all behind the end; "tail", the last ones may be cut; "odd", `x` begins anywhere."""
    if form == "whole":
        if at < n:
            for j in range(width):
                parts[first + j] = x[at + j]
    elif form == "tail":
        if at + width <= n:
            for j in range(width):
                parts[first + j] = x[at + j]
        else:
            for j in range(width):
                if at + j < n:
                    parts[first + j] = x[at + j]
    else:
        for j in range(width):
            if at + j < n:
                parts[first + j] = x[at + j]


def deliver(y, parts, first, at, n, width, form):
    """The same to `y`; nothing behind its end."""
    if form == "whole":
        if at < n:
            for j in range(width):
                y[at + j] = parts[first + j]
    elif form == "tail":
        if at + width <= n:
            for j in range(width):
                y[at + j] = parts[first + j]
        else:
            for j in range(width):
                if at + j < n:
                    y[at + j] = parts[first + j]
    else:
        for j in range(width):
            if at + j < n:
                y[at + j] = parts[first + j]


def put(there, parts, first, at, width):
    """16 bytes into a region."""
    for j in range(width):
        there[at + j] = parts[first + j]


def take(here, parts, first, at, width):
    """16 bytes of the own region."""
    for j in range(width):
        parts[first + j] = here[at + j]


def combine(parts, sums, ranks, width, op):
    """Combines what came from all ranks, in their order, into the first part."""
    for j in range(width):
        sums[j] = parts[j]
    for r in range(1, ranks):
        for j in range(width):
            if op == "max":
                sums[j] = tile.max(sums[j], parts[r * width + j])
            elif op == "min":
                sums[j] = tile.min(sums[j], parts[r * width + j])
            else:
                sums[j] = sums[j] + parts[r * width + j]
    for j in range(width):
        parts[j] = sums[j]


def places(table, rank, ranks, start, bases, order):
    """The ranks from this one on, so that not all send to the same one, and where their sets begin."""
    for i in range(ranks):
        order[i] = (rank + i) % ranks
        bases[i] = table[order[i]] + start


def line_of(x, at, n, call, packed):
    """Data and the number of the call in one word."""
    if packed == 1:
        bits = tile.cast(tile.bitcast(x[at], int32), int64) & 0xffffffff
    else:
        bits = tile.cast(tile.bitcast(x[2 * at], int16), int64) & 0xffff
        if 2 * at + 1 < n:
            bits = bits | (tile.cast(tile.bitcast(x[2 * at + 1], int16), int64) & 0xffff) << 16
    return bits | call << 32


def unpacked(lines, halves, ranks, packed, dtype):
    """The data of lines, rank by rank."""
    for r in range(ranks):
        if packed == 1:
            halves[r] = tile.bitcast(tile.cast(lines[r], int32), dtype)
        else:
            halves[2 * r] = tile.bitcast(tile.cast(lines[r], int16), dtype)
            halves[2 * r + 1] = tile.bitcast(tile.cast(lines[r] >> 16, int16), dtype)


@tessera.kernel
def await_ranks(region: int64, table: int64, ranks: int, call: int, polls: int, first: int, count: int, own: int):
    """Waits until `count` ranks from `first` on, but for this one, have come to a step of a mailbox's call. When one does not, all are told before they get
    what this one goes on to send; and nobody waits again."""
    control = tile.array_at[int32](region, align=16)
    regions = tile.array_at[int64](table, align=8)
    t = tile.thread_id()
    if t < count and first + t != own and tile.load(control[STATUS], order="relaxed", scope="system") == 0:
        left = polls
        while left > 0 and tile.load(control[FLAGS + first + t], order="acquire", scope="system") - call < 0:
            left -= 1
        if left == 0:
            for rank in range(ranks):
                told = tile.array_at[int32](regions[rank], align=16)
                tile.atomic_cas(told[STATUS], 0, first + t + 1, scope="system")


@tessera.kernel
def small_all_reduce(x: int64, y: int64, table_at: int64, region: int64, n: int64, lines_bytes: int64, rank: int, polls: int,
                     dtype, acc, op: str, ranks: Constant[int], packed: Constant[int]):
    """Each rank sends all it has to all others, in lines."""
    gate = tile.alloc_shared[int32](1)
    bases = tile.alloc_register[int64](ranks)
    order = tile.alloc_register[int32](ranks)
    lines = tile.alloc_register[int64](ranks)
    parts = tile.alloc_register[dtype](ranks * packed)
    sums = tile.alloc_register[acc](packed)
    control = tile.array_at[int32](region, align=16)
    table = tile.array_at[int64](table_at, align=16)
    source = tile.array_at[dtype](x)
    result = tile.array_at[dtype](y)
    begin(control, gate)
    if gate[0] == 0:
        call = control[CALLS + tile.block_id()] + 1
        number = tile.cast(call, int64)
        start = DATA + (number & 1) * lines_bytes
        places(table, rank, ranks, start, bases, order)
        words = (n + packed - 1) // packed
        stride = tile.cast(tile.num_blocks() * tile.block_size(), int64)
        w = tile.linear_id()
        while w < words:
            line = line_of(source, w, n, number, packed)
            for i in range(ranks):
                tile.store(tile.array_at[int64](bases[i])[rank * words + w], line, order="relaxed", scope="system")
            w += stride
        own = tile.array_at[int64](region + start)
        w = tile.linear_id()
        while w < words:
            missing = 1
            left = polls
            while missing != 0 and left > 0:
                missing = 0
                left -= 1
                for r in range(ranks):
                    lines[r] = tile.load(own[r * words + w], order="relaxed", scope="system")
                for r in range(ranks):
                    if lines[r] >> 32 != number:
                        missing = r + 1
            if missing != 0:
                tile.atomic_cas(control[STATUS], 0, missing)
            unpacked(lines, parts, ranks, packed, dtype)
            combine(parts, sums, ranks, packed, op)
            result[packed * w] = parts[0]
            if packed == 2:
                if 2 * w + 1 < n:
                    result[2 * w + 1] = parts[1]
            w += stride
        end(control, call)


@tessera.kernel
def one_shot_all_reduce(x: int64, y: int64, table_at: int64, region: int64, n: int64, lines_bytes: int64, set_bytes: int64,
                        rank: int, polls: int, dtype, acc, op: str, form: str, ranks: Constant[int], width: Constant[int],
                        align: Constant[int]):
    """Each rank sends all it has to all others, 16 bytes at a time."""
    gate = tile.alloc_shared[int32](1)
    bases = tile.alloc_register[int64](ranks)
    order = tile.alloc_register[int32](ranks)
    parts = tile.alloc_register[dtype](ranks * width)
    sums = tile.alloc_register[acc](width)
    control = tile.array_at[int32](region, align=16)
    table = tile.array_at[int64](table_at, align=16)
    source = tile.array_at[dtype](x, align=align)
    result = tile.array_at[dtype](y, align=align)
    begin(control, gate)
    if gate[0] == 0:
        call = control[CALLS + tile.block_id()] + 1
        start = DATA + 2 * lines_bytes + tile.cast(call & 1, int64) * set_bytes
        places(table, rank, ranks, start, bases, order)
        vectors = (n + width - 1) // width
        stride = tile.cast(tile.num_blocks() * tile.block_size(), int64)
        v = tile.linear_id()
        while v < vectors:
            fetch(source, parts, 0, v * width, n, width, form)
            for i in range(ranks):
                put(tile.array_at[dtype](bases[i], align=16), parts, 0, (rank * vectors + v) * width, width)
            v += stride
        signal(table, 0, rank, ranks, call)
        await_all(control, 0, ranks, call, polls)
        own = tile.array_at[dtype](bases[0], align=16)
        v = tile.linear_id()
        while v < vectors:
            for r in range(ranks):
                take(own, parts, r * width, (r * vectors + v) * width, width)
            combine(parts, sums, ranks, width, op)
            deliver(result, parts, 0, v * width, n, width, form)
            v += stride
        end(control, call)


@tessera.kernel
def two_shot_all_reduce(x: int64, y: int64, table_at: int64, region: int64, n: int64, lines_bytes: int64, set_bytes: int64,
                        rank: int, polls: int, dtype, acc, op: str, form: str, ranks: Constant[int], width: Constant[int],
                        align: Constant[int]):
    """Each rank combines a slice of all ranks' elements and sends the result to all others."""
    gate = tile.alloc_shared[int32](1)
    bases = tile.alloc_register[int64](ranks)
    order = tile.alloc_register[int32](ranks)
    parts = tile.alloc_register[dtype](ranks * width)
    sums = tile.alloc_register[acc](width)
    control = tile.array_at[int32](region, align=16)
    table = tile.array_at[int64](table_at, align=16)
    source = tile.array_at[dtype](x, align=align)
    result = tile.array_at[dtype](y, align=align)
    begin(control, gate)
    if gate[0] == 0:
        call = control[CALLS + tile.block_id()] + 1
        start = DATA + 2 * lines_bytes + tile.cast(call & 1, int64) * set_bytes
        places(table, rank, ranks, start, bases, order)
        vectors = (n + width - 1) // width
        slice = (vectors + ranks - 1) // ranks
        stride = tile.cast(tile.num_blocks() * tile.block_size(), int64)
        v = tile.linear_id()
        while v < slice:
            for i in range(ranks):
                fetch(source, parts, i * width, (order[i] * slice + v) * width, n, width, form)
            for i in range(ranks):
                put(tile.array_at[dtype](bases[i], align=16), parts, i * width, (rank * slice + v) * width, width)
            v += stride
        signal(table, 0, rank, ranks, call)
        await_all(control, 0, ranks, call, polls)
        own = tile.array_at[dtype](bases[0], align=16)
        v = tile.linear_id()
        while v < slice:
            for r in range(ranks):
                take(own, parts, r * width, (r * slice + v) * width, width)
            combine(parts, sums, ranks, width, op)
            for i in range(1, ranks):
                put(tile.array_at[dtype](bases[i], align=16), parts, 0, ((ranks + rank) * slice + v) * width, width)
            deliver(result, parts, 0, (rank * slice + v) * width, n, width, form)
            v += stride
        signal(table, 1, rank, ranks, call)
        await_all(control, 1, ranks, call, polls)
        v = tile.linear_id()
        while v < slice:
            for i in range(1, ranks):
                take(own, parts, i * width, ((ranks + order[i]) * slice + v) * width, width)
            for i in range(1, ranks):
                deliver(result, parts, i * width, (order[i] * slice + v) * width, n, width, form)
            v += stride
        end(control, call)


@tessera.kernel
def reduce_scatter(x: int64, y: int64, table_at: int64, region: int64, n: int64, lines_bytes: int64, set_bytes: int64,
                   rank: int, polls: int, dtype, acc, op: str, form: str, ranks: Constant[int], width: Constant[int],
                   align: Constant[int]):
    """Each rank sends every other rank its `n` elements, and combines what came."""
    gate = tile.alloc_shared[int32](1)
    bases = tile.alloc_register[int64](ranks)
    order = tile.alloc_register[int32](ranks)
    parts = tile.alloc_register[dtype](ranks * width)
    sums = tile.alloc_register[acc](width)
    control = tile.array_at[int32](region, align=16)
    table = tile.array_at[int64](table_at, align=16)
    result = tile.array_at[dtype](y, align=align)
    begin(control, gate)
    if gate[0] == 0:
        call = control[CALLS + tile.block_id()] + 1
        start = DATA + 2 * lines_bytes + tile.cast(call & 1, int64) * set_bytes
        places(table, rank, ranks, start, bases, order)
        vectors = (n + width - 1) // width
        row = n * (16 // width)
        stride = tile.cast(tile.num_blocks() * tile.block_size(), int64)
        v = tile.linear_id()
        while v < vectors:
            for i in range(ranks):
                fetch(tile.array_at[dtype](x + order[i] * row, align=align), parts, i * width, v * width, n, width, form)
            for i in range(ranks):
                put(tile.array_at[dtype](bases[i], align=16), parts, i * width, (rank * vectors + v) * width, width)
            v += stride
        signal(table, 0, rank, ranks, call)
        await_all(control, 0, ranks, call, polls)
        own = tile.array_at[dtype](bases[0], align=16)
        v = tile.linear_id()
        while v < vectors:
            for r in range(ranks):
                take(own, parts, r * width, (r * vectors + v) * width, width)
            combine(parts, sums, ranks, width, op)
            deliver(result, parts, 0, v * width, n, width, form)
            v += stride
        end(control, call)


@tessera.kernel
def all_gather(x: int64, y: int64, table_at: int64, region: int64, n: int64, lines_bytes: int64, set_bytes: int64,
               rank: int, polls: int, dtype, form: str, ranks: Constant[int], width: Constant[int],
               align: Constant[int]):
    """Each rank sends its `n` elements to all others, and puts what came one after another."""
    gate = tile.alloc_shared[int32](1)
    bases = tile.alloc_register[int64](ranks)
    order = tile.alloc_register[int32](ranks)
    parts = tile.alloc_register[dtype](ranks * width)
    control = tile.array_at[int32](region, align=16)
    table = tile.array_at[int64](table_at, align=16)
    source = tile.array_at[dtype](x, align=align)
    begin(control, gate)
    if gate[0] == 0:
        call = control[CALLS + tile.block_id()] + 1
        start = DATA + 2 * lines_bytes + tile.cast(call & 1, int64) * set_bytes
        places(table, rank, ranks, start, bases, order)
        vectors = (n + width - 1) // width
        row = n * (16 // width)
        stride = tile.cast(tile.num_blocks() * tile.block_size(), int64)
        v = tile.linear_id()
        while v < vectors:
            fetch(source, parts, 0, v * width, n, width, form)
            for i in range(ranks):
                put(tile.array_at[dtype](bases[i], align=16), parts, 0, (rank * vectors + v) * width, width)
            v += stride
        signal(table, 0, rank, ranks, call)
        await_all(control, 0, ranks, call, polls)
        own = tile.array_at[dtype](bases[0], align=16)
        v = tile.linear_id()
        while v < vectors:
            for i in range(ranks):
                take(own, parts, i * width, (order[i] * vectors + v) * width, width)
            for i in range(ranks):
                deliver(tile.array_at[dtype](y + order[i] * row, align=align), parts, i * width, v * width, n, width, form)
            v += stride
        end(control, call)
