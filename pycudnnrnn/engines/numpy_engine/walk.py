"""One direction of one layer over all its steps, block by block: forward, backward and the gradients of its weights."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.cells import Cell
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, write_or_add
from pycudnnrnn.schedule import Schedule, Step, grouped
from pycudnnrnn.spec import RNNSpec

BLOCK_ROWS: Final = 2048
BLOCK_ROWS_A_UNIT: Final = 2
"""A block has BLOCK_ROWS packed rows, or for many units BLOCK_ROWS_A_UNIT for each unit. It limits the memory that
inference takes for gates, and the terms that a float32 sum adds one after the other."""


def directions_of(spec: RNNSpec, schedule: Schedule) -> Iterator[tuple[int, Sequence[Step]]]:
    """Give each direction with its steps in the order in which it takes them."""
    yield 0, schedule.steps
    if spec.num_dirs == 2:
        yield 1, schedule.steps[::-1]


def blocks(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[tuple[slice, list[Step]]]:
    """Cut steps into blocks. Yield the packed rows of each, and its steps relative to the first of these rows."""
    for block in grouped(steps, max(BLOCK_ROWS, BLOCK_ROWS_A_UNIT * spec.num_units)):
        first, last = min(block)[0], max(block)[1]
        yield slice(first, last), [(start - first, end - first) for start, end in block]


def run(cell: Cell, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
    """Run all steps, updating h and c; `out` gets h at each row."""
    for rows, block in blocks(cell.spec, steps):
        cell.forward(w, x[rows], tape.at(rows), block, h, c, out[rows])


def run_back(
    cell: Cell, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array, dx: Array, *, adds: bool
) -> None:
    """Run all steps in reverse, updating dh and dc; write the gradient of the input rows to `dx`, or add it."""
    for rows, block in reversed(list(blocks(cell.spec, steps))):
        here = tape.at(rows)
        cell.backward(w, here, block, dy[rows], dh, dc)
        for number, (columns, da) in enumerate(cell.input_gradients(here)):
            add_here = adds or number > 0
            if w.W is None:  # skip input: x is added to every gate
                gates = da.reshape(len(da), -1, cell.units)
                write_or_add(functools.partial(np.sum, gates, axis=1), dx[rows], adds=add_here)
            else:
                cell.product(da, w.W[columns], dx[rows], adds=add_here)


def weight_gradients(cell: Cell, tape: Tape, steps: Sequence[Step], x: Array, out: dict[str, Array]) -> None:
    """Write the gradients of one pseudo-layer to `out`, named as in `Weights`; `run_back` came before."""
    for number, (rows, _) in enumerate(reversed(list(blocks(cell.spec, steps)))):
        here, adds = tape.at(rows), number > 0
        parts = [("W", "bW", columns, da, x[rows]) for columns, da in cell.input_gradients(here)]
        parts.append(("R", "bR", slice(None), here["gates"], here["h_before"]))
        if "proj" in out:
            parts.append(("proj", "", slice(None), here["dh"], here["hidden"]))
        for matrix, bias, columns, da, others in parts:
            if matrix in out:
                cell.weight_product(da, others, out[matrix][columns], adds=adds)
            if bias in out:
                write_or_add(functools.partial(np.sum, da, axis=0), out[bias][columns], adds=adds)
