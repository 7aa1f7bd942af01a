"""The connection from one recurrent layer of a Keras model to the next, according to its configuration.

In a Sequential model each layer reads the output of the one before it. In a functional model each layer lists its calls
(`inbound_nodes`), and each call the tensors that it reads. A tensor is [layer, call, output]: in Keras 3 it is the
`keras_history` of an object, in Keras 2 a list with the call's keywords after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert.keras.config import Layer, inside
from pycudnnrnn.errors import ConvertError

_PASSING: Final = frozenset({
    "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "Identity",
    "SpatialDropout1D",
})  # fmt: skip
"""Layers that return their input outside training. An Activation may be one, too."""

_INPUT: Final = -1
"""The call number of a value that is an input of a model."""


class _Value(NamedTuple):
    """A tensor: an output of a call of a layer, or the input of the model at this path."""

    path: str
    call: int
    output: int


class _Call(NamedTuple):
    """The arguments of a layer's call: the first, all others (None for one that is not a tensor), and the mask."""

    data: list[_Value]
    others: list[_Value | None]
    mask: list[_Value | None]
    training: bool


class Graph:
    """The layers of a model by their paths, the calls of each, and the source of each value."""

    def __init__(self, model: Layer) -> None:
        self._layers = {layer.path: layer for layer in model.walk()}
        self._model_of = {inner.path: layer for layer in model.walk() for inner in layer.layers}
        self._calls: dict[str, list[_Call]] = {path: [] for path in self._layers}
        self._outputs: dict[str, list[_Value]] = {}
        self._sources: dict[_Value, _Value] = {}
        for layer in self._layers.values():
            if layer.layers:
                self._outputs[layer.path] = self._join(layer)

    def check_stack(self, paths: Sequence[str], *, whole: bool) -> None:
        """Check that each recurrent layer reads the unchanged output of the one before it.

        `whole` means that these are all of the model's recurrent layers, not chosen by name. Then the model must use
        them only as a stack.

        Raises:
            ConvertError: they are not a stack. The text names the layer between two of them, or the other reason.
        """
        for k, path in enumerate(paths):
            if whole:
                self._check_calls(path)
            for call in self._calls[path]:
                for state in (*call.data[1:], *call.others):
                    source = state and self._source(state)
                    given = source is not None and (source.path, source.call) == ("", _INPUT)
                    if not given and (source is None or whole or self._comes_from(source, paths)):
                        refuse(path, f"expecting a state that the call is given, got {self._text(source)}")
                if k:
                    self._check_way(paths[k - 1], path, call)
            if k and self._layers[paths[k - 1]].own.get("return_sequences") is not True:
                refuse(paths[k - 1], "gives the next layer its last step alone (return_sequences=False)")
        if whole:
            self._check_readers(paths)

    def _check_way(self, before: str, path: str, call: _Call) -> None:
        source = self._source(call.data[0]) if call.data else None
        if source is None or (source.path, source.output) != (before, 0) or source.call == _INPUT:
            refuse(path, f"does not read the output of {shorten(before)}, as in a stack, but {self._text(source)}")
        if call.mask and (call.mask != self._mask(before, source.call) or None in call.mask):
            refuse(path, f"has another mask than {shorten(before)}")

    def _check_calls(self, path: str) -> None:
        """Check that the model calls a layer once, from its own states, and not in training mode."""
        if self._layers[path].own.get("stateful"):
            refuse(path, "is stateful: it starts from the states that its last call ended with, and here you pass them")
        layer: Layer | None = self._layers[path]
        while layer is not None and layer.path:
            calls, through = self._calls[layer.path], f"{self._name(layer.path)} is called"
            if len(calls) != 1:
                refuse(path, f"{through} {len(calls)} times" if calls else f"nothing says how {through}")
            if calls[0].training:
                refuse(path, f"{through} with training=True")
            layer = self._model_of.get(layer.path)

    def _check_readers(self, paths: Sequence[str]) -> None:
        """Check that only the next layer reads a layer's output: a stack returns only the last output."""
        after = dict(itertools.pairwise(paths))
        for reader, value in self._read():
            source = self._source(value)
            wanted = after.get(source.path)
            if wanted is not None and source.output == 0 and source.call != _INPUT and reader != wanted:
                who = self._name(reader) if reader else "an output of the model"
                refuse(source.path, f"gives its output not to {shorten(wanted)} alone, but to {who}, too")

    def _read(self) -> Iterator[tuple[str, _Value]]:
        """Yield each value that is read, with its reader: a layer's path, or "" for an output of the model."""
        for path, calls in self._calls.items():
            if not self._layers[path].layers and not self._passes(self._layers[path]):
                yield from ((path, value) for call in calls for value in (*call.data, *call.others) if value)
        yield from (("", value) for value in self._outputs.get("", []))

    def _mask(self, path: str, call: int) -> list[_Value | None]:
        """Return the mask of a call, its own or that of the model around it."""
        found = [value for own in self._calls[path][call : call + 1] for value in own.mask]
        layer = self._model_of.get(path)
        while not found and layer is not None and len(self._calls[layer.path]) == 1:
            found, layer = self._calls[layer.path][0].mask, self._model_of.get(layer.path)
        return found

    def _source(self, value: _Value) -> _Value:
        """Return the source of a value, through all layers that pass it on, into models and out of them."""
        way: list[_Value] = []
        seen: set[_Value] = set()
        while value not in self._sources and value not in seen:
            way.append(value)
            seen.add(value)
            value = self._before(value) or value
        source = self._sources.get(value, value)
        self._sources |= dict.fromkeys(way, source)
        return source

    def _comes_from(self, value: _Value, paths: Sequence[str]) -> bool:
        """Return whether a value depends on one of these layers."""
        seen: set[str] = set()
        left = [value]
        while left:
            source = self._source(left.pop())
            if source.path in paths:
                return True
            if source.path not in seen:
                seen.add(source.path)
                calls = self._calls.get(source.path, [])
                left += [each for call in calls for each in (*call.data, *call.others) if each]
                left += self._outputs.get(source.path, []) if source.call != _INPUT else []
        return False

    def _before(self, value: _Value) -> _Value | None:
        """Return the equal value one step nearer to the source; None if that step changes the value."""
        layer, calls = self._layers.get(value.path), self._calls.get(value.path, [])
        if layer is None:
            return None
        if value.call != _INPUT and layer.layers:
            found = [] if any(map(_is_odd, calls)) else self._outputs[layer.path]
            return found[value.output] if value.output < len(found) else None
        if value.call == _INPUT:  # of a model that is called once
            called = calls[0] if len(calls) == 1 and not _is_odd(calls[0]) else None
            return called.data[value.output] if called and value.output < len(called.data) else None
        call = calls[value.call] if value.call < len(calls) else None
        passes = call is not None and self._passes(layer) and len(call.data) == 1 and not _is_odd(call)
        return call.data[0] if call and passes else None

    def _passes(self, layer: Layer) -> bool:
        return layer.kind in _PASSING or (layer.kind == "Activation" and layer.own.get("activation") == "linear")

    def _name(self, path: str) -> str:
        layer = self._layers.get(path)
        kind = layer.entry.get("class_name") if layer else None
        return f"{kind[:80] if isinstance(kind, str) and kind.isidentifier() else 'a layer'} {shorten(path)}"

    def _text(self, value: _Value | None) -> str:
        if value is None:
            return "a constant"
        if value.call == _INPUT:
            model = f"{shorten(value.path)}, which is called {len(self._calls[value.path])} times"
            return f"an input of {model if value.path else 'the model'}"
        return f"the output of {self._name(value.path)}" if not value.output else f"a state of {self._name(value.path)}"

    def _join(self, model: Layer) -> list[_Value]:
        """Find the calls of a model's layers; return the model's outputs."""
        if model.kind == "Sequential":
            value = _Value(model.path, _INPUT, 0)
            for layer in model.layers:
                if layer.kind != "InputLayer":
                    self._calls[layer.path].append(_Call([value], [], [], training=False))
                    value = _Value(layer.path, 0, 0)
            return [value]
        own = model.entry["config"]
        if not isinstance(own, dict) or "input_layers" not in own:  # a user's class, which may connect them in any way
            return []
        above = f"{model.path}/" if model.path else ""

        def output_of(tensor: list[Any]) -> _Value:
            name, call, index = tensor[:3]
            return _Value(f"{above}{name}", max(call, 0), index if isinstance(index, int) and index > 0 else 0)

        given = {output_of(tensor): k for k, tensor in enumerate(_tensors(own["input_layers"]))}

        def value_of(tensor: list[Any]) -> _Value:
            value = output_of(tensor)
            return _Value(model.path, _INPUT, given[value]) if value in given else value

        for layer in model.layers:
            nodes = layer.entry.get("inbound_nodes")
            self._calls[layer.path] += [_call_of(node, value_of) for node in inside(nodes)]
        return [value_of(tensor) for tensor in _tensors(own.get("output_layers"))]


def _is_odd(call: _Call) -> bool:
    """Return whether a layer or a model that usually passes on its input may change it in this call."""
    return call.training or bool(call.others)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, list) and len(item) > 2 and isinstance(item[0], str) and isinstance(item[1], int)


def _tensors(value: Any) -> list[list[Any]]:
    """Return the tensors anywhere in a value, in order; each is a list that begins with name, call, output."""
    found, left = [], [value]
    while left:
        item = left.pop()
        if _is_tensor(item):
            found.append(item)
        else:
            left += reversed(inside(item))
    return found


def _call_of(node: Any, value_of: Callable[[list[Any]], _Value]) -> _Call:
    """Read a call: in Keras 3 an object with `args` and `kwargs`, in Keras 2 a list of tensors with keywords."""
    first, rest, keywords = node, [], {}
    if isinstance(node, dict) and isinstance(node.get("args"), list):
        keywords = dict(node["kwargs"]) if isinstance(node.get("kwargs"), dict) else {}
        words = [word for word in ("sequences", "inputs") if word in keywords]
        first, *rest = node["args"] or [keywords.pop(word) for word in words[:1]] or [None]
    data = _tensors(first)
    for tensor in data:
        keywords |= tensor[3] if len(tensor) > 3 and isinstance(tensor[3], dict) else {}
    mask, training, state = (keywords.pop(word, None) for word in ("mask", "training", "initial_state"))

    def values(item: Any) -> list[_Value | None]:
        """Return tensors as values, and None for a number or an array."""
        parts = item if isinstance(item, list) and not _is_tensor(item) else [item]
        found: list[_Value | None] = []
        for part in parts:
            if part is not None:
                found += map(value_of, _tensors(part)) if _tensors(part) else [None]
        return found

    others = [*values(rest), *values(state), *map(value_of, _tensors(keywords))]
    return _Call([value_of(tensor) for tensor in data], others, values(mask), bool(training))


def refuse(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about a layer, with advice."""
    way = f"layers=[{shorten(path)}], or -s layers={shorten(path)[1:-1]} on the command line"
    raise ConvertError("keras", shorten(path), f"{why}. Name one layer, or layers that follow each other: {way}")
