"""Forwards that take several calls of an engine: chunk by chunk through time, each from the states before it.

Three kinds do: with `checkpoint_every`, where a backward runs each chunk again; more steps than one call takes; and
batches that have a sequence without a step, on an engine that takes none. Sequences are sorted, longest first, so that
those that still run are the first ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pycudnnrnn.engines import EagerForward, Engine, Memory, Reserve, Results
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.passes import GRADIENTS, INPUTS, RESULTS, Arrays, CallConfig, nbytes, shapes, slots
from pycudnnrnn.schedule import Chunk, Schedule, cut


def eager_forward(engine: Engine, config: CallConfig, every: int | None) -> EagerForward:
    """Return what runs forwards of one kind: by one call of the engine where it takes that.

    Chunks run the standard algorithm with "auto", and nothing is measured: their sizes change from batch to batch.

    Raises:
        ArgumentError: both directions where time has to be cut.
    """
    spec, schedule, steps = config.spec, config.schedule, _steps(engine, config, every)
    standard = config._replace(spec=spec.replace(algo=spec.untuned_algo))
    in_chunks = functools.partial(_forward, engine, standard, steps, every is not None)
    if _takes_several(engine, schedule, steps):
        return in_chunks
    whole = engine.forward(config)
    if engine.takes_empty or not schedule.is_ragged:
        return whole
    return lambda schedule, *given: (in_chunks if schedule.has_empty else whole)(schedule, *given)


def memory(engine: Engine, config: CallConfig, every: int | None) -> Memory:
    """Return what such a forward takes and, in training, its backward; see `Engine.memory`."""
    spec, schedule, steps = config.spec, config.schedule, _steps(engine, config, every)
    if not _takes_several(engine, schedule, steps):
        return engine.memory(config)
    found = slots(spec, schedule, engine.layout(spec).size)
    outputs = nbytes(found, RESULTS)
    chunks = [engine.memory(config._replace(schedule=chunk.schedule)) for chunk in cut(schedule, steps)]
    most = max((chunk.total_nbytes - chunk.reserve_nbytes for chunk in chunks), default=0)
    if not config.training:
        return Memory(most + nbytes(found, ("hx", "cx")), 0, outputs)
    random = 0 if config.dropout is None else config.dropout.chunk_nbytes
    kept = len(chunks) * (nbytes(found, ("hx", "cx")) + random)
    most += random + found["params"].nbytes * spec.compute_dtype.itemsize // spec.dtype.itemsize
    most -= found["params"].nbytes  # their gradient is not there before all chunks are done
    reserves = [chunk.reserve_nbytes + (chunk.output_nbytes if every is None else 0) for chunk in chunks]
    at_once = sum(reserves) if every is None else max(reserves, default=0)
    gradients = nbytes(found, (*GRADIENTS, "d_params"))
    return Memory(most, kept + at_once, outputs, gradients, 0 if every is None else kept)


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


def _forward(
    engine: Engine, config: CallConfig, steps: int, recomputes: bool, schedule: Schedule, inputs: Arrays, _: Any
) -> Results:
    spec, batch = config.spec, _Batch(engine, config._replace(schedule=schedule))
    as_one = contextlib.nullcontext() if config.dropout is None else config.dropout.as_one()
    with engine.ordered((), "a forward in chunks, which takes memory") as stream, as_one as masks:
        y, states = batch.zeros(spec.output_size), batch.states(inputs["hx"], inputs["cx"])
        reserve = ChunkedReserve(batch, inputs["params"], batch.sorted(inputs["x"]), [], (stream,))
        chunks = cut(schedule, steps)
        for chunk in chunks:
            dropout, again = (None, None) if masks is None else masks.chunk(schedule.offsets[chunk.start])
            kept = _Kept(chunk, batch.before(states, chunk), again)
            *found, own = reserve.run(kept, dropout)
            batch.carry(chunk, found, y, states)
            kept.reserve = None if recomputes and len(chunks) > 1 else own
            reserve.kept.append(kept)
        return *batch.unsorted(y, states), reserve if config.keep_reserve else None


class _Batch:
    """A batch whose sequences are sorted, cut in time. States are a list of h and, where the cell has one, c."""

    def __init__(self, engine: Engine, config: CallConfig) -> None:
        self.engine, self.config, self._arrays = engine, config, engine.arrays
        self._axis, order = int(config.schedule.time_major), config.schedule.order
        self._order = None if config.schedule.is_sorted else engine.arrays.from_host(order)
        self._back = None if self._order is None else engine.arrays.from_host(np.argsort(order))

    def sorted(self, data: Any) -> Any:
        return data if self._order is None else self._arrays.take(data, self._order, self._axis)

    def zeros(self, width: int) -> Any:
        return self._arrays.zeros(self.config.schedule.data_shape(width), self.config.spec.dtype.numpy)

    def states(self, *given: Any | None) -> list[Any]:
        """Return h and c to be worked on; zeros where none are given."""
        spec, schedule, arrays = self.config.spec, self.config.schedule, self._arrays
        wanted = shapes(spec, schedule.data_axes, schedule.B)
        found = []
        for array, shape in zip(given, (wanted["hx"], wanted["cx"]), strict=True):
            if array is not None:
                found.append(arrays.copy(array) if self._order is None else arrays.take(array, self._order, 1))
            elif shape is not None:
                found.append(arrays.zeros(shape, spec.dtype.numpy))
        return found

    def part(self, data: Any, chunk: Chunk) -> Any:
        time, batch = slice(chunk.start, chunk.start + chunk.schedule.T), slice(chunk.schedule.B)
        return data[time, batch] if self._axis else data[batch, time]

    def native(self, data: Any, chunk: Chunk) -> Any:
        """Return a chunk's part of data as the engine reads it."""
        part, engine = self.part(data, chunk), self.engine
        whole = part.flags.c_contiguous and not engine.address(part) % engine.alignment
        return part if whole else engine.copy(part)

    def before(self, states: Sequence[Any], chunk: Chunk) -> tuple[Any, Any | None]:
        """Return copies of a chunk's h and c."""
        h, c, *_ = *(self._arrays.copy(each[:, : chunk.schedule.B]) for each in states), None
        return h, c

    def carry(self, chunk: Chunk, found: Iterable[Any], data: Any, states: Sequence[Any]) -> None:
        """Write what a call on a chunk found into its part of data, and the states."""
        for whole, part in zip(
            (self.part(data, chunk), *(s[:, : chunk.schedule.B] for s in states)), found, strict=False
        ):
            self._arrays.copy_into(whole, part)

    def unsorted(self, data: Any, states: Sequence[Any]) -> tuple[Any, Any, Any | None]:
        if self._back is not None:
            data = self._arrays.take(data, self._back, self._axis)
            states = [self._arrays.take(each, self._back, 1) for each in states]
        h, c, *_ = *states, None
        return data, h, c


@dataclasses.dataclass
class _Kept:
    """What a chunk leaves: the states before it, what makes its masks again, and its reserve unless it runs again."""

    chunk: Chunk
    before: tuple[Any, Any | None]
    again: Any | None
    reserve: Reserve | None = None


@dataclasses.dataclass
class ChunkedReserve:
    """What the chunks leave for the backward; see `engines.Reserve`. `streams` are those that its memory is from."""

    batch: _Batch
    params: Any
    x: Any
    kept: list[_Kept]
    streams: tuple[Any, ...]
    gradient: Any | None = None
    """Of params, in the compute dtype, once `backward_data` is done."""

    @property
    def touched(self) -> bool:
        return self.gradient is not None or any(kept.reserve.touched for kept in self.kept if kept.reserve)

    def copy(self) -> ChunkedReserve:
        kept = [dataclasses.replace(k, reserve=k.reserve and k.reserve.copy()) for k in self.kept]
        return dataclasses.replace(self, kept=kept, gradient=None)

    def run(self, kept: _Kept, dropout: Any | None) -> Results:
        """Run a chunk from the states before it."""
        batch, engine, schedule = self.batch, self.batch.engine, kept.chunk.schedule
        given = self.params, batch.native(self.x, kept.chunk), *kept.before
        at = [None if array is None else engine.address(array) for array in given]
        config = batch.config._replace(schedule=schedule, dropout=dropout)
        return engine.forward(config)(schedule, dict(zip(INPUTS, given, strict=True)), at)

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        """Go back through the chunks, to the gradient of params as well."""
        batch, engine, spec = self.batch, self.batch.engine, self.batch.config.spec
        with engine.ordered(self.streams, "an eager backward, which takes memory") as stream:
            dy = None if dy is None else batch.sorted(dy)
            dx, states = batch.zeros(spec.input_size), batch.states(dhy, dcy)
            total, gradient = (
                engine.arrays.zeros(self.params.shape, dtype.numpy) for dtype in (spec.compute_dtype, spec.dtype)
            )
            for kept in reversed(self.kept):
                chunk, reserve = kept.chunk, kept.reserve
                if reserve is None:
                    dropout = None if kept.again is None else engine.dropout_again(spec, kept.again)
                    *_, reserve = self.run(kept, dropout)
                upstream = None if dy is None else batch.native(dy, chunk)
                found = reserve.backward_data(upstream, *batch.before(states, chunk))
                reserve.backward_weights(gradient, accumulate=False)
                engine.arrays.add_into(total, gradient)
                batch.carry(chunk, found, dx, states)
            results = batch.unsorted(dx, states)
            self.gradient, self.streams = total, (*self.streams, stream)
            return results

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        arrays = self.batch.engine.arrays
        with self.batch.engine.ordered(self.streams, "an eager backward, which takes memory"):
            (arrays.add_into if accumulate else arrays.copy_into)(out, self.gradient)
