"""The exceptions of the package: one root, and a class only where a caller would react differently."""

from __future__ import annotations

from typing import Any


class PycudnnrnnError(Exception):
    """Root of every error that this package raises on purpose."""


class ArgumentError(PycudnnrnnError, ValueError):
    """An argument has a value that cannot be used.

    `argument` names it, `expected` and `got` say what was wanted and what came. `aspect` narrows it ("shape",
    "dtype" ...). The text starts with "Invalid <argument>", as TensorFlow's does.
    """

    def __init__(self, argument: str, expected: str, got: Any, aspect: str = "") -> None:
        super().__init__(argument, expected, got, aspect)
        self.argument = argument
        self.expected = expected
        self.got = got
        self.aspect = aspect

    def __str__(self) -> str:
        what = f"{self.argument} {self.aspect}" if self.aspect else self.argument
        return f"Invalid {what}: {self.got}, expecting {self.expected}"


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type; also a `TypeError`."""


class StateError(PycudnnrnnError, RuntimeError):
    """A call came at the wrong moment: a backward without a reserve, or a second one on a reserve already used up."""


class LayoutError(PycudnnrnnError, ValueError):
    """A parameter layout is impossible, or two layouts that had to be equal are not."""


class EngineError(PycudnnrnnError, RuntimeError):
    """No engine can run what was asked for on the device that was named."""


class MissingDependencyError(PycudnnrnnError, ImportError):
    """An optional dependency is not installed; the text names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)
        self.package = package
        self.extra = extra
        self.purpose = purpose

    def __str__(self) -> str:
        return f"{self.purpose} needs {self.package}, which is not installed: pip install 'pycudnnrnn[{self.extra}]'"
