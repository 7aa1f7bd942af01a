"""How a Keras model calls its recurrent layers, as far as that decides whether their weights are the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert.keras.config import Layer, inside
from pycudnnrnn.errors import ConvertError

_PASSING: Final = frozenset({
    "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "Identity",
    "SpatialDropout1D",
})  # fmt: skip
"""Layers that return their input outside training. An Activation may be one, too."""


def is_plain_stack(model: Layer, paths: Sequence[str]) -> bool:
    """Return whether these layers are in one Sequential model, with nothing between them that acts outside training."""
    around = {path.rpartition("/")[0] for path in paths}
    parents = [layer for layer in model.walk() if layer.path in around]
    if len(around) > 1 or parents[0].kind != "Sequential":
        return False
    places = [k for k, layer in enumerate(parents[0].layers) if layer.path in paths]
    return all(layer.path in paths or _passes(layer) for layer in parents[0].layers[places[0] : places[-1]])


def check_calls(model: Layer, paths: Sequence[str]) -> None:
    """Check that the model calls each of these layers once, and from states that its caller passes.

    Raises:
        ConvertError: a stateful layer, one that is called several times, or one that starts from other states.
    """
    layers = {layer.path: layer for layer in model.walk()}
    for path in paths:
        if layers[path].own.get("stateful"):
            _refuse(
                path, "is stateful: it starts from the states that its last call ended with, and here you pass them"
            )
        parts = path.split("/")
        for end in range(len(parts)):
            each = "/".join(parts[: end + 1])
            calls = inside(layers[each].entry.get("inbound_nodes"))
            if len(calls) > 1:
                _refuse(path, f"{shorten(each)} is called {len(calls)} times")
            for state in _states(calls[0]) if calls and each == path else ():
                source = layers.get("/".join([*parts[:-1], state[0]])) if state else None
                if source is None or source.kind != "InputLayer":
                    got = f"what {source.kind or 'a layer'} {shorten(source.path)} computes" if source else "a constant"
                    _refuse(path, f"expecting a state that the call is given, got {got}")


def _passes(layer: Layer) -> bool:
    return layer.kind in _PASSING or (layer.kind == "Activation" and layer.own.get("activation") == "linear")


def _states(call: Any) -> list[list[Any] | None]:
    """Return the initial states of a call: tensors [layer, call, output], and None for a number or an array.

    Keras 3 writes an object with `args` and `kwargs`, Keras 2 a list of tensors with keywords behind them.
    """
    if isinstance(call, dict):
        given, keywords = inside(call.get("args"))[1:2], [call.get("kwargs")]
    else:
        tensors = _tensors(call)
        given, keywords = [*tensors[1:]], [each for tensor in tensors[:1] for each in tensor[3:]]
    given += [each.get("initial_state") for each in keywords if isinstance(each, dict)]
    found: list[list[Any] | None] = []
    for states in given:
        for state in states if isinstance(states, list) and not _is_tensor(states) else [states]:
            if state is not None:
                found.extend(_tensors(state) or (None,))
    return found


def _tensors(value: Any) -> list[list[Any]]:
    """Return the tensors anywhere in a value, in order."""
    return [value] if _is_tensor(value) else [tensor for item in inside(value) for tensor in _tensors(item)]


def _is_tensor(item: Any) -> bool:
    return isinstance(item, list) and len(item) > 2 and isinstance(item[0], str) and isinstance(item[1], int)


def _refuse(path: str, why: str) -> NoReturn:
    way = (
        "To convert its weights all the same, give the arrays alone: dict(arrays), or a .weights.h5 on the command line"
    )
    raise ConvertError("keras", shorten(path), f"{why}. {way}")
