"""From a kernel of the running program to what the compiler reads.

The compiler gets the text of each function that a kernel needs, and for each function what its names stand for: constants by their values,
other functions by their texts. Both come from the live objects (``__globals__``, ``__closure__``, attributes), so that kernels made by
functions, in classes and in notebooks are what Python says they are.

A text is a module of its own (``_source``). What its names stand for is a second module, which the compiler reads before it. Whatever was read
leaves a guard: a kernel is read again where one of them does not hold any more.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import inspect
import math
import sys
import types
from typing import NamedTuple

from . import _source, dtypes, errors

#: Modules that mean the same to the compiler as to Python.
_KNOWN = ("math", "operator", "functools", "typing", "dataclasses", "enum", "contextlib", "numpy", "torch", "jax", "ml_dtypes")
_UNBOUND = object()


class Text(NamedTuple):
    """A module for the compiler: the file that messages name, the text, and the module that has its names."""

    file: str
    text: str
    before: str | None


class Guard(NamedTuple):
    """A name that was read, where, and what it stood for."""

    read: object
    name: str
    value: object
    #: The names or the cell where it stands; ``None`` where only ``read`` knows.
    place: object = None

    def holds(self) -> bool:
        """Whether the name still stands for that."""
        return self.read(self.name) is self.value


class Captured(NamedTuple):
    """A kernel for the compiler."""

    root: str
    kernel: str
    modules: dict[str, Text]
    guards: list[Guard]
    indent: int


def function_of(value):
    """The plain function behind a kernel or a decorated function of the kernel language; ``None`` where there is none."""
    inner = getattr(value, "__tessera_function__", None)
    if inner is not None:
        return inner
    if type(value).__module__.startswith("cuda.tile") and hasattr(value, "_pyfunc"):
        return value._pyfunc
    return value if isinstance(value, types.FunctionType) else None


#: Of classes whose objects were arguments, whether these are dataclasses and enumerations, which are compiled in.
_COMPILED_IN: dict[type, bool] = {}
#: Those of them that are not.
_PASSED: set[type] = set()


def is_compiled_in(value) -> bool:
    """Whether an argument is an object that a launch cannot pass, and that stands for itself in the kernel's text: one of a dataclass or an
    enumeration."""
    kind = type(value)
    known = _COMPILED_IN.get(kind)
    if known is None:
        is_enum = issubclass(kind, enum.Enum) and not issubclass(kind, (int, float, str))
        known = (is_enum or dataclasses.is_dataclass(kind)) and not hasattr(kind, "__dlpack__") and dtypes.of(value) is None
        _COMPILED_IN[kind] = known
        if not known:
            _PASSED.add(kind)
    return known


def some_are_compiled_in(values) -> bool:
    """Whether any of these arguments is such an object. A launch asks that of types that it has seen."""
    kinds = set(map(type, values))
    return not kinds <= _PASSED and any(map(is_compiled_in, values))


def key_of(value):
    """What two objects have in common that mean the same to a kernel, types and all; it can be hashed."""
    if isinstance(value, enum.Enum):
        return type(value), value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(key_of(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, (tuple, list, dict)):
        items = value.items() if isinstance(value, dict) else value
        return type(value), tuple(key_of(item) for item in items)
    if isinstance(value, (bool, int, float, str)) or value is None:
        # Of numbers, what is read: 0.0 and -0.0 are equal, and NaN is not.
        return type(value), repr(value)
    return type(value), id(value)


def capture(function: types.FunctionType, style: str, decorator: str, objects: dict[str, object] | None = None) -> Captured:
    """Reads a kernel's function and everything that it needs.

    Args:
        function: The kernel's function.
        style: ``"block"`` where ``tessera.tile`` stands for ``cuda.tile``, else ``"own"``.
        decorator: The decorator that counts, in terms of ``__tile__`` (``cuda.tile``) and ``__tessera__``.
        objects: Arguments that are compiled in, by the names of their parameters, which the kernel does not have then.

    Raises:
        SourceError: Python has no text of a function.
        ArgumentError: an object that has no expression.
    """
    reader = _Reader(style)
    reader.objects = objects or {}
    reader.root = function
    reader.extra[id(function)] = [f"__kernel__ = {decorator}"]
    root, name = reader.function(function)
    return Captured(root, name, reader.modules, reader.guards, reader.indents[root])


class _Reader:
    def __init__(self, style: str):
        self.style = style
        self.modules: dict[str, Text] = {}
        self.guards: list[Guard] = []
        self.indents: dict[str, int] = {}
        self.extra: dict[int, list[str]] = {}
        self.units: dict[int, tuple[str, str]] = {}
        # The kernel's function, and arguments that stand for themselves in its text.
        self.root: types.FunctionType | None = None
        self.objects: dict[str, object] = {}
        # What has been read stays alive: an object's number is its own only while it lives.
        self.kept: list[object] = []

    def _new(self, what: str) -> str:
        return f"__{what}{len(self.kept)}"

    # Texts.

    def function(self, function: types.FunctionType) -> tuple[str, str]:
        """The module of a function's text, and its name there."""
        known = self.units.get(id(function))
        if known is not None:
            return known
        source = _source.of_function(function)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

        def read(wanted: str):
            if wanted in cells:
                try:
                    return cells[wanted].cell_contents
                except ValueError:
                    return _UNBOUND
            return function.__globals__.get(wanted, _UNBOUND)

        return self._unit(function, source, read, _source.own_names(function.__code__))

    def class_(self, cls: type) -> tuple[str, str]:
        """The module of a class's text, and its name there."""
        known = self.units.get(id(cls))
        if known is not None:
            return known
        source = _source.of_class(cls)
        module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
        # Names of a function around the class are known to its methods; its bases to itself.
        named = [base.id if isinstance(base, ast.Name) else None for base in source.tree.body[0].bases]
        bases = dict(zip(named, getattr(cls, "__orig_bases__", cls.__bases__), strict=False))
        around: dict[str, object] = {}
        for method in vars(cls).values():
            if isinstance(method, types.FunctionType):
                module = method.__globals__
                cells = zip(method.__code__.co_freevars, method.__closure__ or (), strict=True)
                around.update((name, cell.cell_contents) for name, cell in cells if _filled(cell))
        return self._unit(cls, source, lambda wanted: around.get(wanted, module.get(wanted, bases.get(wanted, _UNBOUND))), set())

    def _unit(self, owner, source: _source.Source, read, own: set[str]) -> tuple[str, str]:
        unit, name = self._new("text"), source.name
        self.kept.append(owner)
        # Known before its names are read: functions may call each other.
        self.units[id(owner)] = (unit, name)
        self.indents[unit] = source.indent
        before = f"{unit}_names"
        lines = _Lines(self)
        if owner is self.root and self.objects:
            source = source.without(set(self.objects))
            for parameter, value in self.objects.items():
                lines.compiled_in(parameter, value)
        if isinstance(owner, types.FunctionType):
            pieces = lines.signature(owner, source.tree.body[0], read)
            pieces |= lines.namesake(owner, source, read, own)
        else:
            pieces = lines.body(owner, source.tree.body[0], read)
        source = source.replaced(pieces)
        self.modules[unit] = Text(source.file, source.text, before)
        for wanted, members in _source.names(source.tree).items():
            value = read(wanted)
            if value is _UNBOUND or wanted == name or wanted in own:
                continue
            self.guards.append(Guard(read, wanted, value, _place(owner, wanted)))
            lines.bind(wanted, value, members)
        lines.text.extend(self.extra.get(id(owner), []))
        self.modules[before] = Text(f"<names of {name}>", "\n".join(lines.text) + "\n", None)
        self._inner_imports(source.tree)
        return unit, name

    def guard_attribute(self, owner, name: str):
        """Has the kernel read again where an object's attribute is another one."""
        self.guards.append(Guard(lambda wanted: getattr(owner, wanted, _UNBOUND), name, getattr(owner, name, _UNBOUND)))

    def namespace(self, value, members: dict) -> str:
        """A module that stands for an object of which only attributes are asked for."""
        module = self._new("object")
        self.kept.append(value)
        lines = _Lines(self)
        for name, inner in members.items():
            item = getattr(value, name, _UNBOUND)
            if item is not _UNBOUND:
                self.guards.append(Guard(lambda wanted, owner=value: getattr(owner, wanted, _UNBOUND), name, item))
                lines.bind(name, item, inner)
        self.modules[module] = Text(f"<{type(value).__name__}>", "\n".join(lines.text) + "\n", None)
        return module

    def _inner_imports(self, tree: ast.Module):
        """Modules that functions import inside, as far as the program has imported them."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in sys.modules and not _is_known(node.module):
                members = {alias.name: {} for alias in node.names if alias.name != "*"}
                module = self.namespace(sys.modules[node.module], members)
                parts = node.module.split(".")
                for end in range(1, len(parts)):
                    self.modules.setdefault(".".join(parts[:end]), Text(parts[0], "", None))
                self.modules[node.module] = self.modules[module]


class _Lines:
    """The statements that bind a text's names."""

    def __init__(self, reader: _Reader):
        self.reader = reader
        self.text = ["import cuda.tile as __tile__", "import tessera as __tessera__", "import math as __math__", "import typing as __typing__"]

    def signature(self, function: types.FunctionType, node: ast.AST, read, of: str = "") -> dict[ast.expr, str]:
        """Names for those annotations and defaults of a function that stand for what they were when it was defined, or have been since: what is put
        in their places. `of` tells methods of a class apart."""
        for attribute in ("__code__", "__defaults__", "__kwdefaults__"):
            self.reader.guard_attribute(function, attribute)
        keywords = function.__kwdefaults__ or {}
        for parameter, value in keywords.items():
            self.reader.guards.append(Guard(lambda wanted, owner=keywords: owner.get(wanted, _UNBOUND), parameter, value))
        annotations, defaults = _source.signature(node)
        pieces: dict[ast.expr, str] = {}
        for parameter, expression in annotations:
            value = function.__annotations__.get(parameter)
            unknown = any(read(name) is _UNBOUND and not hasattr(builtins, name) for name in _source.names_in(expression))
            said = self._annotation(value) if unknown and not isinstance(value, str) else None
            if said is not None:
                pieces[expression] = f"__annotation_{of}{parameter}"
                self.text.append(f"{pieces[expression]} = {said}")
        positional = function.__code__.co_varnames[: function.__code__.co_argcount]
        given = function.__defaults__ or ()
        values = dict(zip(positional[len(positional) - len(given) :], given, strict=True)) | keywords
        for parameter, expression in defaults:
            if parameter in values:
                self._place(pieces, expression, f"__default_{of}{parameter}", values[parameter])
        return pieces

    def compiled_in(self, parameter: str, value):
        """Binds the name of a parameter to the object that it was given.

        Raises:
            ArgumentError: an object that has no expression.
        """
        said = self._item(value)
        if said is None:
            what = f"a `{type(value).__name__}` with something in it that no kernel can be compiled for"
            raise errors.ArgumentError(f"`{parameter}` is {what}: {value!r}")
        self.text.append(f"{parameter} = {said}")

    def _place(self, pieces: dict[ast.expr, str], expression: ast.expr, name: str, value):
        """Puts a name for a live value in an expression's place, where the expression does not say that value. What has no expression is what the
        text says."""
        said = None if _source.says(expression, value) else self._item(value)
        if said is not None:
            pieces[expression] = name
            self.text.append(f"{name} = {said}")

    def namesake(self, function: types.FunctionType, source: _source.Source, read, own: set[str]) -> dict[ast.expr, str]:
        """Another name for what a function calls by its own: a static method does not stand in its module, where its name may stand for
        something else."""
        value = read(source.name)
        if value is _UNBOUND or source.name in own or function_of(value) is function:
            return {}
        nodes = _source.reads(source.tree.body[0], source.name)
        if not nodes:
            return {}
        self.reader.guards.append(Guard(read, source.name, value))
        alias = f"__outer_{source.name}"
        self.bind(alias, value, _source.names(source.tree).get(source.name, {}))
        return dict.fromkeys(nodes, alias)

    def body(self, cls: type, node: ast.ClassDef, read) -> dict[ast.expr, str]:
        """Names for what a class's attributes, fields and methods have that its text does not say any more."""
        pieces: dict[ast.expr, str] = {}
        fields = {field.name: field for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
        defaults = getattr(cls, "_field_defaults", {})
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                held = vars(cls).get(statement.name)
                method = getattr(held, "__func__", getattr(held, "fget", held))
                self.reader.guards.append(Guard(vars(cls).get, statement.name, held))
                if isinstance(method, types.FunctionType):
                    pieces |= self.signature(method, statement, read, f"{statement.name}_")
                continue
            name, expression = _source.assigned(statement)
            if expression is None or issubclass(cls, enum.Enum):
                continue
            held = vars(cls).get(name, _UNBOUND)
            self.reader.guards.append(Guard(lambda wanted: vars(cls).get(wanted, _UNBOUND), name, held))
            # What objects are made with was fixed when the class was made; what the class holds was not.
            if name in fields and fields[name].default is not dataclasses.MISSING:
                held, expression = fields[name].default, _source.default_of_field(expression)
            elif name in defaults:
                held = defaults[name]
            if held is not _UNBOUND and not isinstance(held, types.MemberDescriptorType):
                self._place(pieces, expression, f"__attribute_{name}", held)
        return pieces

    def bind(self, name: str, value, members: dict):
        """Binds a name to what a live object stands for. An object that means nothing to kernels is bound all the same, so that the compiler
        can say what it is where it is needed."""
        if getattr(type(value), "__tessera_unbound__", False):
            return
        said = self._import(name, value, members)
        if said is None:
            said = self._value(value)
            said = None if said is None else f"{name} = {said}"
        if said is None and members and not callable(value):
            said = f"import {self.reader.namespace(value, members)} as {name}"
        if said is None:
            kind = value if isinstance(value, type) else type(value)
            said = f"from {kind.__module__} import {kind.__qualname__.split('.')[0]} as {name}"
        self.text.append(said)

    def _import(self, name: str, value, members: dict) -> str | None:
        if isinstance(value, types.ModuleType):
            return self._module(name, value, members)
        function = function_of(value)
        path = _path(value)
        if path is not None:
            module, _, member = path.rpartition(".")
            if module == "tessera.tile" and self.reader.style == "block":
                module = "cuda.tile"
            return f"from {module} import {member} as {name}"
        if function is not None:
            module, own = self.reader.function(function)
            return f"from {module} import {own} as {name}"
        if isinstance(value, type):
            return self._class(name, value, members)
        if inspect.ismethod(value) and isinstance(value.__self__, type):
            return self._import(name, value.__func__, members)
        return None

    def _module(self, name: str, value: types.ModuleType, members: dict) -> str:
        path = value.__name__
        if path == "tessera.tile" and self.reader.style == "block" or path == "cuda.tile" or path.startswith("cuda.tile._"):
            return f"import cuda.tile as {name}"
        if path == "tessera.tile":
            return f"from tessera import tile as {name}"
        if path == "cuda":
            return "import cuda.tile" if name == "cuda" else f"import cuda as {name}"
        if _is_known(path) or path == "tessera" and self.reader.style != "block":
            return f"import {path} as {name}"
        return f"import {self.reader.namespace(value, members)} as {name}"

    def _class(self, name: str, value: type, members: dict) -> str | None:
        dtype = dtypes.of(value)
        if dtype is not None:
            return f"from cuda.tile import {dtype.name} as {name}"
        if value.__module__ == "builtins":
            return None
        if dataclasses.is_dataclass(value) or issubclass(value, (tuple, enum.Enum)):
            module, own = self.reader.class_(value)
            return f"from {module} import {own} as {name}"
        return f"import {self.reader.namespace(value, members)} as {name}" if members else None

    def _value(self, value) -> str | None:
        """An expression for a value; ``None`` where it has none."""
        dtype = dtypes.of(value)
        if dtype is not None:
            return f"__tile__.{dtype.name}"
        if isinstance(value, enum.Enum):
            path = _path(type(value))
            if path is not None and path.startswith(("cuda.tile.", "tessera.tile.")):
                return f"__tile__.{type(value).__name__}.{value.name}"
            alias = self._alias(type(value))
            return None if alias is None else f"{alias}.{value.name}"
        annotation = self._annotation(value)
        if annotation is not None:
            return annotation
        if value is None or isinstance(value, (bool, str)):
            return repr(value)
        if isinstance(value, int):
            return repr(int(value))
        if isinstance(value, float):
            return _float(float(value))
        if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
            kept = value.item()
            # An array without axes may hold something else later; NumPy's scalars never change.
            if hasattr(value, "ctypes"):
                self.reader.guards.append(Guard(lambda kept, owner=value: kept if repr(owner.item()) == repr(kept) else _UNBOUND, kept, kept))
            return self._value(kept)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init]
            self.reader.guards.extend(Guard(lambda name, owner=value: getattr(owner, name, _UNBOUND), *field) for field in fields)
            return self._made(type(value), fields)
        if isinstance(value, tuple) and hasattr(value, "_fields") and _path(type(value)) is None:
            return self._made(type(value), list(zip(value._fields, value, strict=True)))
        if isinstance(value, (tuple, list)):
            items = [self._item(item) for item in value]
            if None in items:
                return None
            joined = ", ".join(items)
            if isinstance(value, list):
                kept = list(value)
                self.reader.guards.append(Guard(lambda kept, owner=value: kept if _same(owner, kept) else _UNBOUND, kept, kept))
                return f"[{joined}]"
            return f"({joined},)" if items else "()"
        return None

    def _annotation(self, value) -> str | None:
        """An expression for what a parameter may be annotated with; ``None`` where it is nothing of ours."""
        if isinstance(value, str) or not hasattr(value, "__metadata__"):
            return None
        for mark in value.__metadata__:
            kind = type(mark).__name__.lstrip("_")
            if kind == "ConstantAnnotation":
                origin = value.__origin__
                inner = origin.__name__ if isinstance(origin, type) and origin.__module__ == "builtins" else None
                return f"__tile__.Constant[{inner}]" if inner else "__tile__.Constant"
            if kind in ("ArrayAnnotation", "ListAnnotation", "ScalarAnnotation"):
                return f"__typing__.Annotated[__tile__.Array, {self._mark(mark)}]"
        return None

    def _mark(self, mark) -> str:
        """An expression for what stands in an ``Annotated``."""
        said = []
        for field in dataclasses.fields(mark):
            value = getattr(mark, field.name)
            dtype = dtypes.of(value)
            if dtype is not None:
                said.append(f"{field.name}=__tile__.{dtype.name}")
            elif dataclasses.is_dataclass(value):
                said.append(f"{field.name}={self._mark(value)}")
            else:
                said.append(f"{field.name}={tuple(value)!r}")
        return f"__tile__.{type(mark).__name__.lstrip('_')}({', '.join(said)})"

    def _item(self, value) -> str | None:
        return self._value(value) if not callable(value) or dtypes.of(value) is not None else self._alias(value)

    def _alias(self, value) -> str | None:
        """A name of our own for a function or a class."""
        alias = f"__alias{len(self.text)}"
        said = self._import(alias, value, {})
        if said is None:
            return None
        self.text.append(said)
        return alias

    def _made(self, cls: type, fields: list) -> str | None:
        alias = self._alias(cls)
        items = [(name, self._item(value)) for name, value in fields]
        if alias is None or any(item is None for _, item in items):
            return None
        return f"{alias}({', '.join(f'{name}={item}' for name, item in items)})"


def _place(owner, name: str):
    """Where a name of a function's stands; ``None`` for a class, whose names stand in several places."""
    if not isinstance(owner, types.FunctionType):
        return None
    free = owner.__code__.co_freevars
    if name in free:
        return owner.__closure__[free.index(name)]
    return owner.__globals__ if name in owner.__globals__ else None


def _same(items: list, kept: list) -> bool:
    """Whether a list holds the very objects that it held: equal ones, as 1, 1.0 and True, mean different things."""
    return len(items) == len(kept) and all(item is known for item, known in zip(items, kept, strict=True))


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (asked whether it is there)
    except ValueError:
        return False
    return True


def _float(value: float) -> str:
    if math.isnan(value):
        return "__math__.nan"
    if math.isinf(value):
        return "__math__.inf" if value > 0 else "-__math__.inf"
    return repr(value)


def _is_known(path: str) -> bool:
    return any(path == known or path.startswith(known + ".") for known in _KNOWN)


def _path(value) -> str | None:
    """The dotted path of something that the language knows."""
    path = getattr(value, "__tessera_path__", None)
    if isinstance(path, str):
        return path
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not callable(value):
        return None
    if module.split(".")[:2] in (["cuda", "tile"], ["tessera", "tile"]) and not isinstance(value, types.ModuleType):
        return f"cuda.tile.{name}"
    if module == "_operator":
        module = "operator"
    if dtypes.of(value) is not None:
        return None
    return f"{module}.{name}" if _is_known(module) and "." not in name and name != "<lambda>" else None
