"""The cells among TensorFlow's variables: their RNN, found by names and shapes, and their tensors."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn._tf1.models import GRU_CELLS, KEY, MODES, is_below
from pycudnnrnn._tf1.tensors import STACKED_GATES, cell_scope, cell_tensors, names_of, tf_tensors
from pycudnnrnn.convert._named import Named, plain_mode
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode, RNNSpec


class Cells(NamedTuple):
    """The cells' tensors by the names that we write, and the names that were left out."""

    spec: RNNSpec
    cell: str
    tensors: dict[str, Array]
    aside: str


def read(arrays: Any, prefix: str, activation: str | None) -> Cells:
    """Take the cells under a scope. `BasicRNNCell` needs `activation`.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, another activation, or another cell.
    """
    if activation is not None:
        plain_mode("tensorflow", activation)
    named = Named("tensorflow", arrays, prefix)
    spec, cell, scopes = _spec_of(named, activation)
    found: dict[str, str] = {}
    for p, theirs in enumerate(scopes):
        own = list(cell_tensors(spec, p // spec.num_dirs))
        names = {t: next((name for name in names_of(theirs + t.name) if name in named), theirs + t.name) for t in own}
        paired = any(names[t] in named for t in own if t.kind == "pair")
        found |= {cell_scope(spec, p) + t.name: names[t] for t in own if t.kind != "pair" or paired}
    shapes = {t.name: t.shape for t in tf_tensors(spec)}
    tensors = {name: named.take(theirs, *shapes[name]) for name, theirs in found.items()}
    taken = set(found.values())
    aside = named.leave_out(lambda key: not key.startswith(tuple(scopes)) or is_below(key, taken))
    named.finish()
    return Cells(spec, cell, tensors, aside)


def _spec_of(named: Named, activation: str | None) -> tuple[RNNSpec, str, list[str]]:
    """Find the RNN by the names and the first cell's shapes. Return its spec, its cell, and the scope of each cell."""
    matches = named.matches(KEY, "rnn/multi_rnn_cell/cell_0/...")
    kinds = {match["cell"] for match in matches}
    if len(kinds) > 1:
        named.refuse(matches[0][0], f"expecting one kind of cell, got {', '.join(sorted(kinds))}")
    (cell,) = kinds
    if cell in GRU_CELLS:
        named.refuse(matches[0][0], "another cell: its reset gate comes before the product, cuDNN's after it")
    bidirectional = any(match["side"] for match in matches)
    scopes: dict[tuple[int, str], str] = {}
    for match in matches:
        if match["apart"] not in {None, "0"}:
            named.refuse(match[0], "each direction has layers of its own, where in cuDNN each layer sees both below it")
        scope = f"{match['scope']}/{match['cell']}/"
        other = scopes.setdefault((int(match["uni"] or match["bi"] or 0), match["side"] or ""), scope)
        if other != scope or bidirectional is not bool(match["side"]):
            named.refuse(match[0], f"of another RNN than {shorten(named.prefix + other)}: convert one at a time")
    num_layers, sides = 1 + max(layer for layer, _ in scopes), ("fw", "bw") if bidirectional else ("",)
    order = [scopes.get((layer, side), "") for layer in range(num_layers) for side in sides]
    if "" in order:
        named.refuse(matches[0][0], f"of {len(order)} cells by their numbers, number {order.index('')} is missing")
    return _read_shapes(named, _mode_of(cell, activation), order, matches), cell, order


def _mode_of(cell: str, activation: str | None) -> RNNMode:
    mode = MODES[cell]
    if mode is not RNNMode.RNN_TANH:
        return mode
    if activation is None:
        why = "nothing says whether it is of CudnnRNNTanh or CudnnRNNRelu, which write the same: 'tanh' or 'relu'"
        raise ConvertError("tensorflow", "activation", why)
    return plain_mode("tensorflow", activation)


def _read_shapes(named: Named, mode: RNNMode, scopes: list[str], matches: list[re.Match[str]]) -> RNNSpec:
    first, bidirectional = scopes[0], bool(matches[0]["side"])
    kernel, G = f"{first}{'gates/' if mode is RNNMode.GRU else ''}kernel", len(STACKED_GATES[mode])
    rows, columns = named.shape(kernel, 2)
    U = columns // G
    P = named.shape(f"{first}projection/kernel", 2)[1] if f"{first}projection/kernel" in named else None
    skip = rows == (P or U)
    biases = {match["name"] for match in matches if match[0].startswith(first)}
    bias_mode = BiasMode.NONE
    if any("bias" in name for name in biases):
        pair = mode is RNNMode.GRU or any("bias_cudnn" in match["name"] for match in matches)
        bias_mode = BiasMode.DOUBLE if pair else BiasMode.SINGLE_INPUT
    try:
        return RNNSpec(
            mode,
            len(scopes) // (2 if bidirectional else 1),
            U,
            U if skip else rows - (P or U),
            InputMode.SKIP_INPUT if skip else InputMode.LINEAR_INPUT,
            Direction.BIDIRECTIONAL if bidirectional else Direction.UNIDIRECTIONAL,
            num_proj=P,
            bias_mode=bias_mode,
        )
    except ArgumentError as error:
        raise ConvertError("tensorflow", f"{mode} of {U} units", str(error)) from error
