"""What a NumPy forward keeps for its backward, in memory of its own or in a caller's buffer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.cells import cell_of
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

ALIGNMENT_NBYTES: Final = 64
"""Each array of a reserve starts on a cache line."""


@dataclasses.dataclass
class NumpyReserve:
    """One tape per pseudo-layer, each layer's input (layer 0's is the caller's), and the masks that dropped from it."""

    spec: RNNSpec
    schedule: Schedule
    weights: list[Weights]
    tapes: list[Tape]
    inputs: list[Array]
    masks: list[Array | None]
    touched: bool = False

    def copy(self) -> NumpyReserve:
        return dataclasses.replace(self, tapes=[tape.copy() for tape in self.tapes])


def make_reserve(
    spec: RNNSpec, schedule: Schedule, weights: list[Weights], x: Array, *, drops: bool, buffer: Array | None
) -> NumpyReserve:
    """Return a reserve around packed input rows `x`, its arrays in a fixed order parts of `buffer`, or of a new one.

    Shapes:
        x: [rows, I]; buffer: [reserve_nbytes], uint8.
    """
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
    return NumpyReserve(spec, schedule, weights, tapes, inputs, masks)


def reserve_nbytes(spec: RNNSpec, num_rows: int, *, drops: bool) -> int:
    """Return the bytes of a reserve of packed rows, layer 0's input not counted."""
    return sum(_padded(math.prod(shape) * dtype.itemsize) for _, shape, dtype in _arrays(spec, num_rows, drops=drops))


def tape_widths(spec: RNNSpec, *, keep: bool) -> dict[str, int]:
    """Return the columns of a pseudo-layer's tape arrays; fewer arrays where no backward will come."""
    widths = {"gates": spec.num_gates * spec.num_units}
    return widths | {"h_before": spec.state_size} | cell_of(spec).extra() if keep else widths


def _arrays(
    spec: RNNSpec, rows: int, *, drops: bool
) -> Iterator[tuple[tuple[str, int, str], tuple[int, int], np.dtype[Any]]]:
    dtype = spec.compute_dtype.numpy
    for p in range(spec.num_pseudo_layers):
        for name, width in tape_widths(spec, keep=True).items():
            yield ("tape", p, name), (rows, width), dtype
    for layer in range(1, spec.num_layers):
        yield ("input", layer, ""), (rows, spec.output_size), dtype
        if drops:
            yield ("mask", layer, ""), (rows, spec.output_size), np.dtype(np.bool_)


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
