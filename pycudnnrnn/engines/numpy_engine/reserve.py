"""The reserve of the NumPy engine: what a forward keeps in one buffer, and the backward that reads it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from pycudnnrnn.engines.numpy_engine.calls import Calls
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.packing import Copy, copy_all
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.walk import run_back, weight_gradients
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
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
        start, spec = 0, calls.spec
        self._calls, self._params, self.touched = calls, params, False
        self.inputs: list[Array] = [x]
        self.tapes = [Tape() for _ in range(spec.num_pseudo_layers)]
        self.masks: list[Array | None] = [None] * spec.num_layers
        for part in calls.reserve_parts:
            array = np.ndarray(part.shape, part.dtype, buffer, start)
            start += part.nbytes
            if part.kind == "tape":
                self.tapes[part.number][part.name] = array
            elif part.kind == "input":
                self.inputs.append(array)
            else:
                self.masks[part.number] = array

    def copy(self) -> NumpyReserve:
        other = copy.copy(self)
        other.tapes = [tape.copy() for tape in self.tapes]
        return other

    def backward_data(self, dy: Array | None, dhy: Array | None, dcy: Array | None) -> tuple[Any, Any, Any | None]:
        gradients = self._calls.new(GRADIENTS)
        weights = self._calls.backward_weights(self._calls.read(self._params))
        self.write_gradients(weights, (dy, dhy, dcy), gradients)
        dx, dhx, dcx = gradients
        return dx, dhx, dcx

    @np.errstate(all="ignore")
    def write_gradients(
        self, weights: Iterable[Weights], upstream: Iterable[Array | None], outs: Iterable[Any]
    ) -> None:
        """Write the gradients of x, hx and cx to `outs`. `weights`: those of `Calls.backward_weights`."""
        calls, spec, packing = self._calls, self._calls.spec, self._calls.packing
        (dy, dhy, dcy), (dx, dhx, dcx), weights = upstream, outs, iter(weights)
        before, after = list[Copy](), list[Copy]()
        dh = dc = packing.states(dhy, dhx, spec.state_size, before, after)
        if spec.has_cell_state:
            dc = packing.states(dcy, dcx, spec.num_units, before, after)
        if dy is None:
            d_rows = packing.new_rows(spec.output_size)
            d_rows[...] = 0
        else:
            d_rows = packing.read(dy, before)
        copy_all(before)
        self.touched = True
        for layer in reversed(range(spec.num_layers)):
            below = packing.new_rows(spec.layer_input_size(layer)) if layer else packing.write(dx, after)
            for p, (columns, blocks) in enumerate(calls.directions, layer * spec.num_dirs):
                dy_rows = d_rows if columns is None else d_rows[:, columns]
                adds = p > layer * spec.num_dirs
                run_back(calls.cell, next(weights), self.tapes[p], blocks, dy_rows, dh[p], dc[p], below, adds=adds)
            mask = self.masks[layer]
            if mask is not None:
                drop(below, mask, spec.dropout)
            d_rows = below
        copy_all(after)

    @np.errstate(all="ignore")
    def backward_weights(self, out: Array, *, accumulate: bool) -> None:
        calls, dtype = self._calls, self._calls.cell.dtype
        # The gradient is added at the end. If memory ran out after a part was added, a second try would add that part
        # twice.
        total = np.zeros(out.shape, dtype) if accumulate or out.dtype != dtype else out
        if not calls.schedule.num_rows or sum(region.size for region in calls.layout.regions) < total.size:
            total[...] = 0
        for p, stacks in enumerate(calls.stacks):
            layer, direction = divmod(p, calls.spec.num_dirs)
            sums = {name: stack.read(total) for name, stack in stacks.items()}
            _, blocks = calls.directions[direction]
            weight_gradients(calls.cell, self.tapes[p], blocks, self.inputs[layer], sums)
            for name, stack in stacks.items():
                stack.write(total, sums[name])
        if accumulate:
            out[...] = out + total
        elif total is not out:
            out[...] = total
