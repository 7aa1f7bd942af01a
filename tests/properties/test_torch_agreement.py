"""Outputs, states and every gradient equal torch's on the CPU, in float64."""

import contextlib
import dataclasses

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


@examples(200)
@given(
    problems(torch_specs, least_length=1), st.sampled_from(["x", "hx", "cx", "params", "dy", "dhy", "dcy"]),
    st.sampled_from([np.nan, np.inf, -np.inf]), st.data(),
)  # fmt: skip
def test_what_is_no_finite_number_goes_where_torchs_goes(problem, field, value, data):
    """NaN and infinity in the data, the parameters or a gradient from above."""
    array = getattr(problem, field).copy()
    array.reshape(-1)[data.draw(st.integers(0, array.size - 1)) :][: data.draw(st.integers(1, 2))] = value
    odd = dataclasses.replace(problem, **{field: array})
    expected = run_torch(odd)
    for name, ours in run_ours(odd).items():
        np.testing.assert_allclose(ours, expected[name], rtol=1e-9, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [*pairwise(["CudnnLSTM", "CudnnGRU", "CudnnRNNTanh", "CudnnRNNRelu"], ["dy", "dhy"], [np.inf]),
     ("CudnnRNNRelu", "x", np.nan)],
)  # fmt: skip
def test_infinity_and_nan_at_the_first_step_go_where_torchs_go(name, field, value):
    """Of dh and z * dh, a GRU's gradient is the difference; dh * (1 - z) would be infinite where that is NaN.

    Through the product with R, infinity becomes NaN in any case. A relu passes on the gradient at NaN.
    """
    problem = make_problem(getattr(ops, name)(2, 3, 2, dtype="float64"), 1, 2, None, seed=1)
    getattr(problem, field)[0, 0, 1] = value
    expected = run_torch(problem)
    assert value == np.inf or expected["dx"][0, 0].all()
    for key, ours in run_ours(problem).items():
        np.testing.assert_allclose(ours, expected[key], rtol=1e-9, atol=TOLERANCE, err_msg=key)
