"""The recurrent cells that a reader recognises among named arrays, and the stack that the caller means.

Frameworks whose names say what a stack is have `Cell`s, of which `choose` takes one stack. In Flax, Equinox and Keras
any names may surround a cell (`CellKeys`), and `find_cells` orders them by the numbers in these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pycudnnrnn._checks import shorten, some
from pycudnnrnn._messages import Assumption, warn
from pycudnnrnn._tf1.tensors import AVERAGE
from pycudnnrnn.convert.named import Named, completed, flag
from pycudnnrnn.errors import ConvertError

_WORD: Final = re.compile(r"(^|/)(forward|backward|fw|bw)(?=$|[/_])")
_OWN_NUMBER: Final = re.compile(r"/(?:lstm|gru|simple_rnn)_cell(?:_[0-9]+)?$")
"""The end of a cell's path in Keras: cells are counted, so that the two directions of a layer have two numbers."""

_INNER: Final = re.compile(r"(?:(?:^|/)(?:(?:forward|backward|fw|bw)(?:_[^/]*)?|[^/]*cell(?:_[0-9]+)?))+$")
"""The end of a cell's path, inside its layer."""


Layers = list[list["Cell"]]
"""The cells of a stack: for each layer the forward cell, and the backward one if there are two directions."""


class Cell(NamedTuple):
    """A recurrent cell: the keys of its arrays by the framework's own names, and its place as its name shows it.

    - `scope`: what `layers` calls it.
    - `stack`: the scope of the stack to which its name assigns it.
    - `prefixes`: what `prefix` may be for that stack; `alone`: what it is for this cell alone, if it may be that.
    """

    scope: str
    keys: dict[str, str]
    stack: str
    layer: int
    backward: bool
    prefixes: tuple[str, ...]
    alone: str | None


class Stack(NamedTuple):
    """A stack of cells, or a single cell: the keywords of `to_canonical` that choose it, and the number of its arrays.

    `certain`: the names are those of cells. Otherwise only the shapes are, and dense layers may have these.
    """

    keywords: dict[str, Any]
    num_arrays: int
    certain: bool = True

    def __str__(self) -> str:
        keywords = ", ".join(f"{key}={value!r}" for key, value in self.keywords.items())
        return keywords if self.certain else f"{keywords} (a cell by its shapes alone)"

    def option(self) -> str:
        """Return the keywords as the command line takes them."""
        values = {key: ",".join(value) if isinstance(value, list) else value for key, value in self.keywords.items()}
        return " ".join(f"-s {key}={value}" for key, value in values.items())


STACKS: Final[dict[str, Callable[[Any], list[Stack]]]] = {}
"""What finds the stacks among named arrays, or in a model of ONNX, by framework: each reader adds its own."""


def stacks_of(cells: Iterable[Cell], prefix_of: Callable[[Cell], str] = lambda cell: cell.stack) -> list[Stack]:
    """Return the stacks that the cells form."""
    by_scope: dict[str, list[Cell]] = {}
    for cell in cells:
        by_scope.setdefault(cell.stack, []).append(cell)
    counts = {prefix_of(group[0]): sum(len(cell.keys) for cell in group) for group in by_scope.values()}
    return [Stack({"prefix": prefix}, count) for prefix, count in counts.items()]


def grouped(named: Named, split: Callable[[str], tuple[Any, str] | None]) -> dict[Any, dict[str, str]]:
    """Return the keys of each cell by its place and then by the array. `split` finds both in a key.

    Raises:
        ConvertError: two keys of one array.
    """
    cells: dict[Any, dict[str, str]] = {}
    for key in named:
        if (parts := split(key)) is not None:
            keys = cells.setdefault(parts[0], {})
            if parts[1] in keys:
                named.refuse(key, f"holds the same as {keys[parts[1]]!r}")
            keys[parts[1]] = key
    return cells


def choose_under(named: Named, cells: Sequence[Cell], prefix: str, joint: str, layers: Any = None) -> Layers:
    """Return the cells that the caller means, and leave out the keys of other parts of the model.

    Raises:
        ConvertError: there is none, or more than one stack; or the cells are not one stack.
    """
    if not cells:
        raise ConvertError(named.framework, "arrays", nearest(named))
    prefix = completed(named.framework, prefix, joint)
    chosen = choose(named.framework, cells, prefix, layers, stacks_of(cells))
    keys = {key for row in chosen for cell in row for key in cell.keys.values()}
    named.keep_only(lambda key: key in keys or (layers is None and key.startswith(prefix)))
    return chosen


def choose(framework: str, cells: Sequence[Cell], prefix: str, layers: Any, stacks: Iterable[Stack]) -> Layers:
    """Return the cells of the stack or the cell with this prefix, or the listed ones.

    Raises:
        ConvertError: there is none, or more than one stack; or the cells are not one stack.
    """
    if layers is not None and prefix:
        raise ConvertError(framework, "prefix", "`layers` takes whole scopes: leave out one of the two")
    if layers is not None:
        return listed_layers(framework, cells, layers, stacks)
    alone = [[[cell]] for cell in cells if cell.alone == prefix]
    stack = [cell for cell in cells if prefix in cell.prefixes]
    if not alone and len({cell.stack for cell in stack}) != 1:
        number = "more than one" if stack else "no"
        why = f"there is {number} RNN under {prefix!r}" if prefix else "the RNN is a part of this model"
        raise unclear(framework, "prefix" if prefix else "arrays", why, stacks)
    return alone[0] if alone else in_layers(framework, stack)


def in_layers(framework: str, cells: Sequence[Cell]) -> Layers:
    """Order the cells of one stack by the numbers and directions in their names.

    Raises:
        ConvertError: a layer or a direction is missing, or there twice.
    """
    places = {(cell.layer, cell.backward): cell for cell in cells}
    if len(places) != len(cells):
        names = some([cell.scope for cell in cells], repr)
        raise ConvertError(framework, names, "the names do not contain the order of these layers: give `layers`")
    num_layers, sides = 1 + max(cell.layer for cell in cells), sorted({cell.backward for cell in cells})
    for place in ((layer, side) for layer in range(num_layers) for side in sides):
        if place not in places:
            why = f"of {num_layers * len(sides)} cells by their numbers, number {place[0]} is missing: give `layers`"
            raise ConvertError(framework, shorten(cells[0].scope), why)
    if sides == [True]:
        raise ConvertError(framework, shorten(cells[0].scope), "has only the backward direction")
    return [[places[layer, side] for side in sides] for layer in range(num_layers)]


def listed_layers(framework: str, cells: Sequence[Cell], layers: Any, stacks: Iterable[Stack]) -> Layers:
    """Return the layers that the caller lists: scopes of cells or of stacks, or pairs (forward, backward) of cells.

    Raises:
        ConvertError: not a list of names and pairs, no cell of a name, or layers of one and of two directions.
    """
    check_layers(framework, layers)

    def under(name: str) -> Layers:
        cell = [[[cell]] for cell in cells if bare(cell.scope) == bare(name)]
        stack = [cell for cell in cells if bare(cell.stack) == bare(name)]
        if not cell and not stack:
            raise unclear(framework, f"layers: {shorten(bare(name))}", "no recurrent cell has this scope", stacks)
        return cell[-1] if cell else in_layers(framework, stack)

    chosen: Layers = []
    for entry in layers:
        rows = [row for name in ([entry] if isinstance(entry, str) else entry) for row in under(name)]
        if not isinstance(entry, str) and [len(row) for row in rows] != [1, 1]:
            raise ConvertError(framework, f"layers: {shorten(entry)}", "a pair takes two single cells")
        chosen += rows if isinstance(entry, str) else [rows[0] + rows[1]]
    if len({len(row) for row in chosen}) > 1:
        why = f"layers of one and of two directions do not make one stack: {shorten(layers)}"
        raise ConvertError(framework, "layers", why)
    scopes = [cell.scope for row in chosen for cell in row]
    if len(set(scopes)) != len(scopes):
        raise ConvertError(framework, "layers", f"a cell is listed twice: {shorten(layers)}")
    return chosen


def check_layers(framework: str, layers: Any) -> None:
    """Check that this is a list of names, or of pairs of names, or None.

    Raises:
        ConvertError: it is not.
    """
    entries = layers if isinstance(layers, (list, tuple)) else ()
    pairs = [[entry] * 2 if isinstance(entry, str) else entry for entry in entries]
    are_two = all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs)
    right = pairs and are_two and all(isinstance(name, str) and bare(name) for pair in pairs for name in pair)
    if layers is not None and not right:
        what = "a list of names, or of pairs (forward, backward) of names"
        raise ConvertError(framework, "layers", f"expecting {what}, got {shorten(layers)}")


def bare(scope: str) -> str:
    """Return a scope without the joint at its end."""
    return scope.rstrip("./")


def unclear(framework: str, what: str, why: str, stacks: Iterable[Stack]) -> ConvertError:
    """Return the error of a choice that the caller has to make. Its text lists what there is to choose."""
    listed = list(stacks)
    if listed:
        why += f"; choose one: {some(list(map(str, listed)), str)}"
        why += f"; {listed[0].option()} on the command line, where inspect describes each"
    if len(listed) > 1 and framework in {"pytorch", "tensorflow"}:
        why += ", or list the layers of one from the bottom: layers=[...]"
    return ConvertError(framework, what, why, tuple(stack.keywords for stack in listed if stack.certain))


def nearest(named: Named) -> str:
    """Describe the keys that look most like those of an RNN, for the error when there is none."""
    near = [key for key in named if any(word in key.lower() for word in ("_hh", "recurrent", "lstm", "gru", "rnn"))]
    near = near or [key for key in named if "kernel" in key or "weight" in key] or list(named)
    keras = named.framework != "keras" and any("recurrent_kernel" in key for key in near)
    hint = "; these are Keras's names, which convert.keras reads (--from keras on the command line)" if keras else ""
    if any(re.fullmatch(r"variables/[0-9]+/\.ATTRIBUTES/VARIABLE_VALUE", key) for key in named):
        hint += "; a SavedModel has numbers for names: convert.keras reads {v.name: v.numpy() for v in "
        hint += "tensorflow.saved_model.load(folder).variables}, or an .npz of it (--from keras on the command line)"
    hint += "; ema=True reads averages" if any(key.endswith(AVERAGE) for key in near) else ""
    names = some(sorted(near), shorten)
    return f"no recurrent cell among {len(list(named))} arrays; the nearest names are {names}{hint}"


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
    cells = group_cells(named, leaf_of)
    if not cells:
        raise ConvertError(named.framework, "arrays", f"no recurrent cell among {shorten(sorted(named))}")
    names = layer_names([cell.path for cell in cells])
    both = any(_WORD.search(cell.path) for cell in cells)
    if both and bidirectional is False:
        raise ConvertError(named.framework, "bidirectional", "is False, and the names say forward and backward")
    if layers is None:
        rows = _in_order(named.framework, cells)
        if any(names):
            named.advice = "; without `layers`, all arrays are read as one stack: choose from "
            named.advice += f"{some(names, shorten)} with layers=[...], or -s layers=... on the command line"
    else:
        rows = [row for entry in layers for row in _listed(named.framework, cells, names, entry)]
        paths = {cell.path for row in rows for cell in row}
        if len(paths) != sum(map(len, rows)):
            raise ConvertError(named.framework, "layers", f"a cell is under two of these names: {shorten(layers)}")
        chosen = [name for entry in layers for name in ([entry] if isinstance(entry, str) else entry)]
        named.keep_only(lambda key: any(is_under(key, name) for name in chosen))
    if bidirectional is None and layers is None and named.framework != "keras":  # whose reader says what it assumes
        warn_of_twins(named, [row[0] for row in rows if len(row) == 1])
    if bidirectional and not both:
        if len(rows) % 2:
            raise ConvertError(named.framework, "bidirectional", f"{len(rows)} cells do not make pairs")
        rows = [rows[k] + rows[k + 1] for k in range(0, len(rows), 2)]
    two = any(len(row) == 2 or _WORD.search(row[0].path) for row in rows)
    if two and any(len(row) == 1 for row in rows):
        single = next(row[0].path for row in rows if len(row) == 1)
        why = "has only one direction: add the other, or give `layers` without it"
        raise ConvertError(named.framework, shorten(single), why)
    return [cell for row in rows for cell in row], len(rows[0])


def warn_of_twins(named: Named, cells: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Warn of two cells with the same shapes, given by path and keys: they may be one layer's directions."""
    shapes = [sorted((part, named.shape_of(key)) for part, key in keys.items()) for _, keys in cells]
    if len(shapes) == 2 and shapes[0] == shapes[1] and not all("layer" in path for path, _ in cells):
        names = " and ".join(shorten(path) for path, _ in cells)
        warn(f"{names} are read as two layers: if they are two directions, give bidirectional=True", Assumption)


def _listed(framework: str, cells: list[CellKeys], names: list[str], entry: Any) -> list[list[CellKeys]]:
    """Return the layers under a name of `layers`, or the one of a pair of names."""
    paths = [cell.path for cell in cells]
    chosen = [paths_under(framework, paths, n, names) for n in ([entry] if isinstance(entry, str) else entry)]
    under = [[cell for cell in cells if cell.path in each] for each in chosen]
    if isinstance(entry, str):
        return _in_order(framework, under[0])
    if [len(each) for each in under] != [1, 1]:
        raise ConvertError(framework, f"layers: {shorten(entry)}", "a pair takes two single cells")
    return [[forward, backward] for forward, backward in zip(*under, strict=True)]


def _in_order(framework: str, cells: list[CellKeys]) -> list[list[CellKeys]]:
    """Return the layers in the order of the numbers in the paths, which differ only in these and in directions."""
    places: dict[str, dict[bool, CellKeys]] = {}
    for cell in cells:
        words = _WORD.findall(cell.path)
        backward = any(word in {"backward", "bw"} for _, word in words)
        place = _OWN_NUMBER.sub("", _WORD.sub(r"\1", cell.path)) if words else cell.path
        pair = places.setdefault(place, {})
        if backward in pair:
            raise ConvertError(framework, shorten(cell.path), f"stands where {pair[backward].path!r} stands")
        pair[backward] = cell
    if len({re.sub(r"_?[0-9]+", "", place) for place in places}) > 1:
        listed = ", ".join(shorten(place) for place in sorted(places)[:8])
        raise ConvertError(framework, listed, "the names do not say the order of these layers: give `layers`")
    ordered = sorted(
        places, key=lambda place: [[int(n[:18]) for n in re.findall("[0-9]+", part)] for part in place.split("/")]
    )
    return [[pair for _, pair in sorted(places[place].items())] for place in ordered]


def group_cells(named: Named, leaf_of: Callable[[str], tuple[str, str] | None]) -> list[CellKeys]:
    """Return the keys of every cell, by the path and the array that `leaf_of` finds in each key."""
    return [CellKeys(path, keys) for path, keys in grouped(named, leaf_of).items()]


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


def layer_names(paths: list[str]) -> list[str]:
    """Return the names that `layers` may use: the ends of the layers' paths, or whole paths if ends are equal."""
    whole = list(dict.fromkeys(_INNER.sub("", path) for path in paths))
    ends = [re.search(r"[^/]*(?:/[0-9]+)?$", path)[0] for path in whole]  # type: ignore[index]  # matches anything
    return ends if len(set(ends)) == len(ends) else whole


def paths_under(framework: str, paths: Collection[str], name: str, shown: list[str]) -> list[str]:
    """Return the paths that a name in `layers` means: this path, or all that contain it.

    Raises:
        ConvertError: there are none; `shown` are the names to choose from.
    """
    under = [name] if name in paths else [path for path in paths if is_under(path, name)]
    if not under:
        why = f"no recurrent cell is under this name; the names here are {some(shown, shorten)}"
        raise ConvertError(framework, f"layers: {shorten(name)}", why)
    return under


def is_under(path: str, name: str) -> bool:
    """Return whether a path contains a name, which may have several parts."""
    return f"/{name.strip('/')}/" in f"/{path}/"
