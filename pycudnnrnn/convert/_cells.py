"""The recurrent cells that a reader recognises among named arrays, and the stack that the caller means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pycudnnrnn._checks import shorten
from pycudnnrnn._tf1.tensors import AVERAGE
from pycudnnrnn.convert._named import Named, some
from pycudnnrnn.errors import ConvertError

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
    """A stack of cells, or a single cell, and the keywords of `to_canonical` that choose it."""

    keywords: dict[str, Any]
    num_arrays: int
    kind: str
    input_size: int
    num_units: int
    num_layers: int
    num_dirs: int
    dtype: str
    certain: bool = True
    """Whether the names are those of cells. Otherwise only the shapes are, and dense layers may have these."""

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.keywords.items())
        return f"{options} ({self.described()})"

    def option(self) -> str:
        """Return the keywords as the command line takes them."""
        values = {key: ",".join(value) if isinstance(value, list) else value for key, value in self.keywords.items()}
        return " -s ".join(f"{key}={value}" for key, value in values.items())

    def described(self) -> str:
        """Return the kind and the sizes in words."""
        several = f", {self.num_layers} layers" if self.num_layers > 1 else ""
        both = ", bidirectional" if self.num_dirs == 2 else ""
        perhaps = "" if self.certain else ", a cell by its shapes alone"
        return f"{self.kind} {self.input_size} -> {self.num_units}{several}{both}, {self.dtype}{perhaps}"


def stacks_of(
    cells: Iterable[Cell], prefix_of: Callable[[Cell], str], describe: Callable[[Cell], tuple[str, int, int, str]]
) -> list[Stack]:
    """Return the stacks that the cells form. `describe` gives the kind, the two sizes and the dtype of a cell."""
    by_scope: dict[str, list[Cell]] = {}
    for cell in cells:
        by_scope.setdefault(cell.stack, []).append(cell)
    stacks = []
    for own in by_scope.values():
        first = min(own, key=lambda cell: (cell.layer, cell.backward))
        kind, inputs, units, dtype = describe(first)
        sizes = inputs, units, 1 + max(cell.layer for cell in own), len({cell.backward for cell in own})
        count = sum(len(cell.keys) for cell in own)
        stacks.append(Stack({"prefix": prefix_of(first)}, count, kind, *sizes, dtype))
    return stacks


def choose(framework: str, cells: Sequence[Cell], prefix: str, layers: Any, stacks: Iterable[Stack]) -> Layers:
    """Return the cells that the caller means: those of a stack or a cell with this prefix, or the listed ones.

    Raises:
        ConvertError: there is none, or more than one stack; or the cells are not one stack.
    """
    if layers is not None and prefix:
        raise ConvertError(framework, "prefix", "`layers` takes whole scopes: leave out one of the two")
    if layers is not None:
        return listed_layers(framework, cells, layers, stacks)
    alone = [[[cell]] for cell in cells if cell.alone == prefix]
    own = [cell for cell in cells if prefix in cell.prefixes]
    if not alone and len({cell.stack for cell in own}) != 1:
        number = "more than one" if own else "no"
        why = f"there is {number} RNN under {prefix!r}" if prefix else "the RNN is a part of this model"
        raise unclear(framework, "prefix" if prefix else "arrays", why, stacks)
    return alone[0] if alone else in_layers(framework, own)


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
            there = f"of {num_layers * len(sides)} cells by their numbers, number {place[0]} is missing: give `layers`"
            raise ConvertError(framework, shorten(cells[0].scope), there)
    if sides == [True]:
        raise ConvertError(framework, shorten(cells[0].scope), "has only the backward direction")
    return [[places[layer, side] for side in sides] for layer in range(num_layers)]


def listed_layers(framework: str, cells: Sequence[Cell], layers: Any, stacks: Iterable[Stack]) -> Layers:
    """Return the layers that the caller lists: scopes of cells or of stacks, or pairs (forward, backward) of cells.

    Raises:
        ConvertError: not a list of names and pairs, no cell of a name, or layers of one and of two directions.
    """
    check_layers(framework, layers)
    by_name = {bare(cell.scope): [[cell]] for cell in cells}
    chosen: Layers = []
    for entry in layers:
        names = [bare(name) for name in ([entry] if isinstance(entry, str) else entry)]
        for name in names:
            own = [cell for cell in cells if bare(cell.stack) == name]
            if name not in by_name and own:
                by_name[name] = in_layers(framework, own)
            if name not in by_name:
                raise unclear(framework, f"layers: {shorten(name)}", "no recurrent cell has this scope", stacks)
        pair = [cell for name in names for row in by_name[name] for cell in row]
        if not isinstance(entry, str) and len(pair) != 2:
            raise ConvertError(framework, f"layers: {shorten(entry)}", "a pair takes two single cells")
        chosen += by_name[names[0]] if isinstance(entry, str) else [pair]
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
    right = all(isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(_is_name, pair)) for pair in pairs)
    if layers is not None and not (pairs and right):
        what = "a list of names, or of pairs (forward, backward) of names"
        raise ConvertError(framework, "layers", f"expecting {what}, got {shorten(layers)}")


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(bare(name))


def bare(scope: str) -> str:
    """Return a scope without the joint at its end."""
    return scope.rstrip("./")


def unclear(framework: str, what: str, why: str, stacks: Iterable[Stack]) -> ConvertError:
    """Return the error of a choice that the caller has to make. Its text lists what there is to choose."""
    listed = list(stacks)
    there = f"; choose one: {some([str(stack) for stack in listed], str)}" if listed else ""
    there += f"; -s {listed[0].option()} on the command line" if listed else ""
    there += ", or list the layers of one from the bottom: layers=[...]" if len(listed) > 1 else ""
    return ConvertError(framework, what, why + there, tuple(stack.keywords for stack in listed if stack.certain))


def nearest(named: Named) -> str:
    """Describe the keys that look most like those of an RNN, for the error when there is none."""
    near = [key for key in named if any(word in key.lower() for word in ("_hh", "recurrent", "lstm", "gru", "rnn"))]
    near = near or [key for key in named if "kernel" in key or "weight" in key] or list(named)
    keras = named.framework != "keras" and any("recurrent_kernel" in key for key in near)
    hint = "; these are Keras's names, which convert.keras reads (--from keras on the command line)" if keras else ""
    hint += "; ema=True reads averages" if any(key.endswith(AVERAGE) for key in near) else ""
    return (
        f"no recurrent cell among {len(list(named))} arrays; the nearest names are {some(sorted(near), shorten)}{hint}"
    )
