"""A layer as its constructor's arguments describe it: what is known before it has weights."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn._checks import check_int, shorten
from pycudnnrnn._keywords import with_hints
from pycudnnrnn._tf1.checks import check_words, layer_dtype, layer_shape
from pycudnnrnn._tf1.initializers import InitializerLike, check_initializer
from pycudnnrnn._tf1.layer import TF1Layer
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.spec import (
    INT32_MAX,
    AlgorithmLike,
    BiasModeLike,
    Direction,
    DirectionLike,
    DTypeLike,
    InputModeLike,
    MathTypeLike,
    RNNMode,
    RNNSpec,
)


class ConfiguredLayer(TF1Layer):
    """The arguments of a layer, checked, and the shapes that follow from them. The four layers explain them."""

    _mode: ClassVar[RNNMode]
    _lstm_only: Mapping[str, Any] = MappingProxyType({})
    """The arguments that only the LSTM has. Its constructor sets them before it calls this one."""

    @with_hints
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: DTypeLike = "float32",
        kernel_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        name: str | None = None,
        *,
        device: str | None = None,
        bias_mode: BiasModeLike = "double",
        algo: AlgorithmLike = "standard",
        math_type: MathTypeLike | None = None,
        compute_dtype: DTypeLike | None = None,
    ) -> None:
        kind = type(self).__name__
        if isinstance(input_mode, (int, np.integer)) and not isinstance(input_mode, bool):
            expected = f"a string: this {kind} is the layer; with input_size it is ops.{kind}"
            raise ArgumentTypeError("input_mode", expected, shorten(input_mode))
        check_words(input_mode, direction)
        super().__init__(name, layer_dtype(dtype))
        self._input_mode: InputModeLike = cast("InputModeLike", str(input_mode))
        self._seed = seed
        self._options: dict[str, Any] = {
            "dropout": dropout, "bias_mode": bias_mode, "algo": algo, "math_type": math_type,
            "compute_dtype": compute_dtype, **self._lstm_only,
        }  # fmt: skip
        self._kernel_initializer = check_initializer("kernel_initializer", kernel_initializer, "glorot_uniform")
        self._bias_initializer = check_initializer("bias_initializer", bias_initializer, "zeros")
        self._device = None if device is None else _arrays.check_device(device)
        # This input size suits any mode; `build` learns the real one. Everything else is checked here.
        self._spec = self._spec_for(num_layers, num_units, num_units, direction, 0 if seed is None else seed)

    def _spec_for(
        self, num_layers: int, num_units: int, input_size: int, direction: DirectionLike, seed: int
    ) -> RNNSpec:
        return RNNSpec(
            self._mode, num_layers, num_units, input_size, self._input_mode, direction, self._dtype, seed=seed,
            **self._options,
        )  # fmt: skip

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return self._spec.num_layers

    @property
    def num_units(self) -> int:
        """Width U of the gates and of the states, in each layer and direction."""
        return self._spec.num_units

    @property
    def input_mode(self) -> str:
        """The input mode as it was given. `spec.input_mode` is what "auto_select" became."""
        return self._input_mode

    @property
    def input_size(self) -> int:
        """Width I of the input.

        Raises:
            StateError: the layer is not built yet.
        """
        if not self.built:
            raise StateError("'input_size' is unknown since layer has not been built.")
        return self._spec.input_size

    @property
    def rnn_mode(self) -> RNNMode:
        """The cell: "lstm", "gru", "rnn_tanh" or "rnn_relu"."""
        return self._mode

    @property
    def direction(self) -> Direction:
        """The direction: "unidirectional" or "bidirectional"."""
        return self._spec.direction

    @property
    def num_dirs(self) -> int:
        """Number of directions D: 1 or 2."""
        return self._spec.num_dirs

    @property
    def canonical_weight_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the canonical weights, in the order of `layer.op.params_to_canonical`.

        Raises:
            StateError: the layer is not built yet.
        """
        if not self.built:
            raise StateError(f"{type(self).__name__}.canonical_weight_shapes invoked before input shape is known")
        return [shape for *_, kind, shape in canonical_shapes(self._spec) if kind == "weight"]

    @property
    def canonical_bias_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the canonical biases, in the order of `layer.op.params_to_canonical`."""
        return [shape for *_, kind, shape in canonical_shapes(self._spec) if kind == "bias"]

    def _canonical_weight_shape(self, layer: int) -> list[tuple[int, ...]]:
        """Return the shapes of one layer's weights: TensorFlow's layer has this method, too."""
        if not 0 <= layer < self.num_layers:
            text = f"'layer' is not valid, got {layer}, expecting [0, {self.num_layers - 1}]"
            raise ArgumentError("layer", f"0 to {self.num_layers - 1}", layer, text=text)
        each = len(self.canonical_weight_shapes) // self.num_layers
        return self.canonical_weight_shapes[layer * each : (layer + 1) * each]

    def state_shape(self, batch_size: int) -> tuple[list[int], ...]:
        """Return the shapes of the states: (h, c) for the LSTM, (h,) for the others.

        Args:
            batch_size: number of sequences B.
        """
        rows, batch = self._spec.num_pseudo_layers, check_int("batch_size", batch_size, 0, INT32_MAX)
        h = [rows, batch, self._spec.state_size]
        return (h, [rows, batch, self.num_units]) if self._spec.has_cell_state else (h,)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of `outputs`, with None for a size that is unknown. `state_shape` returns the states'.

        Args:
            input_shape: shape of the inputs, three sizes; each may be None.

        Raises:
            ArgumentError: not three dimensions.
        """
        return (*layer_shape(input_shape)[:2], self._spec.output_size)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments by name. An initializer that is a callable is returned as it is."""
        return {
            "num_layers": self.num_layers,
            "num_units": self.num_units,
            "input_mode": self._input_mode,
            "direction": str(self.direction),
            "seed": self._seed,
            "dtype": str(self._dtype),
            "kernel_initializer": self._kernel_initializer,
            "bias_initializer": self._bias_initializer,
            "name": self._name,
            "device": self._device,
            **{name: str(v) if isinstance(v, StrEnum) else v for name, v in self._options.items()},
        }
