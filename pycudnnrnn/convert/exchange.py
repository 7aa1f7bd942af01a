"""`Canonical`: a model between two frameworks, in cuDNN's order; and its pseudo-layers with stacked gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pycudnnrnn._checks import Assumption, warn
from pycudnnrnn._forms import Array, Form, PseudoLayer, pseudo_layers, unstack
from pycudnnrnn.convert.named import Named, as_numpy, described
from pycudnnrnn.convert.stacks import Layers
from pycudnnrnn.errors import ConvertError, PycudnnrnnError
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.spec import GATES, BiasMode, Direction, InputMode, RNNMode, RNNSpec


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Canonical:
    """Hold a model that is independent of any framework: its spec, and its weights and biases in cuDNN's order.

    `ops.from_spec(c.spec)` runs it, with the params that the op's `canonical_to_params(c)` returns.

    Args:
        spec: the description of the RNN, an `RNNSpec`.
        weights: the matrices, each [rows = output, cols = input], in the order of `layout.arithmetic_layout(spec)`:
            layer by layer, direction by direction, then by linear layer id.
        biases: the biases that exist, each [rows], in the same order.

    Raises:
        ConvertError: not as many arrays as the spec has, or one of another shape or dtype.

    Example:
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> len(c.weights), len(c.biases), c.weights[0].shape
        (8, 8, (4, 3))
    """

    spec: RNNSpec
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.spec, RNNSpec):
            raise ConvertError("canonical", "spec", f"expecting an RNNSpec, got {type(self.spec).__name__}")
        regions = list(canonical_shapes(self.spec))
        for name, kind in (("weights", "weight"), ("biases", "bias")):
            listed = getattr(self, name)
            shapes = [region[-1] for region in regions if region[3] == kind]
            if not isinstance(listed, (list, tuple)):
                raise ConvertError("canonical", name, f"expecting a list of arrays, got {type(listed).__name__}")
            arrays = tuple(as_numpy("canonical", f"{name}[{i}]", array) for i, array in enumerate(listed))
            if len(arrays) != len(shapes):
                raise ConvertError("canonical", name, f"expecting {len(shapes)} arrays, got {len(arrays)}")
            for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
                if array.shape != shape:
                    raise ConvertError("canonical", f"{name}[{i}]", f"expecting shape {shape}, got {array.shape}")
                if array.dtype.name != self.spec.dtype:
                    raise ConvertError("canonical", f"{name}[{i}]", f"expecting {self.spec.dtype}, got {array.dtype}")
            object.__setattr__(self, name, arrays)

    def __repr__(self) -> str:
        return f"<Canonical: {self.spec!r}; {len(self.weights)} weights, {len(self.biases)} biases>"

    def double_biases(self) -> Canonical:
        """Return the same model with both biases of every gate. Absent ones become zeros, so the results are equal.

        cuDNN's persistent algorithms and the classes of TF 1.x need both biases.
        """
        layers = pseudo_layers(self.spec, self.weights, self.biases)
        both = [layer._replace(bW=layer.bW or layer.zeros, bR=layer.bR or layer.zeros) for layer in layers]
        spec = self.spec.replace(bias_mode=BiasMode.DOUBLE)
        return Canonical(spec, self.weights, tuple(bias for layer in both for bias in layer.biases))


def with_activation(c: Canonical, activation: str | None, keyword: str = "activation") -> Canonical:
    """Return the model; warn if it is a plain cell whose activation was not said."""
    if activation is None and c.spec.mode in (RNNMode.RNN_TANH, RNNMode.RNN_RELU):
        default = c.spec.mode.removeprefix("rnn_")
        text = f"the arrays do not contain the {keyword} of a plain cell"
        warn(f"{text}: read as {keyword}={default!r}, its default", Assumption)
    return c


def assemble(framework: str, mode: RNNMode, layers: Sequence[PseudoLayer], num_dirs: int) -> Canonical:
    """Make a `Canonical` from pseudo-layers of matching shapes.

    Raises:
        ConvertError: the shapes do not match, or cuDNN has no such RNN.
    """
    first = layers[0]
    U, P = first.R[0].shape
    weights, biases = ([a for layer in layers for a in getattr(layer, what)] for what in ("weights", "biases"))
    sizes, dtype = (len(layers) // num_dirs, U, first.W[0].shape[1]), first.W[0].dtype.name
    single = BiasMode.SINGLE_INPUT if first.bR is None else BiasMode.SINGLE_RECURRENT
    bias_mode = {0: BiasMode.NONE, 1: single, 2: BiasMode.DOUBLE}[len(first.biases) // len(first.R)]
    direction = Direction.BIDIRECTIONAL if num_dirs == 2 else Direction.UNIDIRECTIONAL
    num_proj = P if first.projection is not None else None
    try:
        spec = RNNSpec(mode, *sizes, InputMode.LINEAR_INPUT, direction, dtype, num_proj=num_proj, bias_mode=bias_mode)
        return Canonical(spec, tuple(map(np.array, weights)), tuple(map(np.array, biases)))
    except PycudnnrnnError as error:
        raise ConvertError(framework, f"{mode} of {len(first.R)} gates, {U} units", str(error)) from error


def split(framework: str, c: Canonical, *, projection: bool = False) -> list[PseudoLayer]:
    """Return the pseudo-layers of a model, for a target with or without projection.

    No target has skip input: identity matrices replace it, and the results are equal.

    Raises:
        ConvertError: not a `Canonical`, or one that the target cannot hold.
    """
    check_target(framework, c, projection=projection)
    layers = pseudo_layers(c.spec, c.weights, c.biases)
    identity = [np.eye(c.spec.num_units, dtype=c.spec.dtype.numpy)] * c.spec.num_gates
    return [layer if layer.W[0].size else layer._replace(W=identity) for layer in layers]


def check_target(framework: str, c: Any, *, projection: bool) -> None:
    """Check that this is a `Canonical` which the target can hold.

    Raises:
        ConvertError: it is not.
    """
    if not isinstance(c, Canonical):
        raise ConvertError(framework, "canonical", f"expecting a Canonical, got {described(c)}")
    spec = c.spec
    if spec.cell_clip is not None:
        raise ConvertError(framework, "cell_clip", f"it has no place for the bounds {spec.cell_clip} on the cell state")
    if spec.num_proj and not projection:
        raise ConvertError(framework, "num_proj", f"its LSTM has no projection, and this one has {spec.num_proj}")


def read_cells(named: Named, mode: RNNMode, form: Form, rows: Layers, *, sums: Literal["bW", "bR"] = "bW") -> Canonical:
    """Take the arrays of every cell, and nothing else. `sums` chooses the bias that a sum of two is read as.

    Raises:
        ConvertError: an array is missing, left over or misshapen, or cuDNN has no such RNN.
    """
    W, R = (next(tensor for tensor in form if tensor.parts[0][0] == kind) for kind in "WR")
    (_, I), (units, P) = (named.shape(rows[0][0].key(t.name), 2)[:: -1 if t.columns else 1] for t in (W, R))
    U, G, D = units // len(R.parts), len(GATES[mode]), len(rows[0])
    layers = []
    for k, row in enumerate(rows):
        for cell in row:
            shapes = {tensor.name: tensor.shape(D * P if k else I, U, P) for tensor in form}
            arrays = {name: named.take(cell.key(name), *shape) for name, shape in shapes.items()}
            layers.append(unstack(form, arrays, G, sums=sums))
    named.finish()
    return assemble(named.framework, mode, layers, D)
