"""Equinox: `eqx.nn.LSTMCell` and `eqx.nn.GRUCell`, one or a stack of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pycudnnrnn._forms import Array, Form, Tensor, stack
from pycudnnrnn.convert._exchange import Canonical, assemble, split, taken
from pycudnnrnn.convert._named import Named, mode_of
from pycudnnrnn.convert._orders import order_of
from pycudnnrnn.convert._stack import find_cells, path_of
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import GRUGate, RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_LEAVES: Final = frozenset({"weight_ih", "weight_hh", "bias", "bias_n"})
_JOINTS: Final = re.compile(r"[/.\[\]'\"]+")


def to_canonical(arrays: Any, *, layers: Sequence[str] | None = None, bidirectional: bool | None = None) -> Canonical:
    """Read `weight_ih`, `weight_hh`, `bias` and `bias_n` of one cell, or of cells under paths.

    Paths may be nested dicts or strings, joined by slashes or as `jax.tree_util.keystr` writes them (".cells[0].bias").
    `layers` names them in order; `bidirectional=True` reads two cells per layer, forward first, where the paths do not
    say it. The LSTM's one bias becomes cuDNN's single input bias; the GRU keeps `bias_n` apart, so its biases are
    double. `use_bias=False` is bias mode none.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or layers that have no order.

    Source: equinox.nn (0.13).
    """
    named = Named("equinox", arrays, joints=_JOINTS)
    cells, num_dirs = find_cells(named, _leaf, layers, bidirectional)
    first = cells[0].keys
    if "weight_hh" not in first:
        named.refuse(f"{cells[0].path}/weight_hh", "missing")
    rows, U = named.shape(first["weight_hh"], 2)
    mode = mode_of("equinox", first["weight_hh"], rows, U, "tanh")
    if mode not in (RNNMode.LSTM, RNNMode.GRU):
        named.refuse(first["weight_hh"], "has one gate, and Equinox has no such cell")
    inputs = named.shape(cells[0].key("weight_ih"), 2)[1]
    form = _form(mode, biases="bias" in first or (mode is RNNMode.GRU and "bias_n" in first))
    found = taken(named, form, [cell.key for cell in cells], (rows // U, inputs, U, U), num_dirs)
    return assemble("equinox", mode, found, num_dirs)


def from_canonical(c: Canonical) -> dict[str, Array]:
    """Write the cells: "weight_ih" for one, "0/weight_ih" for a stack, "0/forward/weight_ih" for both directions.

    Biases are summed but for the GRU's new gate; skip input becomes identity matrices.

    Raises:
        ConvertError: a plain cell, a projection, or cell clipping.
    """
    layers = split("equinox", c)
    spec = c.spec
    if spec.mode not in (RNNMode.LSTM, RNNMode.GRU):
        raise ConvertError("equinox", "mode", f"it has only LSTMCell and GRUCell, and this is {str(spec.mode)!r}")
    form = _form(spec.mode, biases=bool(c.biases))
    paths = [path_of(*divmod(p, spec.num_dirs), spec.num_layers, spec.num_dirs) for p in range(len(layers))]
    return {path + t.name: t.of(layer) for path, layer in zip(paths, layers, strict=True) for t in form}


def _form(mode: RNNMode, *, biases: bool) -> Form:
    gates = order_of("equinox", mode)
    weights = stack("weight_ih", "W", gates), stack("weight_hh", "R", gates)
    if not biases:
        return weights
    if mode is RNNMode.LSTM:
        return (*weights, stack("bias", "b", gates))
    sums = Tensor("bias", tuple(("bW" if gate == GRUGate.NEW else "b", gate) for gate in gates))
    return (*weights, stack("bias_n", "bR", [GRUGate.NEW]), sums)


def _leaf(key: str) -> tuple[str, str] | None:
    path, _, leaf = key.rpartition("/")
    return (path, leaf) if leaf in _LEAVES else None
