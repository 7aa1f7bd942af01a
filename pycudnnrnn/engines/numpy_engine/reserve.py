"""The reserve of the NumPy engine: what a forward keeps in one buffer, and the backward that reads it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pycudnnrnn.engines.numpy_engine.calls import Calls
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.packing import Copy, copy_all
from pycudnnrnn.engines.numpy_engine.walk import input_gradients, run_back, weight_gradients
from pycudnnrnn.engines.numpy_engine.weights import Array, Tape, Weights
from pycudnnrnn.passes import GRADIENTS


class NumpyReserve:
    """One tape per pseudo-layer, each layer's input (layer 0's is the caller's), and the dropout mask of each input.

    `backward_data` leaves the gradients of pre-activations on the tapes, which `backward_weights` reads.
    """

    def __init__(self, calls: Calls, buffer: Array, x: Any = None, params: Any = None) -> None:
        """Divide `buffer` among the arrays. `backward_data` reads `params` again, and `backward_weights` reads `x`.

        Shapes:
            buffer: [reserve_nbytes], uint8; x: packed rows [rows, I].
        """
        self._calls, self._params, self.touched = calls, params, False
        self.inputs: list[Array] = [x]
        self.tapes = [Tape() for _ in calls.stacks]
        self.masks: list[Array | None] = [None] * calls.spec.num_layers
        for (kind, number, name, shape, dtype), start in calls.reserve_parts:
            array = np.ndarray(shape, dtype, buffer, start)
            if kind == "tape":
                self.tapes[number][name] = array
            elif kind == "input":
                self.inputs.append(array)
            else:
                self.masks[number] = array

    def copy(self) -> NumpyReserve:
        other = copy.copy(self)
        other.tapes = [tape.copy() for tape in self.tapes]
        return other

    def backward_data(self, dy: Array | None, dhy: Array | None, dcy: Array | None) -> tuple[Any, Any, Any | None]:
        dx, dhx, dcx = self._calls.new(GRADIENTS)
        self.write_gradients(self._calls.read(self._params), (dy, dhy, dcy), (dx, dhx, dcx))
        return dx, dhx, dcx

    @np.errstate(all="ignore")
    def write_gradients(
        self, weights: Sequence[Weights], upstream: Iterable[Array | None], outs: Iterable[Any], *, ready: bool = False
    ) -> None:
        """Write the gradients of x, hx and cx to `outs`. For `weights` and `ready` see `BoundForward.run`."""
        calls, packing, cell = self._calls, self._calls.packing, self._calls.cell
        (dy, *d_finals), (dx, *d_initials) = upstream, outs
        before, after, D = list[Copy](), list[Copy](), len(calls.directions)
        states = [
            packing.states(d_final, d_initial, width, before, after)
            for d_final, d_initial, (*_, width) in zip(d_finals, d_initials, calls.states, strict=False)
        ]
        dh, dc = states[0], states[-1]  # a cell without c does not look at it
        if dy is None:
            d_rows = packing.new_rows(calls.spec.output_size)
            d_rows[...] = 0
        else:
            d_rows = packing.read(dy, before)
        copy_all(before)
        self.touched = True
        for layer in reversed(range(calls.spec.num_layers)):
            below = packing.new_rows(calls.spec.layer_input_size(layer)) if layer else packing.write(dx, after)
            walks, runs = list(enumerate(calls.directions, layer * D)), []
            for p, (columns, blocks) in walks:
                dy_rows = d_rows if columns is None else d_rows[:, columns]
                passed = cell, weights[p], self.tapes[p], blocks, dy_rows, dh[p], dc[p]
                runs.append(functools.partial(run_back, *passed, ready=ready))
            cell.at_once(runs, calls.schedule.num_rows)
            for p, (_, blocks) in walks:
                input_gradients(cell, weights[p].W, self.tapes[p], blocks, below, adds=p > layer * D)
            mask = self.masks[layer]
            if mask is not None:
                drop(below, mask, calls.spec.dropout)
            d_rows = below
        copy_all(after)

    @np.errstate(all="ignore")
    def backward_weights(self, out: Array, *, accumulate: bool = False, before: Iterable[Copy] = ()) -> None:
        """See `engines.Reserve`. `before`: what to copy first."""
        copy_all(before)
        calls, dtype = self._calls, self._calls.cell.dtype
        # The gradient is added at the end. If memory ran out after a part was added, a second try would add that part
        # twice.
        total = np.zeros(out.shape, dtype) if accumulate or out.dtype != dtype else out
        if calls.has_padding or not calls.packing.num_rows:
            total[...] = 0
        for p, sums in enumerate(calls.views(total) if calls.has_views else calls.copies(total)):
            layer, direction = divmod(p, len(calls.directions))
            _, blocks = calls.directions[direction]
            weight_gradients(calls.cell, self.tapes[p], blocks, self.inputs[layer], sums)
            if not calls.has_views:
                for name, stack in calls.stacks[p].items():
                    stack.write(total, getattr(sums, name))
        if accumulate:
            out[...] = out + total
        elif total is not out:
            out[...] = total
