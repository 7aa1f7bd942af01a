"""The cells with compiled time loops (`kernels`): the walks are their own; tapes and the rest are those of `cells`.

The sequences of a batch are split among as many threads as NumPy's BLAS has, which follows OMP_NUM_THREADS, the
process's affinity and `threadpoolctl.threadpool_limits`. Results have the same bits with the same number of threads.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn.engines.numpy_engine import kernels
from pycudnnrnn.engines.numpy_engine.blas import Blas
from pycudnnrnn.engines.numpy_engine.cells import GRUCell, LSTMCell, PlainCell
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.schedule import Step
from pycudnnrnn.spec import RNNMode

SEQUENCES_MIN: Final = 4
WORK_MIN: Final = 1 << 20
"""A thread's least sequences, and multiplications: handing over fewer costs more than it saves."""

NOTICE_S: Final = 1.0
"""Seconds after which a compilation is said on a terminal."""

_blas = Blas()
_lock = _locks.lock()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="pycudnnrnn")


if hasattr(os, "register_at_fork"):  # nothing is forked elsewhere
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has no threads but its own


@functools.cache
def _ready(kernel: Any, dtype: np.dtype[Any]) -> Any:
    """Return a kernel, compiled for a type."""
    with _lock, _said():
        return kernels.ready(kernel, dtype)


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """Say on a terminal that something is being compiled, if it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    text = "pycudnnrnn: compiling CPU kernels, once for this machine"
    timer = threading.Timer(NOTICE_S, print, [text], {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _walk(kernel: Any, R: Array, steps: Sequence[Step], states: Sequence[Array], *arguments: Any) -> None:
    """Run a kernel over all sequences, in as many threads as the work is worth; `states` are arrays by sequence."""
    run = _ready(kernel, R.dtype)
    places = np.array(steps, np.int64).reshape(-1, 2)
    sizes = places[:, 1] - places[:, 0]
    B, work = int(sizes.max(initial=0)), int(sizes.sum()) * R.size

    def share(start: int, stop: int) -> None:
        """Run sequences [start, stop), at the steps where some of them run."""
        rows = places[:, :1] + np.minimum([start, stop], sizes[:, None])
        run(*(state[start:stop] for state in states), *arguments, rows[rows[:, 0] < rows[:, 1]])

    with _blas.single() as threads:
        count = max(1, min(threads, B // SEQUENCES_MIN, work // WORK_MIN))
        own, *shares = itertools.pairwise(B * n // count for n in range(count + 1))
        others = [_pool().submit(share, *ends) for ends in shares]
        try:
            share(*own)
        finally:
            for other in others:
                other.result()


def _given(array: Array | None, like: Array) -> Array:
    """An array as kernels take it; one without rows where there is none."""
    return np.empty((0, 1), like.dtype) if array is None else np.ascontiguousarray(array)


def _bias(bias: Array | None, R: Array) -> Array:
    return np.zeros(len(R), R.dtype) if bias is None else bias


@contextlib.contextmanager
def _contiguous(out: Array) -> Iterator[Array]:
    """Give what a kernel may write in the place of `out`: its own memory, or another which is copied to it."""
    if out.flags.c_contiguous:
        yield out
        return
    rows = np.empty(out.shape, out.dtype)
    yield rows
    out[...] = rows


class CompiledPlainCell(PlainCell):
    turns = False

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        R, h_before = _given(w.R, h), _given(tape.get("h_before"), h)
        with _contiguous(out) as y:
            _walk(kernels.plain, R, steps, [h], tape["gates"], R, _bias(w.bias, R), y, h_before, self.relu)

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        R = _given(w.R, dh)
        _walk(kernels.plain_back, R, steps[::-1], [dh], tape["gates"], R, _given(dy, dh), self.relu)


class CompiledLSTMCell(LSTMCell):
    turns = False

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        R, proj, bounds = _given(w.R, h), _given(w.proj, h), np.array(self.clip or (), h.dtype)
        kept = [_given(tape.get(name), h) for name in ("h_before", "c_before", "tanh_c", "inside", "hidden")]
        states = h, c, np.empty_like(c), np.empty_like(c)  # the last two for a step alone
        with _contiguous(out) as y:
            _walk(kernels.lstm, R, steps, states, tape["gates"], R, _bias(w.bias, R), bounds, proj, y, *kept)

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        R, proj = _given(w.R, dh), _given(w.proj, dh)
        kept = [_given(tape.get(name), dh) for name in ("c_before", "tanh_c", "inside", "dh")]
        states = dh, dc, np.empty_like(dc)  # the last for a step alone
        _walk(kernels.lstm_back, R, steps[::-1], states, tape["gates"], R, proj, _given(dy, dh), *kept)


class CompiledGRUCell(GRUCell):
    turns = False

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        R, (inside, outside) = _given(w.R, h), self._biases(w)
        kept = [_given(tape.get(name), h) for name in ("h_before", "q")]
        with _contiguous(out) as y:
            n_bias = _bias(outside, R[: self.units])
            _walk(kernels.gru, R, steps, [h], tape["gates"], R, _bias(inside, R), n_bias, y, *kept)

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        R = _given(w.R, dh)
        _walk(kernels.gru_back, R, steps[::-1], [dh], tape["gates"], R, _given(dy, dh), tape["h_before"], tape["q"])


CELLS: Final[dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]]] = {
    RNNMode.LSTM: CompiledLSTMCell,
    RNNMode.GRU: CompiledGRUCell,
    RNNMode.RNN_TANH: CompiledPlainCell,
    RNNMode.RNN_RELU: CompiledPlainCell,
}
