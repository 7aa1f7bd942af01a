"""Calls that Python cannot bind, told in the words of what was called, and of where callers come from."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar, cast

from pycudnnrnn.errors import ArgumentTypeError

_Method = TypeVar("_Method", bound=Callable[..., Any])

_HERE: Final = {
    "hidden_size": "it is num_units here",
    "units": "it is num_units here",
    "proj_size": "it is num_proj of an LSTM here",
    "bidirectional": "it is direction='bidirectional' here",
    "batch_first": "it is time_major=False here, in each call",
    "nonlinearity": "CudnnRNNTanh and CudnnRNNRelu are two classes here",
    "bias": "it is bias_mode='none' here, for no biases",
    "hx": "it is input_h and input_c of an op here, initial_state of a layer",
    "lengths": "it is sequence_lengths here, in each call",
    "sequence_lengths": "each call takes its own",
    "time_major": "each call takes its own",
    "input_size": "a layer learns it from its first inputs, or from build(input_shape)",
    "num_proj": "only an LSTM has a projection",
    "cell_clip": "only an LSTM has a cell state to clip",
}
"""What torch, Keras and the neighbours of a class call an argument that it does not have, and what it is there."""


def told(constructor: _Method) -> _Method:
    """Wrap a constructor: arguments that do not fit are told as `misfit` does."""

    @functools.wraps(constructor)
    def call(self: Any, *arguments: Any, **keywords: Any) -> None:
        try:
            constructor(self, *arguments, **keywords)
        except TypeError:
            found = misfit(type(self).__name__, constructor, arguments, keywords)
            if found is None:
                raise
            raise found from None

    return cast("_Method", call)


def misfit(
    owner: str, method: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> ArgumentTypeError | None:
    """Say what is wrong with a call of a method; None where Python can bind it: a `TypeError` came from within then."""
    parameters = _parameters(method)
    own, names = positional(method), {p.name for p in parameters}
    unknown = [name for name in keywords if name not in names]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return no_such(owner, method, unknown[0], keywords[unknown[0]])
    if len(arguments) > len(own):
        return no_such(owner, method, f"argument {len(own) + 1}", arguments[len(own)])
    for name in own[: len(arguments)]:
        if name in keywords:
            return ArgumentTypeError(name, f"one: {takes(owner, method)}", "two, by position and by name")
    given = {*own[: len(arguments)], *keywords}
    missing = [p.name for p in parameters if p.name in own and p.default is p.empty and p.name not in given]
    return ArgumentTypeError(missing[0], f"a value: {takes(owner, method)}", "nothing") if missing else None


def no_such(owner: str, method: Any, name: str, value: Any) -> ArgumentTypeError:
    """Return the error for an argument that a method does not have, with what is called so elsewhere."""
    hint = f" ({_HERE[name]})" if name in _HERE else ""
    shape = getattr(value, "shape", None)
    got = f"an array of shape {tuple(shape)}" if isinstance(shape, tuple) else repr(value)
    return ArgumentTypeError(name, f"no such argument{hint}: {takes(owner, method)}", got)


def takes(owner: str, method: Any) -> str:
    """Say what a method takes, its keywords included."""
    texts = []
    for p in _parameters(method):
        if p.kind is p.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        default = str(p.default) if isinstance(p.default, Enum) else p.default
        texts.append(p.name if p.default is p.empty else f"{p.name}={default!r}")
    return f"{owner} takes ({', '.join(texts)})"


def positional(method: Any) -> list[str]:
    """Return the names of a method's arguments by position, without self."""
    return [p.name for p in _parameters(method) if p.kind is p.POSITIONAL_OR_KEYWORD]


def _parameters(method: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())[1:]
