"""The gradients of the NumPy engine's weights: where each goes, and the order in which a run's parts are summed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pycudnnrnn.engines.numpy_cells import Array, Cell, Tape, Weights
from pycudnnrnn.layout import ParamLayout, Region
from pycudnnrnn.schedule import Step, grouped
from pycudnnrnn.spec import RNNSpec

BLOCK_ROWS: Final = 512
BLOCK_ROWS_A_UNIT: Final = 2
"""A block is as many packed rows, or for a large matrix twice its columns: its part of a weight gradient is one GEMM,
and adding that up costs little beside it (plain training within 4 % of one GEMM over all rows: float32, OpenBLAS). A
run that recomputes (`numpy_recompute`) holds whole blocks and adds them in the same order, so that its bits are those
of a run that keeps everything."""


@dataclasses.dataclass(frozen=True)
class Regions:
    """The regions of one pseudo-layer, by what they multiply; empty where the spec has none."""

    W: tuple[Region, ...]
    R: tuple[Region, ...]
    bW: tuple[Region, ...]
    bR: tuple[Region, ...]
    proj: tuple[Region, ...]


@functools.lru_cache(maxsize=256)
def all_regions(layout: ParamLayout, spec: RNNSpec) -> list[Regions]:
    gates = spec.num_gates

    def pick(p: int, kind: str, first: int, last: int) -> tuple[Region, ...]:
        return tuple(
            r for r in layout.regions if r.pseudo_layer == p and r.kind == kind and first <= r.lin_layer_id < last
        )

    return [
        Regions(
            pick(p, "weight", 0, gates),
            pick(p, "weight", gates, 2 * gates),
            pick(p, "bias", 0, gates),
            pick(p, "bias", gates, 2 * gates),
            pick(p, "weight", 2 * gates, 2 * gates + 1),
        )
        for p in range(spec.num_pseudo_layers)
    ]


def walk_in_blocks(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Cut steps into blocks; a walk that begins or ends between two of them is cut into the same ones."""
    return grouped(steps, max(BLOCK_ROWS, BLOCK_ROWS_A_UNIT * spec.num_units))


def blocks(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[tuple[int, int, Sequence[Step]]]:
    for block in walk_in_blocks(spec, steps):
        yield *bounds(block), block


def bounds(steps: Sequence[Step]) -> Step:
    """The packed rows of consecutive steps, in whichever order."""
    return min(steps)[0], max(steps)[1]


def adjacent(regions: tuple[Region, ...]) -> bool:
    return all(a.slice.stop == b.offset for a, b in itertools.pairwise(regions))


class GradientSums:
    """The gradients of one pseudo-layer in the compute dtype, the gates of a kind stacked as in `Weights`.

    They are summed block by block, from the block walked last to the first, whether a run has them all at once or
    not. Given `out`, the sums are views of it where its regions allow that.
    """

    def __init__(self, spec: RNNSpec, regions: Regions, out: Array | None = None) -> None:
        self._spec, self._started = spec, False
        self._sums: dict[str, Array] = {}
        self._apart = set()
        dtype = spec.compute_dtype.numpy
        for field in dataclasses.fields(regions):
            kind: tuple[Region, ...] = getattr(regions, field.name)
            size = sum(region.size for region in kind)
            if not size:
                continue
            if out is not None and out.dtype == dtype and adjacent(kind):
                flat = out[kind[0].offset : kind[-1].slice.stop]
            else:
                flat = np.empty(size, dtype)
                self._apart.add(field.name)
            self._sums[field.name] = flat.reshape(-1, *kind[0].shape[1:])

    def add_run(self, cell: Cell, w: Weights, steps: Sequence[Step], tape: Tape, x: Array) -> None:
        """Add what a run's backward has left on its tape; x is the run's input rows."""
        for base, end, _ in reversed(list(blocks(self._spec, steps))):
            here, x_here = tape.rows(base, end), x[base:end]
            inner, ones = here["gates"], np.ones(end - base, x.dtype)
            for columns, piece in cell.input_pieces(here):
                self._add("W", columns, piece, x_here)
                self._add("bW", columns, piece, ones)
            self._add("R", slice(None), inner, here["h_before"])
            self._add("bR", slice(None), inner, ones)
            if w.proj is not None:
                self._add("proj", slice(None), here["dh"], here["hidden"])
            self._started = True

    def _add(self, name: str, columns: slice, rows: Array, others: Array) -> None:
        if name not in self._sums:
            return
        target = self._sums[name][columns]
        if self._started:
            target += rows.T @ others
        else:
            np.matmul(rows.T, others, out=target)

    def put(self, out: Array, regions: Regions, *, accumulate: bool) -> None:
        """Write to `out` what is not a view of it, or add it there."""
        for name in self._apart if self._started else ():
            start = 0
            for region in getattr(regions, name):
                part = self._sums[name].reshape(-1)[start : start + region.size]
                out[region.slice] = out[region.slice] + part if accumulate else part
                start += region.size
