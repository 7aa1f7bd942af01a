"""On the NumPy engine, each allocation of array memory fails in turn, and nothing is changed by it."""

import contextlib

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import StateError
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.numpy_memory import until_it_works

SPECS = {
    "lstm": ops.CudnnLSTM(2, 3, 4, num_proj=2, cell_clip=0.5, dtype="float64").spec,
    "gru, dropping": ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=1).spec,
    "half": ops.CudnnLSTM(2, 3, 4, dtype="float16").spec,
    "relu": ops.CudnnRNNRelu(1, 3, 4, bias_mode="none").spec,
}


@pytest.fixture(params=SPECS)
def problem(request):
    return make_problem(ops.from_spec(SPECS[request.param]), 3, 3, [3, 0, 2], seed=3)


@pytest.fixture(params=[None, 1], ids=["kept", "recomputed"])
def every(request):
    return request.param


def numbers(problem):
    return {name: array.tobytes() for name, array in vars(problem).items() if isinstance(array, np.ndarray)}


def test_an_allocation_that_fails_in_a_forward_leaves_arguments_and_dropout_as_they_were(problem, every):
    before, start = numbers(problem), problem.op.dropout_state()
    expected = problem.forward(checkpoint_every=every).output
    problem.op.set_dropout_state(start)

    def check():
        assert numbers(problem) == before
        assert problem.op.dropout_state() == start

    fwd, failed = until_it_works(lambda: problem.forward(checkpoint_every=every), check)
    assert failed >= 8
    assert np.array_equal(fwd.output, expected)


def test_an_allocation_that_fails_in_a_backward_leaves_it_right_or_says_that_it_is_used_up(problem, every):
    start = ops.DropoutState("numpy", problem.spec.seed)

    def forward():
        problem.op.set_dropout_state(start)
        return problem.forward(checkpoint_every=every)

    expected = forward().backward(*problem.upstream())
    before, tried = numbers(problem), [forward()]

    def check():
        assert numbers(problem) == before
        try:
            found = tried[-1].backward_data(*problem.upstream())
        except StateError:
            assert every is None, "what recomputes keeps what it started from"
        else:
            assert np.array_equal(found.input, expected.input)
        tried.append(forward())

    found, failed = until_it_works(lambda: tried[-1].backward_data(*problem.upstream()), check)
    assert failed >= 6
    assert np.array_equal(found.input, expected.input)
    params, _ = until_it_works(tried[-1].backward_weights, lambda: None)
    assert np.array_equal(params, expected.params)


def test_a_forward_that_failed_does_not_give_its_masks_back_if_another_has_drawn_since():
    dropout = engine_for("cpu").dropout(SPECS["gru, dropping"], ops.DropoutState("numpy", 1))
    with contextlib.suppress(MemoryError), dropout.as_one():
        with dropout.as_one():
            pass
        raise MemoryError
    assert dropout.state().position == 2
