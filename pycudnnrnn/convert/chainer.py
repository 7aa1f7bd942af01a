"""Chainer: the links `NStepLSTM`, `NStepBiLSTM`, `NStepGRU`, `NStepRNNTanh` and so on."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pycudnnrnn._forms import Array, Form, RowKind, stack
from pycudnnrnn.convert.exchange import Canonical, read_cells, split, with_activation
from pycudnnrnn.convert.gates import order_of
from pycudnnrnn.convert.named import Named, flag, plain_mode, under
from pycudnnrnn.convert.stacks import Cell, choose_under, grouped, warn_of_order
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"(?P<scope>(?s:.*?))(?P<number>[0-9]{1,6})/(?P<part>[wb][0-7])")


def to_canonical(
    arrays: Any,
    *,
    prefix: str = "",
    bidirectional: bool | None = None,
    activation: Literal["tanh", "relu"] | None = None,
) -> Canonical:
    """Read the parameters of `NStepLSTM`, `NStepGRU` and the others, as `chainer.serializers.save_npz` names them.

    The order of w2 and w3 is that of Chainer's code: w2 is the new cell, w3 the output gate. Chainer's docstring of
    NStepLSTM has them the other way round.

    Args:
        arrays: the arrays by name: "0/w0" ... "0/b7", "1/w0" ... A slash before the number is allowed.
        prefix: read only keys that begin with this, such as "encoder"; the others belong to other parts of the
            model. A "/" is added after a letter or a digit. Default: "" (all keys).
        bidirectional: True for NStepBiLSTM and the like, which have two children per layer. The names do not contain
            this. None: False, with a warning if two children have the same shapes. Default: None.
        activation: "tanh" for NStepRNNTanh, "relu" for NStepRNNReLU. The names do not contain this. None: "tanh",
            with a warning. Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, or another activation.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> arrays = {"0/w0": np.ones((4, 3)), "0/w1": np.ones((4, 4))}
        >>> arrays |= {"0/b0": np.ones(4), "0/b1": np.ones(4)}
        >>> c = convert.chainer.to_canonical(arrays, activation="relu")
        >>> c.spec
        RNNSpec('rnn_relu', 1, 4, 3, dtype='float64')

    Source: chainer.links.NStepLSTM (7.8).
    """
    D = 1 + (bidirectional is not None and flag("chainer", "bidirectional", bidirectional))
    plain = plain_mode("chainer", "tanh" if activation is None else activation)
    named = Named("chainer", arrays)
    cells = [
        Cell(f"{scope}{number}", keys, scope, int(number) // D, int(number) % D == 1, (scope, scope.lstrip("/")), None)
        for (scope, number), keys in grouped(named, _place).items()
    ]
    rows = choose_under(named, cells, prefix, "/")
    if len(rows[0]) < D:
        named.refuse(rows[0][0].scope, "has no second child, for the backward direction")
    if bidirectional is None:
        warn_of_order(named, rows, certain=True)
    G = (1 + max((int(part[1]) for part in rows[0][0].keys if part[0] == "w"), default=0)) // 2
    modes = {4: RNNMode.LSTM, 3: RNNMode.GRU, 1: plain}
    if G not in modes:
        why = f"expecting 8 (LSTM), 6 (GRU) or 2 (tanh, relu) matrices, got {2 * G}"
        named.refuse(f"{rows[0][0].scope}/w*", why)
    return with_activation(read_cells(named, modes[G], _form(modes[G]), rows), activation)


def from_canonical(c: Canonical, *, prefix: str = "") -> dict[str, Array]:
    """Write the parameters of the matching link: "0/w0" ..., "0/b0" ...

    Chainer always has both biases: absent ones become zeros. Skip input becomes identity matrices. The results are
    equal.

    Args:
        c: the model to write: its spec, weights and biases.
        prefix: what all names begin with, such as "encoder". A "/" is added after a letter or a digit.
            Default: "".

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: a projection or cell clipping, which Chainer does not have.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnRNNRelu(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.chainer.from_canonical(c)
        >>> {name: array.shape for name, array in arrays.items()}
        {'0/w0': (4, 3), '0/w1': (4, 4), '0/b0': (4,), '0/b1': (4,)}
    """
    layers = split("chainer", c)
    arrays = {f"{p}/{t.name}": t.of(layer) for p, layer in enumerate(layers) for t in _form(c.spec.mode)}
    return under("chainer", prefix, arrays)


def _form(mode: RNNMode) -> Form:
    gates = order_of("chainer", mode)
    G = len(gates)
    kinds: tuple[tuple[str, int, RowKind], ...] = (("w", 0, "W"), ("w", G, "R"), ("b", 0, "bW"), ("b", G, "bR"))
    return tuple(stack(f"{letter}{at + j}", kind, [g]) for letter, at, kind in kinds for j, g in enumerate(gates))


def _place(key: str) -> tuple[Any, str] | None:
    match = _KEY.fullmatch(key)
    return (match.group("scope", "number"), match["part"]) if match else None
