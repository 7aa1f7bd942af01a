"""TF's plain cells, which compute the same as cuDNN one step at a time, and `CellStack`, a whole RNN of them.

A cell has the weights of one pseudo-layer (one layer in one direction) under TF's names. It runs on NumPy arrays and on
those of any array API library. Each bias is the sum of cuDNN's two, as in TF; only a GRU's candidate has both. An
LSTM's state is (c, h) here and (h, c) in layers, also as in TF.

Source: `CudnnCompatibleLSTMCell` and `CudnnCompatibleGRUCell` of tf.contrib.cudnn_rnn, TF 1.4 to 1.15; BasicRNNCell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _assignment
from pycudnnrnn._checks import check_bool, check_int, check_text
from pycudnnrnn._tf1.arguments import InitializerLike
from pycudnnrnn._tf1.tensors import cell_scope
from pycudnnrnn.cells._cell import Cell, LSTMStateTuple, check_dtype, check_state
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.ops._stream import h_and_c
from pycudnnrnn.schedule import Lengths, check_lengths
from pycudnnrnn.spec import BiasModeLike, DType, DTypeLike, InputMode, InputModeLike, RNNMode, RNNSpec

Array = npt.NDArray[Any]

__all__ = [
    "CellStack",
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnCompatibleRNNReluCell",
    "CudnnCompatibleRNNTanhCell",
    "LSTMStateTuple",
    "cell_of",
]
__dir__ = __all__.copy


class CudnnCompatibleLSTMCell(Cell):
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

    def _checked(self, state: Any, batch: int, dtype: DType) -> Any:
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            text = "Expecting state to be a tuple with length 2."
            raise ArgumentError("state", "a tuple (c, h)", type(state), text=text)
        for name, array, size in zip(("state c", "state h"), state, self.state_size, strict=True):
            check_state(name, array, (batch, size), dtype)
        return state

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


class CudnnCompatibleGRUCell(Cell):
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
        super().__init__(
            num_units, reuse, kernel_initializer=kernel_initializer, name=name, dtype=dtype, seed=seed,
            input_mode=input_mode, bias_mode=bias_mode,
        )  # fmt: skip

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, ...]:
        gates = _sigmoid(xp, self._sum(w, x, state, "gates/"))
        r, u = gates[:, : self.num_units], gates[:, self.num_units :]
        from_input = x if self._skips else x @ w["candidate/input_projection/kernel"]
        from_state = state @ w["candidate/hidden_projection/kernel"]
        if "candidate/input_projection/bias" in w:
            from_input = from_input + w["candidate/input_projection/bias"]
        if "candidate/hidden_projection/bias" in w:
            from_state = from_state + w["candidate/hidden_projection/bias"]
        candidate = xp.tanh(from_input + r * from_state)
        return ((1 - u) * candidate + u * state,)


class CudnnCompatibleRNNTanhCell(Cell):
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


class CudnnCompatibleRNNReluCell(Cell):
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


def cell_of(spec: RNNSpec, layer: int) -> Cell:
    """Make an unbuilt cell for one layer of an RNN, in one direction.

    Args:
        spec: description of the RNN.
        layer: index of the layer, from 0.

    Returns:
        A cell of the class for the spec's mode, with random weights once it is built.

    Raises:
        ArgumentError: the spec has no such layer.

    Example:
        >>> from pycudnnrnn import RNNSpec, cells
        >>> spec = RNNSpec("gru", num_layers=2, num_units=3, input_size=2)
        >>> cell = cells.cell_of(spec, layer=0)
        >>> type(cell).__name__, cell.num_units
        ('CudnnCompatibleGRUCell', 3)
    """
    input_mode = spec.input_mode if check_int("layer", layer, 0, spec.num_layers - 1) == 0 else InputMode.LINEAR_INPUT
    options: dict[str, Any] = {"dtype": spec.dtype, "input_mode": input_mode, "bias_mode": spec.bias_mode}
    if spec.mode is RNNMode.LSTM:
        return CudnnCompatibleLSTMCell(spec.num_units, num_proj=spec.num_proj, cell_clip=spec.cell_clip, **options)
    kinds: dict[RNNMode, type[Cell]] = {
        RNNMode.GRU: CudnnCompatibleGRUCell,
        RNNMode.RNN_TANH: CudnnCompatibleRNNTanhCell,
        RNNMode.RNN_RELU: CudnnCompatibleRNNReluCell,
    }
    kind: Any = kinds[spec.mode]
    cell: Cell = kind(spec.num_units, **options)
    return cell


class CellStack:
    """Run TF's plain cells over whole sequences, step by step and without dropout: one cell for each pseudo-layer.

    The weights are random until `load`.

    Args:
        spec: description of the RNN.
        scope: prefix of the variables' names, without a slash at the end, as in a saveable. Default: "", no prefix.

    Raises:
        ArgumentTypeError: a scope that is not a string.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import CudnnLSTM, cells
        >>> layer = CudnnLSTM(2, num_units=3, direction="bidirectional", seed=1)
        >>> x = np.random.default_rng(0).normal(size=(5, 4, 2)).astype("float32")
        >>> outputs, states = layer(x, training=False)
        >>> stack = cells.CellStack(layer.spec, scope="cudnn_lstm")
        >>> stack.load(layer.saveable.tensors())
        >>> np.allclose(stack(x)[0], outputs, atol=1e-5)
        True
    """

    def __init__(self, spec: RNNSpec, scope: str = "") -> None:
        self.spec = spec
        self.scope = check_text("scope", scope)
        self.cells = []
        for p in range(spec.num_pseudo_layers):
            layer = p // spec.num_dirs
            cell = cell_of(spec, layer)
            cell.build((None, spec.layer_input_size(layer)))
            self.cells.append(cell)

    def tensors(self) -> dict[str, Array]:
        """Return a dict with copies of all variables by their full names. A saveable can restore it."""
        return {name: variable.numpy() for name, variable in self._named().items()}

    def load(self, tensors: Mapping[str, Any]) -> None:
        """Write all variables.

        Args:
            tensors: arrays by full name, as a saveable's `tensors` returns them. Other names are ignored.

        Raises:
            ArgumentError: a missing tensor, or a wrong shape. No variable has changed then.
        """
        writes = []
        for name, variable in self._named().items():
            if name not in tensors:
                raise ArgumentError("tensors", f"a tensor {name!r}", sorted(map(str, tensors))[:8])
            writes.append(variable.assigning(name, tensors[name]))
        _assignment.write_all(writes)

    def _named(self) -> dict[str, Any]:
        prefix = f"{self.scope}/" if self.scope else ""
        return {
            prefix + cell_scope(self.spec, p) + name: variable
            for p, cell in enumerate(self.cells)
            for name, variable in cell.variables_by_name().items()
        }

    def __call__(
        self,
        inputs: Any,
        initial_state: tuple[Any, ...] | None = None,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Run the cells over a batch of sequences, as a layer does with `training=False`.

        Letters: T steps, B sequences, I inputs, L layers, D directions, U units, P projected units.

        Args:
            inputs: the input array, [T, B, I], or [B, T, I] with `time_major=False`.
            initial_state: the states before the first step: the pair (h, c) for the LSTM, the tuple (h,) for the
                others. h is [L * D, B, U], or [L * D, B, P] with a projection; c is [L * D, B, U]. None: zeros.
                Default: None.
            sequence_lengths: the steps of each sequence, B integers from 0 to T in host memory. Outputs past the end
                of a sequence are 0. None: T for all. Default: None.
            time_major: True for [T, B, ...] inputs and outputs, False for [B, T, ...]. Default: True.

        Returns:
            The pair (outputs, states). `outputs` is [T, B, D * U] (D * P with a projection; B first with
            `time_major=False`). `states` is (h, c) or (h,), shaped as `initial_state`.

        Raises:
            ArgumentError: a wrong shape, or inputs or a state of another dtype than the stack's.
            ArgumentTypeError: an argument that is not an array.
        """
        xp = _arrays.namespace_of(inputs)
        spec = self.spec
        states = [*h_and_c(initial_state, spec)]
        check_dtype("inputs", inputs, spec.dtype)
        if inputs.ndim != 3 or inputs.shape[2] != spec.input_size:
            raise ArgumentError("inputs", f"3 axes, the last {spec.input_size}", tuple(inputs.shape), aspect="shape")
        x = inputs if check_bool("time_major", time_major) else _swapped(inputs)
        T, B = int(x.shape[0]), int(x.shape[1])
        for i, (state, width) in enumerate(zip(states, (spec.state_size, spec.num_units), strict=True)):
            shape = spec.num_pseudo_layers, B, width
            if state is None:
                states[i] = xp.zeros(shape, dtype=x.dtype)
            else:
                check_state(f"initial_state[{i}]", state, shape, spec.dtype)
        checked = check_lengths(sequence_lengths, T, B)
        lengths = np.full(B, T) if checked is None else np.array(checked, np.int64)
        rows: list[Any] = [x[t, ...] for t in range(T)]
        last: list[Any] = []
        for layer in range(spec.num_layers):
            by_direction = []
            for direction in range(spec.num_dirs):
                p = layer * spec.num_dirs + direction
                h, c = (state[p, ...] for state in states)
                start = LSTMStateTuple(c, h) if spec.has_cell_state else h
                outputs, state = self._run(xp, p, rows, start, lengths, direction)
                by_direction.append(outputs)
                last.append(state)
            rows = [_beside(xp, *pair) for pair in zip(*by_direction, strict=True)]
        outputs = xp.stack(rows) if rows else xp.zeros((0, B, spec.output_size), dtype=x.dtype)
        h = xp.stack([state.h if spec.has_cell_state else state for state in last])
        final = (h, xp.stack([state.c for state in last])) if spec.has_cell_state else (h,)
        return outputs if time_major else _swapped(outputs), final

    def _run(
        self, xp: Any, p: int, rows: list[Any], state: Any, lengths: npt.NDArray[np.int64], direction: int
    ) -> tuple[list[Any], Any]:
        outputs: list[Any] = [None] * len(rows)
        for t in reversed(range(len(rows))) if direction else range(len(rows)):
            running = lengths > t
            output, following = self.cells[p].call(rows[t], state)
            if running.all():
                outputs[t], state = output, following
                continue
            mask = _arrays.into_namespace(running[:, None], xp)
            outputs[t] = xp.where(mask, output, xp.zeros_like(output))
            if isinstance(state, LSTMStateTuple):
                state = LSTMStateTuple(*(xp.where(mask, new, old) for new, old in zip(following, state, strict=True)))
            else:
                state = xp.where(mask, following, state)
        return outputs, state


def _swapped(array: Any) -> Any:
    """Swap the first two axes."""
    xp = _arrays.namespace_of(array)
    return xp.swapaxes(array, 0, 1) if hasattr(xp, "swapaxes") else xp.permute_dims(array, (1, 0, 2))


def _beside(xp: Any, *parts: Any) -> Any:
    if len(parts) == 1:
        return parts[0]
    join = getattr(xp, "concat", None) or xp.concatenate  # array API, then NumPy 1
    return join(parts, axis=1)


def _sigmoid(xp: Any, a: Any) -> Any:
    """Return 1 / (1 + exp(-a)) without overflow and with a small relative error: a closed gate is small but not 0."""
    positive = a > 0
    small = xp.exp(xp.where(positive, -a, a))  # not exp(-abs(a)): autograd takes 0 as the slope of abs at 0
    return xp.where(positive, xp.ones_like(small), small) / (1 + small)
