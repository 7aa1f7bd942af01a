"""PyTorch: the state dict of `nn.LSTM`, `nn.GRU` or `nn.RNN`."""

from __future__ import annotations

import re
from typing import Any, Final

from pycudnnrnn._forms import Array
from pycudnnrnn.convert import _two_biases
from pycudnnrnn.convert._exchange import Canonical
from pycudnnrnn.convert._named import Named, plain_mode, under

__all__ = ["from_canonical", "name_of", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"(?:weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l([0-9]{1,6})(_reverse)?")
_JOINT: Final = "."
_KINDS: Final = {"W": "weight_ih", "R": "weight_hh", "bW": "bias_ih", "bR": "bias_hh", "projection": "weight_hr"}


def to_canonical(arrays: Any, *, prefix: str = "", nonlinearity: str = "tanh") -> Canonical:
    """Read a state dict, of tensors or NumPy arrays.

    With a `prefix` ("encoder.lstm", with or without its dot) only the keys under it are read, and the rest is another
    part's. `nonlinearity` is what `nn.RNN` was made with: the state dict does not say. `bias=False` gives bias mode
    none; dropout is not in a state dict (`c.spec.replace(dropout=...)`).

    Raises:
        ConvertError: a key that is missing, unexpected or misshapen, or another nonlinearity.

    Source: torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN (2.13).
    """
    plain_mode("pytorch", nonlinearity, "nonlinearity")
    named = Named("pytorch", arrays, prefix, _JOINT)
    matches = named.matches(_KEY, "weight_ih_l0")
    num_layers = 1 + max(int(match[1]) for match in matches)
    num_dirs = 1 + any(match[2] for match in matches)
    has_biases = any(match[0].startswith("bias") for match in matches)
    return _two_biases.read("pytorch", named, name_of, num_layers, num_dirs, nonlinearity, has_biases=has_biases)


def from_canonical(c: Canonical, *, prefix: str = "") -> dict[str, Array]:
    """Write a state dict, in the order of PyTorch's own.

    `prefix` ("rnn", with or without its dot) goes before every name. A single bias becomes a pair with zeros, and
    skip input identity matrices: equal in value.

    Raises:
        ConvertError: cell clipping.
    """
    return under("pytorch", prefix, _two_biases.write("pytorch", c, name_of), _JOINT)


def name_of(kind: str, layer: int, direction: int) -> str:
    """Return PyTorch's name of a stack of gates; kind is "W", "R", "bW", "bR" or "projection"."""
    return f"{_KINDS[kind]}_l{layer}{'_reverse' if direction else ''}"
