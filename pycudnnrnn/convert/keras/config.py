"""What the configuration of a Keras model says of its recurrent layers: read as text, and never built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ConvertError

DEEPEST: Final = 32
"""Models in models, at most, in a configuration."""

Settings = dict[str, Any]

_SETTINGS: Final = ("activation", "recurrent_activation", "reset_after", "go_backwards")


def settings_of(config: Any) -> dict[str, Settings]:
    """Return what each recurrent layer of a configuration was made with, by its path of names, in the model's order.

    Raises:
        ConvertError: two layers of one path, a Bidirectional layer that does not concatenate, or one whose backward
            layer is not the forward one turned round.
    """
    found: dict[str, Settings] = {}
    for path, settings in _collected(config, "", 0):
        if path in found:
            raise ConvertError("keras", shorten(path), "is the name of two layers in this configuration")
        found[path] = settings
    return found


def called(paths: Collection[str]) -> dict[str, str]:
    """Return what `layers` calls the layers of these paths: the end of a path, if it leads to no other layer."""
    through = Counter(part for path in paths for part in set(path.split("/")))
    ends = {path: path.rpartition("/")[2] for path in paths}
    return {path: end if through[end] == 1 else path for path, end in ends.items()}


def layers_of(keys: Iterable[str], paths: Collection[str]) -> dict[str, str | None]:
    """Return the path of the layer that each array of a file is of, None where the configuration has no such layer.

    An `.h5` file groups arrays by the outermost layer. Below that Keras 3 has every model of the path, and names of
    surroundings before it; Keras 2 has only the innermost layer.
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


def _collected(layer: Any, above: str, depth: int) -> Iterator[tuple[str, Settings]]:
    """Walk models in models; a layer is {"class_name": ..., "config": {"name": ...}}."""
    own = layer.get("config") if isinstance(layer, dict) and depth <= DEEPEST else None
    if isinstance(own, list):  # a Sequential model before Keras 2.2.3
        own = {"layers": own, "name": layer.get("name")}
    if not isinstance(own, dict):
        return
    path = f"{above}{own.get('name')}"
    settings = _bidirectional(own, path) if layer.get("class_name") == "Bidirectional" else _recurrent(layer, path)
    if settings is not None:
        yield path, settings
    for inner in own["layers"] if isinstance(own.get("layers"), list) else []:
        yield from _collected(inner, f"{path}/" if depth else "", depth + 1)


def _recurrent(layer: Any, path: str) -> Settings | None:
    """Return the settings of a recurrent layer, or of one over a cell; None of any other."""
    own = layer.get("config") if isinstance(layer, dict) else None
    if not isinstance(own, dict):
        return None
    kind, cell = layer.get("class_name"), own.get("cell")
    if isinstance(cell, dict) and isinstance(cell.get("config"), dict):
        kind, own = cell.get("class_name"), own | cell["config"]
        if "cells" in own:
            raise ConvertError("keras", shorten(path), "is an RNN over several cells, which is not read")
    if "recurrent_initializer" not in own:  # every recurrent layer has one, and no other does
        return None
    before = {"reset_after": False} if kind in {"GRU", "GRUCell"} else {}  # as it was before there was the choice
    return before | {key: own[key] for key in _SETTINGS if key in own}


def _bidirectional(own: Settings, path: str) -> Settings | None:
    """Return the settings of the forward layer, where the backward one is the same in the other direction."""
    forward = _recurrent(own.get("layer"), path)
    if forward is None:
        return None
    if own.get("merge_mode", "concat") != "concat":
        raise ConvertError("keras", shorten(path), "is Bidirectional, and does not concatenate: cuDNN does")
    if own.get("backward_layer") is not None:
        wanted = forward | {"go_backwards": not forward.get("go_backwards", False)}
        backward = _recurrent(own["backward_layer"], path)
        if backward != wanted:
            why = f"expecting {shorten(wanted, 160)} as for its forward layer, got {shorten(backward, 160)}"
            raise ConvertError("keras", f"backward layer of {shorten(path)}", why)
    return forward
