"""Expressions of compile time that name live objects alone.

Python evaluates what stands inside ``static_eval``, ``static_iter`` and ``static_assert``, unless it names something of the kernel: its parameters, its variables, or a
function that has a meaning inside kernels alone. The value, or the exception, stands in the expression's place. Other expressions are the compiler's.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import symtable
import sysconfig
import types
from collections.abc import Callable, Iterator

from . import _source, errors

#: Functions of the language whose first argument is such an expression.
_PLACES = {f"cuda.tile.{name}": name for name in ("static_eval", "static_iter", "static_assert")}
#: Items that `static_iter` is given at most: no kernel has more, and an iterator may have no end.
_MOST = 20_000
_ABSENT = object()


def expressions(source: _source.Source, own: set[str], path_of: Callable[[ast.expr], str | None]) -> Iterator[tuple[ast.expr, str, dict[str, dict]]]:
    """The expressions of a text that may be Python's: each with the function that it is given to, and the names that it reads, with the attributes that are
    asked of them.

    Args:
        source: The text.
        own: Names that are the kernel's.
        path_of: What an expression of names and attributes stands for in the language.
    """
    waiting: list[ast.AST] = [source.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Starred):
            place = _PLACES.get(path_of(node.func) or "")
            names = _names(source, node.args[0]) if place else None
            if names is not None and own.isdisjoint(names):
                yield node.args[0], place, names
                continue
        waiting.extend(ast.iter_child_nodes(node))


def _names(source: _source.Source, expression: ast.expr) -> dict[str, dict] | None:
    """The names that an expression reads from around it; ``None`` where it does more than that."""
    if any(isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)) for node in ast.walk(expression)):
        return None
    table = symtable.symtable(f"({ast.get_source_segment(source.text, expression)})", "<expression>", "eval")
    tables, free = [table], set()
    while tables:
        inner = tables.pop()
        free.update(symbol.get_name() for symbol in inner.get_symbols() if symbol.is_global() or inner is table)
        tables.extend(inner.get_children())
    asked = _source.names(ast.Module([ast.Expr(expression)], []))
    return {name: asked.get(name, {}) for name in sorted(free)}


class Raised(Exception):
    """What an expression raised."""


def value_of(expression: ast.expr, place: str, names: dict[str, object], file: str):
    """The value of an expression.

    Args:
        expression: The expression.
        place: The function that it is given to.
        names: What its names stand for.
        file: The file that it stands in.

    Returns:
        A tuple of the value alone; ``None`` where the expression is the compiler's after all.

    Raises:
        Raised: it raised an exception, which is the cause.
    """
    code = compile(ast.Expression(expression), file, "eval", dont_inherit=True)
    try:
        value = eval(code, {"__builtins__": builtins, _source.EXPRESSION: True, **names})  # noqa: S307
        if place == "static_iter" and not isinstance(value, (range, tuple, list)):
            value = tuple(itertools.islice(value, _MOST + 1))
            if len(value) > _MOST:
                raise ValueError(f"more than {_MOST} items")
    except errors.KernelsAlone:
        return None
    except Exception as error:
        raise Raised from error
    return (value,)


#: Files of Python itself and of packages that are installed: what their functions read does not change.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Watch:
    """Collects what a value depends on, as names, where each is read, and what it stands for."""

    def __init__(self):
        self.found: list[tuple[Callable[[object], object], object, object]] = []
        self._seen: dict[int, object] = {}

    def chain(self, value, members: dict):
        """An object of which attributes are asked for, or which is what was asked for."""
        for name, inner in members.items():
            item = _attribute(value, name)
            if item is not _ABSENT:
                self.found.append((lambda wanted, owner=value, item=item: same_method(_attribute(owner, wanted), item), name, item))
                self.chain(item, inner)
        if not members:
            self.whole(value)

    def whole(self, value, is_held: bool = False):
        """An object with all that it holds, or that it reads when it is called; of what an object's attributes hold, attributes are not looked at."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, types.MethodType):
            self.whole(value.__func__)
            self.whole(value.__self__, is_held)
        elif isinstance(value, types.BuiltinMethodType):
            self.whole(value.__self__, is_held)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, (list, tuple, set, frozenset, dict, types.MappingProxyType)):
            self._items(value, is_held)
        elif type(value).__module__ == "numpy" and hasattr(value, "tobytes") and hasattr(value, "ctypes"):
            kept = value.tobytes()
            self.found.append((lambda kept, owner=value: kept if owner.tobytes() == kept else _ABSENT, kept, kept))
        elif not is_held and not isinstance(value, (type, types.ModuleType)) and isinstance(getattr(value, "__dict__", None), dict):
            self._items(vars(value), is_held=True)

    def _items(self, items, is_held: bool):
        kept = listed(items)
        if not isinstance(items, (tuple, frozenset)):
            self.found.append((lambda kept, owner=items: kept if same(listed(owner), kept) else _ABSENT, kept, kept))
        for item in kept:
            self.whole(item, is_held)

    def _function(self, function: types.FunctionType):
        code = function.__code__
        if code.co_filename.startswith(_LIBRARIES) or code.co_filename.startswith("<frozen"):
            return
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self.found.append((lambda wanted, owner=function: getattr(owner, wanted), name, getattr(function, name)))
        for cell in function.__closure__ or ():
            kept = _content(cell)
            self.found.append((lambda kept, cell=cell: _content(cell), kept, kept))
            self.whole(kept)
        codes = [code]
        while codes:
            inner = codes.pop()
            codes.extend(constant for constant in inner.co_consts if isinstance(constant, types.CodeType))
            for name in inner.co_names:
                kept = function.__globals__.get(name, _ABSENT)
                self.found.append((lambda wanted, names=function.__globals__: names.get(wanted, _ABSENT), name, kept))
                self.whole(kept)


def _attribute(owner, name: str):
    return getattr(owner, name, _ABSENT)


def same_method(found, known):
    """An attribute, or what is known of it where it is the same method, of which Python makes a new object each time."""
    is_method = isinstance(found, (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType))
    return known if is_method and found == known and found.__self__ is known.__self__ else found


def _content(cell: types.CellType):
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def listed(items) -> list:
    """What a list or a set holds, or a dictionary's keys and values."""
    return [part for item in items.items() for part in item] if hasattr(items, "items") else list(items)


def same(items: list, kept: list) -> bool:
    """Whether they are the very objects that were held: equal ones, as 1, 1.0 and True, mean different things."""
    return len(items) == len(kept) and all(item is known for item, known in zip(items, kept, strict=True))
