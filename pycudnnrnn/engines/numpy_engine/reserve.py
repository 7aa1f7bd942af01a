"""The reserve of the NumPy engine: what a forward keeps in one buffer, and the backward that reads it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pycudnnrnn.engines.numpy_engine.calls import Blocks, Calls
from pycudnnrnn.engines.numpy_engine.cells import Array, Cell, Tape, Weights
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.packing import Copy, copy_all
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
        self.tapes = [Tape() for _ in range(calls.spec.num_pseudo_layers)]
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
            walks, directions = list(enumerate(calls.directions, layer * D)), []
            for p, (columns, blocks) in walks:
                dy_rows, tape = d_rows if columns is None else d_rows[:, columns], self.tapes[p]
                walk = [
                    (tape.at(rows) if len(blocks) > 1 else tape, steps, dy_rows[rows], dh[p], dc[p])
                    for rows, steps in reversed(blocks)
                ]
                directions.append((weights[p], walk))
            cell.run(cell.backward_weights, cell.backward, directions, packing.num_rows, ready=ready)
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
        in_place = calls.reads_in_place and not accumulate
        total = out if in_place else np.zeros(out.shape if calls.order is None else calls.order.shape, dtype)
        if not calls.packing.num_rows:
            total[...] = 0
        for p, sums in enumerate(calls.views(total)):
            layer, direction = divmod(p, len(calls.directions))
            _, blocks = calls.directions[direction]
            weight_gradients(calls.cell, self.tapes[p], blocks, self.inputs[layer], sums)
        if calls.order is not None:
            ordered, total = total, np.zeros(out.shape, dtype)
            total[calls.order] = ordered
        if accumulate:
            out[...] = out + total
        elif not in_place:
            out[...] = total


def input_gradients(cell: Cell, W: Array | None, tape: Tape, blocks: Blocks, dx: Array, *, adds: bool) -> None:
    """Write the gradient of the input rows to `dx`, or add it; `run_back` came before."""
    for rows, _ in reversed(blocks):
        here = tape.at(rows) if len(blocks) > 1 else tape
        for number, (columns, da) in enumerate(cell.input_gradients(here)):
            add_here = adds or number > 0
            if W is None:  # skip input: x is added to every gate
                gates, into = da.reshape(len(da), -1, cell.units), dx[rows]
                if add_here:
                    into += gates.sum(axis=1)
                else:
                    gates.sum(axis=1, out=into)
            else:
                cell.write_product(da, W[columns], dx[rows], adds=add_here)


def weight_gradients(cell: Cell, tape: Tape, blocks: Blocks, x: Array, out: Weights) -> None:
    """Write the gradients of one pseudo-layer to the arrays of `out`; `run_back` came before."""
    for number, (rows, _) in enumerate(reversed(blocks)):
        here, x_here, adds = tape.at(rows) if len(blocks) > 1 else tape, x[rows], number > 0
        parts = [(out.W, out.bW, columns, da, x_here) for columns, da in cell.input_gradients(here)]
        parts.append((out.R, out.bR, slice(None), here["gates"], here["h_before"]))
        if out.proj is not None:
            parts.append((out.proj, None, slice(None), here["dh"], here["hidden"]))
        terms = [(da, others, matrix[columns]) for matrix, _, columns, da, others in parts if matrix is not None]
        cell.weight_products(terms, adds=adds)
        summed: Any = None
        for _, bias, columns, da, _ in parts:
            if bias is not None:
                if da is not summed:
                    summed, total = da, da.sum(axis=0)
                bias[columns] = bias[columns] + total if adds else total
