"""What goes wrong, as exceptions.

Each has the diagnostic's whole text, and ``diagnostics``: one dictionary for each mistake with ``id``, ``severity``, ``message``, ``file``,
``line``, ``column`` and ``help``. Errors of the compiler are ``SyntaxError``s too, so that editors and notebooks show the place.
"""

from __future__ import annotations

import json


class TesseraError(Exception):
    """Everything that Tessera raises."""

    diagnostics: list = []


class TileError(TesseraError, SyntaxError):
    """A kernel is not right: the compiler refused it. ``filename``, ``lineno``, ``offset``, ``end_lineno``, ``end_offset`` and ``text`` say
    where."""

    @property
    def message(self) -> str:
        """The diagnostic's whole text."""
        return str(self.msg)

    def __str__(self) -> str:
        return self.message


class TileSyntaxError(TileError):
    """The text is no Python, or Python that kernels cannot use; of ``tessera.emu``, it is no PTX."""


class TileTypeError(TileError):
    """A value has a type that does not fit."""


class TileValueError(TileError):
    """A value is not one that fits."""


class TileUnsupportedFeatureError(TileError):
    """What is asked for is not done."""


class TileRecursionError(TileError):
    """Calls, loops or branches nest too deeply."""


class TileStaticEvalError(TileError):
    """Something cannot be evaluated when the kernel is compiled."""


class StaticException(TileStaticEvalError):
    """A ``static_exception`` was reached."""


class TileStaticAssertionError(TileError):
    """A ``static_assert`` does not hold."""


class TileInternalError(TileError):
    """A mistake of the compiler's."""


class TileCompilerExecutionError(TileInternalError):
    """The assembler refused what the compiler wrote."""


class TileCompilerTimeoutError(TileInternalError):
    """Compiling took longer than ``compiler_timeout`` allows."""


class SourceError(TesseraError, OSError):
    """The source of a kernel cannot be had: it was made by ``exec``, or typed where nothing keeps it."""


class ArgumentError(TesseraError, TypeError):
    """An argument of a launch or of an operator does not fit: another kind, type, rank or size, or memory that cannot be used."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument has the right kind and a value that does not fit."""


class DeviceError(TesseraError, RuntimeError):
    """A device cannot be used, or stopped."""


class KernelFault(DeviceError):
    """A kernel did something wrong while it ran. ``block`` is the block that did it, where that is known."""

    block: tuple[int, int, int] | None = None


class SanitizerError(KernelFault):
    """The emulator found mistakes: ``findings`` has one dictionary for each. Of ``tessera.emu`` it has the ``reports`` of all launches too, and
    ``report`` where there was one."""

    findings: list = []
    report = None
    reports: tuple = ()


class KernelsAlone(TypeError):
    """Something was asked of the host that has a meaning inside kernels alone."""


class TesseraWarning(UserWarning):
    """Something that may not be what was meant."""


#: The class of each diagnostic of the compiler whose class is not :class:`TileTypeError`, as NVIDIA's compiler chooses.
_BY_ID = {
    **dict.fromkeys(("syntax-error", "unsupported-syntax", "misplaced-statement", "unknown-name", "maybe-undefined", "import"), TileSyntaxError),
    **dict.fromkeys(("unpack-mismatch", "value-out-of-range", "constant-overflow", "division-by-zero", "axis-out-of-range"), TileValueError),
    **dict.fromkeys(("kernel-option", "rounding-mode", "memory-model", "format-string", "config-value", "tuning-space"), TileValueError),
    **dict.fromkeys(("nested-too-deeply", "recursion-limit", "kernel-too-large"), TileRecursionError),
    "refused-name": TileUnsupportedFeatureError,
    "ptx-syntax": TileSyntaxError,
    "unsupported": TileUnsupportedFeatureError,
    "static-assertion": TileStaticAssertionError,
    "static-exception": StaticException,
}


def _tile_error(identifier: str) -> type[TileError]:
    """The class of a diagnostic. What the stages behind the front end refuse is something that is not done."""
    if identifier.startswith(("target", "tile-", "cpu-", "plan", "mark")):
        return TileUnsupportedFeatureError
    return _BY_ID.get(identifier, TileTypeError)


def make(kind: str, text: str, diagnostics: list, block=None, findings: list[str] | tuple = ()) -> TesseraError:
    """The exception of an error of the library: ``kind`` is ``compile``, ``argument``, ``fault``, ``sanitizer``, ``device``, ``source`` or
    ``timeout``."""
    first = diagnostics[0] if diagnostics else {}
    identifier = first.get("id", "")
    if kind == "compile" and identifier in _OF_LAUNCHES:
        kind = "argument"
    if kind == "compile":
        error_class = TileInternalError if first.get("severity") == "bug" else _tile_error(identifier)
        place = None
        if first.get("file") is not None:
            place = (first["file"], first["line"], first["column"], first["source"], first["end_line"], first["end_column"])
        error = error_class(text, place) if place else error_class(text)
    elif kind == "value":
        error = ArgumentValueError(text)
    elif kind == "argument":
        error = (ArgumentValueError if identifier in _OF_VALUES else ArgumentError)(text)
    elif kind == "fault":
        error = KernelFault(text)
        error.block = block
    elif kind == "sanitizer":
        error = SanitizerError(text)
        error.findings = [json.loads(finding) for finding in findings]
    elif kind == "source":
        error = SourceError(text)
    elif kind == "timeout":
        error = TileCompilerTimeoutError(text)
    else:
        error = DeviceError(text)
    error.diagnostics = diagnostics
    return error


#: Diagnostics of a launch's arguments; ``argument-type`` is one of a call inside a kernel.
_OF_LAUNCHES = frozenset(
    ("missing-argument", "unknown-argument", "grid", "symbol-mismatch", "argument-kind", "argument-list", "argument-twice", "argument-item")
    + ("argument-shape", "argument-rank", "argument-scalar", "argument-alignment", "argument-overlap", "argument-index", "argument-constant")
    + ("argument-missing", "argument-unknown")
)
_OF_VALUES = frozenset(("grid", "symbol-mismatch", "argument-shape", "argument-scalar", "argument-alignment", "argument-overlap", "argument-index"))
