"""The cells with compiled time loops (`kernels`) and products. Tapes and the rest are those of `cells`.

Each thread runs all steps of some sequences. Where these would be few for a large R, all threads share each step
(`teams`). The directions of a layer run at once. Only the caller runs Python: it lends its kernels to other threads.
Results have the same bits whatever the number of threads: it only decides who computes which numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn._arrays import aligned
from pycudnnrnn.engines.numpy_engine.cells import (
    Array,
    Cell,
    Directions,
    GRUCell,
    LSTMCell,
    PlainCell,
    Scratch,
    Steps,
    Tape,
    Weights,
)
from pycudnnrnn.engines.numpy_engine.compiled import kernels, products, teams, threads
from pycudnnrnn.spec import InputMode, RNNMode

WORK_MIN: Final = 1 << 22
WORK_TO_WAKE: Final = 1 << 24
MEETING: Final = 1 << 16
GATE: Final = 1 << 6
PACKING: Final = 1 << 5
"""Multiplications that take as long as lending work to a thread that is awake, as waking one, as the meetings of a
step, as the functions of a number in the gates, and as packing a number. A thread's share is more.

Two cores (Sapphire Rapids), float32: a second thread takes 15 us of the caller's time if it is awake, otherwise 150 us;
two meetings take 0.8 to 1.1 us, and a core multiplies 85 to 100 numbers in 1 ns.
"""

NEAR_NBYTES: Final = 1 << 17
"""A thread that has sequences to itself reads all of R in each step. So many of them should run in the mean step that
multiplying takes longer than that: R has at most so many bytes for each.

Two cores with 2 MB of second cache each: that is faster than to share each step from two sequences a thread on if R has
256 KB, from eight on if it has 1 MB, and from 32 on if it has 4 MB.
"""

# glibc's malloc returns memory to the system where more than twice the largest block was freed, at most 32 MB, and each
# call would pay for getting it back: up to a fifth of a training step. So a large block is freed once.
np.empty(31 << 20, np.uint8)

_ALONE: Final = teams.new(1, 1)

_awake: list[Array] = []
"""Helpers that work for nobody. Some may have ended, or have been forgotten in a forked child."""

_lock = _locks.lock()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="pycudnnrnn")


if hasattr(os, "register_at_fork"):  # other systems have no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child does not inherit the pool's threads


@functools.cache
def _ready(kernel: Any, dtype: np.dtype[Any]) -> Any:
    """Return a kernel, compiled for a type."""
    with _lock:
        kernels.ready(kernel, dtype)
    if kernel.stats.cache_misses:
        _notice()
    return kernel


@functools.cache
def _notice() -> None:
    """Log once why the first use takes seconds, where kernels were not on disk: to standard error without a handler."""
    text = "compiling the CPU's kernels: one to three seconds for each cell and pass, once if they can be cached"
    logging.getLogger("pycudnnrnn").warning(text)


def _number(work: int, steps: int = 0, *, share: int = 1) -> int:
    """Return how many threads some multiplications in so many steps are worth, if so many directions share them."""
    least = WORK_MIN if threads.are_awake() else WORK_TO_WAKE
    return max(1, min(threads.in_team() // share, work // (least + steps * MEETING)))


class Walk(NamedTuple):
    """A kernel that is to run over all steps of a direction, with packed weights and more arguments.

    `states` have a row for each sequence. `ahead`: the widths of rooms for steps ahead. `back`: last step first.
    """

    kernel: Any
    w: Weights
    steps: Steps
    states: Sequence[Array]
    arguments: Sequence[Any]
    ahead: Sequence[int] = ()
    back: bool = False


def _packed(matrices: Mapping[Any, Array]) -> dict[Any, Array]:
    """Return matrices packed in panels (`products`), by their names.

    They begin at a cache line: vectors that cross lines take twice as long to load.
    """
    rooms, phases = {}, []
    for name, matrix in matrices.items():
        width = products.PANEL_NBYTES // matrix.itemsize
        rooms[name] = aligned((-(-matrix.shape[1] // width), matrix.shape[0], width), matrix.dtype)
        phases.append((kernels.packed, [(rooms[name], matrix)]))
    _together(_number(PACKING * sum(matrix.size for matrix in matrices.values())), phases)
    return rooms


def _together(number: int, phases: Sequence[tuple[Any, Sequence[tuple[Any, ...]]]]) -> None:
    """Run kernels one after the other, by at most so many threads: this one, and helpers that come if they can.

    Each has arguments for each group of threads, all kernels for as many, but for the team and the place in it. The
    groups have the same number of threads.
    """
    runs = [(_ready(kernel, groups[0][0].dtype), groups) for kernel, groups in phases]
    start, ran, others, first, count = time.monotonic(), time.thread_time(), list[Array](), 0, len(phases[0][1])
    for _ in range(1, number - number % count):
        others.append(_helper())
        others[-1][teams.NEXT], first = first, others[-1].ctypes.data
    team = teams.new(count, number // count, first) if others else _ALONE
    for run, groups in runs:
        for n in range(1, count):
            run(*groups[n], team[n], teams.ALL)
        run(*groups[0], team[0], teams.ALL if others else 0)
    threads.note(start, time.thread_time() - ran, number)
    _awake.extend(others)


def _helper() -> Array:
    """Return a helper that is awake, or about to be.

    It began in this second. So each ends, even if others go on for ever: when the interpreter ends, it waits for them.
    """
    helper, second = None, int(time.monotonic())
    with contextlib.suppress(IndexError):  # there is none, or no longer
        helper = _awake.pop()
    if helper is None or helper[0] != teams.FREE or helper[teams.SECOND] != second:
        helper = aligned((teams.LINE,), np.dtype(np.int64), zeros=True)
        helper[teams.SECOND] = second
        try:
            _pool().submit(_ready(kernels.helping, np.dtype(np.float32)), helper)
        except RuntimeError:  # no thread can start, or the interpreter ends
            helper[0] = teams.GONE
    return helper


def _run(walks: Sequence[Walk]) -> None:
    """Run the walks of some directions at once, by as many threads as the work is worth."""
    numbers, groups = zip(*(_groups_of(walk, len(walks)) for walk in walks), strict=True)
    _together(sum(numbers), [(walks[0].kernel, [*itertools.chain(*groups)])])


def _groups_of(walk: Walk, share: int) -> tuple[int, list[tuple[Any, ...]]]:
    """Return how many threads run a walk, one of so many at once, and its kernel's arguments for each group of them.

    Each thread has some of the sequences, which takes no meetings. Where that is slower, all threads share each step.
    """
    R, steps, states = walk.w.R, walk.steps, walk.states
    width, rows = states[0].shape[1], max(steps[0][0].stop, steps[-1][0].stop)
    work = rows * R.size * (width + GATE) // width
    number = _number(work, share=share)
    is_near = R.nbytes <= NEAR_NBYTES * (rows // (len(steps) * number))
    groups = steps.groups(number if is_near else 1, back=walk.back)
    number = len(groups) if len(groups) > 1 else _number(work, len(steps), share=share)
    arguments_of = []
    for sequences, places in groups:
        size = sequences.stop - sequences.start + kernels.AHEAD
        shapes = zip((size, min(size, 2 * kernels.AHEAD)), walk.ahead, strict=False)
        rooms = [aligned(shape, R.dtype) for shape in shapes]
        arguments_of.append((*(state[sequences] for state in states), *rooms, R, *walk.arguments, places))
    return number, arguments_of


def _multiply(terms: Sequence[tuple[Array, Array, Array]], *, transposed: bool, adds: bool) -> None:
    """Write rows @ others to out, or add it, for each (rows, others, out). `transposed`: rows.T @ others."""
    rooms, phases = _packed({id(others): others for _, others, _ in terms}), []
    number = _number(sum(rows.size * others.shape[1] for rows, others, _ in terms))
    count = max(-(-len(out) // (number * products.TALL)) for *_, out in terms) if transposed else 0
    shape = number, min(kernels.TRANSPOSED_TILES, count), len(terms[0][0]), products.TALL
    tiles = np.empty(shape, terms[0][2].dtype)
    for rows, others, out in terms:
        phases.append((kernels.multiplied, [(out, rows, rooms[id(others)], tiles, adds)]))
    _together(number, phases)


class CompiledCell(Cell):
    """A compiled cell. Its matrices are packed in panels."""

    def run(self, prepare: Any, run: Any, directions: Directions, rows: int, *, ready: bool) -> None:
        at_once = min(len(directions), _number(self._work(rows)))
        for first in range(0, len(directions), at_once):
            some = directions[first : first + at_once]
            weights = [w if ready else prepare(w) for w, _ in some]
            for blocks in itertools.zip_longest(*(blocks for _, blocks in some)):
                _run([run(w, *block) for w, block in zip(weights, blocks, strict=True) if block])
            del weights  # before others are packed

    def _work(self, rows: int) -> int:
        """Return how many multiplications the forward of a direction takes."""
        return rows * self.width * (2 * self.spec.state_size + GATE)

    def forward_weights(self, w: Weights) -> Weights:
        matrices = {name: getattr(w, name) for name in ("W", "R", "proj")}
        packed = _packed({name: matrix.T for name, matrix in matrices.items() if matrix is not None})
        return dataclasses.replace(w, **packed)

    held_weights = forward_weights

    def backward_weights(self, w: Weights) -> Weights:
        return dataclasses.replace(w, **_packed({"R": w.R} if w.proj is None else {"R": w.R, "proj": w.proj}))

    def scratch(self, rows: int, columns: int, *, adds: bool) -> Scratch:  # noqa: ARG002
        spec, skips = self.spec, self.spec.input_mode is InputMode.SKIP_INPUT
        inputs = max(map(spec.layer_input_size, range(int(skips), spec.num_layers)), default=0)  # of layers with a W
        number = max(1, min(threads.number(), self._work(rows) // WORK_MIN))
        copies = self.width * (spec.state_size + inputs) + spec.num_units * (spec.num_proj or 0)
        tiles = min(self.width, kernels.TRANSPOSED_TILES * products.TALL * threads.number())
        others = columns + spec.state_size + (spec.num_units if spec.num_proj else 0)
        rooms = number * kernels.AHEAD * (self.width + 2 * inputs)
        return Scratch(min(number, spec.num_dirs) * copies, rooms, 0, rows * (others + tiles))

    def weight_products(self, terms: Sequence[tuple[Array, Array, Array]], *, adds: bool) -> None:
        _multiply(terms, transposed=True, adds=adds)

    def write_product(self, rows: Array, matrix: Array, out: Array, *, adds: bool) -> None:
        _multiply([(rows, matrix, out)], transposed=False, adds=adds)


def _or_empty(array: Array | None, like: Array, axes: int = 2) -> Array:
    """Return an array, or one without rows in place of None, as kernels take it."""
    return np.empty((*[0] * (axes - 1), 1), like.dtype) if array is None else array


class CompiledPlainCell(CompiledCell, PlainCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Walk:  # noqa: ARG002
        bias, W = np.add(*self.biases(w)), _or_empty(w.W, h, axes=3)
        saved = [_or_empty(tape.get(name), h) for name in ("gates", "h_before")]
        return Walk(kernels.plain, w, steps, [h], (x, W, bias, out, *saved, self.relu), (self.width, x.shape[1]))

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Walk:  # noqa: ARG002
        return Walk(kernels.plain_back, w, steps, [dh], (tape["gates"], dy, self.relu), back=True)


class CompiledLSTMCell(CompiledCell, LSTMCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Walk:
        bias, bounds = np.add(*self.biases(w)), np.array(self.clip or (), h.dtype)
        W, proj = (_or_empty(matrix, h, axes=3) for matrix in (w.W, w.proj))
        saved = [_or_empty(tape.get(key), h) for key in ("gates", "h_before", "c_before", "tanh_c", "inside", "hidden")]
        states = h, c, np.empty_like(c), np.empty_like(c)  # the last two are scratch for one step
        arguments = x, W, bias, bounds, proj, out, *saved
        return Walk(kernels.lstm, w, steps, states, arguments, (self.width, x.shape[1]))

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Walk:
        saved = [_or_empty(tape.get(name), dh) for name in ("c_before", "tanh_c", "inside", "dh")]
        states = dh, dc, np.empty_like(dc)  # the last is scratch for one step
        arguments = tape["gates"], _or_empty(w.proj, dh, axes=3), dy, *saved
        return Walk(kernels.lstm_back, w, steps, states, arguments, back=True)


class CompiledGRUCell(CompiledCell, GRUCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Walk:  # noqa: ARG002
        (bW, bR), start, W = self.biases(w), 2 * self.units, _or_empty(w.W, h, axes=3)
        # What is added to R h, and what to the n gate after r has multiplied that.
        bias, n_bias = np.concatenate((bW[:start] + bR[:start], bR[start:])), bW[start:]
        saved = [_or_empty(tape.get(name), h) for name in ("gates", "h_before", "q")]
        recurrent = np.empty((len(h), self.width), h.dtype)
        arguments = x, W, bias, n_bias, out, *saved
        return Walk(kernels.gru, w, steps, [h, recurrent], arguments, (self.width, x.shape[1]))

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Walk:  # noqa: ARG002
        arguments = tape["gates"], dy, tape["h_before"], tape["q"]
        return Walk(kernels.gru_back, w, steps, [dh], arguments, back=True)


CELLS: Final[dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]]] = {
    RNNMode.LSTM: CompiledLSTMCell,
    RNNMode.GRU: CompiledGRUCell,
    RNNMode.RNN_TANH: CompiledPlainCell,
    RNNMode.RNN_RELU: CompiledPlainCell,
}
