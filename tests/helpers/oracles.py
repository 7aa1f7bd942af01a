"""The frameworks that the converters are held against: installed, or else a skip on a desk and a failure in CI."""

import importlib
import inspect
import os
import warnings

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")  # the one backend of Keras that computes in float64 without a switch

from pycudnnrnn import RNNSpec, convert, ops
from pycudnnrnn.cli.convert.verify import RUNNERS
from pycudnnrnn.testing.strategies import make_problem

FRAMEWORKS = [name for name in convert.__all__ if inspect.ismodule(getattr(convert, name))]
"""Every converter."""

KERAS_ARRAYS = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
"""keras.Variable.__array__ has not followed NumPy 2; Keras's own saving trips over it."""


def need(*names):
    """Import frameworks; where one is missing, skip, and in CI fail: there a skip would hide a broken environment."""
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a framework says while it is imported is not about us
                importlib.import_module(name)
        except ImportError as error:
            missing(name, error)


def missing(name, error=""):
    """Skip; in CI, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"CI has to have {name}: {error}")
    pytest.skip(f"needs {name}", allow_module_level=True)


def random_canonical(spec, seed):
    """Return a model with random weights and random, unequal biases."""
    op = ops.from_spec(spec)
    problem = make_problem(op, 1, 1, None, seed)
    return convert.Canonical(spec, *op.params_to_canonical(problem.params))


def written(framework, mode="lstm", layers=1, direction="unidirectional", **changes):
    """Return a small model as a framework has it, with arrays changed, added or, for None, left out."""
    c = random_canonical(RNNSpec(mode, layers, 4, 3, direction=direction), 1)
    arrays = getattr(convert, framework).from_canonical(c) | changes
    return {name: array for name, array in arrays.items() if array is not None}


def random_call(spec, seed, sizes=None):
    """Return x, hx, cx and ragged, unsorted lengths of at least 1, one of them T; `sizes` is (T, B), or drawn."""
    rng = np.random.default_rng(seed)
    T, B = sizes or (int(rng.integers(3, 7)), int(rng.integers(2, 5)))
    problem = make_problem(ops.from_spec(spec), T, B, None, seed)
    lengths = rng.integers(1, T + 1, B)
    lengths[rng.integers(B)] = T
    return problem.x, problem.hx, problem.cx, lengths


def run_ours(c, x, hx=None, cx=None, lengths=None):
    """Run a converted model on our op; without states from zeros, and without lengths all steps."""
    op = ops.from_spec(c.spec)
    params = op.canonical_to_params(c.weights, c.biases)
    states = (hx, cx) if c.spec.has_cell_state else (hx,)
    lengths = lengths if lengths is None else [int(n) for n in lengths]
    fwd = op.forward(x, *states, params, is_training=False, sequence_lengths=lengths)
    return fwd.output, fwd.output_h, fwd.output_c


def worst(ours, expected):
    """Return the largest difference of output, output_h and output_c, relative where they pass 1 (relu may)."""
    assert [a is None for a in ours] == [b is None for b in expected]
    difference = 0.0
    for a, b in zip(ours, expected, strict=True):
        if a is not None:
            assert a.shape == b.shape
            assert not np.isnan(a - b).any(), "max() would leave a NaN out"
            difference = max(difference, float((np.abs(a - b) / np.maximum(1, np.abs(b))).max()))
    return difference


def check_both_directions(framework, spec, seed, *, read=None, write=None, tolerance=1e-12, lossless=True, sizes=None):
    """Hold a random model against the real framework, out and back in, and the way back bit for bit."""
    module = getattr(convert, framework)
    c = random_canonical(spec, seed)
    arrays = module.from_canonical(c, **(write or {}))
    for name, array in arrays.items():  # a file's writer may take an array's memory as it lies
        assert array.flags.c_contiguous, name
        assert not any(np.shares_memory(array, other) for other in (*c.weights, *c.biases)), name
    call = random_call(spec, seed + 1, sizes)
    expected = RUNNERS[framework][0](arrays, spec, *call)
    out = worst(run_ours(c, *call), expected)
    back = module.to_canonical(arrays, **(read or {}))
    error = max(out, worst(run_ours(back, *call), expected))
    assert error <= tolerance, (out, error)
    equal_dicts(module.from_canonical(back, **(write or {})), arrays)
    for ours, before in zip(back.weights, c.weights, strict=True):
        assert ours.tobytes() == before.tobytes()
    if back.spec == spec and lossless:
        equal_models(back, c)
    return error


def equal_dicts(ours, expected):
    """Assert equal names in equal order, and equal bits."""
    assert list(ours) == list(expected)
    for name, array in ours.items():
        assert array.dtype == expected[name].dtype, name
        assert array.shape == expected[name].shape, name
        assert array.tobytes() == expected[name].tobytes(), name


def equal_models(ours, expected):
    """Assert equal specs, and equal bits."""
    assert ours.spec == expected.spec
    for mine, other in ((ours.weights, expected.weights), (ours.biases, expected.biases)):
        assert len(mine) == len(other)
        assert all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(mine, other, strict=True))


def randomized(arrays, seed, scale=0.5):
    """Return arrays of the same names and shapes with random numbers: a framework's own biases are often zeros."""
    rng = np.random.default_rng(seed)
    return {name: (scale * rng.normal(size=a.shape)).astype(a.dtype) for name, a in arrays.items()}
