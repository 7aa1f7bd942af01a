"""Forwards on cuDNN that keep only states, and run each chunk again inside backward."""

import dataclasses

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import run, run_numpy, worst


@pytest.mark.parametrize("lengths", [None, [11, 2, 5, 0, 7]], ids=["equal", "ragged"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_result_and_gradient_is_near_the_numpy_engines(cuda, answer, kind, dtype, lengths):
    problem = make_problem(KINDS[kind](2, 24, 17, dtype=dtype), 11, 5, lengths, seed=3)
    ratio, errors = worst(run(cuda, problem, checkpoint_every=3), run_numpy(problem), problem)
    answer(f"recomputing: error {kind} {dtype} {'ragged' if lengths else 'equal'}", errors)
    assert ratio <= 1


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_second_run_drops_what_the_first_dropped(cuda, kind):
    """The gradient is that of the outputs that came: a difference quotient over forwards with the same masks."""
    op = KINDS[kind](3, 12, 7, dtype="float64", dropout=0.5, seed=5)
    problem = make_problem(op, 9, 3, None, seed=3)
    zero = dataclasses.replace(problem, dhy=0 * problem.dhy, dcy=0 * problem.dcy)
    start = op.dropout_state("cuda")
    found = run(cuda, zero, checkpoint_every=4)
    after = op.dropout_state("cuda")
    assert after.position == start.position + 1
    step = 1e-5 * np.random.default_rng(1).normal(size=problem.x.shape)
    sums = []
    for sign in (1, -1):
        op.set_dropout_state(start)
        moved = run(cuda, dataclasses.replace(zero, x=zero.x + sign * step), checkpoint_every=4)
        sums.append(float((moved["y"] * zero.dy).sum()))
        assert op.dropout_state("cuda") == after
    assert float((found["dx"] * step).sum()) == pytest.approx((sums[0] - sums[1]) / 2, rel=1e-6)


def test_a_hundred_thousand_steps_take_the_memory_that_was_told(cuda, answer):
    op = ops.CudnnLSTM(1, 64, 32)
    T = 2000 if cuda.on_shim else 100_000
    told = {str(every): dataclasses.asdict(op.memory(T, 4, True, every, device="cuda")) for every in (None, 316)}
    answer("recomputing: memory told", told)
    assert told["316"]["reserve_nbytes"] < told["None"]["reserve_nbytes"] / 5
    problem = make_problem(op, T, 4, None, seed=3)
    assert worst(run(cuda, problem, checkpoint_every=316), run_numpy(problem), problem)[0] <= 1
