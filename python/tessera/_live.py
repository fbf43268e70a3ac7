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
import contextlib
import dataclasses
import enum
import inspect
import math
import sys
import types
import typing
from typing import NamedTuple

from . import _classes, _source, _static, dtypes, errors

#: Modules that mean the same to the compiler as to Python.
_KNOWN = ("math", "operator", "functools", "typing", "dataclasses", "enum", "abc", "contextlib", "numpy", "torch", "jax", "ml_dtypes")
_UNBOUND = object()
#: What kernels may ask of a dictionary, and what makes it one.
_OF_DICTIONARIES = {"get", "keys", "values", "items"}
_PLAIN = ("builtins", "collections", "types")
#: The code of every function that `contextlib.contextmanager` makes.
_MANAGER = contextlib.contextmanager(lambda: iter(())).__code__


class Text(NamedTuple):
    """A module for the compiler: the file that messages name, the text, what they show in its place, and the module that has its names."""

    file: str
    text: str
    shown: str | None
    before: str | None


class Guard(NamedTuple):
    """A name that was read, where, and what it stood for."""

    read: object
    name: str
    value: object
    #: The names or the cell where it stands; ``None`` where only ``read`` knows.
    place: object = None

    @property
    def is_absent(self) -> bool:
        """Whether the name stood for nothing."""
        return self.value is _UNBOUND

    def holds(self) -> bool:
        """Whether the name still stands for that."""
        return self.read(self.name) is self.value


class Captured(NamedTuple):
    """A kernel for the compiler."""

    root: str
    kernel: str
    modules: dict[str, Text]
    guards: list[Guard]


def function_of(value):
    """The plain function behind a kernel or a decorated function of the kernel language; ``None`` where there is none."""
    # What it holds: an object of the program may have an answer for every name.
    inner = inspect.getattr_static(value, "__tessera_function__", None)
    if isinstance(inner, types.FunctionType):
        return inner
    if type(value).__module__.startswith("cuda.tile") and hasattr(value, "_pyfunc"):
        return value._pyfunc
    return value if isinstance(value, types.FunctionType) else None


def _evaluated(function: types.FunctionType, annotation):
    """What an annotation stands for: Python evaluates one that is written as a text when it is asked for. ``None`` where that has no meaning here, as
    names that only type checkers import."""
    if not isinstance(annotation, str):
        return annotation
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        around = {name: cell.cell_contents for name, cell in cells}
        return _evaluated(function, eval(annotation, function.__globals__, around))
    except Exception:
        return None


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
    reader = _Reader(style, function, decorator, objects or {})
    root, name = reader.function(function)
    return Captured(root, name, reader.modules, reader.guards)


class _Reader:
    def __init__(self, style: str, root: types.FunctionType, decorator: str, objects: dict[str, object]):
        self.style = style
        self.modules: dict[str, Text] = {}
        self.guards: list[Guard] = []
        self.units: dict[object, tuple[str, str]] = {}
        #: Classes from which those are made that were read.
        self.bases: set[type] = set()
        # The kernel's function, its decorator, and arguments that stand for themselves in its text.
        self.root, self.decorator, self.objects = root, decorator, objects
        # What has been read stays alive: an object's number is its own only while it lives.
        self.kept: list[object] = []

    def _new(self, what: str) -> str:
        return f"__{what}{len(self.kept)}"

    # Texts.

    def function(self, function: types.FunctionType) -> tuple[str, str]:
        """The module of a function's text, and its name there."""
        return self._of_function(function, id(function), self.objects if function is self.root else {})

    def method(self, method: types.MethodType) -> tuple[str, str] | None:
        """The module of a method's text without its first parameter, which stands for what the method is bound to, and its name there; ``None`` where
        it has no such text."""
        function = method.__func__
        if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
            return None
        code = function.__wrapped__.__code__ if function.__code__ is _MANAGER else function.__code__
        if not code.co_argcount:
            return None
        self.kept.append(method.__self__)
        return self._of_function(function, (id(function), id(method.__self__)), {code.co_varnames[0]: method.__self__})

    def _of_function(self, function: types.FunctionType, key, given: dict[str, object]) -> tuple[str, str]:
        known = self.units.get(key)
        if known is not None:
            return known
        is_manager = function.__code__ is _MANAGER
        if is_manager:
            self.guard_attribute(function, "__wrapped__")
            function = function.__wrapped__
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

        def read(wanted: str):
            if wanted in cells:
                try:
                    return cells[wanted].cell_contents
                except ValueError:
                    return _UNBOUND
            return function.__globals__.get(wanted, _UNBOUND)

        source = _source.of_function(function)
        if given:
            source = source.without(set(given))
        if is_manager:
            source = source.decorated("__contextlib__.contextmanager")
        return self._unit(function, key, source, read, given)

    def class_(self, cls: type) -> tuple[str, str]:
        """The module of a class's text, and its name there."""
        known = self.units.get(id(cls))
        if known is not None:
            return known
        # The compiler knows Python's own by their names.
        self.bases.update(base for base in cls.__mro__[1:] if base.__module__ not in ("builtins", "abc"))
        source = self._class_source(cls)
        module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
        # Names of a function around the class are known to its methods; its bases to itself.
        named = [base.id if isinstance(base, ast.Name) else None for base in source.node.bases]
        bases = zip(named, getattr(cls, "__orig_bases__", cls.__bases__), strict=False)
        bases = {name: base for name, base in bases if getattr(base, "__module__", None) != "builtins"}
        around: dict[str, object] = {}
        for method in vars(cls).values():
            if isinstance(method, types.FunctionType):
                module = method.__globals__
                cells = zip(method.__code__.co_freevars, method.__closure__ or (), strict=True)
                around.update((name, cell.cell_contents) for name, cell in cells if _filled(cell))
        read = lambda wanted: around.get(wanted, module.get(wanted, bases.get(wanted, _UNBOUND)))  # noqa: E731
        return self._unit(cls, id(cls), source, read, {})

    def _class_source(self, cls: type) -> _source.Source:
        if not issubclass(cls, enum.Enum):
            return _source.of_class(cls)
        try:
            source = _source.of_class(cls)
        except errors.SourceError:
            # It was made by a call.
            source = None
        return _classes.enumeration(cls, source)

    def _unit(self, owner, key, source: _source.Source, read, given: dict[str, object]) -> tuple[str, str]:
        unit, name = self._new("text"), source.name
        self.kept.append(owner)
        # Known before its names are read: functions may call each other.
        self.units[key] = (unit, name)
        before = f"{unit}_names"
        lines = _Lines(self, source)
        own = _source.own_names(owner.__code__) if isinstance(owner, types.FunctionType) else set()
        source = lines.statics(source, read, own or _source.bound_names(source.tree))
        asked = _source.names(source.tree)
        for parameter, value in given.items():
            if owner is self.root:
                lines.compiled_in(parameter, value)
            else:
                lines.bind(parameter, value, asked.get(parameter, {}))
        if isinstance(owner, types.FunctionType):
            pieces = lines.signature(owner, source.node)
            pieces |= lines.namesake(owner, source, read, own)
        else:
            pieces = lines.body(owner, source.node)
        source = source.replaced(pieces)
        self.modules[unit] = Text(source.file, source.text, source.shown, before)
        for wanted, members in _source.names(source.tree).items():
            if wanted == name or wanted in own or wanted in lines.put:
                continue
            value, place = read(wanted), _place(owner, wanted)
            if value is not _UNBOUND:
                self.guards.append(Guard(read, wanted, value, place))
                lines.bind(wanted, value, members)
            elif isinstance(place, dict):
                # One of Python's own functions, in whose place the program may put something.
                self.guards.append(Guard(read, wanted, _UNBOUND, place))
        if owner is self.root:
            lines.text.append(f"__kernel__ = {self.decorator}")
        self.modules[before] = Text(f"<names of {name}>", "\n".join(lines.text) + "\n", None, None)
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
                self.guards.append(Guard(lambda wanted, owner=value, item=item: _static.same_method(getattr(owner, wanted, _UNBOUND), item), name, item))
                lines.bind(name, item, inner)
        self.modules[module] = Text(f"<{type(value).__name__}>", "\n".join(lines.text) + "\n", None, None)
        return module

    def _inner_imports(self, tree: ast.Module):
        """Modules that functions import inside, as far as the program has imported them."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in sys.modules and not _is_known(node.module):
                members = {alias.name: {} for alias in node.names if alias.name != "*"}
                module = self.namespace(sys.modules[node.module], members)
                parts = node.module.split(".")
                for end in range(1, len(parts)):
                    self.modules.setdefault(".".join(parts[:end]), Text(parts[0], "", None, None))
                self.modules[node.module] = self.modules[module]


class _Lines:
    """The statements that bind a text's names."""

    def __init__(self, reader: _Reader, source: _source.Source | None = None):
        self.reader = reader
        self.source = source
        self.text = ["import cuda.tile as __tile__", "import tessera as __tessera__"]
        self.text += [f"import {name} as __{name}__" for name in ("math", "typing", "dataclasses", "contextlib")]
        # Names that are put in the places of expressions of the text.
        self.put: set[str] = set()

    def signature(self, function: types.FunctionType, node: ast.AST) -> dict[ast.AST, str]:
        """Names for the annotations and defaults of a function, which stand for what they were when it was defined, or have been since: what is put in
        their places."""
        for attribute in ("__code__", "__defaults__", "__kwdefaults__"):
            self.reader.guard_attribute(function, attribute)
        keywords = function.__kwdefaults__ or {}
        for parameter, value in keywords.items():
            self.reader.guards.append(Guard(lambda wanted, owner=keywords: owner.get(wanted, _UNBOUND), parameter, value))
        annotations, defaults = _source.signature(node)
        pieces: dict[ast.AST, str] = {}
        for parameter, expression in annotations:
            said = self._annotation(_evaluated(function, function.__annotations__.get(parameter)))
            if said is not None:
                self._put(pieces, expression, said)
        positional = function.__code__.co_varnames[: function.__code__.co_argcount]
        given = function.__defaults__ or ()
        values = dict(zip(positional[len(positional) - len(given) :], given, strict=True)) | keywords
        for parameter, expression in defaults:
            if parameter in values:
                self._place(pieces, expression, values[parameter])
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

    def _place(self, pieces: dict[ast.AST, str], expression: ast.expr, value):
        """Puts a name for a live value in an expression's place, where the expression does not say that value. What has no expression is what the
        text says."""
        said = None if _source.says(expression, value) else self._item(value)
        if said is not None:
            self._put(pieces, expression, said)

    def _put(self, pieces: dict[ast.AST, str], expression: ast.expr, said: str):
        """Puts a name in an expression's place, as long as the expression where there is one, so that columns stay."""
        unused = (name for name in _source.unused_names(self.source, expression) if name not in self.put)
        name = next(unused, f"__put{len(self.text)}")
        self.put.add(name)
        pieces[expression] = name
        # The place tells kernels apart whose messages show one text.
        self.text.append(f"{name} = {said}  # {expression.lineno}:{expression.col_offset}")

    def statics(self, source: _source.Source, read, own: set[str]) -> _source.Source:
        """The text of a function with the values of expressions of compile time that name live objects alone."""
        known = lambda name: read(name) if read(name) is not _UNBOUND else getattr(builtins, name, _UNBOUND)  # noqa: E731

        def path_of(function: ast.expr) -> str | None:
            value = function
            attributes = []
            while isinstance(value, ast.Attribute):
                attributes.append(value.attr)
                value = value.value
            if not isinstance(value, ast.Name) or value.id in own:
                return None
            value = known(value.id)
            for name in reversed(attributes):
                value = getattr(value, name, _UNBOUND)
            return _path(value)

        pieces: dict[ast.AST, str] = {}
        for expression, place, asked in _static.expressions(source, own, path_of):
            names = {name: known(name) for name in asked}
            if any(value is _UNBOUND for value in names.values()):
                continue
            try:
                found = _static.value_of(expression, place, names, source.file)
                said = None if found is None else self._item(found[0])
            except _static.Raised as raised:
                said = self._exception(raised.__cause__)
            if said is None:
                continue
            self._put(pieces, expression, said)
            self._watch(asked, names, read)
        self.source = source.replaced(pieces)
        return self.source

    def _watch(self, asked: dict[str, dict], names: dict[str, object], read):
        """Has the kernel read again where names stand for something else, or what they stand for holds something else."""
        watch = _static.Watch()
        for name, value in names.items():
            self.reader.guards.append(Guard(read, name, read(name)))
            if read(name) is not _UNBOUND:
                watch.chain(value, asked[name])
        self.reader.guards.extend(Guard(*found) for found in watch.found)

    def _exception(self, error: BaseException) -> str:
        """An expression for an exception: the compiler says of one in an expression's place that it was raised."""
        return f"Exception({f'{type(error).__name__}: {error}'!r})"

    def namesake(self, function: types.FunctionType, source: _source.Source, read, own: set[str]) -> dict[ast.AST, str]:
        """Another name for what a function calls by its own: a static method does not stand in its module, where its name may stand for
        something else."""
        value = read(source.name)
        if value is _UNBOUND or source.name in own or function_of(value) is function:
            return {}
        nodes = _source.reads(source.node, source.name)
        if not nodes:
            return {}
        self.reader.guards.append(Guard(read, source.name, value))
        alias = next(_source.unused_names(source, nodes[0]), f"__outer_{source.name}")
        self.put.add(alias)
        self.bind(alias, value, _source.names(source.tree).get(source.name, {}))
        return dict.fromkeys(nodes, alias)

    def body(self, cls: type, node: ast.ClassDef) -> dict[ast.AST, str]:
        """Names for what a class's attributes, fields and methods have that its text does not say, or not any more."""
        pieces: dict[ast.AST, str] = {}
        fields = {field.name: field for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
        defaults = getattr(cls, "_field_defaults", {})
        members = self._bases(cls, node, pieces) if issubclass(cls, enum.Enum) else {}
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self._method(cls, statement, pieces)
                continue
            name, expression = _source.assigned(statement)
            if name in members:
                self._member(pieces, expression, members[name].value, _classes.member_name(name))
                continue
            if fields and isinstance(statement, ast.AnnAssign):
                pieces |= _classes.field_pieces(cls, statement)
            if expression is None or expression in pieces:
                continue
            held = vars(cls).get(name, _UNBOUND)
            self.reader.guards.append(Guard(lambda wanted: vars(cls).get(wanted, _UNBOUND), name, held))
            # What objects are made with was fixed when the class was made; what the class holds was not.
            if name in fields and fields[name].default is not dataclasses.MISSING:
                held, expression = fields[name].default, _source.default_of_field(expression)
            elif name in defaults:
                held = defaults[name]
            if held is not _UNBOUND and not isinstance(held, types.MemberDescriptorType):
                self._place(pieces, expression, held)
        return pieces

    def _method(self, cls: type, statement: ast.FunctionDef, pieces: dict[ast.AST, str]):
        if issubclass(cls, enum.Enum) and statement.name in ("__new__", "__init__"):
            # The members are made.
            pieces[statement] = "pass"
            return
        held = vars(cls).get(statement.name)
        method = getattr(held, "__func__", getattr(held, "fget", held))
        self.reader.guards.append(Guard(vars(cls).get, statement.name, held))
        if isinstance(method, types.FunctionType):
            pieces |= self.signature(method, statement)

    def _bases(self, cls: type[enum.Enum], node: ast.ClassDef, pieces: dict[ast.AST, str]) -> dict[str, enum.Enum]:
        """Puts bases in the places of those that the compiler does not know, and names those of an enumeration without a text; its members."""
        for at, (expression, base) in enumerate(zip(node.bases, cls.__bases__, strict=False)):
            if base in _classes.BASES:
                pieces[expression] = f"__enumeration{at}"
                self.put.add(pieces[expression])
                self.text.append(f"from enum import {_classes.BASES[base]} as {pieces[expression]}")
            elif isinstance(expression, ast.Name) and expression.id == f"__base{at}":
                self.bind(expression.id, base, {})
        return dict(cls.__members__)

    def _member(self, pieces: dict[ast.AST, str], expression: ast.expr, value, written: str):
        """Binds the value of an enumeration's member, or puts it in the place of the expression that it has in the text."""
        if isinstance(expression, ast.Name) and expression.id == written:
            said = self._item(value)
            if said is None:
                self.bind(written, value, {})
            else:
                self.text.append(f"{written} = {said}")
        else:
            self._place(pieces, expression, value)

    def bind(self, name: str, value, members: dict):
        """Binds a name to what a live object stands for. An object that means nothing to kernels is bound all the same, so that the compiler
        can say what it is where it is needed."""
        if getattr(type(value), "__tessera_unbound__", False):
            return
        said = self._import(name, value, members)
        # A dictionary of which other attributes are asked for is an object with attributes.
        if said is None and not (isinstance(value, dict) and set(members) - _OF_DICTIONARIES):
            said = self._value(value)
            said = None if said is None else f"{name} = {said}"
        if said is None and members and not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
            said = f"import {self.reader.namespace(value, members)} as {name}"
        self.text.append(said or _opaque(name, value))

    def _import(self, name: str, value, members: dict) -> str | None:
        if isinstance(value, types.ModuleType):
            return self._module(name, value, members)
        function = function_of(value)
        if inspect.ismethod(value) and function is None:
            method = self.reader.method(value)
            return None if method is None else f"from {method[0]} import {method[1]} as {name}"
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
        if dataclasses.is_dataclass(value) or issubclass(value, (tuple, enum.Enum)) or value in self.reader.bases:
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
            if value.name not in type(value).__members__:
                if isinstance(value, int):
                    return repr(int(value))
                raise errors.ArgumentError(f"`{value!r}` combines flags, and kernels know members alone: pass its `value`")
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
        if type(value).__module__ == "ml_dtypes" and getattr(value, "shape", ()) == () and hasattr(value, "__float__"):
            return _float(float(value))
        if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
            kept = value.item()
            # An array without axes may hold something else later; NumPy's scalars never change.
            if hasattr(value, "ctypes"):
                self.reader.guards.append(Guard(lambda kept, owner=value: kept if repr(owner.item()) == repr(kept) else _UNBOUND, kept, kept))
            return self._value(kept)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if hasattr(value, field.name)]
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
                self._guard_items(value)
                return f"[{joined}]"
            return f"({joined},)" if items else "()"
        if isinstance(value, range):
            return repr(value)
        if isinstance(value, (dict, types.MappingProxyType, frozenset, set)) and _is_plain(type(value)):
            return self._dictionary(value)
        return None

    def _guard_items(self, value):
        """Has the kernel read again where a list, a dictionary or a set holds something else."""
        kept = _static.listed(value)
        self.reader.guards.append(Guard(lambda kept, owner=value: kept if _static.same(_static.listed(owner), kept) else _UNBOUND, kept, kept))

    def _dictionary(self, value) -> str | None:
        """A dictionary, or a set as one whose keys count; ``None`` where a key has no expression. Values that have none are bound all the same, as names
        are."""
        self._guard_items(value)
        items = value.items() if hasattr(value, "items") else ((key, None) for key in value)
        said = []
        for key, item in items:
            name = self._item(key)
            if name is None:
                return None
            said.append(f"{name}: {self._item_or_name(item)}")
        return f"{{{', '.join(said)}}}"

    def _item_or_name(self, value) -> str:
        try:
            said = self._item(value)
        except errors.SourceError:
            said = None
        if said is None:
            said = f"__unknown{len(self.text)}"
            self.text.append(_opaque(said, value))
        return said

    def _annotation(self, value) -> str | None:
        """An expression for what a parameter may be annotated with; ``None`` where it is nothing of ours."""
        if typing.get_origin(value) is not typing.Annotated:
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
        if dataclasses.is_dataclass(cls):
            items.append(("__made__", "True"))
        return f"{alias}({', '.join(f'{name}={item}' for name, item in items)})"


def _place(owner, name: str):
    """Where a name of a function's stands; ``None`` for a class, whose names stand in several places."""
    if not isinstance(owner, types.FunctionType):
        return None
    free = owner.__code__.co_freevars
    if name in free:
        return owner.__closure__[free.index(name)]
    return owner.__globals__


def _is_plain(kind: type) -> bool:
    """Whether a class of dictionaries or sets does what Python's own do where kernels ask."""
    own = next(base for base in kind.__mro__ if base.__module__ in _PLAIN)
    return all(getattr(kind, name, None) is getattr(own, name, None) for name in ("__getitem__", "__contains__", "__iter__", "__len__", *_OF_DICTIONARIES))


def _opaque(name: str, value) -> str:
    """A name for an object that means nothing to kernels: the compiler can say what it is where it is needed."""
    kind = value if isinstance(value, type) else type(value)
    return f"from {kind.__module__} import {kind.__qualname__.split('.')[0]} as {name}"


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
