"""`algo="auto"`: which algorithms and math types a batch may run with, and which of them is fastest, measured.

Precision never falls below what was asked for: a candidate's math type is the one asked for or, in 32 bits and more, a
stricter one. Nor does the layout of params change: a candidate whose layout, as cuDNN tells it, differs from the
standard algorithm's is out.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.cudnn.checks import check_sizes
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, AlgorithmTrial, CallKind
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.errors import ArgumentError, CudnnError, EngineError, LayoutError
from pycudnnrnn.passes import RESULTS, UPSTREAM, Arrays, CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, MathType, RNNSpec

STRICTNESS: Final = (MathType.FMA, MathType.DEFAULT, MathType.TENSOR_OP, MathType.TENSOR_OP_ALLOW_CONVERSION)
"""Math types, each permitting what the one before does and more. Source: cudnnMathType_t (cudnn_graph.h, 9.28)."""

ALGORITHMS: Final = (
    Algorithm.STANDARD,
    Algorithm.PERSIST_STATIC_SMALL_H,
    Algorithm.PERSIST_STATIC,
    Algorithm.PERSIST_DYNAMIC,
)
"""In the order in which they are tried; of equal times the first wins."""

ROUNDS: Final = 5
"""Timed runs of a candidate, each after one that is not; the median counts."""

BUILD_US: Final = 500
"""The dynamic algorithm is tried where the fastest other candidate takes at least so many microseconds. cuDNN compiles
it for seconds, for each kind of call: if it halves 500 us, two of them are made up for after 8,000 calls."""

WAKE_S: Final = 0.075
"""Seconds for which the device is kept busy before anything counts: an idle one runs at a fraction of its clock."""

BLOCK: Final = 1 << 20
"""Random numbers drawn for data of our own; longer arrays repeat them."""


def candidates(config: CallConfig) -> Iterator[CallConfig]:
    """Give the batch with each algorithm and math type that it may run with, as far as Python knows the rules."""
    asked = STRICTNESS.index(config.spec.math_type)
    strictest = asked if config.spec.dtype.itemsize == 2 else 0  # nobody takes 16 bits for the precision of a product
    for algo in ALGORITHMS:
        for math_type in reversed(STRICTNESS[strictest : asked + 1]):
            try:
                candidate = config._replace(spec=config.spec.replace(algo=algo, math_type=math_type))
                check_sizes(candidate)
            except ArgumentError:
                continue
            yield candidate


def choose(runtime: Runtime, config: CallConfig, data: Arrays | None) -> AlgorithmChoice:
    """Return the fastest candidate, from memory if it is known there, measured on `data` otherwise.

    Forward and, in training, both backward passes are timed together, into memory of their own. Dropout states of their
    own move, not the model's. Without `data`, numbers of our own stand in for it.

    Raises:
        CaptureError: it would have to be measured while the stream is captured.
        EngineError: no candidate runs.
        MemoryError: there is no memory for any of them.
        DeviceLostError: a candidate has taken the device with it; no other is tried.
    """
    choices, drops, spec, schedule = runtime.choices, config.dropout is not None, config.spec, config.schedule
    asked = spec.replace(seed=0) if drops else spec.without_dropout
    sizes = schedule.T, schedule.B, schedule.lengths is not None, schedule.time_major
    kind = CallKind(choices.gpu, choices.cudnn, asked, *sizes, config.training)
    known = choices.known.get(kind)
    if known is not None:
        return known
    with choices.lock:
        if kind in choices.known:
            return choices.known[kind]
        with runtime.launching("measuring algo='auto'") as handle:
            data = data or _stand_in(runtime, spec, schedule)
            dropout = CudnnDropout(runtime, handle, spec, DropoutState("cudnn", spec.seed)) if drops else None
            trials, failures = _tried(runtime, handle, config._replace(spec=asked, dropout=dropout), data)
        ran = [(trial.time_us, trial) for trial in trials if trial.time_us is not None]
        if not ran:
            if failures and all(isinstance(error, MemoryError) for error in failures):
                raise failures[0]
            reasons = "; ".join(f"{trial.algo} with {trial.math_type}: {trial.reason}" for trial in trials)
            raise EngineError(f"algo='auto': no algorithm runs {spec!r} with T={schedule.T}, B={schedule.B}: {reasons}")
        _, best = min(ran, key=lambda pair: pair[0])
        choices.known[kind] = AlgorithmChoice(kind, best.algo, best.math_type, tuple(trials))
        return choices.known[kind]


def _tried(
    runtime: Runtime, handle: Handle, config: CallConfig, data: Arrays
) -> tuple[list[AlgorithmTrial], list[Exception]]:
    """Time each candidate whose layout is the one that params have; say of the others why not.

    Each has run once before, and then all are timed in turn, there and back again, so that neither a device that wakes
    up nor one that grows hot decides by their order. Those that cuDNN has to compile come last, and all are timed again
    then; not at all where the others are faster than BUILD_US.
    """
    device, layout = runtime.device, runtime.layout(config.spec)
    descriptor = None if config.dropout is None else config.dropout.descriptor
    found, native = list(candidates(config)), dict[int, NativeCalls]()
    times, reasons, failures = dict[int, list[float]](), dict[int, str](), list[Exception]()

    def run(number: int) -> float:
        return _time(native[number], handle, config.schedule, data)

    def make(number: int) -> None:
        if runtime.layout(found[number].spec) != layout:
            reasons[number] = "another layout"
            return
        native[number] = NativeCalls(handle, device, found[number], descriptor)
        run(number)
        times[number] = []

    def safely(step: Callable[[int], object], number: int) -> None:
        try:
            with device.active():  # a device that is lost here is no reason to try the next
                step(number)
        except (CudnnError, LayoutError, MemoryError) as error:
            times.pop(number, None)
            failures.append(error)
            reasons[number] = f"{error.function}: {error.status}" if isinstance(error, CudnnError) else str(error)

    def medians() -> dict[int, float]:
        return {number: statistics.median(own) for number, own in times.items()}

    def join(numbers: Iterable[int]) -> None:
        for number in numbers:
            safely(make, number)
        awake = time.monotonic() + WAKE_S
        while times and time.monotonic() < awake:
            safely(run, min(times))
        for turn in range(ROUNDS):
            for number in sorted(times, reverse=turn % 2 == 1):
                safely(lambda number: times[number].append(run(number)), number)

    built = [number for number, one in enumerate(found) if one.spec.algo is Algorithm.PERSIST_DYNAMIC]
    join(number for number in range(len(found)) if number not in built)
    best = min(medians().values(), default=math.inf)
    if built and best >= BUILD_US:
        join(built)
    else:
        reasons.update(dict.fromkeys(built, f"not compiled: another takes {best:.0f} us"))
    times_us = medians()
    return [
        AlgorithmTrial(one.spec.algo, one.spec.math_type, times_us.get(number), reasons.get(number, ""))
        for number, one in enumerate(found)
    ], failures


def _time(native: NativeCalls, handle: Handle, schedule: Schedule, data: Arrays) -> float:
    """Return a run's microseconds, the run after one that is not timed; what it writes is thrown away.

    It takes the memory of one candidate at a time.
    """
    device, descriptors, arrays = native.device, native.data(handle, schedule), native.step(**data)

    def work() -> None:
        native.run_all(handle, descriptors, arrays)

    work()
    # Upstream gradients of the results' size: numbers of any other would do.
    for gradient, result in zip(UPSTREAM, RESULTS, strict=True):
        if gradient in arrays:
            device.copy_bytes(arrays[gradient], arrays[result])
    return device.timed(work)


def _stand_in(runtime: Runtime, spec: RNNSpec, schedule: Schedule) -> Arrays:
    """Normal numbers, params scaled so that gates stay open; no states."""
    block = np.random.default_rng(0).standard_normal(BLOCK, np.float32)
    dtype = spec.dtype.numpy
    x = np.resize(block, schedule.data_shape(spec.input_size))
    params = np.resize(block, runtime.layout(spec).size) * spec.num_units**-0.5
    move = runtime.device.from_host
    return {"params": move(params.astype(dtype)), "x": move(x.astype(dtype)), "hx": None, "cx": None}
