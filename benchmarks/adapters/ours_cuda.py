"""Ours, on cuDNN: the op as it is called, a prepared plan, a captured graph, and plans of each algorithm."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, CudnnError, EngineError, StateError, version_text
from pycudnnrnn.interop import _torch_rules as rules

from ..data import Array, Data, spec_of
from ..problems import Problem
from ..timing import Clock, EventClock
from . import FLUSH_NBYTES, NotRun, Prepared, carrying, launches
from .numpy_engine import Device, eager
from .numpy_engine import versions as own_versions

REFUSED = ("NOT_SUPPORTED", "BAD_PARAM")
"""What cuDNN answers where it has no such RNN. A row of that kind has no figure, and nobody's fault."""


H200 = rules.Gpu(9, 0, 132)
"""Whose rules `rule` follows."""


class Cuda(Device):
    """A GPU. Tests put host memory in its place."""

    name = "cuda"

    def __init__(self) -> None:
        try:
            self.engine: Any = engine_for("cuda")
        except (EngineError, ImportError) as error:
            raise NotRun(str(error).partition("\n")[0]) from error
        self._memory: Any = None

    def put(self, array: Array) -> Any:
        return self.engine.xp.asarray(array)

    def get(self, array: Any) -> Array:
        return self.engine.xp.asnumpy(array)

    def copy(self, target: Any, values: Any) -> None:
        target[...] = values

    def clock(self) -> Clock:
        return EventClock.of_cupy(self.engine.xp.cuda)

    def flush(self) -> None:
        """Write over more memory than caches hold."""
        if self._memory is None:
            self._memory = self.engine.xp.zeros(FLUSH_NBYTES, np.uint8)
        self._memory.fill(1)

    def facts(self) -> dict[str, Any]:
        """What CUDA says of itself and of the device."""
        xp = self.engine.xp
        runtime, device = xp.cuda.runtime, xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
        names = ("multiProcessorCount", "l2CacheSize", "major", "minor", "ECCEnabled", "clockRate", "memoryClockRate")
        return {
            "cuda_runtime": runtime.runtimeGetVersion(),
            "cuda_driver": runtime.driverGetVersion(),
            "nvrtc": list(xp.cuda.nvrtc.getVersion()),
            "device": {name: device[name] for name in names if name in device},
        }

    def used_nbytes(self) -> int:
        return int(self.engine.xp.get_default_memory_pool().used_bytes())


def versions() -> dict[str, Any]:
    cuda = Cuda()
    library = cuda.engine.library
    return own_versions() | {
        "cupy": cuda.engine.xp.__version__, "cudnn": version_text(library.version), "cudnn_path": str(library.path),
        "cudnn_found_via": library.found_via,
    } | cuda.facts()  # fmt: skip


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    cuda = Cuda()
    used = cuda.used_nbytes()
    try:
        spec = spec_of(problem, dtype, _algorithm(problem, which, dtype, option))
        op, data = ops.from_spec(spec), data.cast(spec.dtype.numpy)
        if option == "eager":
            prepared = eager(problem, which, data, op, cuda)
            prepared.figures |= {"algo": str(op.spec.untuned_algo), "math_type": str(op.spec.math_type)}
        else:
            prepared = on_plan(problem, which, data, op, cuda, option)
            prepared.figures["held_nbytes"] = cuda.used_nbytes() - used
    except (ArgumentError, StateError) as error:  # an algorithm, or a graph, that does not go with the row
        raise NotRun(str(error)) from error
    except CudnnError as error:
        if error.family in REFUSED:
            raise NotRun(f"cuDNN has no such RNN: {error}".partition("\n")[0]) from error
        raise
    return prepared


def _algorithm(problem: Problem, which: str, dtype: str, option: str) -> str:
    """Return an option's algorithm; `rule` is torch's choice, which packs ragged batches."""
    if option in ("eager", "plan", "graph"):
        return ""
    if option != "rule":
        return option
    sizes = spec_of(problem, dtype), problem.T, problem.B, H200
    packed = problem.lengths != "full"
    forward, backward = (rules.algorithm(*sizes, packed=packed, backward=b) for b in (False, True))
    if which in ("infer", "train") or forward == backward:
        return forward
    raise NotRun("torch runs the forward and the backward of this row by two algorithms; a plan has one")


def on_plan(problem: Problem, which: str, data: Data, op: Any, cuda: Cuda, option: str) -> Prepared:
    """Make a plan's calls: every array is made beforehand, and filled with NaN where a call writes it."""
    training = which != "infer"
    plan = op.prepare(problem.T, problem.B, is_training=training, sequence_lengths=data.lengths, device="cuda")
    figures = {
        "algo": str(plan.algo),
        "math_type": str(plan.math_type),
        "workspace_nbytes": plan.workspace_nbytes,
        "reserve_nbytes": plan.reserve_nbytes,
    }
    if option == "auto":
        choice = ops.algorithm_choices(device="cuda")[-1]
        figures["trials"] = [[str(t.algo), str(t.math_type), t.time_us, t.reason] for t in choice.trials]
    params, x, dy = cuda.params(op, data), cuda.put(data.x), cuda.put(data.dy)
    if option == "graph":
        if which not in ("infer", "step"):
            raise NotRun(f"{which}: a graph has a whole step")
        return _graph(plan.capture(params, carry_state=problem.carried), which, op, x, dy, cuda, figures)

    def filled(value: float, *shape: int) -> Any:
        return cuda.put(np.full(shape, value, op.dtype.numpy))

    def states(value: float) -> list[Any]:
        rows = (op.spec.num_pseudo_layers, problem.B)
        cell = filled(value, *rows, op.spec.num_units) if problem.cell == "lstm" else None
        return [filled(value, *rows, op.spec.state_size), cell]

    y, dx, d_params = (filled(np.nan, *shape) for shape in (dy.shape, x.shape, params.shape))
    (dhy, dcy), (dhx, dcx) = states(0), states(np.nan)
    left, other = states(np.nan), states(np.nan)
    reserve = cuda.put(np.zeros(plan.reserve_nbytes, np.uint8)) if plan.reserve_nbytes else None

    def infer(x: Any, *before: Any) -> Any:
        after = other if before and before[0] is left[0] else left  # states go from one pair to the other and back
        plan.forward(params, x, *(before or (None, None)), y, *after, reserve)
        return y, *after

    data_pass = functools.partial(plan.backward_data, params, y, dy, None, dhy, dhx, None, dcy, dcx, dx, reserve)
    weights_pass = functools.partial(plan.backward_weights, x, None, y, d_params, reserve)

    def before() -> None:  # a backward uses up what its forward left
        infer(x)
        if which == "backward-weights":
            data_pass()

    def step() -> None:
        infer(x)
        data_pass()
        weights_pass()

    def results() -> dict[str, Array]:
        if which in ("infer", "train"):
            return cuda.outputs(*infer(x))
        step()
        return cuda.gradients(which, op, y, dx, d_params)

    calls = {"train": lambda: infer(x), "step": step, "backward-data": data_pass, "backward-weights": weights_pass}
    call = carrying(problem, which, x, infer, calls)
    prepared = Prepared(call, results, cuda.clock(), launches(problem, which), figures, flush=cuda.flush)
    prepared.before = before if which.startswith("backward") else None
    return prepared


def _graph(graph: Any, which: str, op: Any, x: Any, dy: Any, cuda: Cuda, figures: dict[str, Any]) -> Prepared:
    cuda.copy(graph.x, x)
    if which == "step":
        cuda.copy(graph.dy, dy)

    def results() -> dict[str, Array]:
        graph.replay()
        if which == "infer":
            return cuda.outputs(graph.y, graph.hy, graph.cy)
        return cuda.gradients(which, op, graph.y, graph.dx, graph.d_params)

    return Prepared(graph.replay, results, cuda.clock(), 1, figures, flush=cuda.flush)
