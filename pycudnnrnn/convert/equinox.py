"""Equinox: `eqx.nn.LSTMCell` and `eqx.nn.GRUCell`, one or a stack of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pycudnnrnn._forms import Array, Form, Tensor, stack
from pycudnnrnn.convert.exchange import Canonical, read_cells, split
from pycudnnrnn.convert.gates import order_of
from pycudnnrnn.convert.named import Named, mode_of
from pycudnnrnn.convert.stacks import Cell, grouped, layers_by_path
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import GRUGate, RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_LEAVES: Final = frozenset({"weight_ih", "weight_hh", "bias", "bias_n"})
_JOINTS: Final = re.compile(r"[/.\[\]'\"]+")


def to_canonical(arrays: Any, *, layers: Sequence[str] | None = None, bidirectional: bool | None = None) -> Canonical:
    """Read `eqx.nn.LSTMCell` or `eqx.nn.GRUCell`: one cell, or several that form a stack.

    The LSTM's one bias becomes cuDNN's single input bias. The GRU's `bias_n` is kept separate, so a GRU gets double
    biases. A cell with `use_bias=False` gets bias mode "none".

    Args:
        arrays: the arrays `weight_ih`, `weight_hh`, `bias` and `bias_n` of each cell. Several cells have paths: nested
            dicts, or strings joined by slashes or as `jax.tree_util.keystr` writes them (".cells[0].bias").
        layers: names of the layers to read, in order; the others are left out. None: all of them, in the order of the
            numbers in their names, with a warning if these do not contain "layer". Default: None.
        bidirectional: True reads two cells per layer, forward first, if the names do not contain the direction.
            None: the names decide. Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, or names that do not give the
            order of the layers.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> cell = {"weight_ih": np.ones((16, 3)), "weight_hh": np.ones((16, 4))}
        >>> cell |= {"bias": np.ones(16)}
        >>> c = convert.equinox.to_canonical(cell)
        >>> c.spec
        RNNSpec('lstm', 1, 4, 3, dtype='float64', bias_mode='single_input')

    Source: equinox.nn (0.13).
    """
    named = Named("equinox", arrays, _JOINTS)
    recurrent = {path for path, _, leaf in (key.rpartition("/") for key in named) if leaf == "weight_hh"}

    def leaf_of(key: str) -> tuple[str, str] | None:
        path, _, leaf = key.rpartition("/")
        return (path, leaf) if path in recurrent and leaf in _LEAVES else None  # a Linear has a bias, too

    rows = layers_by_path(named, [Cell(*cell) for cell in grouped(named, leaf_of).items()], layers, bidirectional)
    first = rows[0][0].keys
    height, U = named.shape(first["weight_hh"], 2)
    mode = mode_of("equinox", first["weight_hh"], height, U, "tanh")
    if mode not in (RNNMode.LSTM, RNNMode.GRU):
        named.refuse(first["weight_hh"], "has one gate, and Equinox has no such cell")
    return read_cells(named, mode, _form(mode, biases="bias" in first), rows)


def from_canonical(c: Canonical) -> dict[str, Array]:
    """Write the cells: "weight_ih" for one, "0/weight_ih" for a stack, "0/forward/weight_ih" for both directions.

    The two biases of a gate are summed, except for the GRU's new gate. Skip input becomes identity matrices.

    Args:
        c: the model to write: its spec, weights and biases.

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: a tanh or relu cell, a projection or cell clipping, which Equinox does not have.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.equinox.from_canonical(c)
        >>> {name: array.shape for name, array in arrays.items()}
        {'weight_ih': (16, 3), 'weight_hh': (16, 4), 'bias': (16,)}
    """
    layers = split("equinox", c)
    spec = c.spec
    if spec.mode not in (RNNMode.LSTM, RNNMode.GRU):
        raise ConvertError("equinox", "mode", f"it has only LSTMCell and GRUCell, and this is {str(spec.mode)!r}")
    form = _form(spec.mode, biases=bool(c.biases))
    ways = ("forward/", "backward/") if spec.num_dirs == 2 else ("",)
    paths = [(f"{k}/" if spec.num_layers > 1 else "") + way for k in range(spec.num_layers) for way in ways]
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
