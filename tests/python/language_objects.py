"""Kernels made of dataclasses, named tuples, enumerations and calls with `*` and `**`: what Python makes of the same classes is what a
kernel must store."""
import numpy as np

from language_kernels import case, out, random

f32, i32 = np.float32, np.int32
COMMON = '''
import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import ClassVar, NamedTuple


@dataclass(frozen=True)
class Tiling:
    rows: int
    columns: int = 8
    scale: float = field(default=2.0)
    LIMIT: ClassVar[int] = 256

    @property
    def size(self):
        return self.rows * self.columns

    @classmethod
    def square(cls, n):
        return cls(n, n, scale=0.5)

    @staticmethod
    def half(n):
        return n // 2

    def scaled(self, x, by=1):
        return x * (self.scale * by)


@dataclass(order=True)
class Version:
    major: int
    minor: int = 0


class Point(NamedTuple):
    row: int
    column: int = 3

    def moved(self, by):
        return self._replace(column=self.column + by)


class Level(IntEnum):
    LOW = auto()
    HIGH = auto()
    TOP = 2

    def twice(self):
        return self.value * 2


class Mode(Enum):
    FAST = "fast"
    EXACT = ("exact", 7)


TILING, ORIGIN = Tiling(4), Point(1)


def options_of(first, *rest, by=2, **options):
    total = first * by + sum(rest)
    for name, value in options.items():
        total = total + value * len(name)
    return total + options.get("absent", 1000) * ("key" in options)


def passed_on(*args, **options):
    return options_of(*args, **options)


def binomial(n, k):
    return 1 if k == 0 or k == n else binomial(n - 1, k - 1) + binomial(n - 1, k)
'''
EXPRESSIONS = [
    "TILING.size", "Tiling.square(4).size", "Tiling.half(TILING.columns)", "TILING.scaled(3, by=4)", "TILING.LIMIT + Tiling.LIMIT",
    "dataclasses.replace(TILING, columns=16).size", "int(Tiling(4, columns=8) == TILING)", "int(Tiling(4, 9) != TILING)",
    "int(TILING == (4, 8, 2.0))", "int(Version(1, 2) < Version(1, 10))", "int(Version(2) >= Version(1, 5))",
    "sum(ORIGIN) + ORIGIN[-1] + len(ORIGIN)", "ORIGIN.moved(5).column", "int(ORIGIN == (1, 3)) + int(ORIGIN < (1, 4))", "max(ORIGIN + (9,))",
    "int(isinstance(ORIGIN, tuple)) + 2 * int(isinstance(ORIGIN, Point))", "Point(*ORIGIN[::-1]).row", "Level.HIGH + 1",
    "int(Level.TOP is Level.HIGH)", "Level['LOW'].twice() + Level(2).twice()", "sum(level.value for level in Level)", "len(Level)",
    "len(Level.TOP.name)", "int(Level.HIGH in (1, 2)) + int(Level.LOW == 1)", "int(Mode.FAST == 'fast') + int(Mode.FAST.value == 'fast')",
    "Mode.EXACT.value[1]", "int(Mode('fast') is Mode.FAST) + int(Mode.FAST is not Mode.EXACT)", "options_of(3)", "options_of(3, 4, 5, by=6)",
    "options_of(1, key=2, other=3)", "passed_on(1, 2, by=3, key=4)", "sum(tuple(a * b for a in (1, 2, 3) if a > 1 for b in range(a)))",
    "binomial(6, 3)", "int(float('-inf') < 0) + int(float('1e2'))",
]
scope = {}
exec(COMMON, scope)
case("objects", "\n".join(f"ct.store(y, ({at},), {text})" for at, text in enumerate(EXPRESSIONS)), {"y": out(len(EXPRESSIONS), dtype=f32)},
     {"y": np.array([eval(text, scope) for text in EXPRESSIONS], f32)}, head=COMMON)

rows = random.standard_normal((6, 32), dtype=f32)
case("objects_in_loops", """
best = Best(Source(x, ct.bid(0)), ct.full((8,), -math.inf, ct.float32), 0)
for j in range(4):
    best = best.next(j)
if ct.bid(0) % 2 == 1:
    best = dataclasses.replace(best, rounds=best.rounds + 100)
ct.store(y, (ct.bid(0), 0), best.tile.reshape((1, 8)))
ct.store(z, (ct.bid(0),), best.rounds)
""", {"x": rows, "y": out(6, 8, dtype=f32), "z": out(6)},
     {"y": rows.reshape(6, 4, 8).max(1), "z": np.array([4, 104] * 3, i32)}, grid="6", head=COMMON + '''

@dataclass(frozen=True)
class Source:
    array: object
    row: object

    def load(self, j):
        return ct.load(self.array, (self.row, j), (1, 8)).reshape((8,))


@dataclass(frozen=True)
class Best:
    source: Source
    tile: object
    rounds: int

    def next(self, j):
        return Best(self.source, ct.maximum(self.tile, self.source.load(j)), self.rounds + 1)
''')
case("named_tuples_in_loops", """
state = Point(0, 1)
for i in range(n):
    row, column = state
    state = Point(column, column=row + column)
ct.store(y, state, ct.full((1, 1), 5, ct.int32))
""", {"y": np.zeros((6, 9), i32)}, {"y": np.eye(6, 9, dtype=i32)[[5, 0, 1, 2, 3, 4]] * 0 + 5 * (
     (np.arange(6)[:, None] == 5) & (np.arange(9) == 8))}, ["n=5"], head=COMMON)
case("context_managers", """
count = 0
with shifted(x, 10) as old, shifted(x, 5):
    count = ct.sum(ct.load(x, (0,), (8,)))
    ct.store(y, (0,), old)
ct.store(z, (0,), count)
ct.store(z, (1,), ct.sum(ct.load(x, (0,), (8,))))
""", {"x": np.arange(8, dtype=i32), "y": out(8), "z": out(2)}, {"x": np.arange(8, dtype=i32), "y": np.arange(8, dtype=i32), "z":
     np.array([28 + 15 * 8, 28], i32)}, head=COMMON + '''

@contextmanager
def shifted(array, by):
    old = ct.load(array, (0,), (8,))
    ct.store(array, (0,), old + by)
    yield old
    ct.store(array, (0,), ct.load(array, (0,), (8,)) - by)
''')
case("imports_in_functions", """
import math as m
from cuda.tile import load, store
store(y, (0,), scaled(load(x, (0,), (8,))) + ct.float32("0.5") * m.floor(1.5))
""", {"x": np.arange(8, dtype=f32), "y": out(8, dtype=f32)}, {"y": np.arange(8, dtype=f32) * 2 + f32(0.5)}, head='''
def scaled(tile):
    from math import tau, pi
    return tile * (tau / pi)
''')
case("views_in_loops", """
view, other = x.tiled_view((8,)), y.tiled_view((8,))
for i in range(view.num_tiles(0)):
    other.store((i,), view.load((i,)) + 1)
    if i >= 1:
        view = z.tiled_view((8,))
""", {"x": np.arange(32, dtype=i32), "z": np.arange(100, 132, dtype=i32), "y": out(32)},
     {"y": np.where(np.arange(32) < 16, np.arange(32), np.arange(100, 132)).astype(i32) + 1})
case("one_tile_joined", """
ct.store(y, (0,), ct.cat((ct.load(x, (0,), (8,)),), 0) + ct.cat(tuple(ct.load(x, (i,), (4,)) for i in range(2)), 0))
ct.store(z, (0,), ct.maximum(ct.load(x, (0,), (8,)).astype(ct.float32), ct.float32("-inf")))
""", {"x": np.arange(8, dtype=i32), "y": out(8), "z": out(8, dtype=f32)},
     {"y": 2 * np.arange(8, dtype=i32), "z": np.arange(8, dtype=f32)})
