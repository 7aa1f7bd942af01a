"""What TF's plain cells share: variables under TF's names, states, and the sum that gates begin with."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._checks import check_int, shorten
from pycudnnrnn._tf1.checks import shape_of
from pycudnnrnn._tf1.initializers import check_initializer, initial_value
from pycudnnrnn._tf1.layer import TF1Layer
from pycudnnrnn._tf1.tensors import CELL_NAMES, cell_tensors
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, TFArgumentError
from pycudnnrnn.spec import INT32_MAX, BiasMode, DType, InputMode, RNNMode, RNNSpec, parse_dtype

Array = npt.NDArray[Any]


class LSTMStateTuple(NamedTuple):
    """An LSTM cell's state."""

    c: Any
    h: Any


class Cell(TF1Layer):
    """What the cells share.

    `reuse` is TF's: the way to share weights here is to share the cell. `dtype` None is the first input's. `seed`
    decides the starting weights; None draws them. `input_mode` and `bias_mode` are the layer's; "skip_input" is for a
    cell in layer 0 of such a layer.
    """

    _mode: ClassVar[RNNMode]
    _lstm_only: Mapping[str, Any] = MappingProxyType({})
    """What the LSTM's constructor has been given besides, before this one is called."""

    def __init__(
        self,
        num_units: int,
        reuse: bool | None = None,
        *,
        kernel_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        seed: int | None = None,
        input_mode: str = InputMode.LINEAR_INPUT,
        bias_mode: str = BiasMode.DOUBLE,
    ) -> None:
        if reuse is not None and not isinstance(reuse, bool):
            raise ArgumentTypeError("reuse", "a bool or None", shorten(reuse))
        super().__init__(
            CELL_NAMES[self._mode] if name is None else name, None if dtype is None else parse_dtype("dtype", dtype)
        )
        self._reuse, self._seed = reuse, seed
        self._kernel_initializer = check_initializer("kernel_initializer", kernel_initializer, "glorot_uniform")
        self._spec = RNNSpec(
            self._mode, 1, num_units, num_units, input_mode, dtype=self._dtype or DType.FLOAT32,
            seed=0 if seed is None else seed, bias_mode=bias_mode, **self._lstm_only,
        )  # fmt: skip

    @property
    def num_units(self) -> int:
        return self._spec.num_units

    @property
    def state_size(self) -> Any:
        """num_units; of the LSTM (c, h), h being as wide as the output."""
        if self._spec.has_cell_state:
            return LSTMStateTuple(self._spec.num_units, self._spec.state_size)
        return self._spec.state_size

    @property
    def output_size(self) -> int:
        return self._spec.state_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros, in the structure of `state_size`. `batch_size` may be a whole float or an array.

        Shapes:
            [batch_size, n] for each n in `state_size`.
        """
        batch = _batch_size(batch_size)
        numpy_dtype = parse_dtype("dtype", dtype).numpy
        if self._spec.has_cell_state:
            return LSTMStateTuple(*(np.zeros((batch, size), numpy_dtype) for size in self.state_size))
        return np.zeros((batch, self.state_size), numpy_dtype)

    def build(self, input_shape: Any) -> None:
        """Make the variables, for inputs of this shape; a second build does nothing.

        Shapes:
            input_shape: (B, input_size), where B may be None.

        Raises:
            ArgumentError: an unknown last dimension; also a `ValueError`.
        """
        with self._alone_until_built():
            if not self.built:
                self._build_as(input_shape, self._dtype or DType.FLOAT32)

    def _build_as(self, input_shape: Any, dtype: DType) -> None:
        shape = shape_of(input_shape)
        if not shape or shape[-1] is None:
            text = f"Expected inputs.shape[-1] to be known, saw shape: {shape}"
            raise TFArgumentError("input_shape", "a known last dimension", shape, text)
        spec = self._spec.replace(input_size=shape[-1], dtype=dtype)
        values: dict[str, Array] = {}
        seed = secrets.randbits(32) if self._seed is None else self._seed
        for index, tensor in enumerate(cell_tensors(spec, 0)):
            if tensor.kind == "pair":
                continue
            initializer: Any = self._kernel_initializer
            if tensor.kind == "bias":  # TF's GRU cell starts with open gates; the layer does not
                initializer = "ones" if tensor.name == "gates/bias" else "zeros"
            values[tensor.name] = initial_value(tensor.name, initializer, tensor.shape, dtype.numpy, [seed, index])
        self._spec, self._dtype = spec, dtype
        for name, value in values.items():
            self._add(name, value)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return (output, new state) of one step.

        Shapes:
            inputs: [B, I]; state: [B, n] for each n in `state_size`; output: [B, output_size].

        Raises:
            ArgumentError: a wrong shape, dtype or structure.
        """
        xp = _arrays.namespace_of(inputs)
        if inputs.ndim != 2 or (self.built and inputs.shape[1] != self._spec.input_size):
            size = self._spec.input_size if self.built else "input_size"
            raise ArgumentError("inputs", f"[B, {size}]", tuple(inputs.shape), aspect="shape")
        dtype = self._dtype or parse_dtype("inputs dtype", inputs.dtype)
        check_dtype("inputs", inputs, dtype)
        state = self._checked(state, inputs.shape[0], dtype)
        if not self.built:
            self._build_as(inputs.shape, dtype)
        weights = {name: _arrays.into_namespace(v.value, xp) for name, v in self._variables.items()}
        return self._step(xp, weights, inputs, state)

    def __call__(self, inputs: Any, state: Any, scope: str | None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Call the cell, and record the call; `scope` names the variables when this call builds them."""
        return super().__call__(inputs, state, scope=scope, **kwargs)

    def _checked(self, state: Any, batch: int, dtype: DType) -> Any:
        if state is None or isinstance(state, (tuple, list)):
            raise ArgumentTypeError("state", f"one array [B, {self.state_size}]", type(state))
        check_state("state", state, (batch, self.state_size), dtype)
        return state

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def _sum(self, w: Mapping[str, Any], x: Any, h: Any, prefix: str = "") -> Any:
        """Return the pre-activations of all gates that share a kernel, side by side."""
        kernel = w[f"{prefix}kernel"]
        columns = kernel.shape[0] - self._spec.state_size
        total = h @ kernel[columns:, :]
        total = total + (_repeated(x, kernel.shape[1]) if self._skips else x @ kernel[:columns, :])
        return total + w[f"{prefix}bias"] if f"{prefix}bias" in w else total

    @property
    def _skips(self) -> bool:
        return self._spec.input_mode is InputMode.SKIP_INPUT

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return (B, output_size) for (B, input_size)."""
        return (shape_of(input_shape)[0], self.output_size)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        config = {
            "num_units": self.num_units,
            "reuse": self._reuse,
            "kernel_initializer": self._kernel_initializer,
            "name": self._name,
            "dtype": None if self._dtype is None else str(self._dtype),
            "seed": self._seed,
            "input_mode": str(self._spec.input_mode),
            "bias_mode": str(self._spec.bias_mode),
        }
        return config | ({"num_proj": self._spec.num_proj, "cell_clip": self._spec.cell_clip} if self._is_lstm else {})

    @property
    def _is_lstm(self) -> bool:
        return self._mode is RNNMode.LSTM

    def __getstate__(self) -> dict[str, Any]:
        """Return configuration and variables: what a cell is, without its calls and losses."""
        own = {"config": self.get_config(), "scope": self._scope, "spec": self._spec, "built": self.built}
        return own | self._variables_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["config"])  # type: ignore[misc]
        self._scope, self._spec, self.built = state["scope"], state["spec"], state["built"]
        self._set_variables_state(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cell:
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        copy.__setstate__(self.__getstate__())
        return copy


def check_state(name: str, array: Any, shape: tuple[int, int], dtype: DType) -> None:
    _arrays.namespace_of(array, name)
    _arrays.check_shape(name, array, shape, f"[B, {shape[1]}]")
    check_dtype(name, array, dtype)


def check_dtype(name: str, array: Any, dtype: DType) -> None:
    """Refuse an array of any library whose dtype is not the cell's."""
    try:
        found = parse_dtype(name, array.dtype)
    except ArgumentError:  # integers, for one
        found = None
    if found is not dtype:
        raise ArgumentError(name, f"{dtype}, the cell's", array.dtype, aspect="dtype")


def _repeated(x: Any, width: int) -> Any:
    """Put `x` beside itself until it is `width` wide; array API libraries share no name for it."""
    batch, columns = x.shape
    times = width // columns
    xp = _arrays.namespace_of(x)
    wide = xp.broadcast_to(x[:, None, :], (batch, times, columns))
    return xp.reshape(wide, (batch, width))


def _batch_size(value: Any) -> int:
    if isinstance(value, float) or getattr(value, "ndim", None) == 0 or getattr(value, "shape", None) == (1,):
        number = float(np.asarray(value).reshape(()))
        if number.is_integer():
            value = int(number)
    return check_int("batch_size", value, 0, INT32_MAX)
