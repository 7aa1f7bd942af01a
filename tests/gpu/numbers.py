"""One problem on the device and on the NumPy engine, and how far the numbers are apart."""

import dataclasses

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.testing.strategies import make_problem

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
DTYPES = list(EPS)
ALLOWED = {"float16": 1, "bfloat16": 1, "float32": 16, "float64": 16}
"""Roundings, each times sqrt(T * U * L): in 16 bits 16 of them would let anything pass, and 1 is 25 times a model."""
ARRAYS = ("x", "hx", "cx", "dy", "dhy", "dcy")

ALGORITHMS = [
    "standard",
    *(pytest.param(f"persist_{kind}", marks=pytest.mark.apart) for kind in ("static", "dynamic", "static_small_h")),
]
"""The persistent kernels wait for each other on the device: one that never ends takes its process with it."""

RAGGED = [6, 2, 4, 1]
T, B = 6, 4
LENGTHS = pytest.mark.parametrize("lengths", [None, RAGGED], ids=["equal", "ragged"])


def lstm(dtype="float32", units=24, inputs=17):
    return ops.CudnnLSTM(2, units, inputs, dtype=dtype, direction="bidirectional")


def problem_of(op, lengths=None):
    return make_problem(op, T, B, lengths, seed=3)


def relaid(problem):
    """Return the problem with its params in the layout of the device, still on the host.

    So a layout that nobody expected is one failure, in `test_layout.py`, and the numbers are still compared.
    """
    return dataclasses.replace(problem, params=problem.op.move_params(problem.params, "cuda").get())


def run(cuda, problem, *, put=None, **keywords):
    """Return every result and gradient by cuDNN, on the host and in the host's layout."""
    arrays = {name: (put or cuda.put)(getattr(problem, name)) for name in ARRAYS}
    params = problem.op.move_params(problem.params, "cuda")
    results = dataclasses.replace(problem, params=params, **arrays).results(**keywords)
    d_params = problem.op.move_params(results.pop("dparams"), "cpu")
    return {name: cuda.get(array) for name, array in results.items()} | {"dparams": d_params}


def run_numpy(problem, **keywords):
    """Return the same by the NumPy engine, in float64."""
    wide = ops.from_spec(problem.spec.replace(dtype="float64", algo="standard"))
    arrays = {name: getattr(problem, name).astype("float64") for name in (*ARRAYS, "params")}
    return dataclasses.replace(problem, op=wide, **arrays).results(**keywords)


def largest(one, other):
    """How far two arrays are apart; infinitely where one of them is no number, since `max` would pass NaN over."""
    difference = float(np.abs(np.asarray(one, "f8") - np.asarray(other, "f8")).max(initial=0))
    return difference if np.isfinite(difference) else np.inf


def worst(results, expected, problem):
    """Return the largest error as a share of the allowed eps * sqrt(T * U * L) * scale, and such shares by name."""
    spec = problem.spec
    size = ALLOWED[spec.dtype] * (len(problem.x) * spec.num_units * spec.num_layers) ** 0.5
    errors = {}
    for name, value in results.items():
        scale = max(1.0, float(np.abs(expected[name]).max(initial=0)))
        errors[name] = largest(value, expected[name]) / (EPS[spec.dtype] * size * scale)
    return max(errors.values()), errors


def differ(results, expected):
    """The names of the results that are not the same to the bit."""
    return [name for name in expected if not np.array_equal(results[name], expected[name])]
