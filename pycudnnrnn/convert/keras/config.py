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

DEEPEST: Final = 32
"""Most levels of models within models in a configuration."""

_DEEPEST_JSON: Final = 8 * DEEPEST
"""Most levels of lists and objects. A model within a model takes three or four."""

Settings = dict[str, Any]

_SETTINGS: Final = ("activation", "recurrent_activation", "reset_after", "go_backwards")
_SIZES: Final = ("units", "use_bias")
_RECURRENT: Final = frozenset({"CuDNNGRU", "CuDNNLSTM", "GRU", "LSTM", "SimpleRNN"})


class FileArrays(dict[str, Array]):
    """The arrays of a file, and the configuration of their model, or None if the file has none."""

    def __init__(self, arrays: dict[str, Array], config: Any) -> None:
        super().__init__(arrays)
        self.config = config


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer or a model: {"class_name": ..., "config": {"name": ...}}, and the layers in it.

    The path contains the names of the models around it, except the outermost model, whose path is "".
    """

    path: str
    entry: dict[str, Any]
    layers: list[Layer]

    @property
    def kind(self) -> str:
        """Its class, or "" if that is not Keras's own."""
        return _kind(self.entry)

    @property
    def own(self) -> Settings:
        """Its configuration. For a Bidirectional layer, that of the layer which it runs in both directions."""
        own = _own(self.entry)
        return _own(own.get("layer")) if self.kind == "Bidirectional" else own

    @property
    def is_recurrent(self) -> bool:
        """Return whether it is one of Keras's recurrent layers, in one direction or both."""
        return _made_with(_own(self.entry).get("layer") if self.kind == "Bidirectional" else self.entry) is not None

    def made_with(self) -> Settings:
        """Return the class, the size and the settings of a recurrent layer.

        Raises:
            ConvertError: a Bidirectional layer that does not concatenate, or one whose backward layer differs from the
                reversed forward layer.
        """
        if self.kind != "Bidirectional":
            return _made_with(self.entry) or {}
        both = _own(self.entry)
        forward = _made_with(both.get("layer")) or {}
        if both.get("merge_mode", "concat") != "concat":
            raise ConvertError("keras", shorten(self.path), "is Bidirectional, and does not concatenate: cuDNN does")
        if both.get("backward_layer") is not None:
            wanted = forward | {"go_backwards": not forward.get("go_backwards", False)}
            backward = _made_with(both["backward_layer"])
            if backward != wanted:
                why = f"expecting {shorten(wanted, 200)} as for its forward layer, got {shorten(backward, 200)}"
                raise ConvertError("keras", f"backward layer of {shorten(self.path)}", why)
        return forward | {"Bidirectional": True}

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
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ConvertError("keras", str(path), f"its configuration cannot be read: {error}") from error
    level = [found]
    for _ in range(_DEEPEST_JSON):
        level = [item for value in level for item in inside(value)]
    if level:
        why = f"its configuration cannot be read: it is nested deeper than {_DEEPEST_JSON} levels"
        raise ConvertError("keras", str(path), why)
    return {} if found is None else found


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

    def layer_of(entry: dict[str, Any], path: str, depth: int) -> Layer:
        if path in seen:
            raise ConvertError("keras", shorten(path), "is the name of two layers in this configuration")
        seen.add(path)
        above = f"{path}/" if depth else ""
        inner = _entries(entry) if depth <= DEEPEST else []
        return Layer(path, entry, [layer_of(layer, f"{above}{_name(layer)}", depth + 1) for layer in inner])

    return layer_of(config if isinstance(config, dict) else {}, "", 0)


def settings_in(made: Settings) -> Settings:
    """Return the keywords of `to_canonical` among a layer's settings."""
    return {key: made[key] for key in _SETTINGS if key in made}


def called(paths: Collection[str]) -> dict[str, str]:
    """Return the names that `layers` uses for these paths: the end of a path, if no other layer has it."""
    through = Counter(part for path in paths for part in set(path.split("/")))
    ends = {path: path.rpartition("/")[2] for path in paths}
    return {path: end if through[end] == 1 else path for path, end in ends.items()}


def layers_of(keys: Iterable[str], paths: Collection[str]) -> dict[str, str | None]:
    """Return the path of each array's layer, or None if the configuration does not have the layer.

    An `.h5` file groups arrays by the outermost layer. Below that Keras 3 has every model of the path, with the names
    of the surroundings before it. Keras 2 has only the innermost layer.
    """
    inner: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        inner.setdefault((path.partition("/")[0], path.rpartition("/")[2]), []).append(path)
    found: dict[str, str | None] = {}
    for key in keys:
        parts = key.removeprefix("model_weights/").split("/")
        starts = [start for start, part in enumerate(parts) if part == parts[0]]
        whole = ["/".join(parts[start:end]) for start in starts for end in range(start + 1, len(parts))]
        alone = inner.get((parts[0], parts[1]), []) if len(parts) > 1 else []
        of_keras_2 = alone[0] if len(alone) == 1 else None
        found[key] = max((path for path in whole if path in paths), key=len, default=of_keras_2)
    return found


def _kind(entry: Any) -> str:
    kind, module = (entry.get("class_name"), entry.get("module", "keras")) if isinstance(entry, dict) else ("", "")
    own = isinstance(module, str) and module.partition(".")[0] in {"keras", "tf_keras"}
    return kind if own and isinstance(kind, str) else ""


def _own(entry: Any) -> Settings:
    own = entry.get("config") if isinstance(entry, dict) else None
    return own if isinstance(own, dict) else {}


def _name(entry: dict[str, Any]) -> str:
    own = entry.get("config")
    return f"{own.get('name') if isinstance(own, dict) else entry.get('name')}"


def _entries(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the layers of a model, as its configuration lists them."""
    own = entry.get("config")
    layers = own.get("layers") if isinstance(own, dict) else own  # a Sequential model before Keras 2.2.3 is a list
    found = layers if isinstance(layers, list) else []
    return [layer for layer in found if isinstance(layer, dict) and isinstance(layer.get("config"), (dict, list))]


def _made_with(entry: Any) -> Settings | None:
    """Return the settings of a recurrent layer, or of a layer over a cell; None for any other."""
    kind, own = _kind(entry), _own(entry)
    if kind == "RNN" and _kind(own.get("cell")).endswith("Cell"):
        kind, own = _kind(own["cell"]).removesuffix("Cell"), own | _own(own["cell"])
    if kind not in _RECURRENT or "recurrent_initializer" not in own:  # Keras 1 has neither this name nor our settings
        return None
    before = {"reset_after": False} if kind == "GRU" else {}  # the only kind before the choice existed
    return before | {key: own[key] for key in (*_SETTINGS, *_SIZES) if key in own} | {"class_name": kind}
