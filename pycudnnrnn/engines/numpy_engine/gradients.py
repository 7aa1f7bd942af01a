"""The gradients of the NumPy engine's weights: where each goes, and the order in which a run's parts are summed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.arithmetic import CellArithmetic
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Stacks, write_or_add
from pycudnnrnn.schedule import Step, grouped
from pycudnnrnn.spec import RNNSpec

BLOCK_ROWS: Final = 2048
BLOCK_ROWS_A_UNIT: Final = 2
"""A block is as many packed rows, or for a large matrix twice its columns: its part of a weight gradient is one GEMM,
and adding that up costs little beside it (plain training within 4 % of one GEMM over all rows: float32, OpenBLAS). A
run that recomputes (`recompute`) holds whole blocks and adds them in the same order, so that its bits are those
of a run that keeps everything."""


def walk_in_blocks(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Cut steps into blocks; a walk that begins or ends between two of them is cut into the same ones."""
    return grouped(steps, max(BLOCK_ROWS, BLOCK_ROWS_A_UNIT * spec.num_units))


def blocks(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[tuple[int, int, Sequence[Step]]]:
    for block in walk_in_blocks(spec, steps):
        yield *bounds(block), block


def bounds(steps: Sequence[Step]) -> Step:
    """The packed rows of consecutive steps, in whichever order."""
    return min(steps)[0], max(steps)[1]


class GradientSums:
    """The gradients of one pseudo-layer in the compute dtype, the gates of a kind stacked as in `Weights`.

    They are summed block by block, from the block walked last to the first, whether a run has them all at once or
    not. Given `out`, the sums are views of it where its regions allow that.
    """

    def __init__(self, spec: RNNSpec, stacks: Stacks, out: Array | None = None) -> None:
        self._spec, self._started = spec, False
        self._sums: dict[str, Array] = {}
        self._apart = set()
        dtype = spec.compute_dtype.numpy
        for name, stack in stacks.by_name().items():
            if out is not None and out.dtype == dtype and stack.span is not None:
                self._sums[name] = out[stack.span].reshape(stack.shape)
            else:
                self._sums[name] = np.empty(stack.shape, dtype)
                self._apart.add(name)

    def add_run(self, cell: CellArithmetic, steps: Sequence[Step], tape: Tape, x: Array) -> None:
        """Add what a run's backward has left on its tape; x is the run's input rows."""
        for base, end, _ in reversed(list(blocks(self._spec, steps))):
            here, x_here = tape.rows(base, end), x[base:end]
            inner = here["gates"]
            for columns, piece in cell.input_pieces(here):
                self._add(cell, "W", columns, piece, x_here)
                self._add_bias("bW", columns, piece)
            self._add(cell, "R", slice(None), inner, here["h_before"])
            self._add_bias("bR", slice(None), inner)
            if "hidden" in here:
                self._add(cell, "proj", slice(None), here["dh"], here["hidden"])
            self._started = True

    def _add(self, cell: CellArithmetic, name: str, columns: slice, rows: Array, others: Array) -> None:
        if name in self._sums:
            cell.weight_product(rows, others, self._sums[name][columns], adds=self._started)

    def _add_bias(self, name: str, columns: slice, rows: Array) -> None:
        if name in self._sums:
            write_or_add(functools.partial(np.sum, rows, axis=0), self._sums[name][columns], adds=self._started)

    def put(self, out: Array, stacks: Stacks, *, accumulate: bool) -> None:
        """Write to `out` what is not a view of it, or add it there."""
        for name in self._apart if self._started else ():
            start = 0
            for region in stacks.by_name()[name].regions:
                part = self._sums[name].reshape(-1)[start : start + region.size]
                out[region.slice] = out[region.slice] + part if accumulate else part
                start += region.size
