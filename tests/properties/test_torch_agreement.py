"""Outputs, states and every gradient equal torch's on the CPU, in float64."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.pairwise import pairwise
from tests.helpers.torch_oracle import run_ours, run_torch, worst_error

TOLERANCE = 1e-10

torch_specs = specs(bias_modes=["double"], input_modes=["linear_input"], clip=False)


@examples(1000)
@given(problems(torch_specs, least_length=1), st.booleans())
def test_outputs_states_and_every_gradient_equal_torch(problem, moves):
    """On an engine with another layout, too."""
    with use_engine(ShuffledEngine(seed=problem.x.size)) if moves else contextlib.nullcontext():
        if moves:
            problem = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed=1)
        error, where = worst_error(run_ours(problem), run_torch(problem))
    target(error)
    assert error <= TOLERANCE, where


def test_gradients_in_evaluation_mode_equal_torch_without_dropout():
    op = ops.CudnnLSTM(2, 5, 3, dtype="float64", dropout=0.5, seed=1)
    problem = make_problem(op, 4, 3, None, seed=2)
    ours = run_ours(problem, is_training=False, keep_reserve=True)
    error, where = worst_error(ours, run_torch(problem))
    assert error <= TOLERANCE, where


def test_float32_stays_near_float64():
    wide = ops.CudnnGRU(2, 32, 24, dtype="float64")
    narrow = ops.CudnnGRU(2, 32, 24, dtype="float32")
    problem = make_problem(wide, 20, 8, None, seed=5)
    output, _ = narrow(*(array.astype("f4") for array in (problem.x, problem.hx, problem.params)))
    np.testing.assert_allclose(output, run_torch(problem)["y"], atol=5e-6)


@pytest.mark.parametrize(
    ("name", "T", "field", "value"),
    pairwise(
        ["CudnnLSTM", "CudnnGRU", "CudnnRNNTanh", "CudnnRNNRelu"], [1, 4], ["x", "hx", "params", "dy", "dhy"],
        [np.nan, np.inf, -np.inf],
    ),
)  # fmt: skip
def test_infinity_and_nan_go_where_torchs_go(name, T, field, value):
    """A relu passes on the gradient at NaN; a GRU's gradient is a difference, of dh and z * dh, where that is NaN.

    Through the product with R, infinity becomes NaN in any case: one step shows what a cell does.
    """
    problem = make_problem(getattr(ops, name)(2, 3, 2, dtype="float64"), T, 2, None, seed=1)
    getattr(problem, field).reshape(-1)[1] = value
    expected = run_torch(problem)
    for key, ours in run_ours(problem).items():
        np.testing.assert_allclose(ours, expected[key], rtol=1e-9, atol=TOLERANCE, err_msg=key)
