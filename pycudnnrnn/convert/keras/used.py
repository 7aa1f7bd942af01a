"""The layers of a Keras file that become one RNN: their choice, their order and their settings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert._named import some
from pycudnnrnn.convert._stack import check_layers, is_under
from pycudnnrnn.convert.keras.calls import check_calls, is_plain_stack
from pycudnnrnn.convert.keras.config import FileArrays, Settings, called, layers_of, model_of, settings_in
from pycudnnrnn.convert.keras.h5 import VARIABLES
from pycudnnrnn.errors import ConvertError

_KEY: Final = re.compile(r"(?:(.*)/)?(?:(kernel|recurrent_kernel|bias)(?::0)?|(?<=cell/)vars/([0-2]))")

_MOST: Final = 1024
"""Most layers of a file that are searched by name: each name is compared with that of every array."""


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
    """Choose the layers with the names in `layers`, or all of a model that is a plain stack.

    A name without a layer is returned unchanged. Nothing is chosen for arrays without a configuration.

    Raises:
        ConvertError: several layers without names in another model, layers that differ in more than their weights or
            that the model calls in a way that a call of ours cannot have, a layer whose settings are not in the
            configuration, or one without arrays in the file.
    """
    check_layers("keras", layers)
    if not isinstance(arrays, FileArrays) or arrays.config is None:
        return Used(list(layers or []), {})
    file = _File(arrays)
    chosen = {name: file.under(name) for name in layers or []}
    paths = list(file.recurrent) if layers is None else [path for name in layers for path in chosen[name]]
    if len(paths) > _MOST:
        raise ConvertError("keras", "layers", f"expecting at most {_MOST} recurrent layers, got {len(paths)}")
    file.check_said(layers)
    for path in paths:
        if path not in file.kernels:
            _refuse(path, "has no arrays in this file: it may share those of another layer")
    if layers is None and len(paths) > 1 and not is_plain_stack(file.model, paths):
        names = [file.names[path] for path in paths]
        listed = f"layers={shorten(names, 400)}, or -s layers={shorten(','.join(names), 400)[1:-1]} on the command line"
        why = f"has {len(paths)} recurrent layers: name those of one stack, in its order: {listed}"
        raise ConvertError("keras", "model", why)
    check_calls(file.model, paths)
    missing = [name for name in layers or [] if not chosen[name]]
    return Used([*map(file.place, paths), *missing], file.settings(paths))


class _File:
    """The recurrent layers of a configuration by path, and the names of the arrays of each."""

    def __init__(self, arrays: FileArrays) -> None:
        self.model = model_of(arrays.config)
        self.recurrent = {layer.path: layer for layer in self.model.walk() if layer.is_recurrent}
        self.kernels: dict[str, list[str]] = {}
        self.names = called(self.recurrent)
        self._unsaid: list[str] = []
        keys = [key for key in arrays if (leaf := split_name(key)) and leaf[1] == "recurrent_kernel"]
        for key, path in layers_of(keys, self.recurrent).items():
            (self._unsaid if path is None else self.kernels.setdefault(path, [])).append(key)

    def under(self, name: str) -> list[str]:
        """Return the paths of the layers that a name means: the layer with this path, or all layers under it."""
        if name in self.kernels:
            return [name]
        return [path for path in self.recurrent if any(is_under(key, name) for key in self.kernels.get(path, []))]

    def check_said(self, layers: Sequence[str] | None) -> None:
        """Check that the configuration contains the settings of every layer that may be meant."""
        wide = [name for name in layers or [] if name not in self.kernels]
        unsaid = [key for key in self._unsaid if layers is None or any(is_under(key, name) for name in wide)]
        if unsaid:
            why = (
                "the configuration does not say what this recurrent layer was made with; it does of: "
                f"{some(list(self.names.values()), shorten) or 'none'}. Name those that are meant: layers=[...], or "
                "-s layers=... on the command line. Or say it yourself, and give the arrays alone: dict(arrays), or a "
                ".weights.h5 on the command line"
            )
            raise ConvertError("keras", shorten(unsaid[0]), why)

    def settings(self, paths: list[str]) -> Settings:
        """Return the settings that all of these layers have."""
        made = [self.recurrent[path].made_with() for path in paths]
        for path, own in zip(paths, made, strict=True):
            if own != made[0]:
                key = next(key for key in own | made[0] if own.get(key) != made[0].get(key))
                values = f"{key}: {shorten(made[0].get(key))} and {shorten(own.get(key))}"
                names = some([self.names[each] for each in paths], lambda name: shorten(name)[1:-1])
                _refuse(path, f"these layers differ in more than their weights: {names} ({values})")
        return settings_in(made[0]) if made else {}

    def place(self, path: str) -> str:
        """Return the beginning of the names of a layer's arrays, unique as a name in `layers`."""
        cells = [leaf[0].split("/") for key in self.kernels[path] if (leaf := split_name(key))]
        return "/" + "/".join(parts[0] for parts in itertools.takewhile(_are_equal, zip(*cells, strict=False)))


def _refuse(path: str, why: str) -> NoReturn:
    """Raise a `ConvertError` about a layer, with advice."""
    way = f"layers=[{shorten(path)}], or -s layers={shorten(path)[1:-1]} on the command line"
    raise ConvertError("keras", shorten(path), f"{why}. Name one layer, or layers that follow each other: {way}")


def _are_equal(parts: tuple[str, ...]) -> bool:
    return len(set(parts)) == 1
