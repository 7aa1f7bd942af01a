"""The layers in a Keras model's configuration, and the arguments of recurrent ones: read as text, never built."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn.errors import ConvertError

Settings = dict[str, Any]

SETTINGS: Final = ("activation", "recurrent_activation", "reset_after", "go_backwards")
"""The arguments of a layer that are keywords of `to_canonical`."""

_SIZES: Final = ("units", "use_bias")
_WRAPPERS: Final = ("Bidirectional", "TimeDistributed")
_RECURRENT: Final = frozenset({"CuDNNGRU", "CuDNNLSTM", "GRU", "LSTM", "SimpleRNN"})


class FileArrays(dict[str, Array]):
    """The arrays of a file, the configuration of their model, or None if the file has none, and Keras's version."""

    def __init__(self, arrays: dict[str, Array], config: Any, version: Any = "") -> None:
        super().__init__(arrays)
        self.config = config
        self.version = version.decode(errors="replace") if isinstance(version, bytes) else str(version)


def config_of(arrays: Any) -> Any:
    """Return the configuration that came with arrays of a file; None for any other arrays."""
    return arrays.config if isinstance(arrays, FileArrays) else None


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer or a model of a configuration, {"class_name": ..., "config": {"name": ...}}, and the layers in it.

    - `path`: its name after the names of the models around it, without the outermost model, whose path is "".
    - `kind`: its class, or "" if that is not Keras's own.
    - `config`: its configuration. For a Bidirectional or TimeDistributed layer, that of the layer which it runs.
    - `arguments`: class, size and settings of a recurrent layer, in one direction; None for any other layer.
    """

    path: str
    entry: dict[str, Any]
    layers: list[Layer]
    kind: str
    config: Settings
    arguments: Settings | None

    def checked_arguments(self) -> Settings:
        """Return `arguments`, checked and marked if it is a Bidirectional layer.

        Raises:
            ConvertError: a Bidirectional layer whose backward layer differs from the reversed forward layer.
        """
        forward = self.arguments or {}
        if self.kind != "Bidirectional":
            return forward
        if (other := self.entry["config"].get("backward_layer")) is not None:
            expected = forward | {"go_backwards": not forward.get("go_backwards", False)}
            if (backward := _arguments(other)) != expected:
                why = f"expecting {shorten(expected, 200)} as for its forward layer, got {shorten(backward, 200)}"
                raise ConvertError("keras", f"backward layer of {shorten(self.path)}", why)
        return forward | {"Bidirectional": True}

    @property
    def merge_mode(self) -> Any:
        """How a Bidirectional layer joins its directions; "concat" for any other layer."""
        return self.entry["config"].get("merge_mode", "concat") if self.kind == "Bidirectional" else "concat"

    @property
    def calls(self) -> list[Any]:
        """The calls of this layer in the model around it."""
        return inside(self.entry.get("inbound_nodes"))

    @property
    def has_states(self) -> bool:
        """Whether a call gives this layer initial states.

        Keras 3 writes a call as an object with `args` and `kwargs`, Keras 2 as a list of tensors with the call's
        keywords in them.
        """
        arguments = [call.get("args") if isinstance(call, dict) else call for call in self.calls]
        return any(len(inside(each)) > 1 for each in arguments) or _has_value("initial_state", self.calls)

    def walk(self) -> Iterator[Layer]:
        """Yield this layer and every layer in it, in the model's order."""
        yield self
        for layer in self.layers:
            yield from layer.walk()


def parsed(path: str | os.PathLike[str], text: Any) -> Any:
    """Read a configuration. JSON's null becomes {}, since None means a file without a configuration.

    Raises:
        ConvertError: it is not JSON, or nested too deep.
    """
    try:
        config = json.loads(text)
    except (TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ConvertError("keras", str(path), f"its configuration cannot be read: {error}") from error
    return {} if config is None else config


def inside(value: Any) -> list[Any]:
    """Return the items of a list, or the values of an object in the order of their names."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return value if isinstance(value, list) else []


def model_of(config: Any) -> Layer:
    """Return the model of a configuration; a model without layers if it describes none.

    Raises:
        ConvertError: two layers of one path.
    """
    seen: set[str] = set()

    def layer_of(entry: dict[str, Any], path: str, above: str) -> Layer:
        if path in seen:
            raise ConvertError("keras", shorten(path), "is the name of two layers in this configuration")
        seen.add(path)
        kind, inner = _kind(entry), entry.get("config")
        inner = inner.get("layers") if isinstance(inner, dict) else inner  # a list in Keras before 2.2.3
        layers = []
        for each in inner if isinstance(inner, list) else []:
            if isinstance(each, dict) and isinstance(each.get("config"), (dict, list)):
                named = each["config"] if isinstance(each["config"], dict) else each
                name = f"{above}{named.get('name')}"
                layers.append(layer_of(each, name, f"{name}/"))
        layer = _config(entry).get("layer") if kind in _WRAPPERS else entry
        return Layer(path, entry, layers, kind, _config(layer), _arguments(layer))

    return layer_of(config if isinstance(config, dict) else {}, "", "")


def short_names(paths: Collection[str]) -> dict[str, str]:
    """Return the names that `layers` uses for these paths: the end of a path, if no other layer has it."""
    through = Counter(part for path in paths for part in set(path.split("/")))
    ends = {path: path.rpartition("/")[2] for path in paths}
    return {path: end if through[end] == 1 else path for path, end in ends.items()}


def layers_of_cells(cells: Iterable[str], paths: Collection[str]) -> Iterator[str | None]:
    """Yield the path of the layer of each cell, or None if the configuration does not have the layer.

    An `.h5` file groups arrays by the outermost layer. Below that Keras 3 has every model of the path, with the names
    of the surroundings before it. Keras 2 has only the innermost layer.
    """
    inner: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        inner.setdefault((path.partition("/")[0], path.rpartition("/")[2]), []).append(path)
    for cell in cells:
        parts = cell.removeprefix("model_weights/").split("/")
        starts = [start for start, part in enumerate(parts) if part == parts[0]]
        whole = ["/".join(parts[start:end]) for start in starts for end in range(start + 1, len(parts) + 1)]
        alone = inner.get((parts[0], parts[1]), []) if len(parts) > 1 else []
        of_keras_2 = alone[0] if len(alone) == 1 else None
        yield max((path for path in whole if path in paths), key=len, default=of_keras_2)


def _has_value(key: str, value: Any) -> bool:
    level = [value]  # one after the other, since a file may nest them deeper than Python calls itself
    while level:
        if any(isinstance(item, dict) and item.get(key) is not None for item in level):
            return True
        level = [item for each in level for item in inside(each)]
    return False


def _kind(entry: Any) -> str:
    kind, module = (entry.get("class_name"), entry.get("module", "keras")) if isinstance(entry, dict) else ("", "")
    is_keras = isinstance(module, str) and module.partition(".")[0] in {"keras", "tf_keras"}
    return kind if is_keras and isinstance(kind, str) else ""


def _config(entry: Any) -> Settings:
    config = entry.get("config") if isinstance(entry, dict) else None
    return config if isinstance(config, dict) else {}


def _arguments(entry: Any) -> Settings | None:
    """Return the arguments of a recurrent layer, or of a layer over a cell; None for any other."""
    kind, config = _kind(entry), _config(entry)
    if kind == "RNN" and _kind(config.get("cell")) == "StackedRNNCells":
        stacked = inside(_config(config["cell"]).get("cells"))
        cells = [_arguments(entry | {"config": config | {"cell": cell}}) for cell in stacked]
        names = [_config(cell).get("name") for cell in stacked]
        return cells[0] | {"cells": names} if cells and cells[0] and all(cell == cells[0] for cell in cells) else None
    if kind == "RNN" and _kind(config.get("cell")).endswith("Cell"):
        kind, config = _kind(config["cell"]).removesuffix("Cell"), config | _config(config["cell"])
    if kind not in _RECURRENT:
        return None
    before = {"reset_after": False} if kind == "GRU" else {}  # the only kind before the choice existed
    return {"class_name": kind} | before | {key: config[key] for key in (*SETTINGS, *_SIZES) if key in config}
