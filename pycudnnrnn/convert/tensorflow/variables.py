"""The cells among TensorFlow's variables: their RNN, found by names and shapes, and their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn._tf1.tensors import (
    AVERAGE,
    MODES,
    STACKED_GATES,
    cell_scope,
    cell_tensors,
    find_cells,
    is_below,
    names_of,
    tf_tensors,
)
from pycudnnrnn._tf1.tensors import Cell as TFCell
from pycudnnrnn.convert._cells import Cell, Layers, Stack, choose, nearest, stacks_of
from pycudnnrnn.convert._named import Named, completed, plain_mode
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode, RNNSpec

_PEEPHOLES = frozenset({"w_f_diag", "w_i_diag", "w_o_diag", "wci", "wcf", "wco"})


class Tensors(NamedTuple):
    """The cells' tensors by the names that we write, and the names that were left out."""

    spec: RNNSpec
    cell: str
    tensors: dict[str, Array]
    aside: str


def read(
    arrays: Any, prefix: str, layers: Sequence[str | tuple[str, str]] | None, activation: str | None, *, ema: bool
) -> Tensors:
    """Take the cells under a scope, or the listed ones. `BasicRNNCell` needs `activation`.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, another activation, or another cell.
    """
    if activation is not None:
        plain_mode("tensorflow", activation)
    named = Named("tensorflow", arrays)
    by_scope = _cells_in(named, ema=ema)
    prefix = completed("tensorflow", prefix, "/")
    chosen = _chosen(named, by_scope, prefix, layers)
    cells = [by_scope[cell.scope] for row in chosen for cell in row]
    spec = _spec_of(named, cells, len(chosen[0]), activation)
    names: dict[str, str] = {}
    for p, cell in enumerate(cells):
        tensors = list(cell_tensors(spec, p // spec.num_dirs))
        paired = any(name in cell.names for t in tensors if t.kind == "pair" for name in names_of(t.name))
        for t in tensors:
            own = next((cell.names[n] for n in names_of(t.name) if n in cell.names), cell.scope + t.name)
            names |= {cell_scope(spec, p) + t.name: own} if t.kind != "pair" or paired else {}
    shapes = {t.name: t.shape for t in tf_tensors(spec)}
    taken = {name: named.take(key, *shapes[name]) for name, key in names.items()}
    scopes = tuple(cell.scope for cell in cells)
    named.leave_out(lambda key: not key.startswith(prefix if layers is None else scopes))
    keys = {key.removesuffix(AVERAGE) for key in names.values()}
    aside = named.leave_out(lambda key: not key.startswith(scopes) or key in keys or is_below(key, keys))
    named.finish()
    return Tensors(spec, cells[0].kind, taken, aside)


def stacks(arrays: Any) -> list[Stack]:
    """Return the RNNs among TensorFlow's variables, for a list to choose from."""
    return _stacks_in(_cells_in(Named("tensorflow", arrays), ema=False))


def _cells_in(named: Named, *, ema: bool) -> dict[str, TFCell]:
    return {cell.scope: cell for cell in find_cells({key: named.shape_of(key) for key in named}, averages=ema)}


def _chosen(named: Named, by_scope: dict[str, TFCell], prefix: str, layers: Any) -> Layers:
    if not by_scope:
        raise ConvertError("tensorflow", "arrays", nearest(named))
    places = _places(by_scope.values())
    if len(places) > 1:  # what has the shapes of a cell and no scope would come before the RNN
        places = [cell for cell in places if cell.scope]
    apart = [cell.scope for cell in places if prefix in cell.prefixes and by_scope[cell.scope].apart]
    if layers is None and apart:
        why = "each direction has layers of its own, where in cuDNN each layer sees both below it"
        raise ConvertError("tensorflow", shorten(apart[0]), why)
    return choose("tensorflow", places, prefix, layers, _stacks_in(by_scope))


def _places(cells: Iterable[TFCell]) -> list[Cell]:
    places = []
    for c in cells:
        stack = f"{c.above}{c.within}/" if c.within else c.scope
        prefixes = (stack, c.above) if c.certain and c.within else (stack,)
        places.append(Cell(c.scope, c.names, stack, c.layer, c.side == "bw", prefixes, c.scope))
    return places


def _stacks_in(by_scope: dict[str, TFCell]) -> list[Stack]:
    """Return the RNNs with the names of cells; if there are none, whatever has the shapes of cells."""
    cells = _places([cell for cell in by_scope.values() if cell.certain] or by_scope.values())
    above = {(cell.stack, cell.prefixes[-1]) for cell in cells}

    def prefix_of(cell: Cell) -> str:
        shortest = cell.prefixes[-1]
        several = sum(other == shortest for _, other in above) > 1
        return cell.stack if several or shortest[-1:].isalnum() or shortest.endswith("_") else shortest

    certain = any(cell.certain for cell in by_scope.values())
    return [stack._replace(certain=certain) for stack in stacks_of(cells, prefix_of)]


def _spec_of(named: Named, cells: list[TFCell], num_dirs: int, activation: str | None) -> RNNSpec:
    """Return the spec of these cells, by the names and the first cell's shapes."""
    first, G = (
        cells[0],
        3 if "gates/kernel" in cells[0].names else len(STACKED_GATES[MODES.get(cells[0].kind, RNNMode.LSTM)]),
    )
    kinds = {(MODES.get(cell.kind), "gates/kernel" in cell.names) for cell in cells}
    if len(kinds) > 1:
        named.refuse(first.scope, f"expecting one kind of cell, got {', '.join(sorted({cell.kind for cell in cells}))}")
    for cell in cells:
        for own, key in cell.names.items():
            if own == "candidate/kernel":
                named.refuse(key, "another cell, GRUCell: its reset gate comes before the product, cuDNN's after it")
            if own in _PEEPHOLES:
                named.refuse(key, "is a peephole, which cuDNN's LSTM does not have")
    mode = RNNMode.GRU if G == 3 else _mode_of(first.kind, activation)
    rows = named.shape(first.names["gates/kernel" if G == 3 else "kernel"], 2)[0]
    U = first.num_units
    P = named.shape(first.names["projection/kernel"], 2)[1] if "projection/kernel" in first.names else None
    skip = rows == (P or U)
    bias_mode = BiasMode.NONE
    if any("bias" in own for own in first.names):
        pair = G == 3 or any("bias_cudnn" in own for cell in cells for own in cell.names)
        bias_mode = BiasMode.DOUBLE if pair else BiasMode.SINGLE_INPUT
    try:
        return RNNSpec(
            mode,
            len(cells) // num_dirs,
            U,
            U if skip else rows - (P or U),
            InputMode.SKIP_INPUT if skip else InputMode.LINEAR_INPUT,
            Direction.BIDIRECTIONAL if num_dirs == 2 else Direction.UNIDIRECTIONAL,
            num_proj=P,
            bias_mode=bias_mode,
        )
    except ArgumentError as error:
        raise ConvertError("tensorflow", f"{mode} of {U} units", str(error)) from error


def _mode_of(cell: str, activation: str | None) -> RNNMode:
    mode = MODES.get(cell, RNNMode.LSTM)
    if mode is not RNNMode.RNN_TANH:
        return mode
    if activation is None:
        why = "nothing says whether it is of CudnnRNNTanh or CudnnRNNRelu, which write the same: 'tanh' or 'relu'"
        raise ConvertError("tensorflow", "activation", why)
    return plain_mode("tensorflow", activation)
