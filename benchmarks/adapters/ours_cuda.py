"""Ours, on cuDNN: the op as it is called, a prepared plan, a captured graph, and plans of each algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, CudnnError, EngineError, StateError, version_text

from .. import torch_rules
from ..data import Array, Data, spec_of
from ..problems import Problem
from ..timing import Clock, EventClock
from . import NotRun, Prepared, in_turn, launches
from .numpy_engine import Device, eager
from .numpy_engine import versions as own_versions

REFUSED = ("NOT_SUPPORTED", "BAD_PARAM")
"""What cuDNN answers where it has no such RNN. A row of that kind has no figure, and nobody's fault."""


class Cuda(Device):
    """A GPU. Tests put host memory in its place."""

    name = "cuda"

    def __init__(self) -> None:
        try:
            self.engine: Any = engine_for("cuda")
        except (EngineError, ImportError) as error:
            raise NotRun(str(error).partition("\n")[0]) from error

    def put(self, array: Array) -> Any:
        return self.engine.xp.asarray(array)

    def get(self, array: Any) -> Array:
        host: Array = self.engine.xp.asnumpy(array)
        return host

    def copy(self, target: Any, values: Any) -> None:
        target[...] = values

    def clock(self) -> Clock:
        return EventClock.of_cupy(self.engine.xp.cuda)


def versions() -> dict[str, Any]:
    engine = Cuda().engine
    library = engine.library
    return own_versions() | {
        "cupy": engine.xp.__version__,
        "cudnn": version_text(library.version),
        "cudnn_path": str(library.path),
        "cudnn_found_via": library.found_via,
    }


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    if problem.layout == "packed":
        raise NotRun("ops take only padded arrays")
    cuda = Cuda()
    try:
        spec = spec_of(problem, dtype, _algorithm(problem, which, dtype, option))
        op, data = ops.from_spec(spec), data.cast(spec.dtype.numpy)
        if option == "eager":
            prepared = eager(problem, which, data, op, cuda)
            prepared.figures["algo"] = str(op.spec.untuned_algo)
            return prepared
        return _on_plan(problem, which, data, op, cuda, option)
    except (ArgumentError, StateError) as error:  # an algorithm, or a graph, that does not go with the row
        raise NotRun(str(error)) from error
    except CudnnError as error:
        if error.family in REFUSED:
            raise NotRun(f"cuDNN has no such RNN: {error}".partition("\n")[0]) from error
        raise


def _algorithm(problem: Problem, which: str, dtype: str, option: str) -> str:
    if option in ("eager", "plan", "graph"):
        return ""
    if option != "rule":
        return option
    forward, backward = (torch_rules.algorithm(problem, dtype, backward=b) for b in (False, True))
    if which == "infer" or forward == backward:
        return forward
    raise NotRun("torch runs the forward and the backward of this row by two algorithms; a plan has one")


def _on_plan(problem: Problem, which: str, data: Data, op: Any, cuda: Cuda, option: str) -> Prepared:
    """Make a plan's calls: every array is made beforehand, and filled with NaN where a call writes it."""
    training = which != "infer"
    plan = op.prepare(problem.T, problem.B, is_training=training, sequence_lengths=data.lengths, device="cuda")
    figures = {
        "algo": str(plan.algo),
        "workspace_nbytes": plan.workspace_nbytes,
        "reserve_nbytes": plan.reserve_nbytes,
    }
    params, xs, dy = cuda.params(op, data), [cuda.put(x) for x in data.xs], cuda.put(data.dy)
    if option == "graph":
        return _graph(plan.capture(params, carry_state=problem.carried), which, op, xs[0], dy, cuda, figures)

    def filled(value: float, *shape: int) -> Any:
        return cuda.put(np.full(shape, value, op.dtype.numpy))

    def states(value: float) -> list[Any]:
        rows = (op.spec.num_pseudo_layers, problem.B)
        cell = filled(value, *rows, op.spec.num_units) if problem.cell == "lstm" else None
        return [filled(value, *rows, op.spec.state_size), cell]

    y, dx, d_params = (filled(np.nan, *shape) for shape in (dy.shape, xs[0].shape, params.shape))
    (dhy, dcy), (dhx, dcx) = states(0), states(np.nan)
    left, other = states(np.nan), states(np.nan)
    reserve = cuda.put(np.zeros(plan.reserve_nbytes, np.uint8)) if plan.reserve_nbytes else None

    def infer(x: Any, *before: Any) -> Any:
        after = other if before and before[0] is left[0] else left  # states go from one pair to the other and back
        plan.forward(params, x, *(before or (None, None)), y, *after, reserve)
        return y, *after

    def step(x: Any) -> None:
        infer(x)
        plan.backward_data(params, y, dy, None, dhy, dhx, None, dcy, dcx, dx, reserve)
        plan.backward_weights(x, None, y, d_params, reserve)

    def results() -> dict[str, Array]:
        if which == "infer":
            return cuda.outputs(*infer(xs[0]))
        step(xs[0])
        return cuda.gradients(op, y, dx, d_params)

    call = in_turn(problem, which, xs, infer, step)
    return Prepared(call, results, cuda.clock(), launches(problem, which), figures)


def _graph(graph: Any, which: str, op: Any, x: Any, dy: Any, cuda: Cuda, figures: dict[str, Any]) -> Prepared:
    cuda.copy(graph.x, x)
    if which == "step":
        cuda.copy(graph.dy, dy)

    def results() -> dict[str, Array]:
        graph.replay()
        if which == "infer":
            return cuda.outputs(graph.y, graph.hy, graph.cy)
        return cuda.gradients(op, graph.y, graph.dx, graph.d_params)

    return Prepared(graph.replay, results, cuda.clock(), 1, figures)
