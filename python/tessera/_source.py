"""Texts of live functions and classes.

A text stands alone, behind as many empty lines as its file has before it, so that its lines have the numbers that they have there; one that stands
indented there stands below ``if True:``, so that its columns are those of the file, too. Decorators are left out, as they have done their work; a
lambda is given a name. The source comes from where Python's own
tracebacks have it: files, and the cells of notebooks.
"""

from __future__ import annotations

import __future__

import ast
import builtins
import functools
import inspect
import io
import itertools
import keyword
import operator
import string
import tokenize
import types
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from . import errors


class Source(NamedTuple):
    """A text.

    Attributes:
        file: The file that messages name.
        text: The text, with its lines and columns where they are in the file.
        tree: What it is.
        name: The name that it binds.
        shown: What messages show in its place, as long as the text; the text itself where it is ``None``.
    """

    file: str
    text: str
    tree: ast.Module
    name: str
    shown: str | None = None

    @property
    def node(self) -> ast.stmt:
        """The definition."""
        first = self.tree.body[0]
        return first.body[0] if isinstance(first, ast.If) else first

    def replaced(self, pieces: dict[ast.AST, str]) -> Source:
        """The text with others in the places of some of its expressions and statements. Lines keep their numbers; columns stay what they are
        behind pieces that are not longer than what was there."""
        if not pieces:
            return self
        text = [line.encode() for line in self.text.splitlines(keepends=True)]
        shown = [line.encode() for line in (self.shown or self.text).splitlines(keepends=True)]
        for node, new in sorted(pieces.items(), key=lambda piece: (-piece[0].lineno, -piece[0].col_offset)):
            first, last = node.lineno - 1, node.end_lineno - 1
            # What one line had of the piece, line by line: blanks fill what is shorter.
            for at in range(first, last + 1):
                start = node.col_offset if at == first else 0
                end = node.end_col_offset if at == last else len(text[at].rstrip(b"\r\n"))
                put = new.encode() if at == first else b""
                length = max(len(put), end - start)
                text[at] = text[at][:start] + put.ljust(length) + text[at][end:]
                shown[at] = shown[at][:start] + shown[at][start:end].ljust(length) + shown[at][end:]
        whole = b"".join(text).decode()
        return self._replace(text=whole, tree=ast.parse(whole), shown=b"".join(shown).decode())

    def decorated(self, decorator: str) -> Source:
        """The text of a function under a decorator, in the line where one stood."""
        text = self.text.splitlines(keepends=True)
        shown = (self.shown or self.text).splitlines(keepends=True)
        line = f"{' ' * self.node.col_offset}@{decorator}\n"
        above = self.node.lineno - 2
        if above < bool(self.node.col_offset):
            # There was none: the function was handed to the decorator.
            return self
        if self.node.col_offset:
            # It takes the place of `if True:`.
            text[above - 1], shown[above - 1] = text[above], shown[above]
        text[above], shown[above] = line, " " * (len(line) - 1) + "\n"
        whole = "".join(text)
        return self._replace(text=whole, tree=ast.parse(whole), shown="".join(shown))

    def without(self, names: set[str]) -> Source:
        """The text of a function without some of its parameters, whose names stand for something around it then. Lines and columns stay."""
        args = self.node.args
        idle = {mark for mark, several in (("/", args.posonlyargs), ("*", args.kwonlyargs)) if all(arg.arg in names for arg in several)}
        pieces: dict[ast.AST, str] = {}
        for part in self._parameters():
            is_mark = len(part) == 1 or part[1].string == ","
            if part[0].string in names or is_mark and part[0].string in idle:
                pieces.update((_span(token), "") for token in part)
        return self.replaced(pieces)

    def _parameters(self) -> list[list[tokenize.TokenInfo]]:
        """The tokens of each parameter of a function, with the comma behind it."""
        parts: list[list[tokenize.TokenInfo]] = []
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.start < (self.node.lineno, 0) or token.type in (tokenize.COMMENT, tokenize.NL):
                continue
            closes, opens = token.string in (")", "]", "}"), token.string in ("(", "[", "{")
            depth -= closes
            if parts and depth == 0:
                break
            if parts:
                parts[-1].append(token)
            if parts and depth == 1 and token.string == "," or not parts and depth == 0 and token.string == "(":
                parts.append([])
            depth += opens
        return [part for part in parts if part]


def _span(token: tokenize.TokenInfo) -> ast.AST:
    """A node in the place of a token."""
    column = lambda place: len(token.line.splitlines()[place[0] - token.start[0]][: place[1]].encode())  # noqa: E731
    (line, _), (end, _) = token.start, token.end
    return ast.Name("", lineno=line, col_offset=column(token.start), end_lineno=end, end_col_offset=column(token.end))


#: A global name of what was compiled from an expression of a kernel.
EXPRESSION = "__tessera_expression__"
#: Texts that were read, by the numbers of their codes while these live: a file that is changed later is another text than the one that Python runs.
#: Equal codes may have different texts: their files and the annotations of their parameters are no part of them.
_READ: dict[int, tuple[weakref.ref[types.CodeType], Source]] = {}


def of_function(function: types.FunctionType) -> Source:
    """The text of a function.

    Raises:
        SourceError: Python has no text of it, or has another.
    """
    number = id(function.__code__)
    known, source = _READ.get(number, (None, None))
    if known is None or known() is not function.__code__:
        source = _of_code(function)
        _READ[number] = weakref.ref(function.__code__, lambda gone: _forget(number, gone)), source
    return source


def _forget(number: int, gone: weakref.ref) -> None:
    """Lets a text go with its code, unless another code has that number by now."""
    if _READ.get(number, (None, None))[0] is gone:
        del _READ[number]


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
    # A function that an expression of a kernel made is where that kernel is.
    if EXPRESSION not in function.__globals__ and not _is_text_of(code, file, lines):
        text = f"{file}:{at + 1}: the file has another text than that of `{name}`: it was changed since it was imported\nhelp: import it again"
        raise errors.make("source", text, [])
    if code.co_name == "<lambda>":
        return _of_lambda(code, file, lines)
    return _alone(name, file, inspect.getblock(lines[at:]), at + 1, decorators=False)


#: The last file that was compiled to be compared with what Python runs, how, its text, and the codes in it.
_COMPILED: tuple[tuple[str, int], list[str], list[types.CodeType]] = (("", 0), [], [])
_FUTURE = functools.reduce(operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))


def _is_text_of(code: types.CodeType, file: str, lines: list[str]) -> bool:
    """Whether a file's text is the one that a code was compiled from: a file may have been changed since."""
    global _COMPILED
    key = file, code.co_flags & _FUTURE
    known, text, codes = _COMPILED
    if known != key or text != lines:
        try:
            codes = list(_codes(compile("".join(lines), file, "exec", key[1], dont_inherit=True)))
        except (SyntaxError, ValueError):
            # A cell that only its notebook can compile.
            return True
        _COMPILED = (key, lines, codes)
    # pytest compiles the assertions of tests in its own way.
    is_rewritten = any(name.startswith("@py_") for own in (code, *_codes(code)) for name in (*own.co_varnames, *own.co_names))
    return is_rewritten or any(_is_same(code, other) for other in codes if other.co_firstlineno == code.co_firstlineno)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _is_same(code, other) -> bool:
    """Whether two codes, or two constants of codes, are the same: 1, 1.0 and True are not."""
    if type(code) is not type(other):
        return False
    if isinstance(code, types.CodeType):
        attributes = ("co_name", "co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags")
        return all(_is_same(getattr(code, name), getattr(other, name)) for name in attributes)
    if isinstance(code, tuple):
        return len(code) == len(other) and all(map(_is_same, code, other))
    return repr(code) == repr(other) if isinstance(code, (float, complex)) else code == other


def _alone(name: str, file: str, lines: list[str], first: int, decorators: bool) -> Source:
    """A definition's text; ``first`` is the line of the first one."""
    is_indented = lines[0][:1].isspace()
    # Nothing that is indented stands in a file's first line.
    text = "\n" * (first - 2) + "if True:\n" if is_indented else "\n" * (first - 1)
    text += "".join(lines)
    try:
        tree = ast.parse(text)
        node = tree.body[0].body[0] if is_indented else tree.body[0]
    except (SyntaxError, IndexError) as error:
        raise errors.make("source", f"{file}:{first}: the text of `{name}` does not stand alone: {error}", []) from error
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        raise _none(name, OSError(f"{file}:{first} has no definition"))
    if not decorators and node.decorator_list:
        return _alone(name, file, lines[node.lineno - first :], node.lineno, decorators)
    return Source(file, text, tree, node.name)


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
    return Source(file, text, ast.parse(text), "__lambda")


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


def unused_names(source: Source, expression: ast.expr) -> Iterator[str]:
    """Names as long as an expression in its first line that a text does not use, as far as there are some."""
    words = {getattr(node, attribute, None) for node in ast.walk(source.tree) for attribute in ("id", "arg", "attr", "name")}
    first = (ast.get_source_segment(source.text, expression) or "").split("\n")[0].rstrip()
    letters = min(len(first.encode()), 2)
    for chosen in itertools.product(string.ascii_letters, repeat=letters):
        name = "_" * (len(first.encode()) - letters) + "".join(chosen)
        if name not in words and not keyword.iskeyword(name) and not hasattr(builtins, name):
            yield name


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


def bound_names(tree: ast.AST) -> set[str]:
    """Names that a text binds anywhere, or has as parameters."""
    inside = list(ast.walk(tree))
    bound = {node.id for node in inside if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return bound | {node.arg for node in inside if isinstance(node, ast.arg)}


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
