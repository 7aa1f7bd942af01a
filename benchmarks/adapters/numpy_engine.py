"""Ours on the CPU, with the kernels that the option names: NumPy's, or those that numba compiles."""

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

from ..data import Array, Data, flat, results_of, spec_of
from ..problems import Problem
from ..timing import Clock, HostClock
from . import NotRun, Prepared, in_turn, launches


class Device:
    """The way to and from a device, and its clock: here the host's."""

    name = "cpu"

    def put(self, array: Array) -> Any:
        return array

    def get(self, array: Any) -> Array:
        found: Array = array
        return found

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

    def gradients(self, op: Any, y: Any, dx: Any, d_params: Any) -> dict[str, Array]:
        dw = flat(*to_canonical(self.get(d_params), op.layout(self.name), copy=False))
        return {"y": self.get(y), "dx": self.get(dx), "dw": dw}


def versions() -> dict[str, Any]:
    found = {"numpy": np.__version__, "pycudnnrnn": pycudnnrnn.__version__}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["numba"] = importlib.metadata.version("numba")
    return found


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    if problem.layout == "packed":
        raise NotRun("ops take only padded arrays")
    if dtype == "tf32":
        raise NotRun("TF32 is a mode of GPUs")
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
    params, xs, dy = device.params(op, data), [device.put(x) for x in data.xs], device.put(data.dy)
    none = (None,) * (2 if problem.cell == "lstm" else 1)
    keywords: dict[str, Any] = {"sequence_lengths": data.lengths}

    def infer(x: Any, *states: Any) -> Any:
        return op(x, *(states or none), params, is_training=False, **keywords)

    def step(x: Any) -> Any:
        fwd = op.forward(x, *none, params, is_training=True, **keywords)
        return fwd, fwd.backward(dy)

    def results() -> dict[str, Array]:
        if which == "infer":
            return device.outputs(*infer(xs[0]))
        fwd, grads = step(xs[0])
        return device.gradients(op, fwd.output, grads.input, grads.params)

    return Prepared(in_turn(problem, which, xs, infer, step), results, device.clock(), launches(problem, which))
