"""The layers of a Keras file that become one RNN: their choice, their order and their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from pycudnnrnn._checks import Assumption, shorten, some, warn
from pycudnnrnn.convert.keras.config import SETTINGS, Layer, Settings, config_of, layers_of_cells, model_of, short_names
from pycudnnrnn.convert.keras.files import VARIABLES
from pycudnnrnn.convert.named import Named
from pycudnnrnn.convert.stacks import (
    STACKS,
    Cell,
    Layers,
    Stack,
    check_layers,
    grouped,
    is_under,
    layer_names,
    layers_by_path,
    nearest,
    under,
)  # fmt: skip
from pycudnnrnn.errors import ConvertError

_KEY: Final = re.compile(
    r"(?:(?P<path>.*)/)?(?P<variable>kernel|recurrent_kernel|bias)(?::0)?(?:/\.ATTRIBUTES/VARIABLE_VALUE)?"
    r"|(?P<cell>(?:.*/)?[^/]*cell(?:_[0-9]+)?)/vars/(?P<number>[0-2])"
)

_OF_KERAS_1: Final = re.compile(r"(?:.*/)?.+_[WUb](?:_[icfozrh])?(?::0)?")

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


def split_name(key: str) -> tuple[str, str] | None:
    """Split the name of an array into its cell's path and its variable; None if it belongs to no cell."""
    match = _KEY.fullmatch(key)
    if not match:
        return None
    return match["path"] or match["cell"] or "", match["variable"] or VARIABLES[int(match["number"])]


def used_layers(named: Named, config: Any, layers: Any) -> tuple[Layers, Settings]:
    """Choose the layers with the names in `layers`; without names those of a stack that is easy to see.

    Return their cells, and the keywords of `to_canonical` that they share.

    `config` is the configuration of the model. Without one (None), the names of the arrays decide: all recurrent
    layers are a stack, and other layers are left out.

    Raises:
        ConvertError: there is no layer of this name, or there are several layers and no names; they differ in more than
            their weights, the configuration does not contain the settings of one, or the file does not have the arrays
            of one.
    """
    cells = _recurrent_cells(named)
    if config is None:
        if not cells:
            raise ConvertError("keras", "arrays", nearest(named))
        scopes = {cell.scope for cell in cells}
        named.keep_only(lambda key: "/" not in key or (split_name(key) or key.rpartition("/"))[0] in scopes)
        return layers_by_path(named, cells, layers), {}
    check_layers("keras", layers)
    if any(not isinstance(entry, str) for entry in layers or ()):
        raise ConvertError("keras", "layers", f"the file has a configuration, which has no such pairs: {_ARRAYS_ALONE}")
    file = _File(cells, config)
    file.check_settings_known(layers)
    if not file.recurrent:
        raise ConvertError("keras", "model", "has no recurrent layer")
    paths = list(file.recurrent) if layers is None else file.paths_of(layers)
    for path in paths:
        if path not in file.cells:
            _refuse(path, "has no arrays in this file: it may share those of another layer")
    if layers is None and len(paths) > 1 and not _is_plain_stack(file.model, paths):
        names = list(file.names.values())
        why = f"has {len(names)} recurrent layers: name those of one stack, in its order; the model's are layers="
        shown = f"{shorten(names, _LISTED)}, or -s layers={shorten(','.join(names), _LISTED)[1:-1]} on the command line"
        raise ConvertError("keras", "model", why + shown)
    file.warn_of_notes(paths)
    settings = file.settings(paths)
    rows = [row for path in paths for row in file.rows_of(path)]
    named.keep_only({key for row in rows for cell in row for key in cell.keys.values()}.__contains__)
    return rows, settings


def stacks(arrays: Any) -> list[Stack]:
    """Return the recurrent layers of a file of Keras, each for itself, for a list to choose from."""
    cells = _recurrent_cells(Named("keras", arrays))
    if (config := config_of(arrays)) is not None:
        file = _File(cells, config)
        groups = {name: file.cells[path] for path, name in file.names.items() if path in file.cells}
    else:
        groups = {name: [c for c in cells if is_under(c.scope, name) or not name] for name in layer_names(cells)}
    return [Stack({"layers": [name]}, sum(len(cell.keys) for cell in group)) for name, group in groups.items()]


def _recurrent_cells(named: Named) -> list[Cell]:
    """Return the cells, which have a recurrent kernel.

    Raises:
        ConvertError: the names are those of Keras 1.
    """
    cells = [Cell(*cell) for cell in grouped(named, split_name).items() if "recurrent_kernel" in cell[1]]
    if not cells and any(map(_OF_KERAS_1.fullmatch, named)):
        why = "these are the names of Keras 1, which has one array per gate: load and save the model with Keras 2 first"
        raise ConvertError("keras", "arrays", why)
    return cells


class _File:
    """The recurrent layers of a configuration, and the cells of each, by the layer's path."""

    def __init__(self, cells: list[Cell], config: Any) -> None:
        self.model = model_of(config)
        self.layers = {layer.path: layer for layer in self.model.walk()}
        self.recurrent = {path: layer for path, layer in self.layers.items() if layer.arguments is not None}
        self.names = short_names(self.recurrent)
        self.cells: dict[str, list[Cell]] = {}
        self._unknown: list[str] = []
        for cell, path in zip(cells, layers_of_cells([cell.scope for cell in cells], self.recurrent), strict=True):
            if path is None:
                self._unknown.append(cell.scope)
            else:
                self.cells.setdefault(path, []).append(cell)

    def paths_of(self, names: Sequence[str]) -> list[str]:
        """Return the paths of the layers that the names mean: the layer with this path, or all layers under it."""
        paths: list[str] = []
        for name in names:
            meant = under("keras", self.recurrent, name, list(self.names.values()))
            if not set(meant).isdisjoint(paths):
                raise ConvertError("keras", f"layers: {shorten(name)}", "its layers are under a name before it, too")
            models = [layer for path, layer in self.layers.items() if f"/{path}".endswith(f"/{name}")]
            if len(meant) > 1 and not any(_is_plain_stack(model, meant) for model in models):
                order = ", ".join(short_names(meant).values())
                warn(f"the layers of {name!r} are read as one stack, in this order: {order}", Assumption)
            paths += meant
        return paths

    def check_settings_known(self, layers: Sequence[str] | None) -> None:
        """Check that the configuration contains the settings of every layer that may be meant."""
        wide = [name for name in layers or [] if name not in self.recurrent]
        unknown = [cell for cell in self._unknown if layers is None or any(is_under(cell, name) for name in wide)]
        if unknown:
            path = next(layers_of_cells([unknown[0]], self.layers), None)
            owners = [self.layers[path]] if path else [layer for layer in self.layers.values() if not layer.kind]
            classes = some([_described(layer) for layer in owners], str) or "it has no configuration"
            why = f"its class is not Keras's LSTM, GRU or SimpleRNN: {classes}"
            advice = f"Name other layers, with layers=[...], or say how it was made, and {_ARRAYS_ALONE}"
            why = f"how this recurrent layer computes is unknown, since {why}. {advice}"
            raise ConvertError("keras", shorten(unknown[0]), why)

    def warn_of_notes(self, paths: list[str]) -> None:
        """Warn of what these layers and the model do around the RNN.

        Raises:
            ConvertError: a layer below another does not concatenate its directions.
        """
        for path in paths:
            layer = self.recurrent[path]
            if layer.merge_mode != "concat":
                if path != paths[-1]:
                    _refuse(path, f"has merge_mode {shorten(layer.merge_mode)}, so the layer above gets another input")
                warn(f"{path!r} has merge_mode {layer.merge_mode!r}: the op returns its directions side by side")
            around = [each for name, each in self.layers.items() if name and f"{path}/".startswith(f"{name}/")]
            is_called_again = any(len(each.calls) > 1 for each in around)  # the layer, or a model that it is in
            if layer.config.get("stateful") or is_called_again or layer.has_states:
                what = "is stateful, called more than once, or called with initial states"
                warn(f"{path!r} {what}: only its weights are read, and each call of the op takes states", Assumption)
            if layer.kind == "TimeDistributed":
                warn(f"{path!r} is TimeDistributed: to the op, each of its outer steps is a sequence of its own")
        masks = [p for p, one in self.layers.items() if one.kind == "Masking" or one.config.get("mask_zero") is True]
        if masks:
            text = "pass sequence_lengths to the op, which skips no step otherwise"
            onnx = "a model of ONNX takes them with sequence_lens=True"
            warn(f"the model masks steps ({some(masks, repr)}): {text}; {onnx}")

    def settings(self, paths: list[str]) -> Settings:
        """Return the settings that all of these layers have."""
        first, *others = (self.recurrent[path].checked_arguments() for path in paths)
        for path, other in zip(paths[1:], others, strict=True):
            if other != first:
                key = next(key for key in other | first if other.get(key) != first.get(key))
                values = f"{key}: {shorten(first.get(key))} and {shorten(other.get(key))}".removeprefix("class_name: ")
                names = some([self.names[each] for each in paths], lambda name: shorten(name)[1:-1])
                _refuse(path, f"these layers differ in more than their weights: {names} ({values})")
        return {key: first[key] for key in SETTINGS if key in first}

    def rows_of(self, path: str) -> Layers:
        """Return the cells of a layer, which is several layers if it has StackedRNNCells."""
        names = (self.recurrent[path].arguments or {}).get("cells", [None])
        cells = sorted(self.cells[path], key=lambda cell: (_is_backward(cell), _number(cell.scope, names)))
        is_both = self.recurrent[path].kind == "Bidirectional"
        sides = [False, True] if is_both else [_is_backward(cells[0])] * len(names)
        if [*map(_is_backward, cells)] != sides:
            scopes = shorten([cell.scope for cell in cells])
            raise ConvertError("keras", shorten(path), f"expecting {len(sides)} directions, got the cells {scopes}")
        return [cells] if is_both else [[cell] for cell in cells]


def _is_backward(cell: Cell) -> bool:
    """Return whether a cell of a Bidirectional layer is the backward one, which a model may call by any name."""
    return _WAY.findall(cell.scope)[-1:] != ["forward"]


def _number(path: str, names: list[Any]) -> int:
    """Return the place of a cell in StackedRNNCells. In a .keras file its group has the class and a number as name."""
    last = path.rpartition("/")[2]
    if last in names and "/cells/" not in path:
        return names.index(last)
    digits = last.rpartition("_")[2]
    return int(digits) if digits.isdecimal() else 0


def _is_plain_stack(model: Layer, recurrent: Sequence[str]) -> bool:
    """Return whether this is a Sequential model in which nothing between its recurrent layers changes numbers.

    Sequential models within it count as their layers.
    """
    inner = list(_in_sequence(model))
    places = [k for k, layer in enumerate(inner) if layer.path in recurrent]
    if len(places) < len(recurrent):  # one is in a model of another class
        return False
    between = inner[places[0] : places[-1]]
    return all(layer.path in recurrent or layer.kind in _PASSING for layer in between)


def _in_sequence(layer: Layer) -> Iterator[Layer]:
    """Yield the layers of a Sequential model and of Sequential models in it; a layer of another class is one."""
    if layer.kind == "Sequential":
        for inner in layer.layers:
            yield from _in_sequence(inner)
    elif layer.kind != "InputLayer":
        yield layer


def _described(layer: Layer) -> str:
    kind = layer.entry.get("class_name")
    kind = kind[:80] if isinstance(kind, str) and kind.replace(">", "").isidentifier() else "a layer"
    return f"{kind} {shorten(layer.path)}" if layer.path else kind


def _refuse(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about a layer, with advice."""
    way = f"layers=[{shorten(path)}], or -s layers={shorten(path)[1:-1]} on the command line"
    raise ConvertError("keras", shorten(path), f"{why}. Name one layer, or layers that follow each other: {way}")


STACKS["keras"] = stacks
