"""PyTorch: the state dict of `nn.LSTM`, `nn.GRU` or `nn.RNN`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from pycudnnrnn._checks import Assumption, warn
from pycudnnrnn._forms import Array
from pycudnnrnn.convert import gates
from pycudnnrnn.convert.exchange import Canonical, with_activation
from pycudnnrnn.convert.named import Named, plain_mode, under
from pycudnnrnn.convert.stacks import STACKS, Cell, Stack, bare, choose_under, grouped, stacks_of
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

__all__ = ["from_canonical", "name_of", "to_canonical"]
__dir__ = __all__.copy

_JOINT: Final = "."

_KEY: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?P<part>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)"
    r"(?:_l(?P<layer>[0-9]{1,6})(?P<back>_reverse)?)?"
)
"""An array of a module (weight_ih_l0) or of a cell (weight_ih), after the name of the module."""

_NUMBERED: Final = re.compile(r"(?P<stack>(?s:.*?))(?P<number>[0-9]{1,6})\.")
"""The scope of a cell in an `nn.ModuleList`."""

_DERIVED: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?:(?:weight|bias)_(?:ih|hh|hr)\w*(?:(?P<dropped>_raw)|(?P<normed>_[gv]))"
    r"|(?P<parametrized>parametrizations\.(?s:.+))|(?P<quantized>(?:_all_weight_values|_packed_weight)(?s:.*)))"
)
"""An array from which the module computes a weight."""

_PLAIN: Final = {
    "dropped": "is the weight before dropout: name it without _raw, in place of any array of that name",
    "normed": "is of weight_norm: call torch.nn.utils.remove_weight_norm(module, name) before state_dict()",
    "parametrized": "is of a parametrization: call torch.nn.utils.parametrize.remove_parametrizations(module, name) "
    "before state_dict()",
    "quantized": "holds quantized weights: save the state dict of the module before it is quantized",
}

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
            "cell2"]. The beginning of a scope or a part of it will do. Other keys are left out. None: the names decide.
            Default: None.
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
    named = _entered(arrays)
    cells = _cells_in(named)
    derived = [match for key in named if (match := _DERIVED.fullmatch(key))]
    if not cells and derived:
        named.refuse(derived[0][0], _PLAIN[str(derived[0].lastgroup)])
    rows = choose_under(named, cells, prefix, _JOINT, layers)
    if layers is None and len(rows) > 1 and rows[0][0].alone is not None:
        warn(f"read as one stack, in the order of their numbers: {', '.join(c.scope for [c] in rows)}", Assumption)
    keys = {key for row in rows for cell in row for key in cell.keys.values()}
    modules = {match["scope"] for key in keys if (match := _KEY.fullmatch(key))}
    for match in derived:
        if not modules.isdisjoint({match["scope"], f"{match['scope']}module."}):
            named.refuse(match[0], _PLAIN[str(match.lastgroup)])
    if others := named.leave_out(lambda key: key not in keys and _KEY.fullmatch(key) is not None):
        warn(f"left out, since they are of other cells: {others}")
    c = gates.read(named, _KINDS, rows, nonlinearity or "tanh")
    if nonlinearity == "relu" and c.spec.mode in (RNNMode.LSTM, RNNMode.GRU):
        why = f"'relu' belongs to the plain cell, and this is {str(c.spec.mode)!r}"
        raise ConvertError("pytorch", "nonlinearity", why)
    return with_activation(c, nonlinearity, "nonlinearity")


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
    return under("pytorch", prefix, gates.write("pytorch", c, name_of), _JOINT)


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


def _stacks(arrays: Any) -> list[Stack]:
    """Return the RNNs of a state dict, for a list to choose from."""
    return stacks_of(_cells_in(_entered(arrays)))


def _entered(arrays: Any) -> Named:
    """Return the keys of a state dict, without the names of the dicts that all cells are in."""
    named = Named("pytorch", arrays)
    above = {key.rpartition("/")[0] for key in named if _KEY.fullmatch(key)}
    if len(above) == 1 and above != {""}:
        named.enter(f"{above.pop()}/")
    return named


def _place(key: str) -> tuple[Any, str] | None:
    match = _KEY.fullmatch(key)
    return ((match["scope"], match["layer"], match["back"]), match["part"]) if match else None


def _cells_in(named: Named) -> list[Cell]:
    groups = grouped(named, _place)
    numbers: dict[str, set[int]] = {}
    for scope, layer, _ in groups:
        if not layer and (match := _NUMBERED.fullmatch(scope)):
            numbers.setdefault(match["stack"], set()).add(int(match["number"]))
    lists = {scope for scope, each in numbers.items() if len(each) > 1 and each == {*range(len(each))}}
    cells = []
    for (scope, layer, back), keys in groups.items():
        match = None if layer else _NUMBERED.fullmatch(scope)
        if match and match["stack"] in lists:
            stack, number = match["stack"], match["number"]
            cells.append(Cell(bare(scope), keys, stack, int(number), False, (stack,), scope))
        elif layer:
            name = f"{scope}l{layer}{back or ''}"
            cells.append(Cell(name, keys, scope, int(layer), bool(back), (scope,), None))
        else:
            cells.append(Cell(bare(scope), keys, scope, 0, False, (), scope))
    return cells


STACKS["pytorch"] = _stacks
