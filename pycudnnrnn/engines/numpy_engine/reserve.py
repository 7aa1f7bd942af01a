"""What a NumPy forward keeps for its backward, in memory of its own or in a caller's buffer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.gradients import GradientSums
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of, tape_widths
from pycudnnrnn.engines.numpy_engine.packing import NO_OUTS, Outs, new_rows, pack, results, sorted_states
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.walk import directions_of, run_back
from pycudnnrnn.engines.numpy_engine.weights import Array, Stacks, Weights, all_stacks
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

ALIGNMENT_NBYTES: Final = 64
"""Each array of a reserve starts on a cache line."""


@dataclasses.dataclass
class Kept:
    """What every forward leaves for its backward, and the way back through it, but for the walk itself."""

    spec: RNNSpec
    schedule: Schedule
    layout: ParamLayout
    weights: list[Weights]

    @np.errstate(all="ignore")
    def backward_data(
        self, dy: Array | None, dhy: Array | None, dcy: Array | None, outs: Outs = NO_OUTS
    ) -> tuple[Array, Array, Array | None]:
        spec, schedule, dtype = self.spec, self.schedule, self.spec.compute_dtype.numpy
        dh, dc = sorted_states(spec, schedule, dhy, dcy, outs)
        drows = np.zeros((schedule.num_rows, spec.output_size), dtype) if dy is None else pack(dy, schedule, dtype)
        return results(self._back(drows, dh, dc, outs[0]), dh, dc, spec, schedule, outs)

    @np.errstate(all="ignore")
    def backward_weights(self, out: Array, *, accumulate: bool) -> None:
        layout, stacks = self.layout, all_stacks(self.layout, self.spec)
        regions = sum(region.size for region in layout.regions)
        if not accumulate and (not self.schedule.num_rows or regions < layout.size):
            out[:] = 0
        # Added to a copy: memory that runs out on the way would leave a part in `out`, and a second try add it again.
        total = out.copy() if accumulate else out
        for own, sums in zip(stacks, self._sums(stacks, None if accumulate else out), strict=True):
            sums.put(total, own, accumulate=accumulate)
        if accumulate:
            out[...] = total

    def _back(self, drows: Array, dh: Array, dc: Array, out: Array | None) -> Array:
        """Go back from the top layer's rows, updating the states' gradients; return those of the input's rows."""
        raise NotImplementedError

    def _sums(self, stacks: list[Stacks], out: Array | None) -> Iterable[GradientSums]:
        """Give the gradients of each pseudo-layer; in `out`, where it is given and they can be."""
        raise NotImplementedError


@dataclasses.dataclass
class NumpyReserve(Kept):
    """One tape per pseudo-layer, each layer's input (layer 0's is the caller's), and the masks that dropped from it."""

    tapes: list[Tape]
    inputs: list[Array]
    masks: list[Array | None]
    touched: bool = False

    def copy(self) -> NumpyReserve:
        return dataclasses.replace(self, tapes=[tape.copy() for tape in self.tapes])

    def _back(self, drows: Array, dh: Array, dc: Array, out: Array | None) -> Array:
        spec, schedule, cell = self.spec, self.schedule, cell_of(self.spec)
        self.touched = True
        for layer in reversed(range(spec.num_layers)):
            below = new_rows(schedule, spec.layer_input_size(layer), drows.dtype, None if layer else out)
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                own = drows[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                w, tape = cell.backwards(self.weights[p], schedule), self.tapes[p]
                run_back(cell, spec, w, steps, tape, own, dh[p], dc[p], below, add=direction > 0)
            mask = self.masks[layer]
            if mask is not None:
                drop(below, mask, spec.dropout)
            drows = below
        return drows

    def _sums(self, stacks: list[Stacks], out: Array | None) -> Iterable[GradientSums]:
        spec, cell = self.spec, cell_of(self.spec)
        for layer in range(spec.num_layers):
            for direction, steps in directions_of(spec, self.schedule):
                p = layer * spec.num_dirs + direction
                sums = GradientSums(spec, stacks[p], out)
                sums.add_run(cell, steps, self.tapes[p], self.inputs[layer])
                yield sums


def make_reserve(
    config: CallConfig, layout: ParamLayout, weights: list[Weights], x: Array, buffer: Array | None
) -> NumpyReserve:
    """Return a reserve around packed input rows `x`, its arrays in a fixed order parts of `buffer`, or of a new one.

    Shapes:
        x: [rows, I]; buffer: [reserve_nbytes], uint8.
    """
    spec, schedule, drops = config.spec, config.schedule, config.dropout is not None
    if buffer is None:  # one piece: the system gives large ones in large pages, which are quicker to touch first
        buffer = np.empty(reserve_nbytes(spec, schedule.num_rows, drops=drops), np.uint8)
    start = 0

    def take(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        nonlocal start
        nbytes = math.prod(shape) * dtype.itemsize
        part = buffer[start : start + nbytes].view(dtype).reshape(shape)
        start += _padded(nbytes)
        return part

    found = {name: take(shape, dtype) for name, shape, dtype in _arrays(spec, schedule.num_rows, drops=drops)}
    tapes = [Tape() for _ in range(spec.num_pseudo_layers)]
    for (kind, index, name), array in found.items():
        if kind == "tape":
            tapes[index][name] = array
    layers = range(1, spec.num_layers)
    inputs = [x, *(found["input", layer, ""] for layer in layers)]
    masks = [None, *(found["mask", layer, ""] if drops else None for layer in layers)]
    return NumpyReserve(spec, schedule, layout, weights, tapes, inputs, masks)


def reserve_nbytes(spec: RNNSpec, num_rows: int, *, drops: bool) -> int:
    """Return the bytes of a reserve of packed rows, layer 0's input not counted."""
    return sum(_padded(math.prod(shape) * dtype.itemsize) for _, shape, dtype in _arrays(spec, num_rows, drops=drops))


def _arrays(
    spec: RNNSpec, rows: int, *, drops: bool
) -> Iterator[tuple[tuple[str, int, str], tuple[int, int], np.dtype[Any]]]:
    dtype = spec.compute_dtype.numpy
    for p in range(spec.num_pseudo_layers):
        for name, width in tape_widths(spec).items():
            yield ("tape", p, name), (rows, width), dtype
    for layer in range(1, spec.num_layers):
        yield ("input", layer, ""), (rows, spec.output_size), dtype
        if drops:
            yield ("mask", layer, ""), (rows, spec.output_size), np.dtype(np.bool_)


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
