"""TF's plain cells that compute what cuDNN computes, one step at a time, and what stacks them into a whole RNN.

A cell takes the weights of one pseudo-layer under TF's names. It runs on NumPy arrays and on those of any array API
library. Biases are summed, as in TF. LSTM states are (c, h) here and (h, c) in layers: TF has it so.

Source: `CudnnCompatibleLSTMCell` and `CudnnCompatibleGRUCell` of tf.contrib.cudnn_rnn, TF 1.4 to 1.15; BasicRNNCell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _overwriting
from pycudnnrnn._checks import check_bool, check_int, check_text
from pycudnnrnn._tf1.tensors import cell_scope
from pycudnnrnn.cells._cell import Cell, LSTMStateTuple, check_dtype, check_state
from pycudnnrnn.errors import ArgumentError, TFArgumentError
from pycudnnrnn.schedule import check_lengths
from pycudnnrnn.spec import BiasMode, DType, InputMode, RNNMode, RNNSpec

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
    """The LSTM cell: gates i, c, f, o in one kernel, no forget bias added. State (c, h)."""

    _mode = RNNMode.LSTM

    def __init__(
        self,
        num_units: int,
        reuse: bool | None = None,
        *,
        num_proj: int | None = None,
        cell_clip: float | tuple[float, float] | None = None,
        kernel_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        seed: int | None = None,
        input_mode: str = InputMode.LINEAR_INPUT,
        bias_mode: str = BiasMode.DOUBLE,
    ) -> None:
        self._lstm_only = {"num_proj": num_proj, "cell_clip": cell_clip}
        super().__init__(
            num_units, reuse, kernel_initializer=kernel_initializer, name=name, dtype=dtype, seed=seed,
            input_mode=input_mode, bias_mode=bias_mode,
        )  # fmt: skip

    def _checked(self, state: Any, batch: int, dtype: DType) -> Any:
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            text = "Expecting state to be a tuple with length 2."
            raise TFArgumentError("state", "a tuple (c, h)", type(state), text)
        for name, array, size in zip(("state c", "state h"), state, self.state_size, strict=True):
            check_state(name, array, (batch, size), dtype)
        return state

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, Any]:
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
        return h, LSTMStateTuple(c, h)


class CudnnCompatibleGRUCell(Cell):
    """The GRU cell, reset after the recurrent product, with two biases in the candidate."""

    _mode = RNNMode.GRU

    def __init__(
        self,
        num_units: int,
        reuse: bool | None = None,
        kernel_initializer: Any = None,
        *,
        name: str | None = None,
        dtype: Any = None,
        seed: int | None = None,
        input_mode: str = InputMode.LINEAR_INPUT,
        bias_mode: str = BiasMode.DOUBLE,
    ) -> None:
        super().__init__(
            num_units, reuse, kernel_initializer=kernel_initializer, name=name, dtype=dtype, seed=seed,
            input_mode=input_mode, bias_mode=bias_mode,
        )  # fmt: skip

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, Any]:
        gates = _sigmoid(xp, self._sum(w, x, state, "gates/"))
        r, u = gates[:, : self.num_units], gates[:, self.num_units :]
        from_input = x if self._skips else x @ w["candidate/input_projection/kernel"]
        from_state = state @ w["candidate/hidden_projection/kernel"]
        if "candidate/input_projection/bias" in w:
            from_input = from_input + w["candidate/input_projection/bias"]
        if "candidate/hidden_projection/bias" in w:
            from_state = from_state + w["candidate/hidden_projection/bias"]
        candidate = xp.tanh(from_input + r * from_state)
        h = (1 - u) * candidate + u * state
        return h, h


class CudnnCompatibleRNNTanhCell(Cell):
    """The tanh cell; TF uses its BasicRNNCell."""

    _mode = RNNMode.RNN_TANH

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, Any]:
        h = xp.tanh(self._sum(w, x, state))
        return h, h


class CudnnCompatibleRNNReluCell(Cell):
    """The relu cell; TF uses its BasicRNNCell with relu."""

    _mode = RNNMode.RNN_RELU

    def _step(self, xp: Any, w: Mapping[str, Any], x: Any, state: Any) -> tuple[Any, Any]:
        total = self._sum(w, x, state)
        h = xp.maximum(total, xp.zeros_like(total))
        return h, h


def cell_of(spec: RNNSpec, layer: int) -> Cell:
    """Return an unbuilt cell for one pseudo-layer of `layer` of `spec`."""
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
    """Run one cell per pseudo-layer over whole sequences, as a layer of `spec` would, step by step and without dropout.

    `scope` comes before the names of the variables, as a saveable's does.
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
        """Return copies of all variables by their full names: what a saveable restores from."""
        return {name: variable.numpy() for name, variable in self._named().items()}

    def load(self, tensors: Mapping[str, Any]) -> None:
        """Write all variables by their full names: what a saveable's `tensors` gives. Other names may be there.

        Raises:
            ArgumentError: a missing tensor, or a wrong shape. Nothing has been written then.
        """
        writes = []
        for name, variable in self._named().items():
            if name not in tensors:
                raise ArgumentError("tensors", f"a tensor {name!r}", sorted(map(str, tensors))[:8])
            writes.append(variable.assigning(name, tensors[name]))
        _overwriting.write_all(writes)

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
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return (outputs, states), as a layer does: states are (h, c) or (h,), stacked by pseudo-layer.

        Shapes:
            as a layer's.

        Raises:
            ArgumentError: inputs or a state of another dtype than the stack's.
        """
        xp = _arrays.namespace_of(inputs)
        spec = self.spec
        check_dtype("inputs", inputs, spec.dtype)
        for i, state in enumerate(() if initial_state is None else initial_state):
            _arrays.namespace_of(state, f"initial_state[{i}]")
            check_dtype(f"initial_state[{i}]", state, spec.dtype)
        x = inputs if check_bool("time_major", time_major) else _swapped(inputs)
        T, B = int(x.shape[0]), int(x.shape[1])
        checked = check_lengths(sequence_lengths, T, B)
        lengths = np.full(B, T) if checked is None else np.array(checked, np.int64)
        rows: list[Any] = [x[t, ...] for t in range(T)]
        last: list[Any] = []
        for layer in range(spec.num_layers):
            by_direction = []
            for direction in range(spec.num_dirs):
                p = layer * spec.num_dirs + direction
                outputs, state = self._run(xp, p, rows, self._start(xp, p, x, initial_state), lengths, direction)
                by_direction.append(outputs)
                last.append(state)
            rows = [_beside(xp, *pair) for pair in zip(*by_direction, strict=True)]
        outputs = xp.stack(rows) if rows else xp.zeros((0, B, spec.output_size), dtype=x.dtype)
        h = xp.stack([state.h if spec.has_cell_state else state for state in last])
        states = (h, xp.stack([state.c for state in last])) if spec.has_cell_state else (h,)
        return outputs if time_major else _swapped(outputs), states

    def _start(self, xp: Any, p: int, x: Any, initial_state: tuple[Any, ...] | None) -> Any:
        spec = self.spec
        if initial_state is None:
            h = xp.zeros((x.shape[1], spec.state_size), dtype=x.dtype)
            return (
                LSTMStateTuple(xp.zeros((x.shape[1], spec.num_units), dtype=x.dtype), h) if spec.has_cell_state else h
            )
        if spec.has_cell_state:
            return LSTMStateTuple(initial_state[1][p, ...], initial_state[0][p, ...])
        return initial_state[0][p, ...]

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
    """Return 1 / (1 + exp(-a)) without an overflow, right relatively: a closed gate is small and not 0."""
    positive = a > 0
    small = xp.exp(xp.where(positive, -a, a))  # not exp(-abs(a)): an autograd sees no slope of abs at 0
    return xp.where(positive, xp.ones_like(small), small) / (1 + small)
