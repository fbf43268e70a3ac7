"""Texts of live functions and classes.

A text stands alone: it begins in the first column, behind as many empty lines as its file has before it, so that its lines have the numbers that
they have there. Decorators are left out, as they have done their work; a lambda is given a name. The source comes from where Python's own
tracebacks have it: files, and the cells of notebooks.
"""

from __future__ import annotations

import ast
import inspect
import types
from typing import NamedTuple

from . import errors


class Source(NamedTuple):
    """A text.

    Attributes:
        file: The file that messages name.
        text: The text, with its lines where they are in the file.
        tree: What it is.
        name: The name that it binds.
        indent: Columns by which its lines were shifted to the left.
    """

    file: str
    text: str
    tree: ast.Module
    name: str
    indent: int

    def replaced(self, pieces: dict[ast.expr, str]) -> Source:
        """The text with others in the places of some of its expressions. Lines keep their numbers."""
        if not pieces:
            return self
        lines = [line.encode() for line in self.text.splitlines(keepends=True)]
        for node, new in sorted(pieces.items(), key=lambda piece: (-piece[0].lineno, -piece[0].col_offset)):
            first, last = node.lineno - 1, node.end_lineno - 1
            tail = lines[last][node.end_col_offset :]
            kept = lines[first][: node.col_offset] + new.encode() + b"\n" * (last - first) + tail
            lines[first : last + 1] = kept.splitlines(keepends=True)
        text = b"".join(lines).decode()
        return self._replace(text=text, tree=ast.parse(text))

    def without(self, names: set[str]) -> Source:
        """The text of a function without some of its parameters, whose names stand for something around it then. Lines keep their numbers."""
        args = self.tree.body[0].args
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
        every = [*zip(positional, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        kept: list[str] = []
        for arg, default in every:
            if arg.arg in names:
                continue
            if arg in args.kwonlyargs and positional and "*" not in kept:
                kept.append("*")
            kept.append(ast.unparse(arg) + ("" if default is None else f" = {ast.unparse(default)}"))
        first, last = every[0][0], every[-1][1] or every[-1][0]
        span = {"lineno": first.lineno, "col_offset": first.col_offset, "end_lineno": last.end_lineno, "end_col_offset": last.end_col_offset}
        return self.replaced({ast.Name("", **span): ", ".join(kept)})


#: Texts that were read, by their code: a file that is changed later is another text than the one that Python runs.
_READ: dict[types.CodeType, Source] = {}


def of_function(function: types.FunctionType) -> Source:
    """The text of a function.

    Raises:
        SourceError: Python has no text of it, or has another.
    """
    known = _READ.get(function.__code__)
    if known is None:
        known = _READ[function.__code__] = _of_code(function)
    return known


def of_class(cls: type) -> Source:
    """The text of a class.

    Raises:
        SourceError: as for a function.
    """
    try:
        lines, first = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls) or inspect.getfile(cls)
    except (OSError, TypeError) as error:
        raise _none(cls.__qualname__, error) from error
    return _alone(cls.__qualname__, file, lines, first, decorators=True)


def _none(name: str, error: Exception) -> errors.TesseraError:
    text = (
        f"the source of `{name}` cannot be had: {error}\n"
        "help: kernels are compiled from their text: define them in a file or a notebook cell, not by `exec` or `eval`"
    )
    return errors.make("source", text, [])


def _of_code(function: types.FunctionType) -> Source:
    code, name = function.__code__, function.__qualname__
    # The code, not the function: what `functools.wraps` has made looks like what it wraps.
    try:
        lines, at = inspect.findsource(code)
        file = inspect.getsourcefile(code) or code.co_filename
    except (OSError, TypeError, IndexError) as error:
        raise _none(name, error) from error
    if code.co_name == "<lambda>":
        return _of_lambda(code, file, lines)
    found = _alone(name, file, inspect.getblock(lines[at:]), at + 1, decorators=False)
    if found.name != code.co_name:
        text = f"{file}:{at + 1}: the file has `{found.name}` where `{name}` was: it was changed since it was imported\nhelp: import it again"
        raise errors.make("source", text, [])
    return found


def _alone(name: str, file: str, lines: list[str], first: int, decorators: bool) -> Source:
    """A definition's text in the first column."""
    prefix = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    text = "".join(line.removeprefix(prefix) for line in lines)
    try:
        node = ast.parse(text).body[0]
    except (SyntaxError, IndexError) as error:
        raise errors.make("source", f"{file}:{first}: the text of `{name}` does not stand alone: {error}", []) from error
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        raise _none(name, OSError(f"{file}:{first} has no definition"))
    if not decorators:
        text = "".join(text.splitlines(keepends=True)[node.lineno - 1 :])
        first += node.lineno - 1
    text = "\n" * (max(first, 1) - 1) + text
    return Source(file, text, ast.parse(text), node.name, len(prefix))


def _of_lambda(code: types.CodeType, file: str, lines: list[str]) -> Source:
    """A lambda's text, as the value of a name."""
    whole = "".join(lines)
    try:
        tree = ast.parse(whole)
    except SyntaxError as error:
        raise _none("<lambda>", error) from error
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    found = [node for node in found if _parameters(node) == code.co_varnames[: _count(code)]]
    if len(found) > 1 and hasattr(code, "co_positions"):
        # An instruction of no width is Python's own.
        places = [place for place in code.co_positions() if None not in place and place[2] != place[3]]
        within = [node for node in found if all(_holds(node, *place) for place in places)]
        # Where one is inside another, the inner one.
        found = [node for node in within if not any(other is not node and other in ast.walk(node) for other in within)]
    if len(found) != 1:
        text = f"{file}:{code.co_firstlineno}: it is not clear which lambda of this line is meant\nhelp: give it a name with `def`"
        raise errors.make("source", text, [])
    node = found[0]
    before = lines[node.lineno - 1].encode()[: node.col_offset].decode()
    body = ast.get_source_segment(whole, node) or ""
    # The name stands on the line before, so that columns are right; in a file's first line there is none.
    head = "\n" * (node.lineno - 2) + "__lambda = (\n" + " " * len(before) if node.lineno > 1 else "__lambda = ("
    text = f"{head}{body})\n"
    return Source(file, text, ast.parse(text), "__lambda", 0)


def _count(code: types.CodeType) -> int:
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + stars


def _parameters(node: ast.Lambda) -> tuple[str, ...]:
    args = node.args
    stars = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return tuple(arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, *stars])


def _holds(node: ast.expr, line: int, end_line: int, column: int, end_column: int) -> bool:
    return (node.lineno, node.col_offset) <= (line, column) and (end_line, end_column) <= (node.end_lineno, node.end_col_offset)


def signature(node: ast.AST) -> tuple[list[tuple[str, ast.expr]], list[tuple[str, ast.expr]]]:
    """The annotations of a definition's parameters, and their defaults, each with the parameter's name."""
    args = node.value.args if isinstance(node, ast.Assign) else node.args
    positional = [*args.posonlyargs, *args.args]
    annotations = [(arg.arg, arg.annotation) for arg in [*positional, *args.kwonlyargs] if arg.annotation is not None]
    defaults = [(arg.arg, value) for arg, value in zip(reversed(positional), reversed(args.defaults), strict=False)]
    defaults += [(arg.arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None]
    return annotations, defaults


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression reads."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def says(node: ast.expr, value) -> bool:
    """Whether an expression is the plain constant that a value is. A list is none: it may hold something else later."""
    if not (value is None or type(value) in (bool, int, float, str)):
        return False
    try:
        return repr(ast.literal_eval(node)) == repr(value)
    except (ValueError, TypeError):
        return False


def reads(definition: ast.AST, name: str) -> list[ast.expr]:
    """Where the body of a function reads a name; a lambda has none."""
    inside = [node for statement in getattr(definition, "body", []) for node in ast.walk(statement)]
    return [node for node in inside if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)]


def assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """The name that a statement of a class gives a value, and what it gives it; nothing where it does not."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case _:
            return "", None


def default_of_field(node: ast.expr) -> ast.expr:
    """What a field's expression says for its default: itself, or the `default` of a call of `dataclasses.field`."""
    if isinstance(node, ast.Call):
        return next((keyword.value for keyword in node.keywords if keyword.arg == "default"), node)
    return node


def own_names(code: types.CodeType) -> set[str]:
    """Names that are a function's own: its parameters and variables, and those of functions inside it. What one of them reads from outside is
    not among them."""
    own: set[str] = set()
    outside: set[str] = set(code.co_freevars)

    def visit(inner: types.CodeType):
        own.update(inner.co_varnames, inner.co_cellvars)
        outside.update(inner.co_names)
        for constant in inner.co_consts:
            if isinstance(constant, types.CodeType):
                visit(constant)

    visit(code)
    return own - outside


def names(tree: ast.Module) -> dict[str, dict]:
    """The names that a text reads, each with the attributes that are asked of it, and those that are asked of these."""
    found: dict[str, dict] = {}

    def chain(node) -> dict | None:
        if isinstance(node, ast.Name):
            return found.setdefault(node.id, {})
        if isinstance(node, ast.Attribute):
            inner = chain(node.value)
            return None if inner is None else inner.setdefault(node.attr, {})
        return None

    def visit(node):
        if isinstance(node, (ast.Name, ast.Attribute)) and chain(node) is not None:
            return
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if field in ("annotation", "returns") and isinstance(child, ast.Constant) and isinstance(child.value, str):
                    try:
                        child = ast.parse(child.value, mode="eval").body
                    except SyntaxError:
                        continue
                if isinstance(child, ast.AST):
                    visit(child)

    visit(tree)
    return found
