"""PyTorch: the state dict of `nn.LSTM`, `nn.GRU` or `nn.RNN`."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pycudnnrnn._forms import Array
from pycudnnrnn.convert import _two_biases
from pycudnnrnn.convert._exchange import Canonical
from pycudnnrnn.convert._named import Named, plain_mode, under

__all__ = ["from_canonical", "name_of", "to_canonical"]
__dir__ = __all__.copy

_KEY: Final = re.compile(r"(?:weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l([0-9]{1,6})(_reverse)?")
_JOINT: Final = "."
_KINDS: Final = {"W": "weight_ih", "R": "weight_hh", "bW": "bias_ih", "bR": "bias_hh", "projection": "weight_hr"}


def to_canonical(arrays: Any, *, prefix: str = "", nonlinearity: Literal["tanh", "relu"] = "tanh") -> Canonical:
    """Read the state dict of `nn.LSTM`, `nn.GRU` or `nn.RNN`.

    A module with `bias=False` gets bias mode "none". A state dict does not contain dropout; add it with
    `c.spec.replace(dropout=...)`.

    Args:
        arrays: the state dict, of CPU tensors or NumPy arrays.
        prefix: read only keys that begin with this, such as "encoder.lstm"; the others belong to other parts of the
            model. A "." is added after a letter or a digit. Default: "" (all keys).
        nonlinearity: the activation of `nn.RNN`, "tanh" or "relu", which a state dict does not contain.
            Default: "tanh".

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, or another nonlinearity.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> sizes = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4)}
        >>> sizes |= {"bias_ih_l0": (16,), "bias_hh_l0": (16,)}
        >>> arrays = {k: np.ones(n, "float32") for k, n in sizes.items()}
        >>> c = convert.pytorch.to_canonical(arrays)
        >>> c.spec
        RNNSpec('lstm', 1, 4, 3)

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
    """Write a state dict, in PyTorch's order.

    A single bias becomes a pair with zeros, and skip input becomes identity matrices. The results are equal.

    Args:
        c: the model to write: its spec, weights and biases.
        prefix: what all names begin with, such as "encoder.lstm". A "." is added after a letter or a digit.
            Default: "".

    Returns:
        The arrays by name, as a dict of NumPy arrays.

    Raises:
        ConvertError: cell clipping, which PyTorch does not have.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> arrays = convert.pytorch.from_canonical(c)
        >>> [(name, array.shape) for name, array in arrays.items()][:2]
        [('weight_ih_l0', (16, 3)), ('weight_hh_l0', (16, 4))]
    """
    return under("pytorch", prefix, _two_biases.write("pytorch", c, name_of), _JOINT)


def name_of(kind: str, layer: int, direction: int) -> str:
    """Return PyTorch's name of an array.

    Args:
        kind: "W" or "R" for the matrices, "bW" or "bR" for their biases, or "projection".
        layer: number of the layer, from 0.
        direction: 0 for forward, 1 for backward.

    Example:
        >>> from pycudnnrnn import convert
        >>> convert.pytorch.name_of("W", 1, 1)
        'weight_ih_l1_reverse'
    """
    return f"{_KINDS[kind]}_l{layer}{'_reverse' if direction else ''}"
