"""Calls whose arguments fit another cell, told in the words of the cell that was called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar, cast

from pycudnnrnn._keywords import misfit, no_such, positional, takes
from pycudnnrnn.errors import ArgumentTypeError
from pycudnnrnn.spec import RNNSpec

_Method = TypeVar("_Method", bound=Callable[..., Any])

_STATES: Final = ("input_h", "input_c")


class _Op(Protocol):
    @property
    def spec(self) -> RNNSpec: ...


def told_in_its_words(method: _Method) -> _Method:
    """Wrap a call of an op: one that does not fit says which argument is meant, and what the cell takes.

    Python alone would count arguments, or find params in the place of `is_training`. A call that fits pays nothing.
    """

    @functools.wraps(method)
    def call(self: _Op, *arguments: Any, **keywords: Any) -> Any:
        try:
            return method(self, *arguments, **keywords)
        except TypeError as error:
            ran = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            found = _misplaced(self, method, arguments, error) if ran else _unbound(self, method, arguments, keywords)
            if found is None:
                raise
            raise found from None

    return cast("_Method", call)


def _misplaced(op: _Op, method: Any, arguments: tuple[Any, ...], error: TypeError) -> ArgumentTypeError | None:
    """Say what is wrong with a call that Python let through, where an array and a bool stand in wrong places."""
    if not isinstance(error, ArgumentTypeError) or error.argument not in {"params", "is_training"}:
        return None
    if not op.spec.has_cell_state and len(arguments) == len(positional(method)) and _is_array(arguments[-1]):
        return no_such(type(op).__name__, method, "input_c", arguments[2])
    return _without_a_state(op, method, arguments)


def _unbound(op: _Op, method: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> ArgumentTypeError | None:
    """Say what is wrong with a call that Python refused: an argument too many, one of no such name, one missing."""
    own = positional(method)
    unknown = keywords.keys() - inspect.signature(method).parameters.keys()
    too_many = len(arguments) > len(own) or any(name in keywords for name in own[: len(arguments)])
    if too_many and not unknown and not op.spec.has_cell_state and len(arguments) > 2:
        return no_such(type(op).__name__, method, "input_c", arguments[2])
    if too_many or unknown:
        return misfit(type(op).__name__, method, arguments, keywords)
    missing = [name for name in own[len(arguments) : -1] if name not in keywords]
    return _without_a_state(op, method, arguments) or _missing(op, method, missing[0])


def _without_a_state(op: _Op, method: Any, arguments: tuple[Any, ...]) -> ArgumentTypeError | None:
    """Find params, the one flat array, in the place of a state: then that state is missing."""
    for name, value in zip(positional(method), arguments, strict=False):
        if name in _STATES and _is_array(value) and len(value.shape) == 1:
            return _missing(op, method, name)
    return None


def _missing(op: _Op, method: Any, name: str) -> ArgumentTypeError:
    zeros = ", or None for zeros" if name in _STATES else ""
    return ArgumentTypeError(name, f"an array{zeros}: {takes(type(op).__name__, method)}", "nothing")


def _is_array(value: Any) -> bool:
    return isinstance(getattr(value, "shape", None), tuple)
