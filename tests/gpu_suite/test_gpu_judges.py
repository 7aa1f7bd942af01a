"""What the GPU suite judges by: what is no number, wrong numbers, and memory that grows."""

import dataclasses

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.drift import PAGE_NBYTES, SAMPLES, leaks
from tests.gpu.numbers import DTYPES, run_numpy, worst


@pytest.mark.parametrize("name", ["y", "dparams"])
def test_a_result_that_is_no_number_is_an_error(name):
    problem = make_problem(ops.CudnnLSTM(2, 5, 3), 4, 2, None, seed=1)
    expected, found = run_numpy(problem), run_numpy(problem)
    assert worst(found, expected, problem)[0] == 0
    found[name].flat[-1] = np.nan
    assert worst(found, expected, problem)[0] == np.inf


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_numbers_are_refused_in_every_dtype_and_rounded_ones_are_not(kind, dtype):
    """Zeros, turned signs and two gates that changed places; against what every stored number's rounding does."""
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
    assert worst(run_numpy(swapped), expected, problem)[0] > 1
    rounded = {name: array.astype(element).astype(np.float64) for name, array in expected.items()}
    assert worst(rounded, expected, problem)[0] < 0.1


def pages(*changes):
    """Memory in use, in a run that begins with 100 pages and gets or gives back pages at samples."""
    used = np.full(SAMPLES, 100)
    for at, count in changes:
        used[at:] += count
    return [int(count) * PAGE_NBYTES for count in used]


def test_a_page_that_is_lost_again_and_again_is_a_leak_and_one_that_comes_or_goes_is_none():
    """A sample is 100 models: a page in 500 of them is one every 5 samples."""
    for every in (1, 5, 10, 20):
        assert leaks(pages(*((at, 1) for at in range(0, SAMPLES, every))), PAGE_NBYTES)
    for at in range(SAMPLES):
        for changes in ([(at, 1)], [(at, 1), (at + 3, -1)], [(at, -1)]):
            assert not leaks(pages(*changes), PAGE_NBYTES)
