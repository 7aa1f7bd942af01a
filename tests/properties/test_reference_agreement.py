"""Outputs, states and every gradient equal the plain reference, where torch has no counterpart too."""

import numpy as np
import pytest
from hypothesis import given

from pycudnnrnn import RNNSpec, ops
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode
from pycudnnrnn.testing import reference
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.pairwise import pairwise
from tests.helpers.torch_oracle import run_ours, run_torch, worst_error

TOLERANCE = 1e-10


def assert_results_agree(problem):
    fwd, canonical = problem.forward(), problem.op.params_to_canonical(problem.params)
    expected = reference.forward(problem.spec, *canonical, problem.x, problem.hx, problem.cx, problem.full_lengths)
    for found, theirs in zip((fwd.output, fwd.output_h, fwd.output_c), expected, strict=True):
        if found is not None:
            np.testing.assert_allclose(found, theirs, atol=TOLERANCE)


def assert_gradients_agree(problem):
    grads = problem.forward().backward(*problem.upstream())
    canonical = problem.op.params_to_canonical(problem.params)
    upstream = (problem.dy, problem.dhy, problem.dcy if problem.spec.has_cell_state else np.zeros_like(problem.dcy))
    weights, biases, dx, dhx, dcx = reference.gradients(
        problem.spec, (*canonical, problem.x, problem.hx, problem.cx), problem.full_lengths, upstream
    )
    ours = problem.op.params_to_canonical(grads.params)
    for found, expected in zip([*ours[0], *ours[1]], [*weights, *biases], strict=True):
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    np.testing.assert_allclose(grads.input, dx, atol=TOLERANCE)
    np.testing.assert_allclose(grads.input_h, dhx, atol=TOLERANCE)
    if problem.spec.has_cell_state:
        np.testing.assert_allclose(grads.input_c, dcx, atol=TOLERANCE)


@examples(1000)
@given(problems(least_time=0))
def test_results_equal_the_reference_for_every_spec(problem):
    assert_results_agree(problem)


@examples(300)
@given(problems(specs(max_layers=2, max_units=3), max_time=3, max_batch=3))
def test_every_gradient_equals_the_reference_by_complex_step(problem):
    assert_gradients_agree(problem)


WORDS = pairwise(RNNMode, BiasMode, InputMode, Direction)


@pytest.mark.parametrize(("mode", "bias_mode", "input_mode", "direction"), WORDS)
def test_every_two_words_of_a_spec_equal_the_reference_together(mode, bias_mode, input_mode, direction):
    """Also what torch does not have. LSTMs are clipped, and every other one is projected."""
    lstm = {"cell_clip": 0.2, "num_proj": 2 if bias_mode in {"double", "none"} else None} if mode == "lstm" else {}
    spec = RNNSpec(mode, 2, 3, 3, input_mode, direction, "float64", bias_mode=bias_mode, **lstm)
    problem = make_problem(ops.from_spec(spec), 3, 3, [2, 0, 3], seed=11)
    assert_results_agree(problem)
    assert_gradients_agree(problem)
    if mode == "lstm":
        assert np.isclose(np.abs(problem.forward().output_c), 0.2).any(), "the clip is met"


@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
@pytest.mark.parametrize("far", [-800.0, -709.0, 709.0, 800.0])
def test_saturated_gates_equal_the_reference(kind, far):
    """Their sigmoids are 0 or 1, with slopes of 0, however far out they are: exp(800) is no double any more."""
    problem = make_problem(kind(1, 3, 4, dtype="float64"), 3, 2, None, seed=11)
    _, biases = problem.op.params_to_canonical(problem.params, copy=False)
    for gate in (0, 1):
        biases[gate][:] = far
    assert_results_agree(problem)
    assert_gradients_agree(problem)


def test_the_references_sigmoid_and_its_slope_are_right_relatively():
    """Against the definition in a type with more exponents than doubles have."""
    a = np.array([-800, -740, -300, -40, -3, -1e-9, 0, 1e-9, 3, 40, 800.0])
    small = np.exp(-np.abs(a).astype(np.longdouble))
    value, slope = 1 / (1 + np.exp(-a.astype(np.longdouble))), small / (1 + small) ** 2
    found = reference.sigmoid(a + 1j * reference.COMPLEX_STEP)
    np.testing.assert_allclose(reference.sigmoid(a), value.astype(float), rtol=1e-15, atol=0)
    np.testing.assert_allclose(found.real, value.astype(float), rtol=1e-15, atol=0)
    # Below about -670, the complex number itself is too small for a double.
    np.testing.assert_allclose(found.imag / reference.COMPLEX_STEP, slope.astype(float), rtol=1e-15, atol=1e-290)


def test_the_reference_computes_in_float64_whatever_the_type_of_its_arrays():
    problem = make_problem(ops.CudnnGRU(1, 5, 64, dtype="float16"), 3, 2, None, seed=11)
    weights, biases = problem.op.params_to_canonical(problem.params)

    def output(dtype):
        given = ([array.astype(dtype) for array in group] for group in (weights, biases))
        arrays = (array.astype(dtype) for array in (problem.x, problem.hx, problem.cx))
        return reference.forward(problem.spec, *given, *arrays, problem.full_lengths)[0]

    assert np.array_equal(output("f2"), output("f8"))


def test_relu_has_no_slope_where_it_meets_zero_exactly():
    """As in torch: with all weights zero, no gradient gets through."""
    problem = make_problem(ops.CudnnRNNRelu(2, 3, 4, dtype="float64"), 3, 2, None, seed=11)
    problem.params[:] = 0
    assert_gradients_agree(problem)
    assert worst_error(run_ours(problem), run_torch(problem))[0] == 0
    assert not problem.forward().backward(*problem.upstream()).params.any()


def test_a_cell_state_at_its_bound_passes_its_gradient_on():
    """The forget gate is 1 and the input gate 0, so that the state stays exactly where it starts."""
    problem = make_problem(ops.CudnnLSTM(1, 3, 4, dtype="float64", cell_clip=0.5), 2, 2, None, seed=11)
    _, biases = problem.op.params_to_canonical(problem.params, copy=False)
    biases[0][:], biases[1][:], problem.cx[:] = -800, 800, 0.5
    assert (problem.forward().output_c == 0.5).all()
    assert_gradients_agree(problem)
    assert problem.forward().backward(*problem.upstream()).input_c.any()
