"""`algo="auto"`: measure which of the allowed algorithms and math types is fastest for a batch.

Precision never falls below what was asked for: a candidate has the math type of the spec or, with data of 32 bits and
more, a stricter one. The layout of params does not change either: candidates with another layout than the standard
algorithm's are left out.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, AlgorithmTrial, CallKind
from pycudnnrnn.engines.cudnn.descriptors import check_sizes
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.native import NativeCalls, NativeRNN
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
"""In the order in which they are tried. If times are equal, the first one wins."""

ROUNDS: Final = 5
"""Timed runs of a candidate. The median counts."""

BUILD_US: Final = 500
"""The dynamic algorithm is tried only if the fastest other candidate takes at least this many microseconds. cuDNN
compiles it for seconds, for each kind of call. If it halves 500 us, 8,000 calls make up for two seconds."""

WAKE_S: Final = 0.075
"""Seconds of work before a candidate's timed runs: an idle device runs at a reduced clock."""

BLOCK: Final = 1 << 20
"""Random numbers drawn where there is no data to measure on; longer arrays repeat them."""


def candidates(config: CallConfig) -> Iterator[CallConfig]:
    """Yield the configuration with each algorithm and math type that `RNNSpec` and `check_sizes` accept."""
    asked = STRICTNESS.index(config.spec.math_type)
    strictest = asked if config.spec.dtype.itemsize == 2 else 0  # 16-bit data needs no stricter products
    for algo in ALGORITHMS:
        for math_type in reversed(STRICTNESS[strictest : asked + 1]):
            try:
                candidate = config._replace(spec=config.spec.replace(algo=algo, math_type=math_type))
                check_sizes(candidate)
            except ArgumentError:
                continue
            yield candidate


def resolved(runtime: Runtime, config: CallConfig, data: Arrays | None = None) -> CallConfig:
    """Return the configuration with algorithm "auto" resolved."""
    spec = config.spec
    if spec.algo is not Algorithm.AUTO:
        return config
    choice = choose(runtime, config, data)
    return config._replace(spec=spec.replace(algo=choice.algo, math_type=choice.math_type))


def choose(runtime: Runtime, config: CallConfig, data: Arrays | None) -> AlgorithmChoice:
    """Return the fastest candidate: the known choice or, if there is none, the result of measuring on `data`.

    The forward and, in training, both backward passes are timed together. They write to separate arrays and use
    separate dropout states, so the model's dropout does not advance. Without `data`, random data is used.

    Raises:
        CaptureError: there is no known choice, and the stream is being captured.
        EngineError: no candidate runs.
        MemoryError: there is no memory for any of them.
        DeviceLostError: a candidate made the device unusable; no other is tried.
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
            start = DropoutState("cudnn", spec.seed)
            dropout = CudnnDropout(runtime.device, runtime.launching, handle, spec, start) if drops else None
            trials, failures = _trials(runtime, handle, config._replace(spec=asked, dropout=dropout), data)
        ran = [(trial.time_us, trial) for trial in trials if trial.time_us is not None]
        if not ran:
            if failures and all(isinstance(error, MemoryError) for error in failures):
                raise failures[0]
            reasons = "; ".join(f"{trial.algo} with {trial.math_type}: {trial.reason}" for trial in trials)
            raise EngineError(f"algo='auto': no algorithm runs {spec!r} with T={schedule.T}, B={schedule.B}: {reasons}")
        _, best = min(ran, key=lambda pair: pair[0])
        choices.known[kind] = AlgorithmChoice(kind, best.algo, best.math_type, tuple(trials))
        return choices.known[kind]


def _trials(
    runtime: Runtime, handle: Handle, config: CallConfig, data: Arrays
) -> tuple[list[AlgorithmTrial], list[Exception]]:
    """Time each candidate that has the standard layout of params; record why the others were not timed.

    Candidates that cuDNN has to compile come last. They are left out if another takes less than BUILD_US.
    """
    layout, trials, failures = runtime.layout(config.spec), list[AlgorithmTrial](), list[Exception]()
    descriptor = None if config.dropout is None else config.dropout.descriptor
    for candidate in candidates(config):
        spec, time_us, reason = candidate.spec, None, ""
        best = min((trial.time_us for trial in trials if trial.time_us is not None), default=math.inf)
        try:
            with runtime.device.active():  # raises if the device is lost: then no other is tried
                if spec.algo is Algorithm.PERSIST_DYNAMIC and best < BUILD_US:
                    reason = f"not compiled: another takes {best:.0f} us"
                elif runtime.layout(spec) != layout:
                    reason = "another layout"
                else:
                    rnn = NativeRNN(handle, candidate, descriptor)
                    native = NativeCalls(handle, runtime.device, candidate, rnn)
                    time_us = _time(native, handle, config.schedule, data)
        except (CudnnError, LayoutError, MemoryError) as error:
            failures.append(error)
            reason = f"{error.function}: {error.status}" if isinstance(error, CudnnError) else str(error)
        trials.append(AlgorithmTrial(spec.algo, spec.math_type, time_us, reason))
    return trials, failures


def _time(native: NativeCalls, handle: Handle, schedule: Schedule, data: Arrays) -> float:
    """Return the median microseconds of a run. Its results are discarded.

    The arrays are allocated for this candidate only, and freed at the end.
    """
    device, descriptors, arrays = native.device, native.data(handle, schedule), native.step(**data)

    def work() -> None:
        native.run_all(handle, descriptors, arrays)

    work()
    # The results serve as upstream gradients; any numbers of that size would do.
    for gradient, result in zip(UPSTREAM, RESULTS, strict=True):
        if gradient in arrays:
            device.copy_bytes(arrays[gradient], arrays[result])
    awake = time.monotonic() + WAKE_S
    while time.monotonic() < awake:
        device.timed(work)
    return statistics.median(device.timed(work) for _ in range(ROUNDS))


def _stand_in(runtime: Runtime, spec: RNNSpec, schedule: Schedule) -> Arrays:
    """Return random data to measure on: params scaled so that gates do not saturate, and no initial states."""
    block = np.random.default_rng(0).standard_normal(BLOCK, np.float32)
    dtype = spec.dtype.numpy
    x = np.resize(block, (*schedule.data_axes, spec.input_size))
    params = np.resize(block, runtime.layout(spec).size) * spec.num_units**-0.5
    move = runtime.device.from_host
    return {"params": move(params.astype(dtype)), "x": move(x.astype(dtype)), "hx": None, "cx": None}
