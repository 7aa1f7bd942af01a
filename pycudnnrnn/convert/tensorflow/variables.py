"""The cells among TensorFlow's variables: their RNN, found by names and shapes, and their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn._tf1.models import AVERAGE, MODES, find_cells, is_below
from pycudnnrnn._tf1.models import Cell as TFCell
from pycudnnrnn._tf1.tensors import STACKED_GATES, cell_scope, cell_tensors, names_of, tf_tensors
from pycudnnrnn.convert._cells import Cell, Layers, Stack, in_layers, listed_layers, nearest, unclear
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
    named = Named("tensorflow", arrays)
    return _stacks_in(named, _cells_in(named, ema=False))


def _cells_in(named: Named, *, ema: bool) -> dict[str, TFCell]:
    return {cell.scope: cell for cell in find_cells({key: named.shape_of(key) for key in named}, averages=ema)}


def _chosen(named: Named, by_scope: dict[str, TFCell], prefix: str, layers: Any) -> Layers:
    cells = [Cell(c.scope, c.names, _stack(c), c.layer, c.side == "bw") for c in by_scope.values()]
    if not cells:
        raise ConvertError("tensorflow", "arrays", nearest(named))
    if layers is not None:
        if prefix:
            raise ConvertError("tensorflow", "prefix", "`layers` takes whole scopes: leave out one of the two")
        return listed_layers("tensorflow", cells, layers, _stacks_in(named, by_scope))
    single = [[[cell]] for cell in cells if cell.scope == prefix]
    scopes = {prefix, *(_stack(c) for c in by_scope.values() if c.certain and c.above == prefix)}
    own = [cell for cell in cells if cell.stack in scopes]
    if not single and len({cell.stack for cell in own}) != 1:
        number = "more than one" if own else "no"
        why = f"there is {number} RNN under {prefix!r}" if prefix else "the RNN is a part of this model"
        raise unclear("tensorflow", "prefix" if prefix else "arrays", why, _stacks_in(named, by_scope))
    if not single and any(by_scope[cell.scope].apart for cell in own):
        why = "each direction has layers of its own, where in cuDNN each layer sees both below it"
        raise ConvertError("tensorflow", shorten(own[-1].scope), why)
    return single[0] if single else in_layers("tensorflow", own)


def _stack(cell: TFCell) -> str:
    return f"{cell.above}{cell.within}/" if cell.within else cell.scope


def _stacks_in(named: Named, by_scope: dict[str, TFCell]) -> list[Stack]:
    """Return the RNNs with the names of cells; if there are none, whatever has the shapes of cells."""
    certain = {scope: cell for scope, cell in by_scope.items() if cell.certain} or by_scope
    stacks: dict[str, list[TFCell]] = {}
    for cell in certain.values():
        stacks.setdefault(_stack(cell), []).append(cell)
    above = [own[0].above for own in stacks.values()]
    listed = []
    for scope, own in stacks.items():
        first = min(own, key=lambda cell: (cell.layer, cell.side != "fw"))
        kernel = first.names.get("gates/kernel", first.names.get("kernel", ""))
        sizes = max(0, named.shape_of(kernel)[0] - first.num_units), first.num_units
        counts = 1 + max(cell.layer for cell in own), len({cell.side for cell in own})
        prefix = (
            scope
            if above.count(first.above) > 1 or first.above[-1:].isalnum() or first.above.endswith("_")
            else first.above
        )
        number = sum(len(cell.names) for cell in own)
        listed.append(Stack({"prefix": prefix}, number, first.kind, *sizes, *counts, named.dtype_of(kernel)))
    return listed


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
