"""A layer as its constructor's arguments describe it: what can be said of it before it has weights."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn._checks import check_int, shorten
from pycudnnrnn._keywords import told
from pycudnnrnn._tf1.checks import check_words, layer_dtype, shape_of, wrong_rank
from pycudnnrnn._tf1.initializers import check_initializer
from pycudnnrnn._tf1.layer import TF1Layer
from pycudnnrnn.errors import ArgumentTypeError, NotBuiltError, StateError, TFArgumentError
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.spec import INT32_MAX, Algorithm, BiasMode, Direction, DType, InputMode, RNNMode, RNNSpec


class ConfiguredLayer(TF1Layer):
    """The arguments of a layer, checked, and the shapes that follow from them; `RNNLayer` says what they mean."""

    _mode: ClassVar[RNNMode]
    _lstm_only: Mapping[str, Any] = MappingProxyType({})
    """What the LSTM's constructor has been given besides, before this one is called."""

    @told
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: Any = DType.FLOAT32,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        *,
        device: str | None = None,
        bias_mode: str = BiasMode.DOUBLE,
        algo: str = Algorithm.STANDARD,
        math_type: str | None = None,
        compute_dtype: Any = None,
    ) -> None:
        kind = type(self).__name__
        if isinstance(input_mode, (int, np.integer)) and not isinstance(input_mode, bool):
            raise ArgumentTypeError(
                "input_mode",
                f"a string: this {kind} is the layer; with input_size it is ops.{kind}",
                shorten(input_mode),
            )
        check_words(input_mode, direction)
        super().__init__(name, layer_dtype(dtype))
        self._input_mode = str(input_mode)
        self._seed = seed
        self._options: dict[str, Any] = {
            "dropout": dropout, "bias_mode": bias_mode, "algo": algo, "math_type": math_type,
            "compute_dtype": compute_dtype, **self._lstm_only,
        }  # fmt: skip
        self._kernel_initializer = check_initializer("kernel_initializer", kernel_initializer, "glorot_uniform")
        self._bias_initializer = check_initializer("bias_initializer", bias_initializer, "zeros")
        self._device = None if device is None else _arrays.check_device(device)
        # An input size that suits any mode; the real one comes with build. Everything else is checked here.
        self._spec = self._spec_for(num_layers, num_units, num_units, direction, 0 if seed is None else seed)

    def _spec_for(self, num_layers: int, num_units: int, input_size: int, direction: str, seed: int) -> RNNSpec:
        return RNNSpec(
            self._mode, num_layers, num_units, input_size, self._input_mode, direction, self._dtype, seed=seed,
            **self._options,
        )  # fmt: skip

    @property
    def num_layers(self) -> int:
        return self._spec.num_layers

    @property
    def num_units(self) -> int:
        return self._spec.num_units

    @property
    def input_mode(self) -> str:
        """The mode that was asked for; `spec.input_mode` is the one in force."""
        return self._input_mode

    @property
    def input_size(self) -> int:
        """The width of the input.

        Raises:
            NotBuiltError: not built yet; a `ValueError`, as in TF.
        """
        if not self.built:
            raise NotBuiltError("'input_size' is unknown since layer has not been built.")
        return self._spec.input_size

    @property
    def rnn_mode(self) -> RNNMode:
        return self._mode

    @property
    def direction(self) -> Direction:
        return self._spec.direction

    @property
    def num_dirs(self) -> int:
        return self._spec.num_dirs

    @property
    def canonical_weight_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the canonical weights, in order.

        Raises:
            StateError: the layer is not built.
        """
        if not self.built:
            raise StateError(f"{type(self).__name__}.canonical_weight_shapes invoked before input shape is known")
        return [shape for *_, kind, shape in canonical_shapes(self._spec) if kind == "weight"]

    @property
    def canonical_bias_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the canonical biases that exist, in order."""
        return [shape for *_, kind, shape in canonical_shapes(self._spec) if kind == "bias"]

    def _canonical_weight_shape(self, layer: int) -> list[tuple[int, ...]]:
        if not 0 <= layer < self.num_layers:
            text = f"'layer' is not valid, got {layer}, expecting [0, {self.num_layers - 1}]"
            raise TFArgumentError("layer", f"0 to {self.num_layers - 1}", layer, text)
        each = len(self.canonical_weight_shapes) // self.num_layers
        return self.canonical_weight_shapes[layer * each : (layer + 1) * each]

    def state_shape(self, batch_size: int) -> tuple[list[int], ...]:
        """Return the shapes of the states: (h, c) for LSTM, (h,) for the rest."""
        rows, batch = self._spec.num_pseudo_layers, check_int("batch_size", batch_size, 0, INT32_MAX)
        h = [rows, batch, self._spec.state_size]
        return (h, [rows, batch, self.num_units]) if self._spec.has_cell_state else (h,)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of `outputs` for an input shape, None where that is open; `state_shape` has the states'."""
        shape = shape_of(input_shape)
        if len(shape) != 3:
            raise wrong_rank(shape)
        return (*shape[:2], self._spec.output_size)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments by name. Initializers that are callables stay callables."""
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
