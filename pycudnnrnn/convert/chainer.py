"""Chainer: the links `NStepLSTM`, `NStepBiLSTM`, `NStepGRU`, `NStepRNNTanh` and so on."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from pycudnnrnn._forms import Array, Form, RowKind, stack
from pycudnnrnn.convert._exchange import Canonical, assemble, split, taken
from pycudnnrnn.convert._named import Named, flag, plain_mode, under
from pycudnnrnn.convert._orders import order_of
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"/?([0-9]{1,6})/([wb])([0-7])")


def to_canonical(arrays: Any, *, prefix: str = "", bidirectional: bool = False, activation: str = "tanh") -> Canonical:
    """Read `0/w0` ... `0/b7`, `1/w0` ..., as `chainer.serializers.save_npz` names them.

    `bidirectional` tells NStepBiLSTM's two children per layer from two layers of NStepLSTM; `activation` tells
    NStepRNNTanh from NStepRNNReLU. The names say neither. A slash before the number is read too.

    Chainer's docstring of NStepLSTM has w2 for the output gate and w3 for the new cell; its code, on both devices, has
    w2 for the cell and w3 for the output, and so has this converter.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or another activation.

    Source: chainer.links.NStepLSTM (7.8).
    """
    bidirectional = flag("chainer", "bidirectional", bidirectional)
    named = Named("chainer", arrays, prefix)
    slash = "/" if any(key.startswith("/") for key in named) else ""
    matches = named.matches(_KEY, "0/w0")
    count = 1 + max(int(match[1]) for match in matches)
    num_dirs = 1 + bidirectional
    if count % num_dirs:
        named.refuse(f"{count}/w0", f"missing: {count} children do not make pairs of two directions")
    G = (1 + max((int(match[3]) for match in matches if match[2] == "w"), default=0)) // 2
    modes = {4: RNNMode.LSTM, 3: RNNMode.GRU, 1: plain_mode("chainer", activation)}
    if G not in modes:
        named.refuse("0/w*", f"expecting 8 (LSTM), 6 (GRU) or 2 (tanh, relu) matrices, got {2 * G}")
    U, I = named.shape(f"{slash}0/w0", 2)
    keys = [functools.partial("{}{}/{}".format, slash, p) for p in range(count)]
    layers = taken(named, _form(modes[G]), keys, (G, I, U, U), num_dirs)
    return assemble("chainer", modes[G], layers, num_dirs)


def from_canonical(c: Canonical, *, prefix: str = "") -> dict[str, Array]:
    """Write `0/w0` ..., `0/b0` ...; `prefix` goes before every name.

    Chainer always has both biases: absent ones become zeros, and skip input identity matrices, equal in value.

    Raises:
        ConvertError: a projection, or cell clipping.
    """
    layers = split("chainer", c)
    found = {f"{p}/{t.name}": t.of(layer) for p, layer in enumerate(layers) for t in _form(c.spec.mode)}
    return under("chainer", prefix, found)


def _form(mode: RNNMode) -> Form:
    gates = order_of("chainer", mode)
    G = len(gates)
    kinds: tuple[tuple[str, int, RowKind], ...] = (("w", 0, "W"), ("w", G, "R"), ("b", 0, "bW"), ("b", G, "bR"))
    return tuple(stack(f"{letter}{at + j}", kind, [g]) for letter, at, kind in kinds for j, g in enumerate(gates))
