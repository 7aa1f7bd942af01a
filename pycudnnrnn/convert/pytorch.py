"""PyTorch: the state dict of `nn.LSTM`, `nn.GRU` or `nn.RNN`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from pycudnnrnn._forms import Array
from pycudnnrnn._messages import Assumption, warn
from pycudnnrnn.convert import _gates
from pycudnnrnn.convert._exchange import Canonical
from pycudnnrnn.convert._named import plain_mode, under
from pycudnnrnn.convert._torch_cells import JOINT, chosen_cells
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "name_of", "to_canonical"]
__dir__ = __all__.copy

_KINDS: Final = {"W": "weight_ih", "R": "weight_hh", "bW": "bias_ih", "bR": "bias_hh", "projection": "weight_hr"}


def to_canonical(
    arrays: Any,
    *,
    prefix: str = "",
    layers: Sequence[str | tuple[str, str]] | None = None,
    nonlinearity: Literal["tanh", "relu"] | None = None,
) -> Canonical:
    """Read the state dict of `nn.LSTM`, `nn.GRU` or `nn.RNN`, or of `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell`.

    - A module with `bias=False` gets bias mode "none". A state dict does not contain dropout; add it with
      `c.spec.replace(dropout=...)`.
    - Cells whose names differ in a number (an `nn.ModuleList`: "layers.0", "layers.1") become a stack in the order of
      the numbers, with a warning. For cells with other names, give `layers`.
    - A dict within the dict, such as `state_dict` in a checkpoint of Lightning, is entered if all cells are in it.
      Names begin below it.

    Args:
        arrays: the state dict, of CPU tensors or NumPy arrays.
        prefix: the module or the list of cells to read, such as "encoder.lstm"; other keys belong to other parts of the
            model. A "." is added after a letter or a digit. Default: "" (the state dict of the module itself).
        layers: the scope of each layer from the bottom, or a pair (forward, backward) of scopes, such as ["cell1",
            "cell2"]. Other keys are left out. None: the names decide. Default: None.
        nonlinearity: the activation of `nn.RNN`, "tanh" or "relu", which a state dict does not contain. None: "tanh",
            with a warning. Default: None.

    Returns:
        The spec, weights and biases, as a `Canonical`.

    Raises:
        ConvertError: a key that is missing or unexpected, an array of the wrong shape, another nonlinearity, weights
            that the module computes from others (weight_norm, parametrizations, weight drop) or that are quantized, or
            an RNN that neither `prefix` nor `layers` chooses. That error lists the RNNs.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import convert
        >>> sizes = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4)}
        >>> sizes |= {"bias_ih_l0": (16,), "bias_hh_l0": (16,)}
        >>> arrays = {k: np.ones(n, "float32") for k, n in sizes.items()}
        >>> c = convert.pytorch.to_canonical(arrays)
        >>> c.spec
        RNNSpec('lstm', 1, 4, 3)

    Source: torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN and their cells (2.13).
    """
    if nonlinearity is not None:
        plain_mode("pytorch", nonlinearity, "nonlinearity")
    named, cells = chosen_cells(arrays, prefix, layers)
    c = _gates.read("pytorch", named, _KINDS, cells, nonlinearity or "tanh")
    if nonlinearity is None and c.spec.mode is RNNMode.RNN_TANH:
        warn(
            "a state dict does not contain the nonlinearity of nn.RNN: read as nonlinearity='tanh', its default",
            Assumption,
        )
    return c


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
    return under("pytorch", prefix, _gates.write("pytorch", c, name_of), JOINT)


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
