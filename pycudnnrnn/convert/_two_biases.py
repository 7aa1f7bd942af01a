"""Frameworks with rows = output, gates stacked, two biases and one name per stack: PyTorch and Gluon."""

from __future__ import annotations

from collections.abc import Callable

from pycudnnrnn._forms import Array, Form, stack
from pycudnnrnn.convert._exchange import Canonical, assemble, split, take_layers
from pycudnnrnn.convert._named import Named, mode_of
from pycudnnrnn.convert._orders import order_of
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import RNNMode

Naming = Callable[[str, int, int], str]
"""(kind, layer, direction) to a name; kind is "W", "R", "bW", "bR" or "projection"."""


def form_of(framework: str, mode: RNNMode, *, biases: bool, projection: bool) -> Form:
    """Return the arrays of a cell, by kind."""
    gates = order_of(framework, mode)
    stacks = [stack(kind, kind, gates) for kind in (("W", "R", "bW", "bR") if biases else ("W", "R"))]
    return (*stacks, stack("projection", "P", [0])) if projection else tuple(stacks)


def read(
    framework: str, named: Named, name: Naming, num_layers: int, num_dirs: int, activation: str, *, has_biases: bool
) -> Canonical:
    """Take every array of the model, and nothing else.

    Raises:
        ConvertError: an array is missing, left over or misshapen.
    """
    first, projection = name("R", 0, 0), name("projection", 0, 0)
    rows, P = named.shape(first, 2)
    U = named.shape(projection, 2)[1] if projection in named else P
    if projection in named and rows != 4 * U:
        named.refuse(projection, f"expecting {rows} / 4 columns (only the LSTM projects), got {U}")
    mode = mode_of(framework, first, rows, U, activation)
    if activation == "relu" and mode in (RNNMode.LSTM, RNNMode.GRU) and framework == "pytorch":
        raise ConvertError(framework, "nonlinearity", f"'relu' belongs to the plain cell, and this is {str(mode)!r}")
    form = form_of(framework, mode, biases=has_biases, projection=projection in named)
    keys = [lambda kind, p=p: name(kind, *divmod(p, num_dirs)) for p in range(num_layers * num_dirs)]
    sizes = rows // U, named.shape(name("W", 0, 0), 2)[1], U, P
    return assemble(framework, mode, take_layers(named, form, keys, sizes, num_dirs), num_dirs)


def write(framework: str, c: Canonical, name: Naming) -> dict[str, Array]:
    """Return every array under its name, in the framework's order.

    Raises:
        ConvertError: a feature that the framework does not have.
    """
    layers = split(framework, c, projection=True)
    form = form_of(framework, c.spec.mode, biases=bool(c.biases), projection=bool(c.spec.num_proj))
    return {name(t.name, *divmod(p, c.spec.num_dirs)): t.of(layer) for p, layer in enumerate(layers) for t in form}
