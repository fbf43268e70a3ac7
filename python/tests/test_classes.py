"""Enumerations, dataclasses and methods in kernels: what their live objects are, whatever their texts say."""

import abc
import copy
import dataclasses
import enum
import pickle
from typing import NamedTuple, Protocol

import ml_dtypes
import numpy as np
import pytest
import tessera
import tessera.tile as ct

X = np.arange(16, dtype=np.float32)


@ct.kernel
def add_value(x, y, member):
    ct.store(y, (0,), ct.load(x, (0,), (16,)) + member.value)


def run(kernel, *args):
    """What a kernel makes of 0, 1, 2, ... less these."""
    y = np.full(16, np.nan, np.float32)
    ct.launch(None, (1,), kernel, (X, y, *args))
    assert (y - X == y[0]).all()
    return y[0]


BASE = 3


def of_call():
    return 7.5


class Named(enum.Enum):
    CONSTANT = BASE
    SUM = BASE + 1
    CALL = of_call()
    AUTO = enum.auto()
    _UNUSED = object


class Tens(enum.Enum):
    def _generate_next_value_(name, start, count, last_values):
        return 10 * (count + 1)

    A = enum.auto()
    B = enum.auto()


class Below(enum.Enum):
    """Members that depend."""

    if BASE == 3:
        A = 5
        B = 6
    else:
        C = 7

    def twice(self):
        return self.value * 2


class New(enum.Enum):
    def __new__(cls, value):
        made = object.__new__(cls)
        made._value_ = value * 100
        return made

    A = 1


Made = enum.Enum("Made", "A B")
MadeWhole = enum.IntEnum("MadeWhole", {"A": 4, "B": 9})


@pytest.mark.parametrize("member", [*list(Named)[:4], *Tens, *Below, *New, *Made], ids=str)
def test_members_have_the_values_that_python_gave_them(member):
    assert run(add_value, member) == member.value


def test_members_by_name_after_what_they_were_made_of_changed(monkeypatch):
    @ct.kernel
    def kernel(x, y):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + Named.SUM.value + MadeWhole.B + Below.B.twice())

    monkeypatch.setitem(globals(), "BASE", 100)
    assert run(kernel) == 4 + 9 + 12


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_numbers_that_follow_others():
    class Mixed(enum.Enum):
        A = 10
        B = 3
        C = enum.auto()

    assert run(add_value, Mixed.C) == Mixed.C.value == 11


class Flags(enum.Flag):
    A = 1
    B = 2


class Bits(enum.IntFlag):
    A = 1
    B = 2


FLAG, BITS = Flags.A, Bits.A | Bits.B


def test_flags():
    @ct.kernel
    def kernel(x, y, flag):
        v = ct.load(x, (0,), (16,)) + BITS
        if flag is Flags.A and FLAG is Flags.A:
            v = v + 10
        ct.store(y, (0,), v + flag.value + (Bits.B & 6))

    assert run(kernel, Flags.A) == 3 + 10 + 1 + 2 and run(kernel, Flags.B) == 3 + 2 + 2
    with pytest.raises(tessera.ArgumentError, match="combines flags.*pass its `value`"):
        run(kernel, Flags.A | Flags.B)


class Text(str, enum.Enum):
    A = "a"
    B = "b"


class Whole(int, enum.Enum):
    A = 2


TEXT = Text.B


def test_members_that_are_texts_and_numbers():
    @ct.kernel
    def kernel(x, y, text):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + (1 if text == Text.A else 2) + (10 if TEXT == "b" else 20) + Whole.A)

    assert run(kernel, Text.A) == 13 and run(kernel, Text.B) == 14


# Dataclasses.


@dataclasses.dataclass
class Odd:
    a: int
    b: int = dataclasses.field(init=False, default=5)
    c: dataclasses.InitVar[int] = 0
    pair: tuple = dataclasses.field(default_factory=lambda: (1, 2))

    def __post_init__(self, c):
        self.b = self.a * 10 + c

    def total(self):
        return self.a + self.b + self.pair[1]


@dataclasses.dataclass(frozen=True)
class Checked:
    a: int
    items: list = dataclasses.field(default_factory=lambda: [1, 2])

    def __post_init__(self):
        assert self.a > 0


ODD = Odd(3, 7)


@pytest.mark.parametrize("device", ["cpu", "emu"])
def test_objects_have_the_fields_that_python_gave_them(device):
    @ct.kernel
    def kernel(x, y, odd, checked):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + odd.total() + checked.items[1] + ODD.b)

    with tessera.use(device):
        assert run(kernel, Odd(1, 2, (0, 100)), Checked(1)) == 1 + 12 + 100 + 2 + 37
        odd = Odd(1)
        odd.a = 50
        assert run(kernel, odd, Checked(2, [0, 3])) == 50 + 10 + 2 + 3 + 37


def test_what_only_python_can_make_is_not_made_in_kernels():
    @ct.kernel
    def without_factory(x, y):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + Odd(1, b=2).b)

    @ct.kernel
    def without_post_init(x, y):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + Odd(1, b=2, pair=(1, 2)).b)

    with pytest.raises(tessera.TileError, match="misses the argument `pair`"):
        run(without_factory)
    with pytest.raises(tessera.TileError):
        run(without_post_init)


@dataclasses.dataclass(frozen=True)
class Scale:
    by: object


@ct.kernel
def scaled(x, y, scale):
    ct.store(y, (0,), ct.load(x, (0,), (16,)) + scale.by)


@pytest.mark.parametrize("number", [np.float32, np.int64, np.float16, ml_dtypes.bfloat16], ids=lambda kind: kind.__name__)
def test_equal_numbers_of_numpy_are_one(number):
    assert run(scaled, Scale(number(2))) == 2
    kept = len(scaled._compiled_with)
    for _ in range(3):
        assert run(scaled, Scale(number(2))) == 2
    assert len(scaled._compiled_with) == kept
    assert run(scaled, Scale(number(3))) == 3


def test_not_all_objects_are_kept():
    for number in range(260):
        assert run(scaled, Scale(number)) == number
    assert len(scaled._compiled_with) <= 256


class Pair(NamedTuple):
    a: object
    b: object


def test_named_tuples_keep_their_names():
    @ct.kernel
    def kernel(x, y, pair, constant: ct.Constant):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + pair.a + pair.b.a + constant.b)

    assert run(kernel, Pair(1, Pair(np.float32(20), "text")), Pair(ct.float32, 300)) == 321

    @ct.kernel
    def of_arrays(pair, y):
        ct.store(y, (0,), ct.load(pair[0], (0,), (16,)) + pair[1])

    y = np.zeros_like(X)
    ct.launch(None, (1,), of_arrays, (Pair(X, 2.0), y))
    assert (y == X + 2).all()


# Methods.


class Twice:
    FACTOR = 2.0

    def __init__(self):
        raise AssertionError("a dataclass makes one of its own")

    def twice(self, v):
        return v * self.FACTOR

    def name_of(self, v):
        return v


class Nameable(Protocol):
    k: float

    def name_of(self, v): ...


class Shifts(abc.ABC):
    @abc.abstractmethod
    def shifted(self, v): ...

    def name_of(self, v):
        return v + 100


@dataclasses.dataclass(frozen=True)
class Mixed(Twice, Nameable, Shifts):
    k: float = 3.0

    def shifted(self, v):
        return v + self.k


class Halves:
    def half(self, v):
        return v / 2


class Hue(Halves, enum.Enum):
    DARK = 4.0


MIXED = Mixed()


def test_mixins_protocols_and_abstract_bases(monkeypatch):
    @ct.kernel
    def kernel(x, y):
        v = ct.load(x, (0,), (16,))
        ct.store(y, (0,), v + Mixed(1.0).shifted(MIXED.k) + MIXED.name_of(MIXED.twice(0.5)) + Hue.DARK.half(Hue.DARK.value))

    # Of two bases with a method the first one's counts.
    assert run(kernel) == 4 + 1 + 2
    monkeypatch.setattr(Twice, "FACTOR", 4.0)
    assert run(kernel) == 4 + 2 + 2


@dataclasses.dataclass(frozen=True)
class Adds:
    a: int

    def __call__(self, v):
        return v + self.a

    def add(self, v, /, times=1):
        return v + self.a * times


class Settings:
    A = 4

    def __init__(self):
        self.own = 2

    @classmethod
    def of_class(cls, v, *, by=1):
        return v + cls.A * by

    def of_object(self, v):
        return v + self.own


add, of_object = Adds(3).add, Settings().of_object


def test_bound_methods(monkeypatch):
    @ct.kernel
    def kernel(x, y):
        v = add(ct.load(x, (0,), (16,)), times=2)
        ct.store(y, (0,), of_object(Settings.of_class(v, by=10)))

    assert run(kernel) == 6 + 40 + 2
    read = kernel._native()
    assert kernel._native() is read, "a method that Python makes anew is the same"
    monkeypatch.setattr(Settings, "A", 5)
    assert run(kernel) == 6 + 50 + 2
    of_object.__self__.own = 7
    assert run(kernel) == 6 + 50 + 7


def test_functions_of_python_that_are_replaced_later(monkeypatch):
    @ct.kernel
    def kernel(x, y):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + max(1, 2))

    assert run(kernel) == 2
    monkeypatch.setitem(globals(), "max", lambda a, b: a * 100)
    assert run(kernel) == 100
    monkeypatch.undo()
    assert run(kernel) == 2


# Kernels as objects.


class Holds(abc.ABC):
    @ct.kernel
    def kernel(x, y):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + 1)


def test_kernels_are_copied_and_pickled_by_name():
    for kernel in (scaled, Holds.kernel):
        assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel and pickle.loads(pickle.dumps(kernel)) is kernel

    @ct.kernel
    def local(x, y):
        pass

    for kernel in (local, scaled.replace_hints(opt_level=1)):
        assert copy.copy(kernel) is kernel
        with pytest.raises(pickle.PicklingError, match="pickled by name"):
            pickle.dumps(kernel)


def test_kernels_are_made_by_def():
    async def waits(x):
        pass

    for function in (lambda x: None, waits):
        with pytest.raises(TypeError, match="made by `def`"):
            ct.kernel(function)
