"""The competitors: one file each, with `prepare(problem, which, dtype, data, option) -> Prepared` and `versions()`."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..data import Array, Data
from ..problems import Problem
from ..timing import SPIN_S, Clock, HostClock, Sample, event_sample, host_sample, spin, warm_up


class NotRun(Exception):  # noqa: N818  a result, not an error
    """A competitor has no such thing, or cannot have it here. The text is the reason, as reports print it."""


@dataclasses.dataclass
class Prepared:
    """A call ready to be timed, and what it gives.

    `results` makes one call from the initial states and returns what `data.reference` returns, on the host. `launches`
    is what a call puts on a stream, about; `figures` go into the row as they are, with the clock's name. `on_gpu` says
    that the calls run on a GPU, which a clock of events says by itself.
    """

    call: Callable[[], Any]
    results: Callable[[], dict[str, Array]]
    clock: Clock = dataclasses.field(default_factory=HostClock)
    launches: int = 1
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    on_gpu: bool = False

    def __post_init__(self) -> None:
        self.figures = {"clock": self.clock.name} | self.figures
        self.on_gpu = self.on_gpu or self.clock.name == "events"

    def warm_up(self) -> None:
        warm_up(self.call, self.clock)

    def spin(self) -> None:
        """Bring a GPU's clocks up, just before a row's first sample."""
        if self.on_gpu:
            spin(self.call, self.clock, SPIN_S)

    def sample(self, seconds: float) -> Sample:
        """Time one round."""
        if isinstance(self.clock, HostClock):
            sample = host_sample(self.call, self.clock, seconds)
            if self.on_gpu:  # each call was waited for, which is what a latency is where events time the calls
                sample.figures["latency_us"] = statistics.median(sample.times_us)
            return sample
        return event_sample(self.call, self.clock, seconds, self.launches)


@dataclasses.dataclass(frozen=True)
class Competitor:
    """Who runs, in which file, on which device, and as what."""

    name: str
    module: str
    device: str
    option: str
    what: str

    def prepare(self, problem: Problem, which: str, dtype: str, data: Data) -> Prepared:
        prepared: Prepared = self._load().prepare(problem, which, dtype, data, self.option)
        return prepared

    def versions(self) -> dict[str, Any]:
        """What has to be said beside the figures: versions, and which libcudnn."""
        versions: dict[str, Any] = self._load().versions()
        return versions

    def _load(self) -> Any:
        return importlib.import_module(f"{__package__}.{self.module}")


COMPETITORS: Final = {
    competitor.name: competitor
    for competitor in (
        Competitor("compiled", "numpy_engine", "cpu", "numba", "ours on the CPU, with compiled kernels"),
        Competitor("numpy", "numpy_engine", "cpu", "numpy", "ours on the CPU, with NumPy's kernels"),
        Competitor("plan-cpu", "steps_cpu", "cpu", "plan", "ours on the CPU: a prepared plan with held weights"),
        Competitor("stream-cpu", "steps_cpu", "cpu", "stream", "ours on the CPU: a stream"),
        Competitor("torch-cpu", "torch_eager", "cpu", "cpu", "torch's modules on the CPU"),
        Competitor("torch-ours-cpu", "torch_eager", "cpu", "cpu ours", "ours as torch's modules"),
        Competitor("jax-cpu", "jax_any", "cpu", "cpu scan", "jit of lax.scan"),
        Competitor("jax-ours-cpu", "jax_any", "cpu", "cpu ours", "ours under jit, in XLA's buffers"),
        Competitor("onnxruntime", "onnxruntime_cpu", "cpu", "", "the ONNX operator"),
        Competitor("eager", "ours_cuda", "cuda", "eager", "ours: the op as it is called"),
        Competitor("plan", "ours_cuda", "cuda", "plan", "ours: a prepared plan on static buffers"),
        Competitor("graph", "ours_cuda", "cuda", "graph", "ours: a captured graph, replayed"),
        Competitor("auto", "ours_cuda", "cuda", "auto", "ours: a plan with the algorithm tuned"),
        Competitor("rule", "ours_cuda", "cuda", "rule", "ours: a plan with the algorithm that torch would choose"),
        Competitor("standard", "ours_cuda", "cuda", "standard", "ours: a plan with that algorithm"),
        Competitor("persist_static", "ours_cuda", "cuda", "persist_static", "the same"),
        Competitor("persist_dynamic", "ours_cuda", "cuda", "persist_dynamic", "the same"),
        Competitor("small_h", "ours_cuda", "cuda", "persist_static_small_h", "the same"),
        Competitor("raw", "raw_cudnn", "cuda", "plain", "C++ over the same libcudnn: the floor"),
        Competitor("raw-graph", "raw_cudnn", "cuda", "graph", "the same calls in a CUDA graph"),
        Competitor("torch", "torch_eager", "cuda", "cuda", "torch's modules on the GPU"),
        Competitor("torch-ours", "torch_eager", "cuda", "cuda ours", "ours as torch's modules"),
        Competitor("torch-graph", "torch_graph", "cuda", "", "the same in a CUDA graph"),
        Competitor("jax", "jax_any", "cuda", "cuda cudnn", "jax.experimental.rnn under jit"),
        Competitor("jax-ours", "jax_any", "cuda", "cuda ours", "ours under jit, in XLA's buffers"),
    )
}


OURS: Final = {"cpu": ("compiled", "numpy"), "cuda": ("eager", "plan", "graph")}
"""What a comparison is of, by device."""

STEPS: Final = ("plan-cpu", "stream-cpu")
"""Ours in the group `step`, in addition."""

AGAINST: Final = {"cpu": ("torch-cpu", "onnxruntime", "jax-cpu"), "cuda": ("torch", "torch-graph", "raw")}
"""What it is with, unless somebody chooses."""


def in_turn(problem: Problem, which: str, xs: Sequence[Any], infer: Any, step: Any) -> Any:
    """Return a call of a pass that goes through the inputs in turn.

    `infer(x, *states)` returns an output and its states. Where they carry, a call starts from those of the last one.
    """
    turn, states = itertools.cycle(xs), ()

    def carried() -> None:
        nonlocal states
        _, *states = infer(next(turn), *states)

    if which == "infer" and problem.carried:
        return carried
    once = infer if which == "infer" else step
    return lambda: once(next(turn))


def launches(problem: Problem, which: str) -> int:
    """Two per step and layer, if nothing is fused; three passes in a step of training."""
    return 2 * problem.T * problem.L * problem.D * (3 if which == "step" else 1)


def load(package: str) -> Any:
    """Import what a competitor is made of; that it is missing is a reason, not an error."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise NotRun(f"{package.partition('.')[0]} is not installed") from error
