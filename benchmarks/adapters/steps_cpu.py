"""Ours for calls that are repeated on the CPU: a prepared plan on arrays that stay the same, or a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycudnnrnn import ops

from ..data import Array, Data, spec_of
from ..problems import Problem
from . import NotRun, Prepared
from .numpy_engine import Device, versions

__all__ = ["prepare", "versions"]


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    if which != "infer" or dtype == "tf32" or data.lengths is not None:
        raise NotRun("written for forwards of equal lengths")
    spec, device = spec_of(problem, dtype), Device()
    data, op = data.cast(spec.dtype.numpy), ops.from_spec(spec)
    x, params = data.x, device.params(op, data)
    if option == "stream":
        return _stream(op, x, params, device)
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


def _stream(op: Any, x: Array, params: Array, device: Device) -> Prepared:
    stream, step = op.stream(params), x[0] if len(x) == 1 else x

    def results() -> dict[str, Array]:
        fresh = op.stream(params)
        return device.outputs(fresh(x), *fresh.states)

    return Prepared(lambda: stream(step), results)
