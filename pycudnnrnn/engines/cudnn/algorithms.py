"""`algo="auto"`: which algorithms and math types a batch may run with, and which of them is fastest, measured.

Precision never falls below what was asked for: a candidate's math type is the one asked for or a stricter one. Nor does
the layout of params change: a candidate whose layout, as cuDNN tells it, differs from the standard algorithm's is out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.cudnn.checks import check_sizes
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, AlgorithmTrial, CallKind
from pycudnnrnn.engines.cudnn.device import CudaDevice, scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.errors import ArgumentError, CudnnError, EngineError, LayoutError
from pycudnnrnn.layout import ParamLayout
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
"""Timed runs of a candidate, after one that is not; the median counts."""

BLOCK: Final = 1 << 20
"""Random numbers drawn for data of our own; longer arrays repeat them."""


class Data(NamedTuple):
    """What candidates run on: the caller's arrays, which they only read."""

    params: Any
    x: Any
    hx: Any | None
    cx: Any | None


def candidates(spec: RNNSpec, schedule: Schedule, *, training: bool = False) -> Iterator[RNNSpec]:
    """Give the spec with each algorithm and math type that it may run with, as far as Python knows the rules."""
    asked = STRICTNESS.index(spec.math_type)
    for algo in ALGORITHMS:
        for math_type in reversed(STRICTNESS[: asked + 1]):
            try:
                candidate = spec.replace(algo=algo, math_type=math_type)
                check_sizes(candidate, schedule, training=training)
            except ArgumentError:
                continue
            yield candidate


def kind_of_call(runtime: Runtime, spec: RNNSpec, schedule: Schedule, *, training: bool, drops: bool) -> CallKind:
    """Return what a choice is remembered by."""
    book = runtime.choices
    spec = spec.replace(seed=0) if drops else spec.without_dropout
    ragged = schedule.lengths is not None
    return CallKind(book.gpu, book.cudnn, spec, schedule.T, schedule.B, ragged, schedule.time_major, training)


def choose(
    runtime: Runtime,
    spec: RNNSpec,
    schedule: Schedule,
    *,
    training: bool,
    drops: bool,
    data: Data | None,
) -> AlgorithmChoice:
    """Return the fastest candidate, from memory if it is known there, measured on `data` otherwise.

    Forward and, in training, both backward passes are timed together, into memory of their own. Dropout states of their
    own move, not the model's. Without `data`, numbers of our own stand in for it.

    Raises:
        CaptureError: it would have to be measured while the stream is captured.
        EngineError: no candidate runs.
        MemoryError: there is no memory for any of them.
        DeviceLostError: a candidate has taken the device with it; no other is tried.
    """
    kind = kind_of_call(runtime, spec, schedule, training=training, drops=drops)
    known = runtime.choices.find(kind)
    if known is not None:
        return known
    with runtime.choices.lock:
        known = runtime.choices.find(kind)
        if known is not None:
            return known
        with runtime.launching("measuring algo='auto'") as (handle, _):
            data = data or _stand_in(runtime, spec, schedule)
            dropout = CudnnDropout(handle, runtime.device, spec, DropoutState("cudnn", spec.seed)) if drops else None
            bench = _Bench(runtime.device, handle, spec, schedule, data, dropout, training=training)
            specs = candidates(kind.spec, schedule, training=training)
            trials, failures = _tried(runtime, bench, specs, runtime.layout(spec))
        ran = [(trial.time_us, trial) for trial in trials if trial.time_us is not None]
        if not ran:
            if failures and all(isinstance(error, MemoryError) for error in failures):
                raise failures[0]
            reasons = "; ".join(f"{trial.algo} with {trial.math_type}: {trial.reason}" for trial in trials)
            raise EngineError(f"algo='auto': no algorithm runs {spec!r} with T={schedule.T}, B={schedule.B}: {reasons}")
        _, best = min(ran, key=lambda pair: pair[0])
        return runtime.choices.add(AlgorithmChoice(kind, best.algo, best.math_type, tuple(trials)))


def _tried(
    runtime: Runtime, bench: _Bench, specs: Iterable[RNNSpec], layout: ParamLayout
) -> tuple[list[AlgorithmTrial], list[Exception]]:
    """Time each candidate whose layout is the one that params have; say of the others why not."""
    trials: list[AlgorithmTrial] = []
    failures: list[Exception] = []
    for candidate in specs:
        time, reason = None, ""
        try:
            if runtime.layout(candidate) == layout:
                with runtime.device.active():  # a device that is lost here is no reason to try the next
                    time = bench.time(candidate)
            else:
                reason = "another layout"
        except (CudnnError, LayoutError, MemoryError) as error:
            failures.append(error)
            reason = f"{error.function}: {error.status}" if isinstance(error, CudnnError) else str(error)
        trials.append(AlgorithmTrial(candidate.algo, candidate.math_type, time, reason))
    return trials, failures


class _Bench:
    """Where candidates run, one after another: results and gradients go to memory that is thrown away."""

    def __init__(
        self,
        device: CudaDevice,
        handle: Handle,
        spec: RNNSpec,
        schedule: Schedule,
        data: Data,
        dropout: CudnnDropout | None,
        *,
        training: bool,
    ) -> None:
        self._device, self._handle, self._schedule, self._data = device, handle, schedule, data
        self._dropout, self._training = dropout, training
        dtype, states = spec.dtype.numpy, (spec.num_pseudo_layers, schedule.B)

        def empty(shape: tuple[int, ...]) -> Any:
            return device.empty(shape, dtype)

        output, h, c = schedule.data_shape(spec.output_size), (*states, spec.state_size), (*states, spec.num_units)
        lstm = spec.has_cell_state
        self._y, self._hy, self._cy = empty(output), empty(h), empty(c) if lstm else None
        if training:
            self._dy, self._dhy, self._dcy = empty(output), empty(h), empty(c) if lstm else None
            self._dx, self._dhx, self._dcx = empty(data.x.shape), empty(h), empty(c) if lstm else None
            self._d_params = device.zeros(data.params.shape, dtype)

    def time(self, candidate: RNNSpec) -> float:
        """Return a candidate's median time, in microseconds."""
        descriptor = None if self._dropout is None else self._dropout.descriptor
        passes = Passes(
            self._handle, self._device, candidate, self._schedule, training=self._training, dropout=descriptor
        )
        call = self._handle, passes.data(self._schedule)
        workspace, reserve = (scratch(self._device, n) for n in (passes.workspace_nbytes, passes.reserve_nbytes))

        def work() -> None:
            params, x, hx, cx = self._data
            passes.forward(*call, params, x, hx, cx, self._y, self._hy, self._cy, workspace, reserve)
            if self._training:
                passes.backward_data(
                    *call, params, self._y, self._dy, hx, self._dhy, self._dhx, cx, self._dcy, self._dcx,
                    self._dx, workspace, reserve,
                )  # fmt: skip
                passes.backward_weights(*call, x, hx, self._y, self._d_params, workspace, reserve)

        if self._training:
            for gradient in (self._dy, self._dhy, self._dcy):
                if gradient is not None:
                    self._device.fill_zero(gradient)
        work()
        if self._training:  # upstream gradients of the results' size: numbers of any other would do
            for gradient, result in ((self._dy, self._y), (self._dhy, self._hy), (self._dcy, self._cy)):
                if gradient is not None:
                    self._device.copy_bytes(gradient, result)
        return statistics.median(self._device.timed(work) for _ in range(ROUNDS))


def _stand_in(runtime: Runtime, spec: RNNSpec, schedule: Schedule) -> Data:
    """Normal numbers, params scaled so that gates stay open; no states."""
    block = np.random.default_rng(0).standard_normal(BLOCK, np.float32)
    dtype = spec.dtype.numpy
    x = np.resize(block, schedule.data_shape(spec.input_size))
    params = np.resize(block, runtime.layout(spec).size) * spec.num_units**-0.5
    move = runtime.device.from_host
    return Data(move(params.astype(dtype)), move(x.astype(dtype)), None, None)
