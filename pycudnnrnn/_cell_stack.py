"""Cells stacked into a whole RNN: what TF does with MultiRNNCell and its dynamic and bidirectional runners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._tf_canonical import cell_scope
from pycudnnrnn.cells import LSTMStateTuple, cell_of
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.schedule import check_lengths
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]


class CellStack:
    """Run one cell a pseudo-layer over whole sequences, as a layer of `spec` would, step by step and without dropout.

    `scope` comes before the names of the variables, as a saveable's does.
    """

    def __init__(self, spec: RNNSpec, scope: str = "") -> None:
        self.spec = spec
        self.scope = scope
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
            ArgumentError: a missing tensor, or a wrong shape.
        """
        for name, variable in self._named().items():
            if name not in tensors:
                raise ArgumentError("tensors", f"a tensor {name!r}", sorted(tensors)[:8])
            variable.assign(tensors[name])

    def _named(self) -> dict[str, Any]:
        prefix = f"{self.scope}/" if self.scope else ""
        return {
            prefix + cell_scope(self.spec, p) + name: variable
            for p, cell in enumerate(self.cells)
            for name, variable in cell.named_variables.items()
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
        """
        xp = _arrays.namespace_of(inputs)
        spec = self.spec
        x = inputs if time_major else _swapped(inputs)
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
            return LSTMStateTuple(xp.zeros((x.shape[1], spec.num_units), dtype=x.dtype), h) if spec.has_cell_state else h
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
