"""What PyTorch is told of each operator: one entry for each list of arguments that an operator has.

Variants of an operator that take the same arrays and numbers share an entry and have a keyword ``variant``. The entry of the default variant has the
operator's name, others have that of their first variant behind it:

=======================  =======================================================================================================
``linear``               ``(Tensor x, Tensor weight, Tensor bias, *, str variant="bias", ...) -> Tensor``: also relu, gelu, silu
``linear_swiglu``        ``(Tensor x, Tensor gate, Tensor up, *, str variant="swiglu", ...) -> Tensor``: also geglu
``top_k``                ``(Tensor x, *, str variant="largest", SymInt k) -> (Tensor, Tensor)``: results have an axis that no input has
``kv_append``            ``(Tensor k, Tensor v, Tensor slots, Tensor(a!) k_cache, Tensor(b!) v_cache) -> ()``: arrays changed in place
``gemm``                 ``(Tensor A, Tensor B, Tensor? C=None, *, ...) -> Tensor``: ``C`` is read where ``beta`` is not 0
=======================  =======================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _native
from ..ops import own_axes

#: What stands in a precision before the type of the result, where one type of inputs can give several.
_ARROW = "->"


@dataclass(frozen=True)
class Entry:
    """An operator of PyTorch's.

    Attributes:
        name: Its name in the namespace ``tessera``.
        operator: The library's operator.
        variants: The variants that it stands for.
        default: The one that goes without saying; ``None`` where one has to be named.
        signatures: For each variant, the arrays that are read and those that are written, with the names of their axes.
        inputs: Names of the arrays that are read.
        updated: Names of the arrays that are changed in place.
        reread: The result that is read as well where a number is not 0.
        outputs: Names of the results, without those in ``updated``.
        scalars: Names of the numbers.
        sizes: Axes of results that no input has; ``True`` where a name stands for several.
        has_types: Whether the first result's type can be chosen.
        gradient: The operator that gives the gradient.
    """

    name: str
    operator: str
    variants: tuple[str, ...]
    default: str | None
    signatures: dict[str, dict[str, Any]]
    inputs: tuple[str, ...]
    updated: tuple[str, ...]
    reread: str | None
    outputs: tuple[str, ...]
    scalars: tuple[str, ...]
    sizes: dict[str, bool]
    has_types: bool
    gradient: str | None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of its tensors, in order."""
        return self.inputs + self.updated + ((self.reread,) if self.reread else ())

    @property
    def names_variant(self) -> bool:
        """Whether it has the keyword ``variant``."""
        return len(self.variants) > 1 or self.default is None

    @property
    def is_rowwise(self) -> dict[str, bool]:
        """For each variant, whether what it gives for several rows is what it gives for each of them."""
        return {variant: _is_rowwise(self.operator, own) for variant, own in self.signatures.items()}

    @property
    def schema(self) -> str:
        """Arguments and results as PyTorch writes them."""
        positional = [f"Tensor {name}" for name in self.inputs]
        positional += [f"Tensor({chr(ord('a') + at)}!) {name}" for at, name in enumerate(self.updated)]
        positional += [f"Tensor? {self.reread}=None"] if self.reread else []
        keywords = []
        if self.names_variant:
            keywords.append("str variant" if self.default is None else f'str variant="{self.default}"')
        keywords += [f"float? {name}=None" for name in self.scalars]
        keywords += [f"SymInt[] {axis}" if several else f"SymInt {axis}" for axis, several in self.sizes.items()]
        if not self.tensors:
            keywords += ["ScalarType dtype", "Device? device=None"]
        elif self.has_types:
            keywords.append("ScalarType? dtype=None")
        arguments = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
        results = {0: "()", 1: "Tensor"}.get(len(self.outputs), f"({', '.join(['Tensor'] * len(self.outputs))})")
        return f"({arguments}) -> {results}"


def _is_rowwise(operator: str, own: dict) -> bool:
    is_open = lambda axes: bool(axes) and axes[0].startswith("..")
    leading = {axes[0] for _, axes in own["inputs"] if is_open(axes)}
    # A running sum goes over all elements, and numbers of a generator are by places among all.
    if operator == "prefix_sum" or "seed" in own["scalars"]:
        return False
    return len(leading) == 1 and all(is_open(axes) and axes[0] in leading for _, axes in own["outputs"])


def _names(operands: list) -> tuple[str, ...]:
    return tuple(name for name, _ in operands)


def _entries(row: dict) -> list[Entry]:
    groups: dict[tuple, list[str]] = {}
    for variant, own in row["signatures"].items():
        key = (_names(own["inputs"]), _names(own["outputs"]), tuple(own["scalars"]), tuple(own_axes(own)))
        groups.setdefault(key, []).append(variant)
    default = row["default"] if row["default"] is not None else next(iter(row["signatures"]))
    entries = []
    for variants in groups.values():
        first = row["signatures"][variants[0]]
        has_default = default in variants
        entries.append(
            Entry(
                name=row["name"] if has_default else f"{row['name']}_{variants[0].replace(' ', '_')}",
                operator=row["name"],
                variants=tuple(variants),
                default=row["default"] if has_default else variants[0] if len(variants) == 1 or row["default"] is not None else None,
                signatures={variant: row["signatures"][variant] for variant in variants},
                inputs=_names(first["inputs"]),
                updated=tuple(first["updated"]),
                reread=first["outputs"][0][0] if first["rereads"] else None,
                outputs=tuple(name for name in _names(first["outputs"]) if name not in first["updated"]),
                scalars=tuple(first["scalars"]),
                sizes=own_axes(first),
                has_types=any(_ARROW in precision for precision in row["precisions"]),
                gradient=row["gradient"],
            )
        )
    return entries


#: All entries by their names in the namespace.
ENTRIES: dict[str, Entry] = {entry.name: entry for row in _native.operators() for entry in _entries(row)}

#: The entry of each variant of each operator.
BY_VARIANT: dict[tuple[str, str], Entry] = {(entry.operator, variant): entry for entry in ENTRIES.values() for variant in entry.variants}

#: The default variant of each operator; ``None`` where one has to be named.
DEFAULTS: dict[str, str | None] = {row["name"]: row["default"] for row in _native.operators()}
