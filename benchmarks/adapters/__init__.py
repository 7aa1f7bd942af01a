"""The competitors: one file each, with `prepare(problem, which, dtype, data, option) -> Prepared` and `versions()`.

A file of somebody else's has the same without `option`, and under any name: docs/how-to/measure.md.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..data import Array, Data
from ..problems import Problem
from ..timing import SPIN_S, WARM_UP, Clock, HostClock, Sample, event_sample, host_sample, warm_up

FLUSH_NBYTES: Final = 1 << 28
"""More than the caches of a processor or a GPU hold."""


class NotRun(Exception):  # noqa: N818  a result, not an error
    """A competitor has no such thing, or cannot have it here. The text is the reason, as reports print it."""


@dataclasses.dataclass
class Prepared:
    """A call ready to be timed, and what it gives.

    `results` makes one call from the initial states and returns what `data.reference` returns, on the host. `before`
    runs before each call that is timed, untimed. `launches` is what a call puts on a stream, about; `figures` go into
    the row as they are, with the clock's name. `on_gpu` says that the calls run on a GPU, which a clock of events says
    by itself; then `flush` writes over more memory than its caches hold.
    """

    call: Callable[[], Any]
    results: Callable[[], dict[str, Array]]
    clock: Clock = dataclasses.field(default_factory=HostClock)
    launches: int = 1
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    on_gpu: bool = False
    before: Callable[[], Any] | None = None
    flush: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        self.figures = {"clock": self.clock.name} | self.figures
        self.on_gpu = self.on_gpu or self.clock.name == "events"

    def empty_caches(self) -> None:
        """Let each call begin with caches that hold other data."""
        if self.flush is None and self.on_gpu:
            raise NotRun("--cold: it has no way to empty a GPU's cache before each call")
        memory, ready = np.zeros(0 if self.on_gpu else FLUSH_NBYTES, np.uint8), self.before

        def before() -> None:
            if ready is not None:
                ready()
            self.flush() if self.flush is not None else np.add(memory, 1, out=memory)

        self.before = before

    def warm_up(self, calls: int = WARM_UP) -> None:
        warm_up(self.call, self.clock, calls, self.before)

    def spin(self) -> None:
        """Bring a GPU's clocks up, just before a row's first sample."""
        end = time.perf_counter() + SPIN_S
        while self.on_gpu and time.perf_counter() < end:
            self.warm_up()

    def sample(self, seconds: float) -> Sample:
        """Time one round."""
        if isinstance(self.clock, HostClock):
            sample = host_sample(self.call, self.clock, seconds, before=self.before)
            if self.on_gpu:  # each call was waited for, which is what a latency is where events time the calls
                sample.figures["latency_us"] = statistics.median(sample.times_us)
            return sample
        return event_sample(self.call, self.clock, seconds, self.launches, before=self.before)


@dataclasses.dataclass(frozen=True)
class Competitor:
    """Who runs, in which file, on which device, and as what: an option of ours, or a function of somebody's file."""

    name: str
    module: str
    device: str
    option: str
    what: str

    def prepare(self, problem: Problem, which: str, dtype: str, data: Data) -> Prepared:
        if self.module.endswith(".py"):
            return getattr(_file(self.module), self.option)(problem, which, dtype, data)
        return _module(self.module).prepare(problem, which, dtype, data, self.option)

    def versions(self) -> dict[str, Any]:
        """What has to be said beside the figures: versions, and which libcudnn."""
        module = _file(self.module) if self.module.endswith(".py") else _module(self.module)
        return getattr(module, "versions", dict)()


def _module(name: str) -> Any:
    return importlib.import_module(f"{__package__}.{name}")


@functools.cache
def _file(path: str) -> Any:
    """Import a Python file of somebody's."""
    spec = importlib.util.spec_from_file_location(f"competitor_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise NotRun(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # what dataclasses and pickle look for
    spec.loader.exec_module(module)
    return module


def competitor(text: str, device: str) -> Competitor:
    """Return the competitor of a name, or of "path/to/file.py:function".

    Raises:
        ValueError: no such name, file or function.
    """
    if text in COMPETITORS:
        return COMPETITORS[text]
    path, _, function = text.rpartition(":")
    if not path.endswith(".py"):
        raise ValueError(f"{text!r}: expecting one of {', '.join(COMPETITORS)}, or path/to/file.py:function")
    if not Path(path).is_file() or not re.search(
        rf"^def {re.escape(function)}\b", Path(path).read_text("utf-8"), re.MULTILINE
    ):
        raise ValueError(f"{text!r}: no such file, or it has no function {function!r}")
    name = Path(path).stem if function == "prepare" else f"{Path(path).stem}:{function}"
    return Competitor(name, str(Path(path).resolve()), device, function, text)


COMPETITORS: Final = {
    competitor.name: competitor
    for competitor in (
        Competitor("compiled", "numpy_engine", "cpu", "numba", "ours on the CPU, with compiled kernels"),
        Competitor("numpy", "numpy_engine", "cpu", "numpy", "ours on the CPU, with NumPy's kernels"),
        Competitor("plan-cpu", "numpy_engine", "cpu", "plan", "ours on the CPU: a prepared plan with held weights"),
        Competitor("stream-cpu", "numpy_engine", "cpu", "stream", "ours on the CPU: a stream"),
        Competitor("torch-cpu", "torch_eager", "cpu", "cpu", "torch's modules on the CPU"),
        Competitor("torch-ours-cpu", "torch_eager", "cpu", "cpu ours", "ours as torch's modules"),
        Competitor("jax-cpu", "jax_any", "cpu", "cpu scan", "jit of lax.scan"),
        Competitor("jax-ours-cpu", "jax_any", "cpu", "cpu ours", "ours under jit, in XLA's buffers"),
        Competitor("onnxruntime", "onnxruntime_cpu", "cpu", "", "the ONNX operator"),
        Competitor("eager-host", "stand_in", "cpu", "eager", "the host's share of a call of the op, without a GPU"),
        Competitor("plan-host", "stand_in", "cpu", "plan", "the host's share of a plan's call"),
        Competitor("torch-ours-host", "stand_in", "cpu", "torch", "the host's share of a call of our torch modules"),
        Competitor("eager", "ours_cuda", "cuda", "eager", "ours: the op as it is called"),
        Competitor("plan", "ours_cuda", "cuda", "plan", "ours: a prepared plan on static buffers"),
        Competitor("graph", "ours_cuda", "cuda", "graph", "ours: a captured graph, replayed"),
        Competitor("auto", "ours_cuda", "cuda", "auto", "ours: a plan with the algorithm tuned"),
        Competitor("rule", "ours_cuda", "cuda", "rule", "ours: a plan with the algorithm that torch would choose"),
        *(
            Competitor(algo, "ours_cuda", "cuda", algo, f"ours: a plan with the algorithm {algo}")
            for algo in ("standard", "persist_static", "persist_dynamic", "persist_static_small_h")
        ),
        Competitor("raw", "raw_cudnn", "cuda", "plain", "C++ over the same libcudnn: the floor"),
        Competitor("raw-graph", "raw_cudnn", "cuda", "graph", "C++: these calls in a CUDA graph"),
        Competitor("torch", "torch_eager", "cuda", "cuda", "torch's modules on the GPU"),
        Competitor("torch-ours", "torch_eager", "cuda", "cuda ours", "ours as torch's modules"),
        Competitor("torch-graph", "torch_eager", "cuda", "graph", "torch's modules in a CUDA graph"),
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


def carrying(problem: Problem, which: str, x: Any, infer: Callable[..., Any], calls: Mapping[str, Any]) -> Any:
    """Return the call of a pass; where states carry, one that starts from those of the last.

    `infer(x, *states)` returns an output and its states; `calls` are the other passes, without arguments.

    Raises:
        NotRun: it has no such pass.
    """
    if which != "infer":
        if which not in calls:
            raise NotRun(f"{which}: it cannot be called apart")
        return calls[which]
    states: Sequence[Any] = ()

    def carried() -> None:
        nonlocal states
        _, *states = infer(x, *states)

    return carried if problem.carried else lambda: infer(x)


def launches(problem: Problem, which: str) -> int:
    """Two per step and layer, if nothing is fused; three passes in a step of training."""
    return 2 * problem.T * problem.L * problem.D * (3 if which == "step" else 1)


def load(package: str) -> Any:
    """Import what a competitor is made of; that it is missing is a reason, not an error."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise NotRun(f"{package.partition('.')[0]} is not installed") from error
