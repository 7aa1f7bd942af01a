"""Gluon (MXNet): the parameters of `rnn.LSTM`, `rnn.GRU` or `rnn.RNN`."""

from __future__ import annotations

import re
from typing import Any, Final

from pycudnnrnn._forms import Array
from pycudnnrnn.convert import _two_biases
from pycudnnrnn.convert._exchange import Canonical
from pycudnnrnn.convert._named import Named, under

__all__ = ["from_canonical", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"([lr])([0-9]{1,6})_(?:i2h_weight|h2h_weight|h2r_weight|i2h_bias|h2h_bias)")
_JOINT: Final = "_"
_KINDS: Final = {
    "W": "i2h_weight", "R": "h2h_weight", "bW": "i2h_bias", "bR": "h2h_bias", "projection": "h2r_weight"
}  # fmt: skip


def to_canonical(arrays: Any, *, prefix: str = "", activation: str = "relu") -> Canonical:
    """Read `l0_i2h_weight`, `r0_i2h_weight` ..., as `net.collect_params()` names them.

    With a `prefix` ("lstm0", with or without its underscore; MXNet 1.x) only the keys under it are read. `activation`
    is what `rnn.RNN` was made with, and its default is Gluon's; the other cells have none, and it is not looked at.

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or another activation.

    Source: mxnet.gluon.rnn (1.9.1).
    """
    named = Named("gluon", arrays, prefix, _JOINT)
    matches = named.matches(_KEY, "l0_i2h_weight")
    num_layers = 1 + max(int(match[2]) for match in matches)
    num_dirs = 1 + any(match[1] == "r" for match in matches)
    return _two_biases.read("gluon", named, _name, num_layers, num_dirs, activation, has_biases=True)


def from_canonical(c: Canonical, *, prefix: str = "") -> dict[str, Array]:
    """Write the parameters; `prefix` goes before every name.

    Gluon always has both biases: absent ones become zeros, and skip input identity matrices, equal in value.

    Raises:
        ConvertError: cell clipping.
    """
    c = c.double_biases() if isinstance(c, Canonical) else c
    return under("gluon", prefix, _two_biases.write("gluon", c, _name), _JOINT)


def _name(kind: str, layer: int, direction: int) -> str:
    return f"{'r' if direction else 'l'}{layer}_{_KINDS[kind]}"
