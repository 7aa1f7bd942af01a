"""The layers of a Keras file that become one RNN: their choice, their order and their settings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert._named import some
from pycudnnrnn.convert._stack import check_layers, is_under
from pycudnnrnn.convert.keras.config import (
    FileArrays,
    Layer,
    Settings,
    inside,
    layers_of_keys,
    model_of,
    settings_in,
    short_names,
    states_of,
)
from pycudnnrnn.convert.keras.h5 import VARIABLES
from pycudnnrnn.errors import ConvertError

_KEY: Final = re.compile(r"(?:(.*)/)?(?:(kernel|recurrent_kernel|bias)(?::0)?|(?<=cell/)vars/([0-2]))")

_PASSING: Final = frozenset({
    "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "Identity",
    "SpatialDropout1D",
})  # fmt: skip
"""Layers that return their input outside training. An Activation may be one, too."""

_LISTED: Final = 1000
"""Most characters of a list of layers to choose from."""

_ARRAYS_ALONE: Final = "give the arrays alone: dict(arrays), or a .weights.h5 on the command line"


class Used(NamedTuple):
    """Layers, by names that are unique for `find_cells`, and the keywords of `to_canonical` that they share."""

    layers: list[str]
    settings: Settings


def split_name(key: str) -> tuple[str, str] | None:
    """Split the name of an array into its cell's path and its variable; None if it belongs to no cell."""
    match = _KEY.fullmatch(key)
    if not match:
        return None
    return match[1] or "", match[2] or VARIABLES[int(match[3])]


def used_layers(arrays: Any, layers: Sequence[str] | None) -> Used:
    """Choose the layers with the names in `layers`; without names those of a stack that is easy to see.

    A name without a layer is returned unchanged. Nothing is chosen for arrays without a configuration.

    Raises:
        ConvertError: there are several layers and no names, they differ in more than their weights, a layer is called
            more than once or starts from other states than a call's, the configuration does not contain the settings of
            one, or the file has no arrays of one.
    """
    check_layers("keras", layers)
    if not isinstance(arrays, FileArrays) or arrays.config is None:
        return Used(list(layers or []), {})
    file = _File(arrays)
    chosen = {name: file.paths_of(name) for name in layers or []}
    paths = list(file.recurrent) if layers is None else [path for name in layers for path in chosen[name]]
    file.check_settings_known(layers)
    for path in paths:
        if path not in file.kernels:
            _refuse(path, "has no arrays in this file: it may share those of another layer")
    if layers is None and len(paths) > 1 and not file.is_plain_stack():
        names = list(short_names(file.recurrent).values())
        why = f"has {len(names)} recurrent layers: name those of one stack, in its order; the model's are layers="
        shown = f"{shorten(names, _LISTED)}, or -s layers={shorten(','.join(names), _LISTED)[1:-1]} on the command line"
        raise ConvertError("keras", "model", why + shown)
    file.check_calls(paths)
    missing = [name for name in layers or [] if not chosen[name]]
    return Used([*map(file.key_start, paths), *missing], file.settings(paths))


class _File:
    """The recurrent layers of a configuration by path, and the names of the arrays of each."""

    def __init__(self, arrays: FileArrays) -> None:
        self.model = model_of(arrays.config)
        self.layers = {layer.path: layer for layer in self.model.walk()}
        self.recurrent = {path: layer for path, layer in self.layers.items() if layer.made is not None}
        self.kernels: dict[str, list[str]] = {}
        self._unknown: list[str] = []
        keys = [key for key in arrays if (leaf := split_name(key)) and leaf[1] == "recurrent_kernel"]
        for key, path in layers_of_keys(keys, self.recurrent).items():
            (self._unknown if path is None else self.kernels.setdefault(path, [])).append(key)

    def paths_of(self, name: str) -> list[str]:
        """Return the paths of the layers that a name means: the layer with this path, or all layers under it."""
        if name in self.kernels:
            return [name]
        return [path for path in self.recurrent if any(is_under(key, name) for key in self.kernels.get(path, []))]

    def check_settings_known(self, layers: Sequence[str] | None) -> None:
        """Check that the configuration contains the settings of every layer that may be meant."""
        wide = [name for name in layers or [] if name not in self.kernels]
        unknown = [key for key in self._unknown if layers is None or any(is_under(key, name) for name in wide)]
        if unknown:
            known = some(list(short_names(self.recurrent).values()), shorten) or "none"
            why = (
                f"the configuration does not say what this recurrent layer was made with; it does of: {known}. Name "
                "those that are meant: layers=[...], or -s layers=... on the command line. Or say it yourself, and "
                f"{_ARRAYS_ALONE}"
            )
            raise ConvertError("keras", shorten(unknown[0]), why)

    def is_plain_stack(self) -> bool:
        """Return whether this is a Sequential model in which nothing between two recurrent layers changes numbers.

        Sequential models within it count as their layers.
        """
        inner = list(_in_sequence(self.model))
        places = [k for k, layer in enumerate(inner) if layer.path in self.recurrent]
        if len(places) < len(self.recurrent):  # one is in a model of another class
            return False
        between = inner[places[0] : places[-1]]
        return all(
            layer.own.get("return_sequences") is True if layer.path in self.recurrent else _passes(layer)
            for layer in between
        )

    def check_calls(self, paths: list[str]) -> None:
        """Check that the model calls these layers once, and with states that any call can pass."""
        outer = {inner.path: layer for layer in self.layers.values() for inner in layer.layers}
        for path in paths:
            if self.recurrent[path].own.get("stateful"):
                _refuse_call(path, "is stateful: it starts from the states that its last call ended with")
            at = self.recurrent[path]
            while at.path:
                at, inner = outer[at.path], at
                calls = [] if at.kind == "Sequential" else inside(inner.entry.get("inbound_nodes"))
                if len(calls) > 1:
                    _refuse_call(path, f"{_described(inner)} is called {len(calls)} times")
                if inner.path == path:
                    self._check_states(path, f"{at.path}/" if at.path else "", calls)

    def _check_states(self, path: str, above: str, calls: list[Any]) -> None:
        for source in (source for call in calls for source in states_of(call)):
            giver = self.layers.get(f"{above}{source}") if source else None
            if giver is None or giver.kind != "InputLayer":
                got = f"what {_described(giver)} computes" if giver else "a constant"
                _refuse_call(path, f"expecting an initial state that is an input of the model, got {got}")

    def settings(self, paths: list[str]) -> Settings:
        """Return the settings that all of these layers have."""
        made = [self.recurrent[path].made_with() for path in paths]
        for path, own in zip(paths, made, strict=True):
            if own != made[0]:
                key = next(key for key in own | made[0] if own.get(key) != made[0].get(key))
                values = f"{key}: {shorten(made[0].get(key))} and {shorten(own.get(key))}"
                short = short_names(self.recurrent)
                names = some([short[each] for each in paths], lambda name: shorten(name)[1:-1])
                _refuse(path, f"these layers differ in more than their weights: {names} ({values})")
        return settings_in(made[0]) if made else {}

    def key_start(self, path: str) -> str:
        """Return the beginning of the names of a layer's arrays, unique as a name in `layers`."""
        cells = [leaf[0].split("/") for key in self.kernels[path] if (leaf := split_name(key))]
        return "/" + "/".join(parts[0] for parts in itertools.takewhile(_are_equal, zip(*cells, strict=False)))


def _are_equal(parts: tuple[str, ...]) -> bool:
    return len(set(parts)) == 1


def _in_sequence(layer: Layer) -> Iterator[Layer]:
    """Yield the layers of a Sequential model and of Sequential models in it; a layer of another class is one."""
    if layer.kind == "Sequential":
        for inner in layer.layers:
            yield from _in_sequence(inner)
    elif layer.kind != "InputLayer":
        yield layer


def _passes(layer: Layer) -> bool:
    return layer.kind in _PASSING or (layer.kind == "Activation" and layer.own.get("activation") == "linear")


def _described(layer: Layer) -> str:
    kind = layer.entry.get("class_name")
    return f"{kind[:80] if isinstance(kind, str) and kind.isidentifier() else 'a layer'} {shorten(layer.path)}"


def _refuse(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about a layer, with advice."""
    way = f"layers=[{shorten(path)}], or -s layers={shorten(path)[1:-1]} on the command line"
    raise ConvertError("keras", shorten(path), f"{why}. Name one layer, or layers that follow each other: {way}")


def _refuse_call(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about the call of a layer, which `Canonical` does not hold."""
    raise ConvertError("keras", shorten(path), f"{why}; to convert its weights all the same, {_ARRAYS_ALONE}")
