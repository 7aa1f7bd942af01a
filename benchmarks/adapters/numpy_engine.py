"""Ours on the CPU, with the kernels that the option names: NumPy's, or those that numba compiles."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import os
from typing import Any

import numpy as np

import pycudnnrnn
from pycudnnrnn import ops
from pycudnnrnn.engines.numpy_engine.kernels_in_use import VARIABLE, kernels_in_use
from pycudnnrnn.errors import EngineError, MissingDependencyError

from ..data import Array, Data, flat, results_of, spec_of
from ..problems import Problem
from . import NotRun, Prepared


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
    op = ops.from_spec(spec)
    cast = [np.asarray(a, spec.dtype.numpy) for a in (data.dy, *data.canonical.weights, *data.canonical.biases)]
    dy, arrays = cast[0], cast[1:]
    count = len(data.canonical.weights)
    params = op.canonical_to_params(arrays[:count], arrays[count:])
    xs = [np.asarray(x, spec.dtype.numpy) for x in data.xs]
    none = (None,) * (2 if problem.cell == "lstm" else 1)
    keywords: dict[str, Any] = {"sequence_lengths": data.lengths}

    def infer(x: Array, states: Any = none) -> Any:
        return op(x, *states, params, is_training=False, **keywords)

    def step(x: Array) -> Any:
        fwd = op.forward(x, *none, params, is_training=True, **keywords)
        return fwd, fwd.backward(dy)

    if which == "infer":
        return Prepared(stepping(infer, xs, none, carried=problem.carried), lambda: results(infer(xs[0])))

    def gradients() -> dict[str, Array]:
        fwd, grads = step(xs[0])
        return {"y": fwd.output, "dx": grads.input, "dw": flat(*op.params_to_canonical(grads.params))}

    turn = itertools.cycle(xs)
    return Prepared(lambda: step(next(turn)), gradients)


def results(found: Any) -> dict[str, Array]:
    """Name what an op's call returns."""
    return results_of(found[0], found[1], found[2] if len(found) > 2 else None)


def stepping(infer: Any, xs: list[Any], none: tuple[None, ...], *, carried: bool) -> Any:
    """Return a call that goes through the inputs in turn, from the states that the last one left where they carry."""
    turn = itertools.cycle(xs)
    if not carried:
        return lambda: infer(next(turn))
    states: Any = none

    def call() -> None:
        nonlocal states
        states = infer(next(turn), states)[1:]

    return call
