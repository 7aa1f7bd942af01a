"""Chainer: the links `NStepLSTM`, `NStepBiLSTM`, `NStepGRU`, `NStepRNNTanh` and so on."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from pycudnnrnn.convert._canonical import Array, Canonical, PseudoLayer, assemble, split
from pycudnnrnn.convert._gates import from_list, to_list
from pycudnnrnn.convert._named import Named, flag, plain_mode, under
from pycudnnrnn.spec import RNNMode

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
    mode = modes[G]
    U, I = named.shape(f"{slash}0/w0", 2)
    layers = []
    for p in range(count):
        columns = I if p < num_dirs else num_dirs * U
        key = f"{slash}{p}/"
        W = [named.take(f"{key}w{j}", U, columns) for j in range(G)]
        R = [named.take(f"{key}w{j}", U, U) for j in range(G, 2 * G)]
        b = [named.take(f"{key}b{j}", U) for j in range(2 * G)]
        layers.append(PseudoLayer(*(from_list("chainer", mode, gates) for gates in (W, R, b[:G], b[G:]))))
    named.finish()
    return assemble("chainer", mode, layers, num_dirs)


def from_canonical(c: Canonical, *, prefix: str = "") -> dict[str, Array]:
    """Write `0/w0` ..., `0/b0` ...; `prefix` goes before every name.

    Chainer always has both biases: absent ones become zeros, and skip input identity matrices, equal in value.

    Raises:
        ConvertError: a projection, or cell clipping.
    """
    found: dict[str, Array] = {}
    for p, layer in enumerate(split("chainer", c)):
        for kind, pair in (("w", (layer.W, layer.R)), ("b", (layer.input_bias, layer.recurrent_bias))):
            gates = [gate for half in pair for gate in to_list("chainer", c.spec.mode, half)]
            found |= {f"{p}/{kind}{j}": np.array(gate) for j, gate in enumerate(gates)}
    return under("chainer", prefix, found)
