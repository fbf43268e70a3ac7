"""Texts of classes whose live objects say more than their texts.

The compiler evaluates a class's text where a kernel needs it. What only Python can do has to be done already: members of an enumeration have the
values that they have, and objects of a dataclass the fields that they have, whoever filled them.

=================================  ============================================================
in the class                       in the text that the compiler reads
=================================  ============================================================
``A = auto()``, ``A = f()``        the member's value
members inside ``if``, no text     ``A = ...; B = ...`` with the members' values
``enum.Flag``, ``enum.IntFlag``    ``Enum``, ``IntEnum``: members without combinations
``field(default_factory=...)``     a field that is given by name
``field(init=False)``              the same
``InitVar``                        an attribute of the class, which it is in Python, too
=================================  ============================================================

Objects come with all their fields and ``__made__=True``, which says that ``__post_init__`` has run.
"""

from __future__ import annotations

import ast
import dataclasses
import enum

from . import _source

#: What the compiler knows in the place of bases that it does not know.
BASES = {enum.Flag: "Enum", enum.IntFlag: "IntEnum"}

_GIVEN_BY_NAME = "__dataclasses__.field(kw_only=True)"


def enumeration(cls: type[enum.Enum], source: _source.Source | None) -> _source.Source:
    """The text of an enumeration, with an assignment for each member: ``NAME = __member_NAME`` where its own text has another statement, or where it
    has no text."""
    members = "; ".join(f"{name} = {member_name(name)}" for name in cls.__members__) or "pass"
    if source is None:
        name = cls.__name__ if cls.__name__.isidentifier() else "Enumeration"
        bases = [base.__name__ if base.__module__ == "builtins" else f"__base{at}" for at, base in enumerate(cls.__bases__)]
        text = f"class {name}({', '.join(bases)}): {members}\n"
        return _source.Source(f"<enumeration {cls.__qualname__}>", text, ast.parse(text), name)
    if {name for name, _ in map(_source.assigned, source.node.body)} >= set(cls.__members__) and not any(map(_is_annotated, source.node.body)):
        return source
    others = [statement for statement in source.node.body if not isinstance(statement, ast.FunctionDef)]
    return source.replaced({statement: "pass" if number else members for number, statement in enumerate(others)})


def _is_annotated(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and statement.value is not None


def member_name(name: str) -> str:
    """The name that a member's value has, where a text was written for its enumeration."""
    return f"__member_{name}"


def field_pieces(cls: type, statement: ast.AnnAssign) -> dict[ast.AST, str]:
    """What is put in the places of parts of a field's statement, where kernels cannot do what it says."""
    field = cls.__dataclass_fields__.get(statement.target.id) if isinstance(statement.target, ast.Name) else None
    if field is None:
        return {}
    if field._field_type is dataclasses._FIELD_INITVAR:
        return {statement.annotation: "__typing__.ClassVar"}
    if field.default_factory is not dataclasses.MISSING or not field.init:
        return {statement.value: _GIVEN_BY_NAME}
    return {}
