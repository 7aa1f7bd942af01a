"""Runs on the NumPy engine that keep states now and then, and recompute the rest inside backward.

A run is cut in time into chunks of whole blocks (`gradients`), so that every product has the rows that it has
in a run that keeps everything, and the results have the same bits. Layers in one direction are walked together, chunk
by chunk. Where both directions run, each direction of each layer is walked by itself, since one starts where the other
ends; what goes from layer to layer is kept then. Dropout's masks are drawn again from the seed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from pycudnnrnn._arrays import new
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.numpy_engine.dropout import drop, dropout_mask
from pycudnnrnn.engines.numpy_engine.gradients import GradientSums, bounds, walk_in_blocks
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of, tape_widths
from pycudnnrnn.engines.numpy_engine.packing import NO_OUTS, Outs, pack
from pycudnnrnn.engines.numpy_engine.reserve import Kept
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.walk import counted_from, directions_of, run, run_back
from pycudnnrnn.engines.numpy_engine.weights import Array, Stacks, all_stacks
from pycudnnrnn.schedule import Schedule, Step, joined
from pycudnnrnn.spec import RNNSpec

MASK_ROWS: Final = 4096
"""Rows whose masks are drawn at a time."""

Left = tuple[Tape, Array, Array | None]
"""What one layer of a chunk leaves for its backward: its tape, its input rows, and the mask that dropped from them."""


@dataclasses.dataclass
class Strand:
    """Layers that are walked together in one direction, in chunks, and the states that each chunk began with.

    Shapes:
        saved: (h, c), each [layers, sequences running in the chunk, P or U], by chunk.
    """

    pseudo_layers: Sequence[int]
    columns: slice
    chunks: list[list[Step]]
    saved: list[tuple[Array, Array]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class RecomputeReserve(Kept):
    """What a forward that recomputes leaves for its backward.

    `levels` are strands by what they read; `inputs` has what each level above the first reads, packed. `gradients` of
    the pseudo-layers are there once a backward is done.
    """

    x: Array
    drawn: DropoutState | None
    every: int
    levels: list[list[Strand]] = dataclasses.field(default_factory=list)
    inputs: list[Array] = dataclasses.field(default_factory=list)
    gradients: list[GradientSums] = dataclasses.field(default_factory=list)
    touched: bool = False

    def __post_init__(self) -> None:
        self._forwards = [cell_of(self.spec).forwards(w, self.schedule) for w in self.weights]

    def copy(self) -> RecomputeReserve:
        return dataclasses.replace(self, gradients=[])

    def forward(self, rows: Array, h: Array, c: Array) -> Array:
        """Run on packed rows, updating the states; return the top layer's rows."""
        spec = self.spec
        c = c if spec.has_cell_state else c[..., :0]
        for level, strands in enumerate(walks(spec, self.schedule, self.every)):
            if level:
                self._mask(level, rows)
                self.inputs.append(rows)
            above: Array = new((len(rows), spec.output_size), rows.dtype)
            for strand in strands:
                for chunk in strand.chunks:
                    base, end = bounds(chunk)
                    h_now, c_now = ([s[p, : running(chunk)] for p in strand.pseudo_layers] for s in (h, c))
                    strand.saved.append((np.stack(h_now), np.stack(c_now)))
                    self._walk(strand, chunk, rows[base:end], h_now, c_now, above[base:end, strand.columns])
            self.levels.append(strands)
            rows = above
        return rows

    def backward_data(
        self, dy: Array | None, dhy: Array | None, dcy: Array | None, outs: Outs = NO_OUTS
    ) -> tuple[Array, Array, Array | None]:
        found = super().backward_data(dy, dhy, dcy, outs)
        self.touched = True  # what is kept is read alone: a backward that failed can be tried again
        return found

    def _sums(self, stacks: list[Stacks], out: Array | None) -> Iterable[GradientSums]:  # noqa: ARG002
        return self.gradients

    def _back(self, drows: Array, dh: Array, dc: Array, out: Array | None) -> Array:  # noqa: ARG002
        spec = self.spec
        self._backwards = [cell_of(spec).backwards(w, self.schedule) for w in self.weights]
        self.gradients = [GradientSums(spec, own) for own in all_stacks(self.layout, spec)]
        for level, strands in reversed(list(enumerate(self.levels))):
            rows = self.inputs[level - 1] if level else pack(self.x, self.schedule, drows.dtype)
            below: Array = new(rows.shape, rows.dtype)
            for direction, strand in enumerate(strands):
                for chunk, (h, c) in reversed(list(zip(strand.chunks, strand.saved, strict=True))):
                    base, end = bounds(chunk)
                    left = self._walk(strand, chunk, rows[base:end], list(h.copy()), list(c.copy()), None)
                    dy, into = drows[base:end, strand.columns], below[base:end]
                    self._walk_back(strand, chunk, left, dy, dh, dc, into, add=direction > 0)
            if level:
                self._mask(level, below)
            drows = below
        return drows

    def _walk(
        self, strand: Strand, chunk: Sequence[Step], rows: Array, h: list[Array], c: list[Array], out: Array | None
    ) -> list[Left]:
        """Run a chunk, updating the states, with its output to `out`, or else to leave what a backward needs."""
        spec, (base, end) = self.spec, bounds(chunk)
        cell, steps = cell_of(spec), counted_from(base, chunk)
        left = []
        for place, p in enumerate(strand.pseudo_layers):
            mask = None
            if place and self.drawn is not None:
                mask = dropout_mask(self.drawn, spec, p, base, rows.shape)
                drop(rows, mask, spec.dropout)
            top = place + 1 == len(strand.pseudo_layers)
            above = out if top and out is not None else np.empty((end - base, spec.state_size), rows.dtype)
            tape = None
            if out is None:
                tape = Tape({k: np.empty((end - base, n), rows.dtype) for k, n in tape_widths(spec).items()})
                left.append((tape, rows, mask))
            run(cell, spec, self._forwards[p], rows, steps, h[place], c[place], above, tape)
            rows = above
        return left

    def _walk_back(
        self,
        strand: Strand,
        chunk: Sequence[Step],
        left: list[Left],
        dy: Array,
        dh: Array,
        dc: Array,
        below: Array,
        *,
        add: bool,
    ) -> None:
        """Go back through a chunk, updating the states' gradients; `below` gets the gradient of its input."""
        spec, (base, _) = self.spec, bounds(chunk)
        cell, steps = cell_of(spec), counted_from(base, chunk)
        for place, p in reversed(list(enumerate(strand.pseudo_layers))):
            tape, rows, mask = left.pop()
            into = np.empty(rows.shape, rows.dtype) if place else below
            run_back(cell, spec, self._backwards[p], steps, tape, dy, dh[p], dc[p], into, add=add and not place)
            self.gradients[p].add_run(cell, steps, tape, rows)
            if mask is not None:
                drop(into, mask, spec.dropout)
            dy = into

    def _mask(self, layer: int, rows: Array) -> None:
        """Drop from all rows that go into a layer, some at a time."""
        if self.drawn is None:
            return
        for first in range(0, len(rows), MASK_ROWS):
            part = rows[first : first + MASK_ROWS]
            drop(part, dropout_mask(self.drawn, self.spec, layer, first, part.shape), self.spec.dropout)


def walks(spec: RNNSpec, schedule: Schedule, every: int) -> Iterator[list[Strand]]:
    """The strands of each level, nothing saved yet."""
    layers = [range(spec.num_layers)] if spec.num_dirs == 1 else [range(n, n + 1) for n in range(spec.num_layers)]
    for level in layers:
        yield [
            Strand(
                [layer * spec.num_dirs + direction for layer in level],
                slice(direction * spec.state_size, (direction + 1) * spec.state_size),
                list(joined(walk_in_blocks(spec, steps), every)),
            )
            for direction, steps in directions_of(spec, schedule)
        ]


def running(chunk: Sequence[Step]) -> int:
    """The most sequences that run in a chunk."""
    return max(last - first for first, last in chunk)
