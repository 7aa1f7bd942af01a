"""The CPU engine: cuDNN's semantics in NumPy, written to be fast.

A call works on packed rows (`schedule`), so that padding costs nothing and cannot leak. The input product of a
direction is a GEMM over each group of rows, gradients are one over each block of groups, and the only Python loop is
the one over time (`numpy_cells`). 16-bit types are computed in the spec's compute dtype and rounded where they leave
the engine.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from pycudnnrnn._arrays import new
from pycudnnrnn.engines import DropoutState, EnginePlan, Memory
from pycudnnrnn.engines.numpy_cells import Cell, cell_of
from pycudnnrnn.engines.numpy_gradients import GradientSums, blocks, bounds, walk_in_blocks
from pycudnnrnn.engines.numpy_reserve import NumpyReserve, make_reserve, tape_widths
from pycudnnrnn.engines.numpy_tape import Tape
from pycudnnrnn.engines.numpy_weights import Array, Weights, all_stacks, load_weights
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.schedule import Schedule, Step, grouped
from pycudnnrnn.spec import RNNSpec

if TYPE_CHECKING:
    from pycudnnrnn.engines.numpy_recompute import RecomputeReserve

GROUP_ELEMENTS = 1 << 20
"""Gate elements worked on at a time. Measured flat from 2**19 to 2**22 for 256 to 1024 units: fewer make the input
GEMM too thin, more only take memory."""

COLUMN_ELEMENTS = 1 << 16
COLUMN_STEPS = 16
"""A recurrent matrix no larger than this, used for at least so many steps, is copied to column order first: its product
with few sequences is up to a third faster then. A larger one gains no more than its copy costs (with OpenBLAS)."""

PHILOX_FLOATS = 8
"""float32 numbers that NumPy draws from one block of Philox-4x64: one from each half of its four words."""


class NumpyDropout:
    """Dropout whose masks the seed and the position alone decide."""

    def __init__(self, state: DropoutState) -> None:
        self._state = state
        self._lock = threading.Lock()

    def state(self) -> DropoutState:
        return self._state

    def take(self) -> DropoutState:
        """Return the state of this forward, and move on."""
        with self._lock:
            taken = self._state
            self._state = dataclasses.replace(taken, position=taken.position + 1)
        return taken


class NumpyEngine:
    """Run an RNN on NumPy arrays; see `engines.Engine` for the calls."""

    name = "numpy"
    device = "cpu"
    xp = np

    @staticmethod
    def on_stream(address: int | None, others: Collection[int | None], *, wait: bool) -> nullcontext[int]:  # noqa: ARG004
        """There is none on the CPU."""
        return nullcontext(0)

    def dropout(self, spec: RNNSpec, state: DropoutState) -> NumpyDropout:  # noqa: ARG002
        return NumpyDropout(state)

    def layout(self, spec: RNNSpec) -> ParamLayout:
        return _arithmetic_layout(spec)

    def plan(self, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: NumpyDropout | None) -> EnginePlan:
        from pycudnnrnn.engines.numpy_plan import NumpyPlan  # noqa: PLC0415  it is built on this class

        return NumpyPlan(self, spec, schedule, training=training, dropout=dropout)

    def eager(self, *_: object, **__: object) -> None:
        """None: checks are no matter beside the arithmetic."""

    def memory(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        training: bool,
        dropout: NumpyDropout | None,
        checkpoint_every: int | None,
    ) -> Memory:
        from pycudnnrnn.engines.numpy_memory import memory  # noqa: PLC0415  it is built on this module

        size = self.layout(spec).size
        return memory(spec, schedule, size, training=training, drops=dropout is not None, every=checkpoint_every)

    @np.errstate(all="ignore")  # NaN and infinity are data
    def forward(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        params: Array,
        x: Array,
        hx: Array | None,
        cx: Array | None,
        *,
        dropout: NumpyDropout | None,
        keep_reserve: bool,
        checkpoint_every: int | None = None,
        weights: list[Weights] | None = None,
        buffer: Array | None = None,
    ) -> tuple[Array, Array, Array | None, NumpyReserve | RecomputeReserve | None]:
        """Run, with `weights` where params have been read already; what is kept goes into `buffer`, if one is given."""
        dtype = spec.compute_dtype.numpy
        cell = cell_of(spec)
        weights = self.weights(spec, params) if weights is None else weights
        h = _sorted_states(hx, schedule, (spec.num_pseudo_layers, schedule.B, spec.state_size), dtype)
        c = _sorted_states(cx, schedule, (spec.num_pseudo_layers, schedule.B, spec.num_units), dtype)
        rows = pack(x, schedule, dtype)
        drawn = None if dropout is None else dropout.take()
        if keep_reserve and checkpoint_every is not None:
            from pycudnnrnn.engines.numpy_recompute import RecomputeReserve  # noqa: PLC0415  it is built on this module

            recomputing = RecomputeReserve(spec, schedule, weights, x, drawn, checkpoint_every)
            return *_results(recomputing.forward(rows, h, c), h, c, spec, schedule), recomputing
        reserve = None
        if keep_reserve:
            reserve = make_reserve(spec, schedule, weights, rows, drops=drawn is not None, buffer=buffer)
        for layer in range(spec.num_layers):
            kept = reserve is not None and layer + 1 < spec.num_layers
            above = reserve.inputs[layer + 1] if reserve and kept else new((len(rows), spec.output_size), dtype)
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                out = above[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                w = for_steps(weights[p], len(steps))
                run(cell, spec, w, rows, steps, h[p], c[p], out, reserve.tapes[p] if reserve else None)
            if drawn and layer + 1 < spec.num_layers:
                mask = dropout_mask(drawn, spec, layer + 1, 0, above.shape)
                drop(above, mask, spec.dropout)
                if reserve:
                    reserve.masks[layer + 1][:] = mask  # type: ignore[index]  # there is one where something drops
            rows = above
        return *_results(rows, h, c, spec, schedule), reserve

    def weights(self, spec: RNNSpec, params: Array) -> list[Weights]:
        """Read params into what the cells work with: views of it, where its dtype and layout are theirs."""
        return load_weights(self.layout(spec), params, spec)

    def reserve_in(
        self, spec: RNNSpec, schedule: Schedule, weights: list[Weights], x: Array, buffer: Array, *, drops: bool
    ) -> NumpyReserve:
        """Find again what a forward has left in `buffer`; `backward_weights` needs no weights."""
        rows = pack(x, schedule, spec.compute_dtype.numpy)
        return make_reserve(spec, schedule, weights, rows, drops=drops, buffer=buffer)

    @np.errstate(all="ignore")
    def backward_data(
        self, reserve: NumpyReserve | RecomputeReserve, dy: Array | None, dhy: Array | None, dcy: Array | None
    ) -> tuple[Array, Array, Array | None]:
        spec, schedule = reserve.spec, reserve.schedule
        dtype = spec.compute_dtype.numpy
        cell = cell_of(spec)
        dh = _sorted_states(dhy, schedule, (spec.num_pseudo_layers, schedule.B, spec.state_size), dtype)
        dc = _sorted_states(dcy, schedule, (spec.num_pseudo_layers, schedule.B, spec.num_units), dtype)
        drows = np.zeros((schedule.num_rows, spec.output_size), dtype) if dy is None else pack(dy, schedule, dtype)
        reserve.touched = True
        if not isinstance(reserve, NumpyReserve):
            drows = reserve.backward(all_stacks(self.layout(spec), spec), drows, dh, dc)
            return _results(drows, dh, dc, spec, schedule)
        for layer in reversed(range(spec.num_layers)):
            below: Array = new((schedule.num_rows, spec.layer_input_size(layer)), dtype)
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                own = drows[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                w, tape = reserve.weights[p], reserve.tapes[p]
                run_back(cell, spec, w, steps, tape, own, dh[p], dc[p], below, add=direction > 0)
            mask = reserve.masks[layer]
            if mask is not None:
                drop(below, mask, spec.dropout)
            drows = below
        return _results(drows, dh, dc, spec, schedule)

    @np.errstate(all="ignore")
    def backward_weights(self, reserve: NumpyReserve | RecomputeReserve, out: Array, *, accumulate: bool) -> None:
        spec, schedule = reserve.spec, reserve.schedule
        layout = self.layout(spec)
        if not accumulate and (not schedule.num_rows or sum(region.size for region in layout.regions) < layout.size):
            out[:] = 0
        stacks = all_stacks(layout, spec)
        if not isinstance(reserve, NumpyReserve):
            for p, sums in enumerate(reserve.gradients):
                sums.put(out, stacks[p], accumulate=accumulate)
            return
        cell = cell_of(spec)
        for layer in range(spec.num_layers):
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                sums = GradientSums(spec, stacks[p], None if accumulate else out)
                sums.add_run(cell, steps, reserve.tapes[p], reserve.inputs[layer])
                sums.put(out, stacks[p], accumulate=accumulate)


def directions_of(spec: RNNSpec, schedule: Schedule) -> Iterator[tuple[int, Sequence[Step]]]:
    yield 0, schedule.steps
    if spec.num_dirs == 2:
        yield 1, schedule.steps[::-1]


def groups(spec: RNNSpec, steps: Sequence[Step]) -> Iterator[tuple[int, int, list[Step]]]:
    """Cut blocks into groups that stay in cache: each one's packed rows [base, end), its steps counted from base."""
    for block in walk_in_blocks(spec, steps):
        for group in grouped(block, GROUP_ELEMENTS // (spec.num_gates * spec.num_units)):
            base, end = bounds(group)
            yield base, end, counted_from(base, group)


def counted_from(base: int, steps: Sequence[Step]) -> list[Step]:
    return [(first - base, last - base) for first, last in steps]


def for_steps(w: Weights, num_steps: int) -> Weights:
    """The weights for so many steps forwards: a small recurrent matrix in column order, where that pays."""
    if w.R.size <= COLUMN_ELEMENTS and num_steps >= COLUMN_STEPS:
        return dataclasses.replace(w, R=np.asfortranarray(w.R))
    return w


def run(
    cell: Cell,
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
    parts = list(groups(spec, steps))
    if tape is None:
        most = max((end - base for base, end, _ in parts), default=0)
        widths = tape_widths(spec, keep=False)
        scratch = Tape({name: np.empty((most, width), x.dtype) for name, width in widths.items()})
    for base, end, local in parts:
        here = scratch.rows(0, end - base) if tape is None else tape.rows(base, end)
        _input_product(w, x[base:end], here["gates"])
        cell.forward(w, here, local, h, c, out[base:end])


def run_back(
    cell: Cell,
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
        into = None if add else below[base:end]
        for columns, piece in cell.input_pieces(here):
            if w.W is None:
                gates = piece.reshape(len(piece), piece.shape[1] // spec.num_units, spec.num_units)
                part = np.sum(gates, axis=1, out=into)
            else:
                part = np.matmul(piece, w.W[columns], out=into)
            if into is None:
                below[base:end] += part
            into = None


def _input_product(w: Weights, x: Array, gates: Array) -> None:
    if w.W is None:
        gates.reshape(len(x), gates.shape[1] // x.shape[1], x.shape[1])[:] = x[:, None]
    else:
        np.matmul(x, w.W.T, out=gates)


def pack(data: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    """[T, B, F] or [B, T, F] to packed rows [N, F]."""
    by_time = data if schedule.time_major else data.swapaxes(0, 1)
    if schedule.lengths is None:
        return np.ascontiguousarray(by_time, dtype).reshape(-1, data.shape[2])
    return by_time[schedule.rows].astype(dtype, copy=False)


def _unpack(rows: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    """Packed rows to [T, B, F] or [B, T, F], zero past the ends."""
    T, B, width = schedule.T, schedule.B, rows.shape[1]
    if schedule.lengths is None and schedule.time_major:
        return _in_dtype(rows.reshape(T, B, width), dtype)
    data: Array = new(schedule.data_shape(width), dtype, zeros=True)
    by_time = data if schedule.time_major else data.swapaxes(0, 1)
    by_time[schedule.rows] = rows
    return data


def _sorted_states(states: Array | None, schedule: Schedule, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A fresh array of states [L * D, B, F], longest sequence first; zeros where none are given."""
    own: Array = new(shape, dtype, zeros=states is None)
    if states is not None:
        own[...] = states[:, schedule.order]
    return own


def _unsorted_states(states: Array, schedule: Schedule, dtype: np.dtype[Any]) -> Array:
    if schedule.is_sorted:
        return _in_dtype(states, dtype)
    unsorted: Array = new(states.shape, dtype)
    unsorted[:, schedule.order] = states
    return unsorted


def _in_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype == dtype:
        return array
    cast: Array = new(array.shape, dtype)
    cast[...] = array
    return cast


def _results(rows: Array, h: Array, c: Array, spec: RNNSpec, schedule: Schedule) -> tuple[Array, Array, Array | None]:
    """Packed rows and sorted states, or their gradients, as the caller's."""
    dtype = spec.dtype.numpy
    states_c = _unsorted_states(c, schedule, dtype) if spec.has_cell_state else None
    return _unpack(rows, schedule, dtype), _unsorted_states(h, schedule, dtype), states_c


def dropout_mask(state: DropoutState, spec: RNNSpec, layer: int, first_row: int, shape: tuple[int, int]) -> Array:
    """What survives on the way into `layer`, from a packed row on; seed, position and layer alone decide."""
    block, skipped = divmod(first_row * shape[1], PHILOX_FLOATS)
    bits = np.random.Philox(key=state.seed, counter=[block, 0, state.position, layer])
    drawn = np.random.Generator(bits).random(skipped + shape[0] * shape[1], np.float32)[skipped:]
    return drawn.reshape(shape) >= spec.dropout


def drop(rows: Array, mask: Array, dropout: float) -> None:
    """Drop, and scale what survives so that inference needs no scaling."""
    rows *= mask
    if dropout < 1:
        rows *= rows.dtype.type(1 / (1 - dropout))


@functools.lru_cache(maxsize=256)
def _arithmetic_layout(spec: RNNSpec) -> ParamLayout:
    return arithmetic_layout(spec)
