"""Forwards in several calls of an engine: chunk by chunk through time, each from the final states of the one before.

There are three kinds: with `checkpoint_every`, where the backward runs each chunk again; with more steps than one call
can have; and with empty sequences, on an engine that does not take them. Sequences are sorted, longest first, so that
those that still run are the first ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn.engines import Engine, Memory, Reserve, Results
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.ops._take import OP_WORDS, Taker, slots_on
from pycudnnrnn.passes import GRADIENTS, INPUTS, RESULTS, Arrays, CallConfig, nbytes, shapes
from pycudnnrnn.schedule import Chunk, Schedule, cut

BACKWARD: Final = "an eager backward, which takes memory"


class EagerCalls:
    """Forwards of one kind, made: the checks of their arrays, and the engine's calls, one at a time if possible.

    With algorithm "auto", chunks run the standard one, and nothing is measured: their sizes change in each batch.
    """

    def __init__(self, engine: Engine, config: CallConfig, every: int | None) -> None:
        """Make the forwards of a configuration: those that differ only in their lengths, if these are ragged.

        Raises:
            ArgumentError: both directions, if time must be cut into chunks.
        """
        spec, schedule = config.spec, config.schedule
        self.schedule = dataclasses.replace(schedule, lengths=None)
        of_call = slots_on(engine, spec, self.schedule)
        self.take = Taker(engine, spec, of_call, {name: OP_WORDS.get(name, name) for name in INPUTS})
        self._engine, self._steps, self._recomputes = engine, _steps(engine, config, every), every is not None
        self._standard = config._replace(spec=spec.replace(algo=spec.untuned_algo))
        self._refuses_empty = schedule.is_ragged and not engine.takes_empty
        self._whole = None if _takes_several(engine, schedule, self._steps) else engine.calls(config)

    def forward(self, schedule: Schedule, inputs: Arrays, at: Sequence[int | None]) -> Results:
        """See `engines.Calls`."""
        whole, engine = self._whole, self._engine
        if whole is None or (self._refuses_empty and schedule.has_empty):
            return _forward(engine, self._standard._replace(schedule=schedule), self._steps, self._recomputes, inputs)
        return whole.forward(schedule, inputs, at)


def memory(engine: Engine, config: CallConfig, every: int | None) -> Memory:
    """Return the memory of such a forward and, in training, of its backward; see `Engine.memory`."""
    spec, schedule, steps = config.spec, config.schedule, _steps(engine, config, every)
    if not _takes_several(engine, schedule, steps) and (engine.takes_empty or not schedule.has_empty):
        return engine.memory(config)
    of_call = slots_on(engine, spec, schedule)
    outputs, ordered = nbytes(of_call, RESULTS), 0 if schedule.is_sorted else nbytes(of_call, ("x", "y"))
    chunks = [engine.memory(config._replace(schedule=chunk.schedule), adds=True) for chunk in cut(schedule, steps)]
    each = [chunk.total_nbytes - chunk.reserve_nbytes for chunk in chunks]
    if not config.training:
        return Memory(ordered + max(each, default=0) + nbytes(of_call, ("hx", "cx")), 0, outputs)
    most = ordered + max(each, default=of_call["params"].nbytes)  # without a chunk, a gradient of params all the same
    random = 0 if config.dropout is None else config.dropout.chunk_nbytes
    checkpoints = len(chunks) * (nbytes(of_call, ("hx", "cx")) + random)
    most += random + of_call["params"].nbytes * spec.compute_dtype.itemsize // spec.dtype.itemsize
    most -= of_call["params"].nbytes  # the result's gradient of params is allocated after the last chunk
    reserves = [chunk.reserve_nbytes + (chunk.output_nbytes if every is None else 0) for chunk in chunks]
    at_once = sum(reserves) if every is None else max(reserves, default=0)
    gradients = nbytes(of_call, (*GRADIENTS, "d_params"))
    return Memory(most, checkpoints + at_once, outputs, gradients, 0 if every is None else checkpoints)


def _steps(engine: Engine, config: CallConfig, every: int | None) -> int:
    """Return the most steps of a chunk."""
    if config.spec.num_dirs == 2:
        if every is not None:
            expected = "None with both directions, which cannot be cut at one step: use an op for each direction"
            raise ArgumentError("checkpoint_every", expected, every)
        if engine.steps_max < config.schedule.T:
            expected = f"at most {engine.steps_max} steps in both directions here: use an op for each direction"
            raise ArgumentError("T", expected, config.schedule.T)
    return min(engine.steps_max, every or engine.steps_max)


def _takes_several(engine: Engine, schedule: Schedule, steps: int) -> bool:
    return steps < schedule.T or not (engine.takes_empty or (schedule.T and schedule.B))


def _forward(engine: Engine, config: CallConfig, steps: int, recomputes: bool, inputs: Arrays) -> Results:
    schedule = config.schedule
    as_one = contextlib.nullcontext() if config.dropout is None else config.dropout.as_one()
    with engine.ordered((), "a forward in chunks, which takes memory") as stream, as_one as masks:
        batch = _Batch(engine, config, inputs)
        y, states = batch.zeros(config.spec.output_size), batch.states(inputs["hx"], inputs["cx"])
        chunks, runs = cut(schedule, steps), list[_ChunkRun]()
        for chunk in chunks:
            dropout, again = (None, None) if masks is None else masks.chunk(schedule.offsets[chunk.start])
            run = _ChunkRun(chunk, batch.of_chunk(states, chunk), again)
            *results, reserve = batch.run(run, dropout)
            batch.carry(chunk, results, y, states)
            runs.append(run if recomputes and len(chunks) > 1 else run._replace(reserve=reserve))
            del results, reserve  # before the next chunk needs memory
        chunked = ChunkedReserve(batch, runs, (stream,)) if config.keep_reserve else None
        return *batch.in_callers_order(y, states), chunked


class _ChunkRun(NamedTuple):
    """A chunk that ran: the states before it, a function that returns its dropout again, and its reserve or None."""

    chunk: Chunk
    before: tuple[Any, Any | None]
    again: Callable[[], Any] | None
    reserve: Reserve | None = None


class _Batch:
    """A batch, its sequences sorted, longest first. States are a list of h and, if the cell has one, c."""

    def __init__(self, engine: Engine, config: CallConfig, inputs: Arrays) -> None:
        self.engine, self.config, self._arrays = engine, config, engine.arrays
        self._axis, order = int(config.schedule.time_major), config.schedule.order  # the axis of sequences in data
        self._order = None if config.schedule.is_sorted else self._arrays.from_host(order)
        self._back = None if self._order is None else self._arrays.from_host(np.argsort(order))
        self.params, self.x = inputs["params"], self.sorted(inputs["x"])

    def sorted(self, data: Any | None) -> Any | None:
        return data if data is None or self._order is None else self._arrays.take(data, self._order, self._axis)

    def zeros(self, width: int) -> Any:
        return self._arrays.zeros((*self.config.schedule.data_axes, width), self.config.spec.dtype.numpy)

    def states(self, *initial: Any | None) -> list[Any]:
        """Return h and c to update: copies, or zeros for None."""
        spec, schedule, arrays = self.config.spec, self.config.schedule, self._arrays
        of_call = shapes(spec, schedule.data_axes, schedule.B)
        states = []
        for array, shape in zip(initial, (of_call["hx"], of_call["cx"]), strict=True):
            if array is not None:
                states.append(arrays.copy(array) if self._order is None else arrays.take(array, self._order, 1))
            elif shape is not None:
                states.append(arrays.zeros(shape, spec.dtype.numpy))
        return states

    def in_callers_order(self, data: Any, states: list[Any]) -> tuple[Any, Any, Any | None]:
        """Return data, h and c with the sequences in the caller's order."""
        if self._back is not None:
            data = self._arrays.take(data, self._back, self._axis)
            states = [self._arrays.take(each, self._back, 1) for each in states]
        h, c, *_ = *states, None
        return data, h, c

    def part(self, data: Any, chunk: Chunk) -> Any:
        time, batch = slice(chunk.start, chunk.start + chunk.schedule.T), slice(chunk.schedule.B)
        return data[time, batch] if self._axis else data[batch, time]

    def native(self, data: Any, chunk: Chunk) -> Any:
        """Return a chunk's part of data as the engine reads it."""
        part, alignment = self.part(data, chunk), self.engine.alignment
        usable = alignment == 1 or (part.flags.c_contiguous and not self._arrays.address(part) % alignment)
        return part if usable else self._arrays.copy(part)

    def of_chunk(self, states: Sequence[Any], chunk: Chunk) -> tuple[Any, Any | None]:
        """Return copies of h and c of a chunk's sequences."""
        h, c, *_ = *(self._arrays.copy(each[:, : chunk.schedule.B]) for each in states), None
        return h, c

    def run(self, run: _ChunkRun, dropout: Any | None) -> Results:
        """Run a chunk from the states before it."""
        schedule = run.chunk.schedule
        inputs = self.params, self.native(self.x, run.chunk), *run.before
        at = [None if array is None else self._arrays.address(array) for array in inputs]
        config = self.config._replace(schedule=schedule, dropout=dropout)
        return self.engine.calls(config).forward(schedule, dict(zip(INPUTS, inputs, strict=True)), at)

    def carry(self, chunk: Chunk, results: Iterable[Any], data: Any, states: Sequence[Any]) -> None:
        """Write a chunk's results into its part of `data` and into the states."""
        targets = self.part(data, chunk), *(each[:, : chunk.schedule.B] for each in states)
        for target, values in zip(targets, results, strict=False):  # a cell without c has no result for it
            self._arrays.copy_into(target, values)


@dataclasses.dataclass
class ChunkedReserve:
    """The reserve of a forward in chunks; see `engines.Reserve`. `streams`: those on which its memory was allocated.

    `gradient`: the gradient of params, in the compute dtype; None before `backward_data`.
    """

    batch: _Batch
    runs: list[_ChunkRun]
    streams: tuple[Any, ...]
    gradient: Any | None = None

    @property
    def touched(self) -> bool:
        return self.gradient is not None or any(run.reserve.touched for run in self.runs if run.reserve)

    def copy(self) -> ChunkedReserve:
        runs = [run._replace(reserve=run.reserve and run.reserve.copy()) for run in self.runs]
        return dataclasses.replace(self, runs=runs, gradient=None)

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        """Go back through the chunks. This computes the gradient of params as well."""
        batch, arrays, spec = self.batch, self.batch.engine.arrays, self.batch.config.spec
        with batch.engine.ordered(self.streams, BACKWARD) as stream:
            dy, dx, states = batch.sorted(dy), batch.zeros(spec.input_size), batch.states(dhy, dcy)
            total, gradient = (
                arrays.zeros(batch.params.shape, dtype.numpy) for dtype in (spec.compute_dtype, spec.dtype)
            )
            for run in reversed(self.runs):
                self._back(run, dy, dx, states, gradient)
                arrays.add_into(total, gradient)
            results = batch.in_callers_order(dx, states)
            self.gradient, self.runs, self.streams = total, [], (*self.streams, stream)
            return results

    def _back(self, run: _ChunkRun, dy: Any | None, dx: Any, states: Sequence[Any], gradient: Any) -> None:
        """Go back through one chunk. A reserve that is computed again is gone before the next chunk needs one."""
        batch = self.batch
        reserve = run.reserve or batch.run(run, run.again and run.again())[-1]
        upstream = None if dy is None else batch.native(dy, run.chunk)
        results = reserve.backward_data(upstream, *batch.of_chunk(states, run.chunk))
        reserve.backward_weights(gradient, accumulate=False)
        batch.carry(run.chunk, results, dx, states)

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        arrays = self.batch.engine.arrays
        with self.batch.engine.ordered(self.streams, BACKWARD):
            (arrays.add_into if accumulate else arrays.copy_into)(out, self.gradient)
