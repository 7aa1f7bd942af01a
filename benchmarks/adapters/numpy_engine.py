"""Ours on the CPU: an op with NumPy's kernels or those that numba compiles, a prepared plan, a stream."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from typing import Any

import numpy as np

import pycudnnrnn
from pycudnnrnn import ops
from pycudnnrnn.canonical import from_canonical, to_canonical
from pycudnnrnn.engines.numpy_engine.kernels_in_use import VARIABLE, kernels_in_use
from pycudnnrnn.errors import EngineError, MissingDependencyError

from ..data import Array, Data, flat, gradients_of, results_of, spec_of
from ..problems import Problem
from ..timing import Clock, HostClock
from . import NotRun, Prepared, carrying, launches


class Device:
    """The way to and from a device, and its clock: here the host's."""

    name = "cpu"
    flush: Any = None

    def put(self, array: Array) -> Any:
        return array

    def get(self, array: Any) -> Array:
        return np.asarray(array)

    def clock(self) -> Clock:
        return HostClock()

    def params(self, op: Any, data: Data) -> Any:
        """A params buffer in the device's layout, made on the host."""
        layout = op.layout(self.name)
        params = np.zeros(layout.size, op.dtype.numpy)
        from_canonical(data.canonical.weights, data.canonical.biases, layout, params)
        return self.put(params)

    def outputs(self, *arrays: Any) -> dict[str, Array]:
        return results_of(*(self.get(array) for array in arrays if array is not None))

    def gradients(self, which: str, op: Any, y: Any, dx: Any, d_params: Any) -> dict[str, Array]:
        dw = flat(*to_canonical(self.get(d_params), op.layout(self.name), copy=False))
        return gradients_of(which, self.get(y), self.get(dx), dw)


def versions() -> dict[str, Any]:
    versions = {"numpy": np.__version__, "pycudnnrnn": pycudnnrnn.__version__}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions["numba"] = importlib.metadata.version("numba")
    return versions


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    if dtype == "tf32":
        raise NotRun("TF32 is a mode of GPUs")
    if option in ("plan", "stream"):
        return repeated(problem, which, dtype, data, option)
    os.environ.setdefault(VARIABLE, option)  # read once a process, when it first runs an RNN
    try:
        kernels = kernels_in_use().kernels
    except (MissingDependencyError, EngineError) as error:
        raise NotRun(str(error)) from error
    if kernels != option:
        raise NotRun(f"this process runs the kernels of {kernels}")
    spec = spec_of(problem, dtype)
    return eager(problem, which, data.cast(spec.dtype.numpy), ops.from_spec(spec), Device())


def eager(problem: Problem, which: str, data: Data, op: Any, device: Device) -> Prepared:
    """Make the op's calls as users write them, on a device's arrays."""
    params, x, dy = device.params(op, data), device.put(data.x), device.put(data.dy)
    none = (None,) * (2 if problem.cell == "lstm" else 1)
    keywords: dict[str, Any] = {"sequence_lengths": data.lengths}
    fwd: Any = None

    def infer(x: Any, *states: Any) -> Any:
        return op(x, *(states or none), params, is_training=False, **keywords)

    def train() -> Any:
        nonlocal fwd
        fwd = op.forward(x, *none, params, is_training=True, **keywords)
        return fwd

    def before() -> None:  # a backward uses up what its forward left
        train()
        if which == "backward-weights":
            fwd.backward_data(dy)

    def results() -> dict[str, Array]:
        if which == "infer":
            return device.outputs(*infer(x))
        train()
        if which == "train":
            return device.outputs(fwd.output, fwd.output_h, fwd.output_c)
        grads = fwd.backward(dy)
        return device.gradients(which, op, fwd.output, grads.input, grads.params)

    calls: dict[str, Any] = {"train": train, "step": lambda: train().backward(dy)}
    calls["backward-data"] = lambda: fwd.backward_data(dy)
    calls["backward-weights"] = lambda: fwd.backward_weights(None)
    call = carrying(problem, which, x, infer, calls)
    memory = op.memory(problem.T, problem.B, which != "infer", sequence_lengths=data.lengths, device=device.name)
    prepared = Prepared(call, results, device.clock(), launches(problem, which), flush=device.flush)
    prepared.figures["predicted_nbytes"] = memory.total_nbytes
    prepared.before = before if which.startswith("backward") else None
    return prepared


def repeated(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    """Make calls that are repeated: a prepared plan on arrays that stay the same, or a stream."""
    if which != "infer" or data.lengths is not None:
        raise NotRun("written for forwards of equal lengths")
    spec, device = spec_of(problem, dtype), Device()
    data, op = data.cast(spec.dtype.numpy), ops.from_spec(spec)
    x, params = data.x, device.params(op, data)
    if option == "stream":
        stream, step = op.stream(params), x[0] if len(x) == 1 else x

        def fresh() -> dict[str, Array]:
            another = op.stream(params)
            return device.outputs(another(x), *another.states)

        return Prepared(lambda: stream(step), fresh)
    plan, states = op.prepare(problem.T, problem.B), (spec.num_pseudo_layers, problem.B)
    y = np.empty((problem.T, problem.B, spec.output_size), spec.dtype.numpy)
    hx, hy = (np.zeros((*states, spec.state_size), spec.dtype.numpy) for _ in range(2))
    cx, cy = (np.zeros((*states, spec.num_units), spec.dtype.numpy) if spec.has_cell_state else None for _ in range(2))
    plan.hold(params)

    def call() -> None:
        plan.forward(params, x, hx, cx, y, hy, cy)

    def results() -> dict[str, Array]:
        call()
        return device.outputs(y, hy, cy)

    return Prepared(call, results)
