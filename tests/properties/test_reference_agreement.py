"""Outputs, states and every gradient equal the plain reference, where torch has no counterpart too."""

import numpy as np
import pytest
from hypothesis import given

from pycudnnrnn import ops
from pycudnnrnn.testing import reference
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.torch_oracle import run_ours, run_torch, worst_error

TOLERANCE = 1e-10


def assert_equal_to_the_reference(problem, *, gradients=True):
    """An empty batch and an empty sequence pass on their states and gradients, in the reference as well."""
    fwd, canonical = problem.forward(), problem.op.params_to_canonical(problem.params)
    spec, lengths = problem.spec, problem.full_lengths
    expected = reference.forward(spec, *canonical, problem.x, problem.hx, problem.cx, lengths)
    pairs = [*zip((fwd.output, fwd.output_h, fwd.output_c), expected, strict=True)]
    if gradients:
        grads = fwd.backward(*problem.upstream())
        arrays = (*canonical, problem.x, problem.hx, problem.cx)
        weights, biases, *data = reference.gradients(spec, arrays, lengths, problem.upstream())
        pairs += zip((grads.input, grads.input_h, grads.input_c), data, strict=True)
        for ours, expected in zip(problem.op.params_to_canonical(grads.params), (weights, biases), strict=True):
            pairs += zip(ours, expected, strict=True)
    for ours, expected in pairs:
        if ours is not None:
            np.testing.assert_allclose(ours, expected, atol=TOLERANCE)


@examples(1000)
@given(problems(least_time=0))
def test_results_equal_the_reference_for_every_spec(problem):
    assert_equal_to_the_reference(problem, gradients=False)


@examples(300)
@given(problems(specs(max_layers=2, max_units=3), max_time=3, max_batch=3, least_time=0))
def test_every_gradient_equals_the_reference_by_complex_step(problem):
    assert_equal_to_the_reference(problem)


@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
@pytest.mark.parametrize("far", [-800.0, -709.0, 709.0, 800.0])
def test_saturated_gates_equal_the_reference(kind, far):
    """Their sigmoids are 0 or 1, with slopes of 0, however far out they are: exp(800) is no double any more."""
    problem = make_problem(kind(1, 3, 4, dtype="float64"), 3, 2, None, seed=11)
    _, biases = problem.op.params_to_canonical(problem.params, copy=False)
    for gate in (0, 1):
        biases[gate][:] = far
    assert_equal_to_the_reference(problem)


def test_the_reference_computes_in_float64_whatever_the_type_of_its_arrays():
    problem = make_problem(ops.CudnnGRU(1, 5, 64, dtype="float16"), 3, 2, None, seed=11)
    weights, biases = problem.op.params_to_canonical(problem.params)

    def output(dtype):
        canonical = ([array.astype(dtype) for array in group] for group in (weights, biases))
        arrays = (array.astype(dtype) for array in (problem.x, problem.hx, problem.cx))
        return reference.forward(problem.spec, *canonical, *arrays, problem.full_lengths)[0]

    assert np.array_equal(output("f2"), output("f8"))


def test_relu_has_no_slope_where_it_meets_zero_exactly():
    """As in torch: with all weights zero, no gradient gets through."""
    problem = make_problem(ops.CudnnRNNRelu(2, 3, 4, dtype="float64"), 3, 2, None, seed=11)
    problem.params[:] = 0
    assert_equal_to_the_reference(problem)
    assert worst_error(run_ours(problem), run_torch(problem))[0] == 0
    assert not problem.forward().backward(*problem.upstream()).params.any()


def test_a_cell_state_at_its_bound_passes_its_gradient_on():
    """The forget gate is 1 and the input gate 0, so that the state stays exactly where it starts."""
    problem = make_problem(ops.CudnnLSTM(1, 3, 4, dtype="float64", cell_clip=0.5), 2, 2, None, seed=11)
    _, biases = problem.op.params_to_canonical(problem.params, copy=False)
    biases[0][:], biases[1][:], problem.cx[:] = -800, 800, 0.5
    assert (problem.forward().output_c == 0.5).all()
    assert_equal_to_the_reference(problem)
    assert problem.forward().backward(*problem.upstream()).input_c.any()
