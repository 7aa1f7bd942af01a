"""The cells with compiled time loops (`kernels`) and products. Tapes and the rest are those of `cells`.

Each thread runs all steps of some sequences. Where these would be few for a large R, all threads share each step
(`teams`), and the directions of a layer run at once. Threads begin together for several kernels (`Phase`): they pack
matrices, then read them. Results have the same bits whatever the number of threads: it only decides who computes which
numbers.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import logging
import os
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn._arrays import aligned
from pycudnnrnn.engines.numpy_engine.cells import (
    Array,
    Cell,
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

WORK_MIN: Final = 1 << 24
MEETING: Final = 1 << 16
GATE: Final = 1 << 6
"""Multiplications that take as long as starting a thread and waiting for its end, as the meetings of a step, and as the
functions of a number in the gates. A thread's share is more.

Two cores (Sapphire Rapids), float32: a second thread takes 150 us of the caller's time, two meetings take 0.8 to 1.1
us, and a core multiplies 85 to 100 numbers in 1 ns.
"""

POOL_MAX: Final = 256
"""Threads in the pool; each starts when there is work for it."""

NOTICE_S: Final = 2.0
"""Seconds of compiling, all kernels together, after which a message is logged. It goes to standard error if the program
has no handler for it."""

NEAR_NBYTES: Final = 1 << 17
"""A thread that has sequences to itself reads all of R in each step. So many of them should run in the mean step that
multiplying takes longer than that: R has at most so many bytes for each.

Two cores with 2 MB of second cache each: that is faster than to share each step from two sequences a thread on if R has
256 KB, from eight on if it has 1 MB, and from 32 on if it has 4 MB.
"""

# glibc's malloc returns memory to the system where more than twice the largest block was freed, at most 32 MB, and each
# call would pay for getting it back: up to a fifth of a training step. So a large block is freed once.
np.empty(31 << 20, np.uint8)

_directions: ContextVar[int] = ContextVar("directions", default=1)
"""How many directions run at once, and have the threads between them."""

_lock = _locks.lock()
_compiling = types.SimpleNamespace(seconds=0.0)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(POOL_MAX, thread_name_prefix="pycudnnrnn")


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


def _number(work: int, steps: int = 0) -> int:
    """Return how many threads some multiplications in so many steps are worth."""
    return max(1, min(threads.in_team() // _directions.get(), work // (WORK_MIN + steps * MEETING)))


class Phase(NamedTuple):
    """A kernel, and its arguments for each group of threads, but for the team and the place in it."""

    kernel: Any
    groups: list[tuple[Any, ...]]


@dataclasses.dataclass
class Packed(Weights):
    """Weights of which some are packed in panels (`products`), once `phases` have run: before the first kernel."""

    phases: list[Phase] = dataclasses.field(default_factory=list)


def _panels(matrices: Mapping[Any, Array]) -> tuple[dict[Any, Array], list[Phase]]:
    """Return room for matrices packed in panels (`products`), by their names, and what packs them.

    It begins at a cache line: vectors that cross lines take twice as long to load.
    """
    rooms = {}
    for name, matrix in matrices.items():
        width = products.PANEL_NBYTES // matrix.itemsize
        rooms[name] = aligned((-(-matrix.shape[1] // width), matrix.shape[0], width), matrix.dtype)
    return rooms, [Phase(kernels.packed, [(room, matrices[name])]) for name, room in rooms.items()]


def _packed(w: Weights, matrices: Mapping[str, Array]) -> Packed:
    """Return weights with some matrices packed, by name."""
    rooms, phases = _panels(matrices)
    return Packed(**vars(w) | rooms, phases=phases)


def _together(number: int, dtype: np.dtype[Any], phases: Sequence[Phase]) -> None:
    """Run kernels one after the other, by a team of so many threads: this one, and others that come if they can."""
    work = []
    for kernel, groups in phases:
        each = number // len(groups)
        work.append((_ready(kernel, dtype), [(arguments, teams.team(each)) for arguments in groups], each))

    def take_part(place: int) -> None:
        for run, groups, each in work:
            arguments, team = groups[place // each]
            run(*arguments, team, place % each)

    at_once([functools.partial(take_part, place) for place in range(number)])


def _walk(
    kernel: Any, w: Any, steps: Steps, states: Sequence[Array], *arguments: Any, ahead: Sequence[int] = (),
    back: bool = False,
) -> None:  # fmt: skip
    """Run a kernel over all steps, by as many threads as the work is worth.

    Each thread has some of the sequences, which takes no meetings. Where that is slower, all threads share each step.
    `states` have a row for each sequence. `ahead`: the widths of rooms for steps ahead. `back`: last step first.
    """
    width, rows = states[0].shape[1], max(steps[0][0].stop, steps[-1][0].stop)
    work = rows * w.R.size * (width + GATE) // width
    number = _number(work)
    is_near = w.R.nbytes <= NEAR_NBYTES * (rows // (len(steps) * number))
    groups = steps.groups(number if is_near else 1, back=back)
    number = len(groups) if len(groups) > 1 else _number(work, len(steps))
    arguments_of = []
    for sequences, places in groups:
        size = sequences.stop - sequences.start + kernels.AHEAD
        rooms = [aligned(shape, w.R.dtype) for shape in zip((size, min(size, 2 * kernels.AHEAD)), ahead, strict=False)]
        arguments_of.append((*(state[sequences] for state in states), *rooms, w.R, *arguments, places))
    start, ran = time.monotonic(), time.thread_time()
    _together(number, w.R.dtype, [*w.phases, Phase(kernel, arguments_of)])
    if number > 1:
        threads.note(time.monotonic() - start, time.thread_time() - ran)
    w.phases.clear()


def at_once(functions: Sequence[Callable[[], None]]) -> None:
    """Run functions at once: the first here, the others in the pool, or here if none of its threads is free for them.

    So they wait only for functions that run, and may call this function themselves.
    """
    first, *others = functions
    with contextlib.ExitStack() as stack:
        for function in others:
            stack.callback(_started(function))
        first()


def _started(function: Callable[[], None]) -> Callable[[], None]:
    """Run a function in the pool, and return what waits for its end, or runs it if it has not begun.

    Python closes all pools when the main thread ends, but other threads and `atexit` functions may still run RNNs.
    """
    try:
        future = _pool().submit(contextvars.copy_context().run, function)
    except RuntimeError as error:
        if not str(error).startswith("cannot schedule new futures"):  # another error comes after the function is queued
            raise
        return function

    def finish() -> None:
        if future.cancel():
            function()
        else:
            future.result()

    return finish


def _multiply(terms: Sequence[tuple[Array, Array, Array]], *, transposed: bool, adds: bool) -> None:
    """Write rows @ others to out, or add it, for each (rows, others, out). `transposed`: rows.T @ others."""
    rooms, phases = _panels({id(others): others for _, others, _ in terms})
    number = _number(sum(rows.size * others.shape[1] for rows, others, _ in terms))
    count = max(-(-len(out) // (number * products.TALL)) for *_, out in terms) if transposed else 0
    shape = number, min(kernels.TRANSPOSED_TILES, count), len(terms[0][0]), products.TALL
    tiles = np.empty(shape, terms[0][2].dtype)
    for rows, others, out in terms:
        phases.append(Phase(kernels.multiplied, [(out, rows, rooms[id(others)], tiles, adds)]))
    _together(number, tiles.dtype, phases)


class CompiledCell(Cell):
    """A compiled cell. Its matrices are packed in panels."""

    def at_once(self, functions: Sequence[Callable[[], None]], rows: int) -> None:
        if len(functions) == 1 or self._number_at_once(rows) == 1:
            super().at_once(functions, rows)
            return
        token = _directions.set(len(functions))
        try:
            at_once(functions)
        finally:
            _directions.reset(token)

    def _number_at_once(self, rows: int) -> int:
        """Return how many directions of a layer run at once, over `rows` packed rows each."""
        work = rows * self.width * (2 * self.spec.state_size + GATE)
        return max(1, min(self.spec.num_dirs, threads.number(), work // WORK_MIN))

    def forward_weights(self, w: Weights) -> Packed:
        matrices = {name: getattr(w, name) for name in ("W", "R", "proj")}
        return _packed(w, {name: matrix.T for name, matrix in matrices.items() if matrix is not None})

    held_weights = forward_weights

    def backward_weights(self, w: Weights) -> Packed:
        return _packed(w, {"R": w.R} if w.proj is None else {"R": w.R, "proj": w.proj})

    def scratch(self, rows: int, columns: int, *, adds: bool) -> Scratch:  # noqa: ARG002
        spec, skips = self.spec, self.spec.input_mode is InputMode.SKIP_INPUT
        inputs = max(map(spec.layer_input_size, range(int(skips), spec.num_layers)), default=0)  # of layers with a W
        at_once = self._number_at_once(rows)
        copies = at_once * (self.width * (spec.state_size + inputs) + spec.num_units * (spec.num_proj or 0))
        tiles = min(self.width, kernels.TRANSPOSED_TILES * products.TALL * threads.number())
        others = columns + spec.state_size + (spec.num_units if spec.num_proj else 0)
        number = max(at_once, min(threads.number(), rows * self.width * (spec.state_size + GATE) // WORK_MIN))
        rooms = number * kernels.AHEAD * (self.width + 2 * inputs)
        return Scratch(copies, rooms, 0, rows * (others + tiles))

    def weight_products(self, terms: Sequence[tuple[Array, Array, Array]], *, adds: bool) -> None:
        _multiply(terms, transposed=True, adds=adds)

    def write_product(self, rows: Array, matrix: Array, out: Array, *, adds: bool) -> None:
        _multiply([(rows, matrix, out)], transposed=False, adds=adds)


def _or_empty(array: Array | None, like: Array, axes: int = 2) -> Array:
    """Return an array, or one without rows in place of None, as kernels take it."""
    return np.empty((*[0] * (axes - 1), 1), like.dtype) if array is None else array


class CompiledPlainCell(CompiledCell, PlainCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        bias, W = np.add(*self.biases(w)), _or_empty(w.W, h, axes=3)
        saved = [_or_empty(tape.get(name), h) for name in ("gates", "h_before")]
        _walk(kernels.plain, w, steps, [h], x, W, bias, out, *saved, self.relu, ahead=(self.width, x.shape[1]))

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        _walk(kernels.plain_back, w, steps, [dh], tape["gates"], dy, self.relu, back=True)


class CompiledLSTMCell(CompiledCell, LSTMCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> None:
        bias, bounds = np.add(*self.biases(w)), np.array(self.clip or (), h.dtype)
        W, proj = (_or_empty(matrix, h, axes=3) for matrix in (w.W, w.proj))
        saved = [_or_empty(tape.get(key), h) for key in ("gates", "h_before", "c_before", "tanh_c", "inside", "hidden")]
        states = h, c, np.empty_like(c), np.empty_like(c)  # the last two are scratch for one step
        _walk(kernels.lstm, w, steps, states, x, W, bias, bounds, proj, out, *saved, ahead=(self.width, x.shape[1]))

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> None:
        saved = [_or_empty(tape.get(name), dh) for name in ("c_before", "tanh_c", "inside", "dh")]
        states = dh, dc, np.empty_like(dc)  # the last is scratch for one step
        _walk(kernels.lstm_back, w, steps, states, tape["gates"], _or_empty(w.proj, dh, axes=3), dy, *saved, back=True)


class CompiledGRUCell(CompiledCell, GRUCell):
    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        (bW, bR), start, W = self.biases(w), 2 * self.units, _or_empty(w.W, h, axes=3)
        # What is added to R h, and what to the n gate after r has multiplied that.
        bias, n_bias = np.concatenate((bW[:start] + bR[:start], bR[start:])), bW[start:]
        saved = [_or_empty(tape.get(name), h) for name in ("gates", "h_before", "q")]
        recurrent = np.empty((len(h), self.width), h.dtype)
        _walk(kernels.gru, w, steps, [h, recurrent], x, W, bias, n_bias, out, *saved, ahead=(self.width, x.shape[1]))

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        saved = tape["h_before"], tape["q"]
        _walk(kernels.gru_back, w, steps, [dh], tape["gates"], dy, *saved, back=True)


CELLS: Final[dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]]] = {
    RNNMode.LSTM: CompiledLSTMCell,
    RNNMode.GRU: CompiledGRUCell,
    RNNMode.RNN_TANH: CompiledPlainCell,
    RNNMode.RNN_RELU: CompiledPlainCell,
}
