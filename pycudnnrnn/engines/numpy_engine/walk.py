"""One direction of one layer over all its steps, forwards and backwards, block by block."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from pycudnnrnn.engines.numpy_engine.arithmetic import CellArithmetic
from pycudnnrnn.engines.numpy_engine.gradients import blocks
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, write_or_add
from pycudnnrnn.schedule import Schedule, Step
from pycudnnrnn.spec import RNNSpec


def directions_of(spec: RNNSpec, schedule: Schedule) -> Iterator[tuple[int, Sequence[Step]]]:
    yield 0, schedule.steps
    if spec.num_dirs == 2:
        yield 1, schedule.steps[::-1]


def counted_from(base: int, steps: Sequence[Step]) -> list[Step]:
    return [(first - base, last - base) for first, last in steps]


def run(
    cell: CellArithmetic,
    spec: RNNSpec,
    w: Weights,
    x: Array,
    steps: Sequence[Step],
    h: Array,
    c: Array,
    out: Array,
    tape: Tape | None,
) -> None:
    """Run one direction of one layer over all steps, updating h and c; `out` gets what h was at each row."""
    for base, end, block in blocks(spec, steps):
        here = Tape() if tape is None else tape.rows(base, end)
        cell.forward(w, x[base:end], here, counted_from(base, block), h, c, out[base:end])


def run_back(
    cell: CellArithmetic,
    spec: RNNSpec,
    w: Weights,
    steps: Sequence[Step],
    tape: Tape,
    dy: Array,
    dh: Array,
    dc: Array,
    below: Array,
    *,
    add: bool,
) -> None:
    """Go back through one direction of one layer, updating dh and dc; `below` gets the gradient of its input."""
    for base, end, block in reversed(list(blocks(spec, steps))):
        here = tape.rows(base, end)
        cell.backward(w, here, counted_from(base, block), dy[base:end], dh, dc)
        for number, (columns, piece) in enumerate(cell.input_pieces(here)):
            adds = add or number > 0
            if w.W is None:
                gates = piece.reshape(len(piece), piece.shape[1] // spec.num_units, spec.num_units)
                write_or_add(functools.partial(np.sum, gates, axis=1), below[base:end], adds=adds)
            else:
                cell.product(piece, w.W[columns], below[base:end], adds=adds)
