"""One direction of one layer over all its steps, block by block: forward, backward and the gradients of its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pycudnnrnn.engines.numpy_engine.cells import Cell, Steps
from pycudnnrnn.engines.numpy_engine.weights import Array, Tape, Weights
from pycudnnrnn.schedule import Schedule, Step, grouped
from pycudnnrnn.spec import RNNSpec

BLOCK_ROWS: Final = 2048
BLOCK_ROWS_A_UNIT: Final = 2
"""A block has BLOCK_ROWS packed rows, or for many units BLOCK_ROWS_A_UNIT for each unit. It limits the memory that
inference takes for gates, and the terms that a float32 sum adds one after the other."""


Blocks = list[tuple[slice, Steps]]
"""The packed rows of each block, and its steps, whose rows are counted from the first of these."""


def directions_of(spec: RNNSpec, schedule: Schedule) -> list[tuple[slice | None, Blocks]]:
    """Return the columns of each direction in the output (None: all) and its blocks, in the order of the walk."""
    if spec.num_dirs == 1:
        return [(None, list(blocks_of(spec, schedule.steps)))]
    columns, steps = (slice(spec.state_size), slice(spec.state_size, None)), (schedule.steps, schedule.steps[::-1])
    return [(own, list(blocks_of(spec, walk))) for own, walk in zip(columns, steps, strict=True)]


def blocks_of(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[tuple[slice, Steps]]:
    """Cut steps into blocks."""
    for block in grouped(steps, max(BLOCK_ROWS, BLOCK_ROWS_A_UNIT * spec.num_units)):
        first, last = min(block)[0], max(block)[1]
        yield slice(first, last), [(slice(start - first, end - first), slice(end - start)) for start, end in block]


def run_back(
    cell: Cell, weights: Weights, tape: Tape, blocks: Blocks, dy: Array, dh: Array, dc: Array, *, ready: bool
) -> None:
    """Run all steps in reverse, updating dh and dc. `ready`: the weights are those that `Cell.backward` reads."""
    w = weights if ready else cell.backward_weights(weights)
    for rows, block in reversed(blocks):
        cell.backward(w, tape.at(rows) if len(blocks) > 1 else tape, block, dy[rows], dh, dc)


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
                (cell.add_product if add_here else cell.times)(da, W[columns], dx[rows])


def weight_gradients(cell: Cell, tape: Tape, blocks: Blocks, x: Array, out: Weights) -> None:
    """Write the gradients of one pseudo-layer to the arrays of `out`; `run_back` came before."""
    for number, (rows, _) in enumerate(reversed(blocks)):
        here, adds = tape.at(rows) if len(blocks) > 1 else tape, number > 0
        parts = [(out.W, out.bW, columns, da, x[rows]) for columns, da in cell.input_gradients(here)]
        parts.append((out.R, out.bR, slice(None), here["gates"], here["h_before"]))
        if out.proj is not None:
            parts.append((out.proj, None, slice(None), here["dh"], here["hidden"]))
        for matrix, bias, columns, da, others in parts:
            if matrix is not None:
                cell.weight_product(da, others, matrix[columns], adds=adds)
            if bias is not None:
                bias[columns] = bias[columns] + da.sum(axis=0) if adds else da.sum(axis=0)
