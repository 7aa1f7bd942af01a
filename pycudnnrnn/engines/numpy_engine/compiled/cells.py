"""The cells with compiled time loops (`kernels`) and products. Tapes and the rest are those of `cells`.

The sequences of a batch are split among threads (`threads`). With the same number of threads, results have the same
bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn.engines.numpy_engine.cells import Cell, GRUCell, LSTMCell, PlainCell, Steps
from pycudnnrnn.engines.numpy_engine.compiled import kernels, products, threads
from pycudnnrnn.engines.numpy_engine.weights import Array, Tape, Weights
from pycudnnrnn.spec import InputMode, RNNMode, RNNSpec

SEQUENCES_MIN: Final = 4
WORK_MIN: Final = 1 << 23
"""The fewest sequences and multiplications for a thread: with less work, starting it costs more than it saves."""

NOTICE_S: Final = 2.0
"""Seconds of compiling, all kernels together, after which a message is logged. It goes to standard error if the program
has no handler for it."""

MOVED: Final = 16
"""Multiplications that take as long as packing one number."""

LARGE_NBYTES: Final = 8 << 20
"""Up to this size of the recurrent matrix, each thread runs its sequences alone through all steps. With a larger one,
threads split the columns of each step's product: that costs less than each reading the whole matrix."""

_lock = _locks.lock()
_compiling = types.SimpleNamespace(seconds=0.0)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="pycudnnrnn")


if hasattr(os, "register_at_fork"):  # other systems have no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child does not inherit the pool's threads


@functools.cache
def _ready(kernel: Any, dtype: np.dtype[Any]) -> Any:
    """Return a kernel, compiled for a type."""
    with _lock, _noticed():
        return kernels.ready(kernel, dtype)


@contextlib.contextmanager
def _noticed() -> Iterator[None]:
    """Log once that kernels are being compiled, after NOTICE_S seconds of it."""
    started = time.monotonic()
    timer = threading.Timer(max(0, NOTICE_S - _compiling.seconds), _notice)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # the interpreter ends, and no thread can start
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _compiling.seconds += time.monotonic() - started


@functools.cache
def _notice() -> None:
    once = "once on a machine" if kernels.are_cached() else "in each process, unless NUMBA_CACHE_DIR can be written"
    text = "compiling the CPU's kernels: each cell and pass takes one to three seconds at its first use, %s"
    logging.getLogger("pycudnnrnn").warning(text, once)


def _walk(kernel: Any, steps: Steps, states: Sequence[Array], gates: Array, R: Array, *arguments: Any) -> None:
    """Run a kernel over all sequences, split among as many threads as the work is worth.

    `states` have a row for each sequence. If `gates` has no rows, each thread allocates those of a few steps.
    """
    run = _ready(kernel, gates.dtype)
    places = np.array([(rows.start, rows.stop) for rows, _ in steps], np.int64).reshape(-1, 2)
    sizes = places[:, 1] - places[:, 0]

    def share(start: int, stop: int) -> None:
        """Run sequences [start, stop), at the steps where some of them run."""
        rows = places[:, :1] + np.minimum([start, stop], sizes[:, None])
        room = gates if len(gates) else np.empty((stop - start + kernels.AHEAD, gates.shape[1]), gates.dtype)
        run(*(state[start:stop] for state in states), room, R, *arguments, rows[rows[:, 0] < rows[:, 1]])

    _shared(share, int(sizes.max(initial=0)), int(sizes.sum()) * R.size)


def _shared(share: Callable[[int, int], None], rows: int, work: int) -> None:
    """Run `share` over [0, rows), split among as many threads as `work` multiplications are worth."""
    count = max(1, min(threads.number(), rows // SEQUENCES_MIN, work // WORK_MIN))
    first, *shares = itertools.pairwise(rows * n // count for n in range(count + 1))
    waits = [_started(share, *ends) for ends in shares]
    try:
        share(*first)
    finally:
        for wait in waits:
            wait()


def _started(share: Callable[[int, int], None], start: int, stop: int) -> Callable[[], None]:
    """Run a share in the pool, and return what waits for its end.

    Python closes all pools when the main thread ends, but other threads and `atexit` functions may still run RNNs. What
    is returned runs the share itself then.
    """
    try:
        return _pool().submit(share, start, stop).result
    except RuntimeError as error:
        if not str(error).startswith("cannot schedule new futures"):  # another error comes after the share is queued
            raise
        return functools.partial(share, start, stop)


def _packed(matrix: Array) -> Array:
    """Return a matrix packed in panels; see `products`."""
    rows, columns = matrix.shape
    room, run = products.panels(rows, columns, matrix.dtype), _ready(kernels.packed, matrix.dtype)
    width = room.shape[2]

    def share(start: int, stop: int) -> None:
        run(room[start:stop], matrix[:, start * width : stop * width])

    _shared(share, len(room), MOVED * matrix.size)
    return room


def _multiply(rows: Array, others: Array, out: Array, *, transposed: bool, adds: bool) -> None:
    """Write rows @ others to `out`, or add it. `transposed`: rows.T @ others."""
    panels, run = _packed(others), _ready(kernels.multiplied, out.dtype)
    tiles_max = kernels.TRANSPOSED_TILES if transposed else 0

    def share(start: int, stop: int) -> None:
        tiles = np.empty((min(tiles_max, -(-(stop - start) // products.TALL)), len(rows), products.TALL), out.dtype)
        run(out[start:stop], rows[:, start:stop] if transposed else rows[start:stop], panels, tiles, adds)

    _shared(share, len(out), rows.size * others.shape[1])


def _step_product(rows: Array, R: Array, out: Array, *, adds: bool) -> None:
    """Write rows @ R to `out`, or add it, for a single step. R is packed in panels."""
    run, width = _ready(kernels.multiplied, out.dtype), R.shape[2]

    def share(start: int, stop: int) -> None:
        run(out[:, start * width : stop * width], rows, R[start:stop], R[:0], adds)

    _shared(share, len(R), rows.shape[0] * R.size)


class CompiledCell(Cell):
    """A compiled cell. Its matrices are packed in panels, except a W that the caller multiplies with ahead."""

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        # Whether the kernels compute the recurrent products. Otherwise their caller does, step by step.
        self._by_kernel = self.width * spec.state_size * spec.compute_dtype.itemsize <= LARGE_NBYTES

    def forward_weights(self, w: Weights) -> Weights:
        W = _packed(w.W.T) if w.W is not None and self._by_kernel else w.W
        proj = None if w.proj is None else _packed(w.proj.T)
        return dataclasses.replace(w, W=W, R=_packed(w.R.T), proj=proj)

    held_weights = forward_weights

    def backward_weights(self, w: Weights) -> Weights:
        return dataclasses.replace(w, R=_packed(w.R), proj=None if w.proj is None else _packed(w.proj))

    def copied_elements(self) -> int:
        spec = self.spec
        first = int(spec.input_mode is InputMode.SKIP_INPUT)  # the first layer that has a W
        inputs = max(map(spec.layer_input_size, range(first, spec.num_layers)), default=0)
        return self.width * (spec.state_size + inputs) + spec.num_units * (spec.num_proj or 0)

    def forward_elements(self, rows: int, layer: int) -> int:
        skips = self.spec.input_mode is InputMode.SKIP_INPUT and layer == 0
        return (0 if self._by_kernel and not skips else rows * self.width) + self._strided_elements(rows)

    def backward_elements(self, rows: int) -> int:
        return self._strided_elements(rows)

    def weight_elements(self, rows: int, columns: int, *, adds: bool) -> int:  # noqa: ARG002
        tiles = min(self.width, kernels.TRANSPOSED_TILES * products.TALL * threads.number())
        return rows * (columns + tiles)

    def _strided_elements(self, rows: int) -> int:
        """Return the elements of a contiguous copy of one direction's rows, which lie between the other's."""
        return rows * self.spec.state_size if self.spec.num_dirs == 2 else 0

    def _parts(self, R: Array, steps: Steps) -> Iterator[tuple[Steps, Array, slice | None, slice]]:
        """Yield the steps of each kernel call: all, with R; or each alone, without R, with its rows and sequences."""
        if self._by_kernel:
            yield steps, R, None, slice(0)
            return
        for rows, now in steps:
            yield [(rows, now)], _proj(None, R), rows, now

    def _inputs(self, w: Weights, x: Array, tape: Tape) -> tuple[Array, Array, Array]:
        """Return gates, x and W as kernels take them. If W is not packed in panels, the gates already contain W x.

        If W is packed and there is no tape, the gates have no rows.
        """
        if w.W is None or w.W.ndim == 2:
            gates = self.input_product(w, x, tape, None)
            return gates, x[:0], _proj(None, gates)
        gates = tape["gates"] if tape else np.empty((0, self.width), x.dtype)
        return gates, np.ascontiguousarray(x), w.W

    def weight_product(self, rows: Array, others: Array, out: Array, *, adds: bool) -> None:
        _multiply(rows, others, out, transposed=True, adds=adds)

    @staticmethod
    def times(rows: Array, matrix: Array, out: Array | None = None) -> Array:
        out = np.empty((len(rows), matrix.shape[1]), rows.dtype) if out is None else out
        _multiply(rows, matrix, out, transposed=False, adds=False)
        return out

    def add_product(self, rows: Array, matrix: Array, out: Array) -> None:
        _multiply(rows, matrix, out, transposed=False, adds=True)


def _given(array: Array | None, like: Array) -> Array:
    """Return an array as kernels take it: contiguous, and without rows for None."""
    return np.empty((0, 1), like.dtype) if array is None else np.ascontiguousarray(array)


def _proj(proj: Array | None, like: Array) -> Array:
    return np.empty((0, 0, 1), like.dtype) if proj is None else proj


@contextlib.contextmanager
def _contiguous(out: Array) -> Iterator[Array]:
    """Yield an array for a kernel to write: `out` if it is contiguous, otherwise one that is copied to `out`."""
    if out.flags.c_contiguous:
        yield out
        return
    rows = np.empty(out.shape, out.dtype)
    yield rows
    out[...] = rows


class CompiledPlainCell(CompiledCell, PlainCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        gates, *inputs = self._inputs(w, x, tape)
        bias, h_before = np.add(*self.biases(w)), _given(tape.get("h_before"), h)
        with _contiguous(out) as y:
            for part, R, rows, now in self._parts(w.R, steps):
                if rows:
                    _step_product(h[now], w.R, gates[rows], adds=True)
                _walk(kernels.plain, part, [h], gates, R, *inputs, bias, y, h_before, self.relu)

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        gates, dy_rows = tape["gates"], _given(dy, dh)
        for part, R, rows, now in self._parts(w.R, steps[::-1]):
            _walk(kernels.plain_back, part, [dh], gates, R, dy_rows, self.relu)
            if rows:
                _step_product(gates[rows], w.R, dh[now], adds=False)


class CompiledLSTMCell(CompiledCell, LSTMCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> None:
        gates, *inputs = self._inputs(w, x, tape)
        bias, bounds = np.add(*self.biases(w)), np.array(self.clip or (), h.dtype)
        kept = [_given(tape.get(name), h) for name in ("h_before", "c_before", "tanh_c", "inside", "hidden")]
        states = h, c, np.empty_like(c), np.empty_like(c)  # the last two are scratch for one step
        with _contiguous(out) as y:
            for part, R, rows, now in self._parts(w.R, steps):
                if rows:
                    _step_product(h[now], w.R, gates[rows], adds=True)
                _walk(kernels.lstm, part, states, gates, R, *inputs, bias, bounds, _proj(w.proj, h), y, *kept)

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> None:
        gates, dy_rows, proj = tape["gates"], _given(dy, dh), _proj(w.proj, dh)
        kept = [_given(tape.get(name), dh) for name in ("c_before", "tanh_c", "inside", "dh")]
        states = dh, dc, np.empty_like(dc)  # the last is scratch for one step
        for part, R, rows, now in self._parts(w.R, steps[::-1]):
            _walk(kernels.lstm_back, part, states, gates, R, proj, dy_rows, *kept)
            if rows:
                _step_product(gates[rows], w.R, dh[now], adds=False)


class CompiledGRUCell(CompiledCell, GRUCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        (gates, *inputs), (bW, bR), start = self._inputs(w, x, tape), self.biases(w), 2 * self.units
        # What is added to R h, and what to the n gate after r has multiplied that.
        bias, n_bias = np.concatenate((bW[:start] + bR[:start], bR[start:])), bW[start:]
        kept = [_given(tape.get(name), h) for name in ("h_before", "q")]
        recurrent = np.empty((len(h), gates.shape[1]), h.dtype)
        with _contiguous(out) as y:
            for part, R, rows, now in self._parts(w.R, steps):
                if rows:
                    _step_product(h[now], w.R, recurrent[now], adds=False)
                _walk(kernels.gru, part, [h, recurrent], gates, R, *inputs, bias, n_bias, y, *kept)

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        gates, dy_rows = tape["gates"], _given(dy, dh)
        for part, R, rows, now in self._parts(w.R, steps[::-1]):
            _walk(kernels.gru_back, part, [dh], gates, R, dy_rows, tape["h_before"], tape["q"])
            if rows:
                _step_product(gates[rows], w.R, dh[now], adds=True)


CELLS: Final[dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]]] = {
    RNNMode.LSTM: CompiledLSTMCell,
    RNNMode.GRU: CompiledGRUCell,
    RNNMode.RNN_TANH: CompiledPlainCell,
    RNNMode.RNN_RELU: CompiledPlainCell,
}
