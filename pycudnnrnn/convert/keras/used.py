"""The layers of a Keras file that become one RNN: their choice, their order and their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert._named import Named, some
from pycudnnrnn.convert._stack import CellKeys, check_layers, find_cells, group_cells, is_under
from pycudnnrnn.convert.keras.config import (
    Layer,
    Settings,
    inside,
    layers_of_cells,
    model_of,
    settings_in,
    short_names,
    states_of,
)
from pycudnnrnn.convert.keras.files import VARIABLES
from pycudnnrnn.errors import ConvertError

_KEY: Final = re.compile(r"(?:(.*)/)?(?:(kernel|recurrent_kernel|bias)(?::0)?|(?<=cell/)vars/([0-2]))")

_IN_CELL: Final = re.compile(r"cell(?:_[0-9]+)?(?:/|$)")

_WAY: Final = re.compile(r"(?:^|/)(forward|backward)_")
"""How Keras begins the names of the two layers in a Bidirectional one."""

_PASSING: Final = frozenset({
    "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "Identity",
    "SpatialDropout1D",
})  # fmt: skip
"""Layers that return their input outside training."""

_LISTED: Final = 1000
"""Most characters of a list of layers to choose from."""

_ARRAYS_ALONE: Final = "give the arrays alone: dict(arrays), or a .weights.h5 on the command line"


class Used(NamedTuple):
    """The cells of one RNN, layer by layer and forward first, and the keywords of `to_canonical` that they share."""

    cells: list[CellKeys]
    num_dirs: int
    settings: Settings


def split_name(key: str) -> tuple[str, str] | None:
    """Split the name of an array into its cell's path and its variable; None if it belongs to no cell."""
    match = _KEY.fullmatch(key)
    if not match:
        return None
    return match[1] or "", match[2] or VARIABLES[int(match[3])]


def used_cells(named: Named, config: Any, layers: Sequence[str] | None) -> Used:
    """Choose the layers with the names in `layers`; without names those of a stack that is easy to see.

    `config` is the configuration of the model. Without one (None), the names of the arrays decide: all recurrent
    layers are a stack.

    Raises:
        ConvertError: there is no layer of this name, or there are several layers and no names; they differ in more than
            their weights, a layer is called more than once or starts from other states than a call's, the configuration
            does not contain the settings of one, or the file does not have the arrays of one.
    """
    if config is None:
        return _cells_by_name(named, layers)
    check_layers("keras", layers)
    file = _File(group_cells(named, split_name), config)
    file.check_settings_known(layers)
    if not file.recurrent:
        raise ConvertError("keras", "model", "has no recurrent layer")
    paths = list(file.recurrent) if layers is None else file.paths_of(layers)
    for path in paths:
        if path not in file.cells:
            _refuse(path, "has no arrays in this file: it may share those of another layer")
    if layers is None and len(paths) > 1 and not file.is_plain_stack():
        names = list(short_names(file.recurrent).values())
        why = f"has {len(names)} recurrent layers: name those of one stack, in its order; the model's are layers="
        shown = f"{shorten(names, _LISTED)}, or -s layers={shorten(','.join(names), _LISTED)[1:-1]} on the command line"
        raise ConvertError("keras", "model", why + shown)
    file.check_calls(paths)
    settings = file.settings(paths)
    cells = [cell for path in paths for cell in file.cells_of(path)]
    named.keep_only({key for cell in cells for key in cell.keys.values()}.__contains__)
    return Used(cells, len(cells) // len(paths), settings)


def _cells_by_name(named: Named, layers: Sequence[str] | None) -> Used:
    """Find the cells of arrays without a configuration.

    Other layers are left out if every recurrent kernel is in a cell, as it is since TensorFlow 2: a Dense has a kernel
    and a bias, too.
    """
    recurrent = [leaf[0] for key in named if (leaf := split_name(key)) and leaf[1] == "recurrent_kernel"]
    if recurrent and all(map(_IN_CELL.search, recurrent)):
        named.keep_only(lambda key: "/" not in key or _IN_CELL.search(key) is not None)
    return Used(*find_cells(named, split_name, layers, None), {})


class _File:
    """The recurrent layers of a configuration, and the cells of each, by the layer's path."""

    def __init__(self, cells: list[CellKeys], config: Any) -> None:
        self.model = model_of(config)
        self.layers = {layer.path: layer for layer in self.model.walk()}
        self.recurrent = {path: layer for path, layer in self.layers.items() if layer.made is not None}
        self.cells: dict[str, list[CellKeys]] = {}
        self._unknown: list[str] = []
        cells = [cell for cell in cells if "recurrent_kernel" in cell.keys]
        for cell, path in zip(cells, layers_of_cells([cell.path for cell in cells], self.recurrent), strict=True):
            if path is None:
                self._unknown.append(cell.path)
            else:
                self.cells.setdefault(path, []).append(cell)

    def paths_of(self, names: Sequence[str]) -> list[str]:
        """Return the paths of the layers that the names mean: the layer with this path, or all layers under it."""
        found: list[str] = []
        for name in names:
            own = [name] if name in self.recurrent else [path for path in self.recurrent if is_under(path, name)]
            if not own:
                there = some(list(short_names(self.recurrent).values()), shorten)
                why = f"no recurrent cell is under this name; the names here are {there}"
                raise ConvertError("keras", f"layers: {shorten(name)}", why)
            if not set(own).isdisjoint(found):
                raise ConvertError("keras", f"layers: {shorten(name)}", "its layers are under a name before it, too")
            found += own
        return found

    def check_settings_known(self, layers: Sequence[str] | None) -> None:
        """Check that the configuration contains the settings of every layer that may be meant."""
        wide = [name for name in layers or [] if name not in self.recurrent]
        unknown = [cell for cell in self._unknown if layers is None or any(is_under(cell, name) for name in wide)]
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
        return all(layer.path in self.recurrent or layer.kind in _PASSING for layer in between)

    def check_calls(self, paths: list[str]) -> None:
        """Check that the model calls these layers once, and with states that any call can pass."""
        outer = {inner.path: layer for layer in self.layers.values() for inner in layer.layers}
        for path in paths:
            if self.recurrent[path].own.get("stateful"):
                _refuse_call(path, "is stateful: it starts from the states that its last call ended with")
            at = self.recurrent[path]
            while at.path:
                at, inner = outer[at.path], at
                calls = inside(inner.entry.get("inbound_nodes"))
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

    def cells_of(self, path: str) -> list[CellKeys]:
        """Return the cells of a layer, the forward one first."""
        cells = sorted(self.cells[path], key=_is_backward)
        wanted = [False, True] if self.recurrent[path].kind == "Bidirectional" else [_is_backward(cells[0])]
        if [*map(_is_backward, cells)] != wanted:
            names = shorten([cell.path for cell in cells])
            raise ConvertError("keras", shorten(path), f"expecting {len(wanted)} directions, got the cells {names}")
        return cells


def _is_backward(cell: CellKeys) -> bool:
    return _WAY.findall(cell.path)[-1:] == ["backward"]


def _in_sequence(layer: Layer) -> Iterator[Layer]:
    """Yield the layers of a Sequential model and of Sequential models in it; a layer of another class is one."""
    if layer.kind == "Sequential":
        for inner in layer.layers:
            yield from _in_sequence(inner)
    elif layer.kind != "InputLayer":
        yield layer


def _described(layer: Layer) -> str:
    kind = layer.entry.get("class_name")
    return f"{kind[:80] if isinstance(kind, str) and kind.isidentifier() else 'a layer'} {shorten(layer.path)}"


def _refuse(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about a layer, with advice."""
    way = f"layers=[{shorten(path)}], or -s layers={shorten(path)[1:-1]} on the command line"
    raise ConvertError("keras", shorten(path), f"{why}. Name one layer, or layers that follow each other: {way}")


def _refuse_call(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about the call of a layer, which a `Canonical` cannot contain."""
    raise ConvertError("keras", shorten(path), f"{why}; to convert its weights all the same, {_ARRAYS_ALONE}")
