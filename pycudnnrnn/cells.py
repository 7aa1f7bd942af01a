"""TF's plain cells, which compute the same as cuDNN one step at a time.

A cell has the weights of one pseudo-layer (one layer in one direction) under TF's names. It runs on NumPy arrays and on
those of any array API library. Each bias is the sum of cuDNN's two, as in TF; only a GRU's candidate has both. An
LSTM's state is (c, h) here and (h, c) in layers, also as in TF.

Source: `CudnnCompatibleLSTMCell` and `CudnnCompatibleGRUCell` of tf.contrib.cudnn_rnn, TF 1.4 to 1.15; BasicRNNCell.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_int, shorten, with_hints
from pycudnnrnn._tf1.arguments import InitializerLike, check_initializer, initial_value, shape_of
from pycudnnrnn._tf1.layer import TF1Layer
from pycudnnrnn._tf1.tensors import CELL_NAMES, cell_tensors
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import (
    INT32_MAX,
    BiasModeLike,
    DType,
    DTypeLike,
    InputMode,
    InputModeLike,
    RNNMode,
    RNNSpec,
    parse_dtype,
)

__all__ = [
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnCompatibleRNNReluCell",
    "CudnnCompatibleRNNTanhCell",
    "LSTMStateTuple",
]
__dir__ = __all__.copy


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM cell: the pair (c, h), with names. A layer's states are (h, c).

    Args:
        c: the cell state, [B, U].
        h: the output of the last step, [B, U], or [B, P] with a projection.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import cells
        >>> state = cells.LSTMStateTuple(c=np.zeros((4, 3)), h=np.ones((4, 3)))
        >>> c, h = state
        >>> float(h.sum())
        12.0
    """

    c: Any
    h: Any


class _Cell(TF1Layer):
    """Base of the four cells, which explain the arguments. "skip_input" is for layer 0 of an RNN with skip input."""

    @with_hints
    def __init__(
        self,
        num_units: int,
        reuse: bool | None = None,
        kernel_initializer: InitializerLike | None = None,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        seed: int | None = None,
        input_mode: InputModeLike = "linear_input",
        bias_mode: BiasModeLike = "double",
    ) -> None:
        if reuse is not None and not isinstance(reuse, bool):
            raise ArgumentTypeError("reuse", "a bool or None", shorten(reuse))
        known = None if dtype is None else parse_dtype("dtype", dtype)
        super().__init__(CELL_NAMES[self._mode] if name is None else name, known)
        self._reuse, self._seed = reuse, seed
        self._kernel_initializer = check_initializer("kernel_initializer", kernel_initializer, "glorot_uniform")
        self._spec = RNNSpec(
            self._mode, 1, num_units, num_units, input_mode, dtype=self._dtype or DType.FLOAT32,
            seed=0 if seed is None else seed, bias_mode=bias_mode, **self._lstm_only,
        )  # fmt: skip

    @property
    def num_units(self) -> int:
        """The width of the gates and of the state, U."""
        return self._spec.num_units

    @property
    def state_size(self) -> Any:
        """The width of the state: U, or for the LSTM the widths of (c, h), which are (U, U) or (U, P)."""
        if self._spec.has_cell_state:
            return LSTMStateTuple(self._spec.num_units, self._spec.state_size)
        return self._spec.state_size

    @property
    def output_size(self) -> int:
        """The width of the output: U, or P with a projection."""
        return self._spec.state_size

    def zero_state(self, batch_size: Any, dtype: DTypeLike) -> Any:
        """Make a state of zeros.

        Args:
            batch_size: number of sequences, B: an integer, a float with an integer's value, or an array with one.
            dtype: type of the state: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
                torch, JAX or TensorFlow.

        Returns:
            A NumPy array [B, U], or for the LSTM an `LSTMStateTuple` of two.

        Raises:
            ArgumentError: a negative size, or an unknown dtype.
            ArgumentTypeError: a size that is not an integer.
        """
        if isinstance(batch_size, float) or getattr(batch_size, "shape", None) in ((), (1,)):
            number = float(np.asarray(batch_size).reshape(()))
            batch_size = int(number) if number.is_integer() else batch_size
        batch = check_int("batch_size", batch_size, 0, INT32_MAX)
        numpy_dtype = parse_dtype("dtype", dtype).numpy
        if self._spec.has_cell_state:
            return LSTMStateTuple(*(np.zeros((batch, size), numpy_dtype) for size in self.state_size))
        return np.zeros((batch, self.state_size), numpy_dtype)

    def build(self, input_shape: Any) -> None:
        """Create the weights. The first call does this if you do not; a second build does nothing.

        Args:
            input_shape: shape of the inputs, (B, I). B may be None.

        Raises:
            ArgumentError: the last dimension is None. It is a `ValueError`, as in TF.
        """
        with self._alone_until_built():
            if not self.built:
                self._build_as(input_shape, self._dtype or DType.FLOAT32)

    def _build_as(self, input_shape: Any, dtype: DType) -> None:
        shape = shape_of(input_shape)
        if not shape or shape[-1] is None:
            text = f"Expected inputs.shape[-1] to be known, saw shape: {shape}"
            raise ArgumentError("input_shape", "a known last dimension", shape, text=text)
        spec = self._spec.replace(input_size=shape[-1], dtype=dtype)
        values: dict[str, Array] = {}
        seed = secrets.randbits(32) if self._seed is None else self._seed
        for index, tensor in enumerate(cell_tensors(spec, 0)):
            if tensor.kind == "pair":
                continue
            initializer = self._kernel_initializer
            if tensor.kind == "bias":  # TF's GRU cell starts with open gates, its layer with zeros
                initializer = "ones" if tensor.name == "gates/bias" else "zeros"
            values[tensor.name] = initial_value(tensor.name, initializer, tensor.shape, dtype.numpy, [seed, index])
        self._spec, self._dtype = spec, dtype
        for name, value in values.items():
            self._add(name, value)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute one step. `cell(inputs, state)` calls this.

        Args:
            inputs: the input of this step, [B, I], of NumPy or an array API library.
            state: the state before this step, as `zero_state` returns it or the last step did.

        Returns:
            The pair (output, new state). The output is [B, U], or [B, P] with a projection.

        Raises:
            ArgumentError: a wrong shape or dtype, or a state of the wrong structure.
            ArgumentTypeError: an argument that is not an array.
        """
        xp = _arrays.namespace_of(inputs)
        if inputs.ndim != 2 or (self.built and inputs.shape[1] != self._spec.input_size):
            size = self._spec.input_size if self.built else "input_size"
            raise ArgumentError("inputs", f"[B, {size}]", tuple(inputs.shape), aspect="shape")
        dtype = self._dtype or parse_dtype("inputs dtype", inputs.dtype)
        _check_dtype("inputs", inputs, dtype)
        self._check_state(state, inputs.shape[0], dtype)
        if not self.built:
            self._build_as(inputs.shape, dtype)
        weights = {name: _arrays.into_namespace(v.value, xp) for name, v in self._variables.items()}
        h, *c = self._step(xp, weights, inputs, state)
        if xp is np:  # whose product of two bfloat16 matrices is float32
            h, *c = (array.astype(dtype.numpy, copy=False) for array in (h, *c))
        return h, LSTMStateTuple(c[0], h) if c else h

    def __call__(self, inputs: Any, state: Any, scope: str | None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Run one step: build the cell if this is the first call, run `call`, and record the call.

        Args:
            inputs: the input of this step, [B, I], of NumPy or an array API library.
            state: the state before this step, as `zero_state` returns it or the last step did.
            scope: prefix of the variables' names, if this call creates them. None: the cell's name. Default: None.
            **kwargs: none is accepted; TF's signature has them.

        Returns:
            The pair (output, new state). The output is [B, U], or [B, P] with a projection.

        Raises:
            ArgumentError: a wrong shape or dtype, or a state of the wrong structure.
            TypeError: an argument that `call` does not take.
        """
        return super().__call__(inputs, state, scope=scope, **kwargs)

    def _check_state(self, state: Any, batch: int, dtype: DType) -> None:
        if not self._spec.has_cell_state:
            if state is None or isinstance(state, (tuple, list)):
                raise ArgumentTypeError("state", f"one array [B, {self.state_size}]", type(state))
            parts = {"state": (state, self.state_size)}
        elif isinstance(state, (tuple, list)) and len(state) == 2:
            parts = {"state c": (state[0], self.num_units), "state h": (state[1], self._spec.state_size)}
        else:
            text = "Expecting state to be a tuple with length 2."
            raise ArgumentError("state", "a tuple (c, h)", type(state), text=text)
        for name, (array, size) in parts.items():
            _arrays.namespace_of(array, name)
            _arrays.check_shape(name, array, (batch, size), f"[B, {size}]")
            _check_dtype(name, array, dtype)

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        """Return the new h and, for an LSTM, c."""
        raise NotImplementedError

    def _sum(self, w: Mapping[str, Any], x: Any, h: Any, prefix: str = "") -> Any:
        """Return the sums of all gates that share a kernel, concatenated, before their activation functions."""
        kernel = w[f"{prefix}kernel"]
        columns, width = kernel.shape[0] - self._spec.state_size, kernel.shape[1]
        total = h @ kernel[columns:, :]
        if self._spec.input_mode is InputMode.SKIP_INPUT:
            # Each gate adds x; array API libraries have no common name for repeating along an axis.
            xp, (batch, units) = _arrays.namespace_of(x), x.shape
            total = total + xp.reshape(xp.broadcast_to(x[:, None, :], (batch, width // units, units)), (batch, width))
        else:
            total = total + x @ kernel[:columns, :]
        return total + w[f"{prefix}bias"] if f"{prefix}bias" in w else total

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of the output, (B, U), or (B, P) with a projection.

        Args:
            input_shape: shape of the inputs, (B, I). B may be None.
        """
        return (shape_of(input_shape)[0], self.output_size)

    def get_config(self) -> dict[str, Any]:
        """Return a dict of the constructor's arguments by name."""
        return {
            "num_units": self.num_units,
            "reuse": self._reuse,
            "kernel_initializer": self._kernel_initializer,
            "name": self._name,
            "dtype": None if self._dtype is None else str(self._dtype),
            "seed": self._seed,
            "input_mode": str(self._spec.input_mode),
            "bias_mode": str(self._spec.bias_mode),
            **self._lstm_only,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return configuration and variables, without recorded calls and losses."""
        return {"spec": self._spec, "built": self.built} | self._copied_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_configuration(state)
        self._spec, self.built = state["spec"], state["built"]
        self._set_variables(state)


class CudnnCompatibleLSTMCell(_Cell):
    """Run an LSTM one step at a time, as TF's `CudnnCompatibleLSTMCell` does.

    The gates i, c, f and o share one kernel. No forget bias is added. The state is the pair (c, h); a layer has (h, c).

    Letters: B sequences, I inputs, U units, P projected units.

    Args:
        num_units: width of the gates and of the state, U.
        reuse: ignored; TF's signature has it. To share weights, share the cell. Default: None.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        cell_clip: bounds of an LSTM's cell state c: a positive number x for [-x, x], a pair (low, high), or None for no
            bounds. They are rounded to float32 with every dtype. Default: None.
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array. None:
            "glorot_uniform". Default: None.
        name: name of the cell, with which its variables' names begin. None: "cudnn_compatible_lstm_cell".
            Default: None.
        dtype: type of the weights and states: "float16", "bfloat16", "float32" or "float64", or the dtype object of
            NumPy, torch, JAX or TensorFlow. None: the dtype of the first input. Default: None.
        seed: seed of the starting weights. From 0 to 2**64 - 1. None: a random seed. Default: None.
        input_mode: how the cell uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U; it is for layer 0 of an RNN with skip input. Default: "linear_input".
        bias_mode: "none" for no biases; every other mode gives one bias per gate, the sum of cuDNN's.
            Default: "double".

    Shapes:
        inputs: [B, I].
        state: `LSTMStateTuple(c, h)`: c is [B, U], h is [B, U], or [B, P] with a projection.
        output: as h.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import cells
        >>> cell = cells.CudnnCompatibleLSTMCell(3, seed=0)
        >>> state = cell.zero_state(4, "float32")
        >>> output, state = cell(np.ones((4, 2), "float32"), state)
        >>> output.shape, state.c.shape, state.h.shape
        ((4, 3), (4, 3), (4, 3))
    """

    _mode = RNNMode.LSTM

    @with_hints
    def __init__(
        self,
        num_units: int,
        reuse: bool | None = None,
        *,
        num_proj: int | None = None,
        cell_clip: float | tuple[float, float] | None = None,
        kernel_initializer: InitializerLike | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        seed: int | None = None,
        input_mode: InputModeLike = "linear_input",
        bias_mode: BiasModeLike = "double",
    ) -> None:
        self._lstm_only = {"num_proj": num_proj, "cell_clip": cell_clip}
        super().__init__(
            num_units, reuse, kernel_initializer=kernel_initializer, name=name, dtype=dtype, seed=seed,
            input_mode=input_mode, bias_mode=bias_mode,
        )  # fmt: skip

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        c, h = state
        gates = self._sum(w, x, h)
        n = self.num_units
        i, g, f, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
        c = _sigmoid(xp, f) * c + _sigmoid(xp, i) * xp.tanh(g)
        if self._spec.cell_clip:
            low, high = self._spec.cell_clip
            c = xp.where(c < low, xp.full_like(c, low), xp.where(c > high, xp.full_like(c, high), c))
        h = _sigmoid(xp, o) * xp.tanh(c)
        if self._spec.num_proj:
            h = h @ w["projection/kernel"]
        return h, c


class CudnnCompatibleGRUCell(_Cell):
    """Run a GRU one step at a time, as TF's `CudnnCompatibleGRUCell` does.

    The reset gate is applied after the recurrent product, as in cuDNN. The candidate therefore has two biases.

    Letters: B sequences, I inputs, U units.

    Args:
        num_units: width of the gates and of the state, U.
        reuse: ignored; TF's signature has it. To share weights, share the cell. Default: None.
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array. None:
            "glorot_uniform". Default: None.
        name: name of the cell, with which its variables' names begin. None: "cudnn_compatible_gru_cell". Default: None.
        dtype: type of the weights and states: "float16", "bfloat16", "float32" or "float64", or the dtype object of
            NumPy, torch, JAX or TensorFlow. None: the dtype of the first input. Default: None.
        seed: seed of the starting weights. From 0 to 2**64 - 1. None: a random seed. Default: None.
        input_mode: how the cell uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U; it is for layer 0 of an RNN with skip input. Default: "linear_input".
        bias_mode: "double" gives the candidate a bias in each product; "single_input" and "single_recurrent" give it
            only that one. With each of these, the two gates have one bias, the sum of cuDNN's. "none": no biases.
            Default: "double".

    Shapes:
        inputs: [B, I].
        state, output: [B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import cells
        >>> cell = cells.CudnnCompatibleGRUCell(3, seed=0)
        >>> state = cell.zero_state(4, "float32")
        >>> output, state = cell(np.ones((4, 2), "float32"), state)
        >>> output.shape, state.shape
        ((4, 3), (4, 3))
    """

    _mode = RNNMode.GRU

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        gates = _sigmoid(xp, self._sum(w, x, state, "gates/"))
        r, u = gates[:, : self.num_units], gates[:, self.num_units :]
        skips = self._spec.input_mode is InputMode.SKIP_INPUT
        from_input = x if skips else x @ w["candidate/input_projection/kernel"]
        from_state = state @ w["candidate/hidden_projection/kernel"]
        if "candidate/input_projection/bias" in w:
            from_input = from_input + w["candidate/input_projection/bias"]
        if "candidate/hidden_projection/bias" in w:
            from_state = from_state + w["candidate/hidden_projection/bias"]
        candidate = xp.tanh(from_input + r * from_state)
        return ((1 - u) * candidate + u * state,)


class CudnnCompatibleRNNTanhCell(_Cell):
    """Run a tanh RNN one step at a time, as TF's `BasicRNNCell` does.

    Letters: B sequences, I inputs, U units.

    Args:
        num_units: width of the gates and of the state, U.
        reuse: ignored; TF's signature has it. To share weights, share the cell. Default: None.
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array. None:
            "glorot_uniform". Default: None.
        name: name of the cell, with which its variables' names begin. None: "basic_rnn_cell". Default: None.
        dtype: type of the weights and states: "float16", "bfloat16", "float32" or "float64", or the dtype object of
            NumPy, torch, JAX or TensorFlow. None: the dtype of the first input. Default: None.
        seed: seed of the starting weights. From 0 to 2**64 - 1. None: a random seed. Default: None.
        input_mode: how the cell uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U; it is for layer 0 of an RNN with skip input. Default: "linear_input".
        bias_mode: "none" for no biases; every other mode gives one bias, the sum of cuDNN's. Default: "double".

    Shapes:
        inputs: [B, I].
        state, output: [B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import cells
        >>> cell = cells.CudnnCompatibleRNNTanhCell(3, seed=0)
        >>> state = cell.zero_state(4, "float32")
        >>> output, state = cell(np.ones((4, 2), "float32"), state)
        >>> output.shape, state.shape
        ((4, 3), (4, 3))
    """

    _mode = RNNMode.RNN_TANH

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        return (xp.tanh(self._sum(w, x, state)),)


class CudnnCompatibleRNNReluCell(_Cell):
    """Run a relu RNN one step at a time, as TF's `BasicRNNCell` with relu does.

    Letters: B sequences, I inputs, U units.

    Args:
        num_units: width of the gates and of the state, U.
        reuse: ignored; TF's signature has it. To share weights, share the cell. Default: None.
        kernel_initializer: how each matrix starts: "glorot_uniform", "glorot_normal", "orthogonal", "random_normal",
            "random_uniform", "zeros", "ones", or a callable (shape, dtype) that returns an array. None:
            "glorot_uniform". Default: None.
        name: name of the cell, with which its variables' names begin. None: "basic_rnn_cell". Default: None.
        dtype: type of the weights and states: "float16", "bfloat16", "float32" or "float64", or the dtype object of
            NumPy, torch, JAX or TensorFlow. None: the dtype of the first input. Default: None.
        seed: seed of the starting weights. From 0 to 2**64 - 1. None: a random seed. Default: None.
        input_mode: how the cell uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U; it is for layer 0 of an RNN with skip input. Default: "linear_input".
        bias_mode: "none" for no biases; every other mode gives one bias, the sum of cuDNN's. Default: "double".

    Shapes:
        inputs: [B, I].
        state, output: [B, U].

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import cells
        >>> cell = cells.CudnnCompatibleRNNReluCell(3, seed=0)
        >>> state = cell.zero_state(4, "float32")
        >>> output, state = cell(np.ones((4, 2), "float32"), state)
        >>> output.shape, state.shape
        ((4, 3), (4, 3))
    """

    _mode = RNNMode.RNN_RELU

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        total = self._sum(w, x, state)
        return (xp.maximum(total, xp.zeros_like(total)),)


def _sigmoid(xp: Any, a: Any) -> Any:
    """Return 1 / (1 + exp(-a)) without overflow and with a small relative error: a closed gate is small but not 0."""
    positive = a > 0
    small = xp.exp(xp.where(positive, -a, a))  # not exp(-abs(a)): autograd takes 0 as the slope of abs at 0
    return xp.where(positive, xp.ones_like(small), small) / (1 + small)


def _check_dtype(name: str, array: Any, dtype: DType) -> None:
    """Refuse an array, of any library, whose dtype is not the cell's."""
    if str(array.dtype).rpartition(".")[2] != dtype:
        raise ArgumentError(name, f"{dtype}, the cell's", array.dtype, aspect="dtype")
