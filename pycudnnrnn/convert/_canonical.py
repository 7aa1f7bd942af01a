"""`Canonical`: a model between two frameworks, in cuDNN's order; and its pseudo-layers with their gates stacked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn.convert._named import as_numpy
from pycudnnrnn.errors import ConvertError, PycudnnrnnError
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode, RNNSpec

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Canonical:
    """Hold a model between two frameworks: its spec, and the weights and biases that exist, in cuDNN's order.

    `ops.from_spec(c.spec)` runs it, on the params that its `canonical_to_params(c.weights, c.biases)` makes.

    Shapes:
        weights: [rows = output, cols = input] each; biases: [rows] each; both pseudo-layer by pseudo-layer in linear
        layer id order, as `layout.arithmetic_layout(spec)` lists them.

    Raises:
        ConvertError: not as many arrays as the spec has, or one of another shape or dtype.
    """

    spec: RNNSpec
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.spec, RNNSpec):
            raise ConvertError("canonical", "spec", f"expecting an RNNSpec, got {type(self.spec).__name__}")
        regions = list(canonical_shapes(self.spec))
        for name, kind in (("weights", "weight"), ("biases", "bias")):
            given = getattr(self, name)
            shapes = [region[-1] for region in regions if region[3] == kind]
            if not isinstance(given, (list, tuple)):
                raise ConvertError("canonical", name, f"expecting a list of arrays, got {type(given).__name__}")
            arrays = tuple(as_numpy("canonical", f"{name}[{i}]", array) for i, array in enumerate(given))
            if len(arrays) != len(shapes):
                raise ConvertError("canonical", name, f"expecting {len(shapes)} arrays, got {len(arrays)}")
            for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
                if array.shape != shape:
                    raise ConvertError("canonical", f"{name}[{i}]", f"expecting shape {shape}, got {array.shape}")
                if array.dtype.name != self.spec.dtype:
                    raise ConvertError("canonical", f"{name}[{i}]", f"expecting {self.spec.dtype}, got {array.dtype}")
            object.__setattr__(self, name, arrays)

    def double_biases(self) -> Canonical:
        """Return the same model with both biases of every gate, those that were absent as zeros: equal in value.

        For what takes only double biases: cuDNN's persistent algorithms, and the classes of TF 1.x.
        """
        layers = split("canonical", self, projection=True, skip=True)
        both = [layer._replace(bW=layer.input_bias, bR=layer.recurrent_bias) for layer in layers]
        spec = self.spec.replace(bias_mode=BiasMode.DOUBLE)
        return Canonical(spec, self.weights, tuple(bias for layer in both for bias in layer.biases))


class PseudoLayer(NamedTuple):
    """One direction of one layer, its gates stacked in cuDNN's order.

    Shapes:
        W: [G, U, I]; R: [G, U, P or U]; bW, bR: [G, U], or None where they do not exist; projection: [P, U] or None.
    """

    W: Array
    R: Array
    bW: Array | None
    bR: Array | None
    projection: Array | None = None

    @property
    def biases(self) -> list[Array]:
        return [bias for gates in (self.bW, self.bR) if gates is not None for bias in gates]

    @property
    def zeros(self) -> Array:
        return np.zeros(self.R.shape[:2], self.R.dtype)

    @property
    def input_bias(self) -> Array:
        """The input bias, zeros where it does not exist."""
        return self.zeros if self.bW is None else self.bW

    @property
    def recurrent_bias(self) -> Array:
        """The recurrent bias, zeros where it does not exist."""
        return self.zeros if self.bR is None else self.bR

    @property
    def sum_of_biases(self) -> Array:
        """What a cell with one bias per gate holds; a single bias goes through bit for bit."""
        if self.bW is None or self.bR is None:
            return self.recurrent_bias if self.bW is None else self.bW
        total: Array = self.bW + self.bR
        return total


def assemble(
    framework: str, mode: RNNMode, layers: Sequence[PseudoLayer], num_dirs: int, *, skip: bool = False
) -> Canonical:
    """Make a `Canonical` of pseudo-layers that agree in their shapes.

    Raises:
        ConvertError: they do not agree, or there is no such RNN.
    """
    first = layers[0]
    G, U, P = first.R.shape
    bias_modes = {
        (False, False): BiasMode.NONE,
        (True, False): BiasMode.SINGLE_INPUT,
        (False, True): BiasMode.SINGLE_RECURRENT,
        (True, True): BiasMode.DOUBLE,
    }
    weights: list[Array] = []
    biases: list[Array] = []
    for layer in layers:
        weights += [*layer.W, *layer.R]
        weights += [] if layer.projection is None else [layer.projection]
        biases += layer.biases
    dtypes = {array.dtype.name for array in (*weights, *biases)}
    if len(dtypes) > 1:
        raise ConvertError(framework, "arrays", f"expecting one dtype, got {', '.join(sorted(dtypes))}")
    try:
        spec = RNNSpec(
            mode,
            len(layers) // num_dirs,
            U,
            U if skip else first.W.shape[2],
            InputMode.SKIP_INPUT if skip else InputMode.LINEAR_INPUT,
            Direction.BIDIRECTIONAL if num_dirs == 2 else Direction.UNIDIRECTIONAL,
            dtypes.pop(),
            num_proj=P if first.projection is not None else None,
            bias_mode=bias_modes[first.bW is not None, first.bR is not None],
        )
        return Canonical(spec, tuple(map(np.array, weights)), tuple(map(np.array, biases)))
    except PycudnnrnnError as error:
        raise ConvertError(framework, f"{mode} of {G} gates, {U} units", str(error)) from error


def split(framework: str, c: Canonical, *, projection: bool = False, skip: bool = False) -> list[PseudoLayer]:
    """Return the pseudo-layers of a model, for a target that does or does not know projection and skip input.

    Where the target does not know skip input, identity matrices stand for it: equal in value.

    Raises:
        ConvertError: not a `Canonical`, or one that the target cannot hold.
    """
    check_target(framework, c, projection=projection)
    spec = c.spec
    G, count = spec.num_gates, spec.num_pseudo_layers
    per_layer, per_bias = len(c.weights) // count, len(c.biases) // count
    layers = []
    for p in range(count):
        weights = c.weights[p * per_layer : (p + 1) * per_layer]
        biases = c.biases[p * per_bias : (p + 1) * per_bias]
        W = np.stack(weights[:G])
        if W.size == 0 and not skip:
            W = np.stack([np.eye(spec.num_units, dtype=W.dtype)] * G)
        layers.append(
            PseudoLayer(
                W,
                np.stack(weights[G : 2 * G]),
                np.stack(biases[:G]) if spec.has_input_bias else None,
                np.stack(biases[-G:]) if spec.has_recurrent_bias else None,
                weights[2 * G].copy() if spec.num_proj else None,
            )
        )
    return layers


def check_target(framework: str, c: Any, *, projection: bool) -> None:
    """Refuse what is not a `Canonical`, or one that the target cannot hold.

    Raises:
        ConvertError: it is one of these.
    """
    if not isinstance(c, Canonical):
        raise ConvertError(framework, "canonical", f"expecting a Canonical, got {type(c).__name__}")
    spec = c.spec
    if spec.cell_clip is not None and framework != "canonical":
        raise ConvertError(framework, "cell_clip", f"it has no place for the bounds {spec.cell_clip} on the cell state")
    if spec.num_proj and not projection:
        raise ConvertError(framework, "num_proj", f"its LSTM has no projection, and this one has {spec.num_proj}")
