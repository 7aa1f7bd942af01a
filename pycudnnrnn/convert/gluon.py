"""Gluon (MXNet): the parameters of `rnn.LSTM`, `rnn.GRU` or `rnn.RNN`."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pycudnnrnn._forms import Array
from pycudnnrnn.convert import gates
from pycudnnrnn.convert.exchange import Canonical, with_activation
from pycudnnrnn.convert.named import Named, under
from pycudnnrnn.convert.stacks import Cell, choose_under, grouped

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?P<side>[lr])(?P<layer>[0-9]{1,6})_(?P<part>i2h_weight|h2h_weight|h2r_weight|i2h_bias|h2h_bias)"
)
_JOINT: Final = "_"
_KINDS: Final = {
    "W": "i2h_weight", "R": "h2h_weight", "bW": "i2h_bias", "bR": "h2h_bias", "projection": "h2r_weight"
}  # fmt: skip


def to_canonical(arrays: Any, *, prefix: str = "", activation: Literal["tanh", "relu"] | None = None) -> Canonical:
    """Read the parameters of `rnn.LSTM`, `rnn.GRU` or `rnn.RNN`, as `net.collect_params()` names them.

    Args:
        arrays: the arrays by name: "l0_i2h_weight", "r0_i2h_weight" ...
        prefix: read only keys that begin with this, such as "lstm0"; the others belong to other parts of the
            model. A "_" is added after a letter or a digit. Default: "" (all keys).
        activation: the activation of `rnn.RNN`, "tanh" or "relu", which the arrays do not contain; the other cells
            ignore it. None: "relu", as in Gluon, with a warning. Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, or another activation.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> sizes = {"l0_i2h_weight": (12, 3), "l0_h2h_weight": (12, 4)}
        >>> sizes |= {"l0_i2h_bias": (12,), "l0_h2h_bias": (12,)}
        >>> arrays = {k: np.ones(n, "float32") for k, n in sizes.items()}
        >>> c = convert.gluon.to_canonical(arrays)
        >>> c.spec
        RNNSpec('gru', 1, 4, 3)

    Source: mxnet.gluon.rnn (1.9.1).
    """
    named = Named("gluon", arrays)
    cells = [
        Cell(f"{scope}{side}{layer}", keys, scope, int(layer), side == "r", (scope,), None)
        for (scope, side, layer), keys in grouped(named, _place).items()
    ]
    layers = choose_under(named, cells, prefix, _JOINT)
    c = gates.read(named, _KINDS, layers, "relu" if activation is None else activation)
    return with_activation(c, activation)


def from_canonical(c: Canonical, *, prefix: str = "") -> dict[str, Array]:
    """Write the parameters of `rnn.LSTM`, `rnn.GRU` or `rnn.RNN`.

    Gluon always has both biases: absent ones become zeros. Skip input becomes identity matrices. The results are equal.

    Args:
        c: the model to write: its spec, weights and biases.
        prefix: what all names begin with, such as "lstm0". A "_" is added after a letter or a digit.
            Default: "".

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: cell clipping, which Gluon does not have.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnGRU(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> list(convert.gluon.from_canonical(c))
        ['l0_i2h_weight', 'l0_h2h_weight', 'l0_i2h_bias', 'l0_h2h_bias']
    """
    c = c.double_biases() if isinstance(c, Canonical) else c
    return under("gluon", prefix, gates.write("gluon", c, _name), _JOINT)


def _name(kind: str, layer: int, direction: int) -> str:
    return f"{'r' if direction else 'l'}{layer}_{_KINDS[kind]}"


def _place(key: str) -> tuple[Any, str] | None:
    match = _KEY.fullmatch(key)
    return (match.group("scope", "side", "layer"), match["part"]) if match else None
