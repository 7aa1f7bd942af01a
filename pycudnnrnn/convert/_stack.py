"""Models that are stacks of cells under the user's names: which keys form one cell, and the place of that cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert._cells import check_layers
from pycudnnrnn.convert._named import Named, flag, some
from pycudnnrnn.errors import ConvertError

_WORD: Final = re.compile(r"(^|/)(forward|backward|fw|bw)(?=$|[/_])")
_OWN_NUMBER: Final = re.compile(r"/(?:lstm|gru|simple_rnn)_cell(?:_[0-9]+)?$")
"""The end of a cell's path in Keras: cells are counted, so that the two directions of a layer have two numbers."""

_NUMBER: Final = re.compile(r"[0-9]+")
_INNER: Final = re.compile(r"(?:(?:^|/)(?:(?:forward|backward|fw|bw)(?:_[^/]*)?|[^/]*cell(?:_[0-9]+)?))+$")
"""The end of a cell's path, inside its layer."""


class CellKeys(NamedTuple):
    """The keys of one cell, by the array that they hold."""

    path: str
    keys: dict[str, str]

    def key(self, leaf: str) -> str:
        """Return the key of an array of the cell, also if it is missing."""
        return self.keys.get(leaf, f"{self.path}/{leaf}".lstrip("/"))


def find_cells(
    named: Named, leaf_of: Callable[[str], tuple[str, str] | None], layers: Any, bidirectional: Any
) -> tuple[list[CellKeys], int]:
    """Return the cells of the model, pseudo-layer by pseudo-layer, and the number of directions.

    `leaf_of` splits a key into its cell's path and the name of the array. A path may contain the direction
    ("forward_lstm", "backward_rnn"); `bidirectional=True` pairs cells whose paths do not. `layers` lists the layers in
    order, and leaves the rest of the model out. Without it every key counts, and the numbers in the names order the
    layers.

    Raises:
        ConvertError: no cell, a missing direction or layer, or names that do not give the order of the layers.
    """
    if bidirectional is not None:
        bidirectional = flag(named.framework, "bidirectional", bidirectional)
    check_layers(named.framework, layers)
    found = group_cells(named, leaf_of)
    if not found:
        raise ConvertError(named.framework, "arrays", f"no recurrent cell among {shorten(sorted(named))}")
    if layers is not None:
        pairs = [entry for entry in layers if not isinstance(entry, str)]
        names = [name for entry in layers for name in ([entry] if isinstance(entry, str) else entry)]
        for name in names:
            if not any(is_under(cell.path, name) for cell in found):
                there = some(layer_names([cell.path for cell in found]), shorten)
                why = f"no recurrent cell is under this name; the names here are {there}"
                raise ConvertError(named.framework, f"layers: {shorten(name)}", why)
        found = [cell for cell in found if any(is_under(cell.path, name) for name in names)]
        named.keep_only(lambda key: any(is_under(key, name) for name in names))
        if pairs:
            ordered = [cell for name in names for cell in found if is_under(cell.path, name)]
            if len(pairs) != len(layers) or len(ordered) != 2 * len(layers):
                why = f"expecting pairs of single cells alone, got {shorten(layers)}"
                raise ConvertError(named.framework, "layers", why)
            return ordered, 2
    elif names := [name for name in layer_names([cell.path for cell in found]) if name]:
        named.advice = "; without `layers`, all arrays are read as one stack: choose from "
        named.advice += f"{some(names, shorten)} with layers=[...], or -s layers=... on the command line"
    if bidirectional and not any(_WORD.search(cell.path) for cell in found):
        ordered = _in_order(named.framework, {cell.path: cell for cell in found}, layers)
        if len(ordered) % 2:
            raise ConvertError(named.framework, "bidirectional", f"{len(ordered)} cells do not make pairs")
        return ordered, 2
    return _by_direction(named.framework, found, layers, bidirectional)


def group_cells(named: Named, leaf_of: Callable[[str], tuple[str, str] | None]) -> list[CellKeys]:
    """Return the keys of every cell, by the path and the array that `leaf_of` finds in each key.

    Raises:
        ConvertError: two keys of one array.
    """
    cells: dict[str, dict[str, str]] = {}
    for key in named:
        leaf = leaf_of(key)
        if leaf is None:
            continue
        held = cells.setdefault(leaf[0], {})
        if leaf[1] in held:
            named.refuse(key, f"holds the same as {held[leaf[1]]!r}")
        held[leaf[1]] = key
    return [CellKeys(path, keys) for path, keys in cells.items()]


def path_of(layer: int, direction: int, num_layers: int, num_dirs: int) -> str:
    """Return the path of a cell, with a slash at the end, for a framework that does not name stacks."""
    way = f"{('forward', 'backward')[direction]}/" if num_dirs == 2 else ""
    return (f"{layer}/" if num_layers > 1 else "") + way


def named_layers(framework: str, layers: Sequence[str] | None, usual: list[str]) -> list[str]:
    """Return the names of the layers to write: the given or the usual ones.

    Raises:
        ConvertError: not one name per layer, or a name twice.
    """
    if layers is None:
        return usual
    names = list(layers) if isinstance(layers, (list, tuple)) else []
    if len(set(names)) != len(usual) or len(names) != len(usual) or not all(isinstance(n, str) for n in names):
        raise ConvertError(framework, "layers", f"expecting {len(usual)} different names, got {shorten(layers)}")
    return names


def _by_direction(
    framework: str, cells: list[CellKeys], layers: Sequence[str] | None, bidirectional: Any
) -> tuple[list[CellKeys], int]:
    pairs: dict[str, dict[bool, CellKeys]] = {}
    for cell in cells:
        words = _WORD.findall(cell.path)
        backward = any(word in {"backward", "bw"} for _, word in words)
        place = _OWN_NUMBER.sub("", _WORD.sub(r"\1", cell.path)) if words else cell.path
        pair = pairs.setdefault(place, {})
        if backward in pair:
            raise ConvertError(framework, shorten(cell.path), f"stands where {pair[backward].path!r} stands")
        pair[backward] = cell
    both = any(_WORD.search(cell.path) for cell in cells)
    if bidirectional is False and both:
        raise ConvertError(framework, "bidirectional", "is False, and the names say forward and backward")
    if both:
        for place, pair in pairs.items():
            if len(pair) != 2:
                there = next(iter(pair.values())).path
                why = f"has only one direction, {there!r}: add the other, or give `layers` without it"
                raise ConvertError(framework, shorten(place), why)
    ordered = _in_order(framework, {pair[min(pair)].path: pair for pair in pairs.values()}, layers)
    return [pair[key] for pair in ordered for key in sorted(pair)], 1 + both


def _in_order(framework: str, places: dict[str, Any], layers: Sequence[str] | None) -> list[Any]:
    """Sort by `layers`, or by the numbers in the paths if the paths differ only in numbers."""
    if layers is not None:
        ordered = []
        left = dict(places)
        for name in layers:
            mine = [path for path in left if is_under(path, name)]
            if not mine:
                raise ConvertError(framework, f"layers: {shorten(name)}", "its cells are under a name before it, too")
            numbered = {path: left.pop(path) for path in mine}
            ordered += _in_order(framework, numbered, None)
        return ordered
    if len({re.sub(r"_?[0-9]+", "", path) for path in places}) > 1:
        names = ", ".join(shorten(path) for path in sorted(places)[:8])
        raise ConvertError(framework, names, "the names do not say the order of these layers: give `layers`")
    return [places[path] for path in sorted(places, key=_natural)]


def _natural(path: str) -> list[Any]:
    """Return a sort key: lstm before lstm_1, lstm_2 before lstm_10."""
    return [[int(n[:18]) for n in _NUMBER.findall(part)] for part in path.split("/")]


def layer_names(paths: list[str]) -> list[str]:
    """Return the names that `layers` may use: the ends of the layers' paths, or whole paths if ends are equal."""
    whole = list(dict.fromkeys(_INNER.sub("", path) for path in paths))
    ends = [re.search(r"[^/]*(?:/[0-9]+)?$", path)[0] for path in whole]  # type: ignore[index]  # matches anything
    return ends if len(set(ends)) == len(ends) else whole


def is_under(path: str, name: str) -> bool:
    """Return whether a path contains a name, which may have several parts."""
    return f"/{name.strip('/')}/" in f"/{path}/"
