"""The recurrent cells that a reader recognises among named arrays, and the stack that the caller means.

Frameworks whose names say what a stack is have cells with a stack, of which `choose` takes one. In Flax, Equinox and
Keras any names may surround a cell, and `layers_by_path` orders them by the numbers in these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pycudnnrnn._checks import Assumption, shorten, some, warn
from pycudnnrnn._tf1.tensors import AVERAGE
from pycudnnrnn.convert.named import Named, completed, flag
from pycudnnrnn.errors import ConvertError

_WORD: Final = re.compile(r"(^|/)(forward|backward|fw|bw)(?=$|[/_])")
_CELL_NUMBER: Final = re.compile(r"/(?:lstm|gru|simple_rnn)_cell(?:_[0-9]+)?$")
"""The end of a cell's path in Keras: cells are counted, so that the two directions of a layer have two numbers."""

_INNER: Final = re.compile(r"(?:(?:^|/)(?:(?:forward|backward|fw|bw)(?:_[^/]*)?|[^/]*cell(?:_[0-9]+)?))+$")
"""The end of a cell's path, inside its layer."""

_ONE_WAY: Final = "is one direction of a layer by its name: add the other, or take the direction out of its name"


class Cell(NamedTuple):
    """A recurrent cell: the keys of its arrays by the framework's own names, and its place as its name shows it.

    - `scope`: what `layers` calls it.
    - `stack`: the scope of the stack to which its name assigns it.
    - `prefixes`: what `prefix` may be for that stack; `alone`: what it is for this cell alone, if it may be that.
    """

    scope: str
    keys: dict[str, str]
    stack: str = ""
    layer: int = 0
    backward: bool = False
    prefixes: tuple[str, ...] = ()
    alone: str | None = None

    def key(self, part: str) -> str:
        """Return the key of an array of the cell, also if it is missing."""
        other, key = next(iter(self.keys.items()))
        above, name, place = key.rpartition(other)
        missing = f"{above}{part}{place}" if name else f"{self.scope}/{part}".lstrip("/")
        return self.keys.get(part, missing)


Layers = list[list[Cell]]
"""The cells of a stack: for each layer the forward cell, and the backward one if there are two directions."""


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
    prefix = completed(named.framework, prefix, joint)
    chosen = choose(named, cells, prefix, layers, stacks_of(cells))
    keys = {key for row in chosen for cell in row for key in cell.keys.values()}
    named.keep_only(lambda key: key in keys or (layers is None and key.startswith(prefix)))
    return chosen


def choose(named: Named, cells: Sequence[Cell], prefix: str, layers: Any, stacks: Iterable[Stack]) -> Layers:
    """Return the cells of the stack or the cell with this prefix, or the listed ones.

    Raises:
        ConvertError: there is none, or more than one stack; or the cells are not one stack.
    """
    framework = named.framework
    if not cells:
        raise ConvertError(framework, "arrays", nearest(named))
    if layers is not None and prefix:
        raise ConvertError(framework, "prefix", "`layers` takes whole scopes: leave out one of the two")
    if layers is not None:
        return listed_layers(framework, cells, layers, [bare(cell.scope) for cell in cells])
    alone = [[[cell]] for cell in cells if cell.alone == prefix]
    stack = [cell for cell in cells if prefix in cell.prefixes]
    if not alone and len({cell.stack for cell in stack}) != 1:
        number = "more than one" if stack else "no"
        why = f"there is {number} RNN under {prefix!r}" if prefix else "the RNN is a part of this model"
        listed = list(stacks)
        if listed:
            why += f"; choose one: {some(list(map(str, listed)), str)}"
            why += f"; {listed[0].option()} on the command line, where inspect describes each"
        if len(listed) > 1 and framework in {"pytorch", "tensorflow"}:
            why += ", or list the layers of one from the bottom: layers=[...]"
        choices = tuple(stack.keywords for stack in listed if stack.certain)
        raise ConvertError(framework, "prefix" if prefix else "arrays", why, choices)
    return alone[0] if alone else in_layers(framework, stack)


def in_layers(framework: str, cells: Sequence[Cell]) -> Layers:
    """Order the cells of one stack by their layers and directions.

    Raises:
        ConvertError: a layer or a direction is missing, or there twice.
    """
    places = {(cell.layer, cell.backward): cell for cell in cells}
    if len(places) != len(cells):
        names = some([cell.scope for cell in cells], shorten)
        raise ConvertError(framework, names, "the names do not contain the order of these layers: give `layers`")
    num_layers, sides = 1 + max(cell.layer for cell in cells), sorted({cell.backward for cell in cells})
    for layer, side in ((layer, side) for layer in range(num_layers) for side in sides):
        if (layer, side) not in places:
            way = "backward" if side else "forward"
            why = f"by the numbers in the names, the {way} cell of layer {layer} is missing: give `layers`"
            raise ConvertError(framework, shorten(cells[0].scope), why)
    if sides == [True]:
        raise ConvertError(framework, shorten(cells[0].scope), _ONE_WAY)
    return [[places[layer, side] for side in sides] for layer in range(num_layers)]


def listed_layers(
    framework: str, cells: Sequence[Cell], layers: Any, names: list[str], order: Callable[..., Layers] = in_layers
) -> Layers:
    """Return the layers that the caller lists: names of cells or of stacks, or pairs (forward, backward) of cells.

    `names` are those to choose from. `order` orders the cells of one name.

    Raises:
        ConvertError: not a list of names and pairs, no cell of a name, or layers of one and of two directions.
    """
    check_layers(framework, layers)
    by_scope = {cell.scope: cell for cell in cells}
    rows: Layers = []
    for entry in layers:
        pair = [entry] if isinstance(entry, str) else entry
        each = [[by_scope[scope] for scope in under(framework, by_scope, name, names)] for name in pair]
        if len(pair) == 2 and [len(group) for group in each] != [1, 1]:
            raise ConvertError(framework, f"layers: {shorten(entry)}", "a pair takes two single cells")
        are_cells = len(pair) == 2 or _parts(entry) == _parts(each[0][0].scope)
        rows += [[cell for (cell,) in each]] if are_cells else order(framework, each[0])
    if len({len(row) for row in rows}) > 1:
        why = f"layers of one and of two directions do not make one stack: {shorten(layers)}"
        raise ConvertError(framework, "layers", why)
    scopes = [cell.scope for row in rows for cell in row]
    if len(set(scopes)) != len(scopes):
        raise ConvertError(framework, "layers", f"a cell is listed twice: {shorten(layers)}")
    return rows


def under(framework: str, scopes: Collection[str], name: str, names: list[str]) -> list[str]:
    """Return the scopes that a name in `layers` means: this one, or those that begin with it, or that contain it.

    Raises:
        ConvertError: there are none; `names` are those to choose from.
    """
    part = _parts(name)
    for fits in (str.__eq__, str.startswith, str.__contains__):
        if meant := [scope for scope in scopes if fits(_parts(scope), part)]:
            return meant
    why = f"no recurrent cell is under this name; the names here are {some(names, shorten)}"
    raise ConvertError(framework, f"layers: {shorten(name)}", why)


def is_under(scope: str, name: str) -> bool:
    """Return whether a scope contains a name, which may have several parts."""
    return _parts(name) in _parts(scope)


def _parts(scope: str) -> str:
    return f"/{bare(scope).replace('.', '/').lstrip('/')}/"


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


def layers_by_path(named: Named, cells: Sequence[Cell], layers: Any, bidirectional: Any = None) -> Layers:
    """Return the layers of the model, from cells whose scopes are paths.

    A path may contain the direction ("forward_lstm", "backward_rnn"); `bidirectional=True` pairs cells whose paths do
    not. `layers` lists the layers in order, and leaves the rest of the model out. Without it every key counts, and the
    numbers in the names order the layers.

    Raises:
        ConvertError: no cell, a missing direction or layer, or names that do not give the order of the layers.
    """
    framework = named.framework
    if bidirectional is not None:
        bidirectional = flag(framework, "bidirectional", bidirectional)
    if not cells:
        raise ConvertError(framework, "arrays", nearest(named))
    names = layer_names(cells)
    both = any(_WORD.search(cell.scope) for cell in cells)
    if both and bidirectional is False:
        raise ConvertError(framework, "bidirectional", "is False, and the names say forward and backward")
    if layers is not None:
        rows = listed_layers(framework, cells, layers, names, _by_number)
        keys = {key for row in rows for cell in row for key in cell.keys.values()}
        named.keep_only(keys.__contains__)
    else:
        rows = _by_number(framework, cells)
        if any(names):
            named.advice = "; without `layers`, all arrays are read as one stack: choose from "
            named.advice += f"{some(names, shorten)} with layers=[...], or -s layers=... on the command line"
        certain = len(rows) == 1 or all("layer" in row[0].scope for row in rows)
        if bidirectional is None and not certain and framework != "keras":  # whose reader says what it assumes
            warn_of_order(named, rows)
    if bidirectional and not both:
        if len(rows) % 2:
            raise ConvertError(framework, "bidirectional", f"{len(rows)} cells do not make pairs")
        rows = [rows[k] + rows[k + 1] for k in range(0, len(rows), 2)]
    for row in rows:
        if len(row) == 1 and _WORD.search(row[0].scope):
            raise ConvertError(framework, shorten(row[0].scope), _ONE_WAY)
    return rows


def _by_number(framework: str, cells: Sequence[Cell]) -> Layers:
    """Return the layers in the order of the numbers in the paths, which differ only in these and in directions."""
    places: list[tuple[str, bool]] = []
    for cell in cells:
        words = {word for _, word in _WORD.findall(cell.scope)}
        place = _CELL_NUMBER.sub("", _WORD.sub(r"\1", cell.scope)) if words else cell.scope
        places.append((place, not words.isdisjoint({"backward", "bw"})))
    order = list(dict.fromkeys(place for place, _ in places))
    if len({re.sub(r"_?[0-9]+", "", place) for place in order}) > 1:
        names = some(sorted(order), shorten)
        raise ConvertError(framework, names, "the names do not contain the order of these layers: give `layers`")
    order.sort(key=lambda place: [[int(n[:18]) for n in re.findall("[0-9]+", part)] for part in place.split("/")])
    pairs = zip(cells, places, strict=True)
    return in_layers(framework, [cell._replace(layer=order.index(p), backward=back) for cell, (p, back) in pairs])


def warn_of_order(named: Named, rows: Layers, *, certain: bool = False) -> None:
    """Warn of cells that are read as one stack by the numbers in their names; two equal ones may be two directions.

    `certain`: the numbers are those of a stack, and only equal cells are unclear.
    """
    shapes = [sorted((part, named.shape_of(key)) for cell in row for part, key in cell.keys.items()) for row in rows]
    twins = [len(row) for row in rows] == [1, 1] and shapes[0] == shapes[1]
    if twins or not certain:
        names = some([row[0].scope for row in rows], shorten)
        hint = "; if they are two directions, give bidirectional=True" if twins else ""
        warn(f"read as one stack, in the order of their numbers: {names}{hint}", Assumption)


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


def layer_names(cells: Iterable[Cell]) -> list[str]:
    """Return the names that `layers` may use: the ends of the layers' paths, or whole paths if ends are equal."""
    whole = list(dict.fromkeys(_INNER.sub("", cell.scope) for cell in cells))
    ends = [re.search(r"[^/]*(?:/[0-9]+)?$", path)[0] for path in whole]  # type: ignore[index]  # matches anything
    return ends if len(set(ends)) == len(ends) else whole
