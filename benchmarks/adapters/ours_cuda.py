"""Ours, on cuDNN: the op as it is called, a prepared plan, a captured graph, and plans of each algorithm."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.canonical import from_canonical, to_canonical
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, CudnnError, EngineError, MissingDependencyError, StateError, version_text

from .. import torch_rules
from ..data import Array, Data, flat, results_of, spec_of
from ..problems import Problem
from ..timing import Clock, EventClock
from . import NotRun, Prepared
from .numpy_engine import stepping
from .numpy_engine import versions as own_versions

REFUSED = ("NOT_SUPPORTED", "BAD_PARAM")
"""What cuDNN answers where it has no such RNN. A row of that kind has no figure, and nobody's fault."""


class Cuda:
    """The way to and from a device, and its clock. Tests put host memory in its place."""

    def __init__(self) -> None:
        try:
            self.engine: Any = engine_for("cuda")
        except (EngineError, MissingDependencyError) as error:
            raise NotRun(str(error).partition("\n")[0]) from error

    def put(self, array: Array) -> Any:
        return self.engine.xp.asarray(array)

    def get(self, array: Any) -> Array:
        host: Array = self.engine.xp.asnumpy(array)
        return host

    @staticmethod
    def copy(target: Any, values: Any) -> None:
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
            return _eager(problem, which, data, op, cuda)
        return _on_plan(problem, which, data, op, cuda, option)
    except ArgumentError as error:  # an algorithm that does not go with the row
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


def _params(op: Any, data: Data, cuda: Cuda) -> Any:
    """A params buffer in the device's layout, made on the host."""
    layout = op.layout("cuda")
    params = np.zeros(layout.size, op.dtype.numpy)
    from_canonical(data.canonical.weights, data.canonical.biases, layout, params)
    return cuda.put(params)


def _eager(problem: Problem, which: str, data: Data, op: Any, cuda: Cuda) -> Prepared:
    params = _params(op, data, cuda)
    xs = [cuda.put(x) for x in data.xs]
    dy = cuda.put(data.dy)
    none = (None,) * (2 if problem.cell == "lstm" else 1)
    keywords = {"sequence_lengths": data.lengths}

    def infer(x: Any, states: Any = none) -> Any:
        return op(x, *states, params, is_training=False, **keywords)

    def step(x: Any) -> Any:
        fwd = op.forward(x, *none, params, is_training=True, **keywords)
        return fwd, fwd.backward(dy)

    def results() -> dict[str, Array]:
        if which == "infer":
            y, hy, *cy = map(cuda.get, infer(xs[0]))
            return results_of(y, hy, cy[0] if cy else None)
        fwd, grads = step(xs[0])
        return _gradients(op, cuda, fwd.output, grads.input, grads.params)

    figures = {"algo": str(op.spec.untuned_algo)}
    launches = _launches(problem, which)
    if which == "infer":
        return Prepared(stepping(infer, xs, none, carried=problem.carried), results, cuda.clock(), launches, figures)
    turn = itertools.cycle(xs)
    return Prepared(lambda: step(next(turn)), results, cuda.clock(), launches, figures)


def _gradients(op: Any, cuda: Cuda, y: Any, dx: Any, d_params: Any) -> dict[str, Array]:
    dw = flat(*to_canonical(cuda.get(d_params), op.layout("cuda"), copy=False))
    return {"y": cuda.get(y), "dx": cuda.get(dx), "dw": dw}


def _launches(problem: Problem, which: str) -> int:
    """Two per step and layer, if nothing is fused; three passes in a step of training."""
    return 2 * problem.T * problem.L * problem.D * (3 if which == "step" else 1)


class _Buffers:
    """Everything that a plan's calls write or read, filled with NaN where they write."""

    def __init__(self, problem: Problem, data: Data, op: Any, plan: Any, cuda: Cuda) -> None:
        spec, element = op.spec, op.dtype.numpy
        lstm = problem.cell == "lstm"
        rows = (spec.num_pseudo_layers, problem.B)

        def filled(value: float, *shape: int) -> Any:
            return cuda.put(np.full(shape, value, element))

        def states(value: float) -> list[Any]:
            return [filled(value, *rows, spec.state_size), filled(value, *rows, spec.num_units) if lstm else None]

        self.op, self.params = op, _params(op, data, cuda)
        self.xs = [cuda.put(x) for x in data.xs]
        self.y, self.dy = filled(np.nan, *data.dy.shape), cuda.put(data.dy)
        self.before, self.after = states(0), states(np.nan)
        self.d_after, self.d_before = states(0), states(np.nan)
        self.dx = filled(np.nan, *data.xs[0].shape)
        self.d_params = filled(np.nan, *self.params.shape)
        self.reserve = cuda.put(np.zeros(plan.reserve_nbytes, np.uint8)) if plan.reserve_nbytes else None


def _on_plan(problem: Problem, which: str, data: Data, op: Any, cuda: Cuda, option: str) -> Prepared:
    training = which != "infer"
    plan = op.prepare(problem.T, problem.B, is_training=training, sequence_lengths=data.lengths, device="cuda")
    figures = {
        "algo": str(plan.algo),
        "workspace_nbytes": plan.workspace_nbytes,
        "reserve_nbytes": plan.reserve_nbytes,
    }
    b = _Buffers(problem, data, op, plan, cuda)
    if option == "graph":
        return _graph(problem, which, plan, b, cuda, figures)
    turn = itertools.cycle(b.xs)
    none = [None, None]

    def forward(x: Any, before: list[Any], after: list[Any]) -> None:
        plan.forward(b.params, x, *before, b.y, *after, b.reserve)

    def step(x: Any) -> None:
        forward(x, none, b.after)
        plan.backward_data(
            b.params, b.y, b.dy, None, b.d_after[0], b.d_before[0], None, b.d_after[1], b.d_before[1], b.dx, b.reserve
        )
        plan.backward_weights(x, None, b.y, b.d_params, b.reserve)

    def carry() -> None:
        b.before, b.after = b.after, b.before
        forward(next(turn), b.before, b.after)

    def results() -> dict[str, Array]:
        if which == "infer":
            forward(b.xs[0], none, b.after)
            return _states(cuda, b.y, b.after)
        step(b.xs[0])
        return _gradients(op, cuda, b.y, b.dx, b.d_params)

    if which == "step":
        call: Callable[[], None] = lambda: step(next(turn))  # noqa: E731
    else:
        call = carry if problem.carried else lambda: forward(next(turn), none, b.after)
    return Prepared(call, results, cuda.clock(), _launches(problem, which), figures)


def _states(cuda: Cuda, y: Any, states: Any) -> dict[str, Array]:
    hy, cy = states
    return results_of(cuda.get(y), cuda.get(hy), None if cy is None else cuda.get(cy))


def _graph(problem: Problem, which: str, plan: Any, b: _Buffers, cuda: Cuda, figures: dict[str, Any]) -> Prepared:
    try:
        graph = plan.capture(b.params, carry_state=problem.carried)
    except StateError as error:
        raise NotRun(str(error)) from error
    cuda.copy(graph.x, b.xs[0])
    if which == "step":
        cuda.copy(graph.dy, b.dy)

    def results() -> dict[str, Array]:
        graph.replay()
        if which == "infer":
            return _states(cuda, graph.y, (graph.hy, graph.cy))
        return _gradients(b.op, cuda, graph.y, graph.dx, graph.d_params)

    return Prepared(graph.replay, results, cuda.clock(), 1, figures)
