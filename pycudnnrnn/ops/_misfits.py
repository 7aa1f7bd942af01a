"""Calls whose arguments fit another cell, told in the words of the cell that was called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar, cast

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
    if not op.spec.has_cell_state and len(arguments) == len(_positional(method)) and _is_array(arguments[-1]):
        return _no_such(op, method, "input_c", arguments[2])
    return _without_a_state(op, method, arguments)


def _unbound(op: _Op, method: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> ArgumentTypeError:
    """Say what is wrong with a call that Python refused: an argument too many, one of no such name, one missing."""
    parameters, own = inspect.signature(method).parameters, _positional(method)
    unknown = [name for name in keywords if name not in parameters]
    twice = [name for name in own[: len(arguments)] if name in keywords]
    if unknown:
        return _no_such(op, method, unknown[0], keywords[unknown[0]])
    if (twice or len(arguments) > len(own)) and not op.spec.has_cell_state and len(arguments) > 2:
        return _no_such(op, method, "input_c", arguments[2])
    if len(arguments) > len(own):
        return _no_such(op, method, f"argument {len(own) + 1}", arguments[len(own)])
    if twice:
        return ArgumentTypeError(twice[0], f"one: {_takes(op, method)}", "two, by position and by name")
    missing = [name for name in own[len(arguments) : -1] if name not in keywords]
    return _without_a_state(op, method, arguments) or _missing(op, method, missing[0])


def _no_such(op: _Op, method: Any, name: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(name, f"no such argument: {_takes(op, method)}", _described(value))


def _without_a_state(op: _Op, method: Any, arguments: tuple[Any, ...]) -> ArgumentTypeError | None:
    """Find params, the one flat array, in the place of a state: then that state is missing."""
    for name, value in zip(_positional(method), arguments, strict=False):
        if name in _STATES and _is_array(value) and len(value.shape) == 1:
            return _missing(op, method, name)
    return None


def _missing(op: _Op, method: Any, name: str) -> ArgumentTypeError:
    zeros = ", or None for zeros" if name in _STATES else ""
    return ArgumentTypeError(name, f"an array{zeros}: {_takes(op, method)}", "nothing")


def _takes(op: _Op, method: Any) -> str:
    *names, last = _positional(method)
    return f"{type(op).__name__} takes ({', '.join(names)}, {last}=True)"


def _positional(method: Any) -> list[str]:
    parameters = inspect.signature(method).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]


def _is_array(value: Any) -> bool:
    return isinstance(getattr(value, "shape", None), tuple)


def _described(value: Any) -> str:
    return f"an array of shape {tuple(value.shape)}" if _is_array(value) else repr(value)
