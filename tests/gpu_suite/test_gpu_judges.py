"""What the GPU suite judges by: what is no number, wrong numbers, and layouts."""

import dataclasses

import numpy as np
import pytest

from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import DTYPES, run_numpy, worst


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_numbers_are_refused_in_every_dtype_and_rounded_ones_are_not(kind, dtype):
    """Zeros, turned signs, one NaN, and gates that changed places; against what every stored number's rounding does."""
    op = KINDS[kind](2, 24, 17, dtype=dtype)
    problem = make_problem(op, 7, 5, None, seed=3)
    expected, element = run_numpy(problem), op.dtype.numpy
    weights, biases = op.params_to_canonical(problem.params)
    for arrays in (weights, biases):
        arrays[0], arrays[1] = arrays[1], arrays[0]
    swapped = dataclasses.replace(problem, params=op.canonical_to_params(weights, biases))
    for name in ("y", "dx", "dparams"):  # one alone is enough
        for factor in (0, -1):
            assert worst(expected | {name: factor * expected[name]}, expected, problem)[0] > 1, (name, factor)
        spoilt = expected[name].copy()
        spoilt.flat[-1] = np.nan
        assert worst(expected | {name: spoilt}, expected, problem)[0] == np.inf
    assert worst(run_numpy(swapped), expected, problem)[0] > 1
    rounded = {name: array.astype(element).astype(np.float64) for name, array in expected.items()}
    assert worst(rounded, expected, problem)[0] < 0.1
