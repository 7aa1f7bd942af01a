"""Timers: the host's clock, and events on a CUDA stream; warm-up, samples, percentiles.

A timer takes a call and says how long it took, in microseconds. What a figure means is the caller's business.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

Call = Callable[[], Any]

WARM_UP: Final = 5
"""Calls before the first that counts: plans, pools, code caches and clocks settle in them."""

WARM_S: Final = 1.0
"""After so many seconds a call is warm: fewer calls of one that takes long."""

SPIN_S: Final = 0.1
"""How long a GPU works before a row is timed: one that waits, while a row is checked, runs at a sixth of its clock."""

EVENT_SAMPLE_US: Final = 2000
"""Least time between two events: their resolution is half a microsecond."""

QUEUE_CALLS: Final = 200
"""Calls before the one synchronise of a throughput figure."""

QUEUE_LAUNCHES: Final = 1000
"""Launches that a stream takes before a launch blocks the host, about."""


class HostClock:
    """The host's monotonic clock. `synchronize` is for calls that return before they are done."""

    name = "host"

    def __init__(self, synchronize: Call = lambda: None) -> None:
        self.synchronize = synchronize


class EventClock:
    """CUDA events on the current stream: of CuPy (`cupy.cuda`) or of torch (`torch.cuda`)."""

    name = "events"

    def __init__(self, event: Call, elapsed_ms: Callable[[Any, Any], float], synchronize: Call) -> None:
        self._event, self._elapsed_ms, self.synchronize = event, elapsed_ms, synchronize

    @classmethod
    def of_cupy(cls, cuda: Any) -> EventClock:
        return cls(cuda.Event, cuda.get_elapsed_time, lambda: cuda.get_current_stream().synchronize())

    @classmethod
    def of_torch(cls, cuda: Any) -> EventClock:
        return cls(lambda: cuda.Event(enable_timing=True), lambda a, b: a.elapsed_time(b), cuda.synchronize)

    def mark(self) -> Any:
        event = self._event()
        event.record()
        return event

    def microseconds(self, start: Any, stop: Any) -> float:
        """Milliseconds are what CUDA gives; both events have to have passed."""
        return self._elapsed_ms(start, stop) * 1000


Clock = HostClock | EventClock


@dataclasses.dataclass
class Sample:
    """One round of one competitor: times of single calls, and single figures by name."""

    times_us: list[float]
    figures: dict[str, float] = dataclasses.field(default_factory=dict)


def warm_up(call: Call, clock: Clock, calls: int = WARM_UP, before: Call | None = None) -> None:
    start = time.perf_counter()
    for _ in range(calls):
        if before is not None:
            before()
        call()
        if time.perf_counter() - start > WARM_S:
            break
    clock.synchronize()


def host_sample(call: Call, clock: Clock, seconds: float, least: int = 3, before: Call | None = None) -> Sample:
    """Time single calls, each until it is done, for so long, and at least so many; `before` each one, untimed."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < least:
        if before is not None:
            before()
            clock.synchronize()
        start = time.perf_counter_ns()
        call()
        clock.synchronize()
        times.append((time.perf_counter_ns() - start) / 1000)
    return Sample(times)


def event_sample(
    call: Call, clock: EventClock, seconds: float, launches: int = 1, least: int = 30, before: Call | None = None
) -> Sample:
    """Time the device: pairs of events round as many calls as make a sample long enough; and the host beside it.

    `figures`: `latency_us` (call and wait, one by one), `pipelined_us` (calls in a queue, one wait at the end),
    `host_us` (until a call returns, on an idle stream) and `together`, the calls between two events. `launches` is what
    one call puts on the stream, about. With `before`, which runs untimed before each call, there is one call between
    two events, and no queue.
    """
    together = calls_for(EVENT_SAMPLE_US, call, clock) if before is None else 1
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least and (time.perf_counter() < end or len(times) < 3):
        if before is not None:
            before()
        times.append(elapsed(call, clock, together) / together)
    latency = host_sample(call, clock, seconds / 10, 5, before)
    figures = {"latency_us": statistics.median(latency.times_us), "together": together}
    if before is None:
        queued = max(2, min(QUEUE_CALLS, int(seconds * 1e6 / 10 / statistics.median(times))))
        figures["pipelined_us"] = _pipelined(call, clock, queued)
        figures["host_us"] = _host_only(call, clock, max(1, min(50, QUEUE_LAUNCHES // max(launches, 1))))
    return Sample(times, figures)


def calls_for(least_us: float, call: Call, clock: EventClock) -> int:
    """Return how many calls last so long, by doubling."""
    calls = 1
    while elapsed(call, clock, calls) < least_us and calls < 2**14:
        calls *= 2
    return calls


def elapsed(call: Call, clock: EventClock, calls: int) -> float:
    start = clock.mark()
    for _ in range(calls):
        call()
    stop = clock.mark()
    clock.synchronize()
    return clock.microseconds(start, stop)


def _pipelined(call: Call, clock: Clock, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    clock.synchronize()
    return (time.perf_counter_ns() - start) / 1000 / calls


def _host_only(call: Call, clock: Clock, calls: int) -> float:
    clock.synchronize()
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1000)
    clock.synchronize()
    return statistics.median(times)


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Put rounds together: the median of their medians, half the range of these as `spread`, and percentiles."""
    medians = [statistics.median(sample.times_us) for sample in samples]
    together = list(itertools.chain.from_iterable(sample.times_us for sample in samples))
    figures = {name: statistics.median(sample.figures[name] for sample in samples) for name in samples[0].figures}
    median = statistics.median(medians)
    percentiles = zip((10, 90, 99), np.percentile(together, (10, 90, 99)), strict=True)
    return {
        "median_us": median,
        "spread": (max(medians) - min(medians)) / 2 / median if len(medians) > 1 else None,
        "lowest_us": min(together),
        **{f"p{percent}_us": float(value) for percent, value in percentiles},
        "rounds": len(samples),
        "calls": len(together),
        "round_medians_us": medians,
        **figures,
    }
