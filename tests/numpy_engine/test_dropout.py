"""Dropout: where it acts, how much it drops, and how its state goes on."""

import pickle
import warnings

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.calls import call_of


def dropping(p=0.5, seed=3, layers=2):
    return ops.CudnnLSTM(layers, 16, 4, dropout=p, seed=seed, dtype="float64")


def test_dropout_moves_on_from_call_to_call_and_repeats_from_a_saved_state():
    op = dropping()
    arguments = call_of(op)
    start = pickle.loads(pickle.dumps(op.dropout_state()))
    first, second = op(*arguments)[0], op(*arguments)[0]
    assert not np.array_equal(first, second)
    assert op.dropout_state().position == 2
    op.set_dropout_state(start)
    assert np.array_equal(op(*arguments)[0], first)
    assert np.array_equal(dropping()(*arguments)[0], first)
    assert not np.array_equal(dropping(seed=4)(*arguments)[0], first)
    with pytest.raises(ArgumentTypeError, match="DropoutState"):
        op.set_dropout_state(3)
    plan = op.prepare(3, 2, is_training=True)
    op.set_dropout_state(start)
    with pytest.raises(StateError, match="prepare it again"):
        plan.forward(*[None] * 7)


def test_a_dropout_state_that_cannot_be_is_refused():
    for wrong in ({"position": 2**63}, {"position": -1}, {"seed": 2**64}, {"data": "bytes"}):
        with pytest.raises(ArgumentError, match=f"Invalid {next(iter(wrong))}"):
            ops.DropoutState(**{"engine": "numpy", "seed": 1} | wrong)


def test_inference_drops_nothing_and_moves_no_state():
    op = dropping()
    arguments = call_of(op)
    plain = ops.from_spec(op.spec.replace(dropout=0.0))
    expected = plain(*arguments)
    assert np.array_equal(op(*arguments, is_training=False)[0], expected[0])
    x, h, c, params = arguments
    results = [np.empty_like(array) for array in expected]
    op.prepare(*x.shape[:2]).forward(params, x, h, c, *results)
    assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))
    assert op.dropout_state().position == 0


def test_dropping_everything_leaves_the_upper_layer_without_input():
    op = dropping(p=1.0)
    x, h, c, params = call_of(op)
    output = op(x, h, c, params)[0]
    blind = params.copy()
    for weight in op.params_to_canonical(blind, copy=False)[0][8:12]:
        weight[:] = 0
    assert np.array_equal(output, ops.from_spec(op.spec.replace(dropout=0.0))(x, h, c, blind)[0])


def test_what_survives_is_scaled_and_as_much_survives_as_was_asked():
    """A relu layer of ones above another: its pre-activation is the number of survivors, scaled."""
    units, p = 400, 0.3
    op = ops.CudnnRNNRelu(2, units, 1, dropout=p, seed=1, dtype="float64", bias_mode="none")
    params = np.zeros(op.params_size())
    weights, _ = op.params_to_canonical(params, copy=False)
    weights[0][:] = 1
    weights[2][:] = 1
    output, _ = op(np.ones((50, 4, 1)), None, params)
    assert np.allclose(output, output[..., :1])
    survivors = output[..., 0] * (1 - p)
    assert np.allclose(survivors, np.round(survivors))
    assert survivors.mean() == pytest.approx(units * (1 - p), rel=0.01)
    assert survivors.std() == pytest.approx((units * p * (1 - p)) ** 0.5, rel=0.15)


def test_each_layer_has_masks_of_its_own():
    """Three relu layers that pass ones on: a quarter survives two masks, and half of them would survive one twice."""
    units = 64
    op = ops.CudnnRNNRelu(3, units, units, dropout=0.5, seed=1, bias_mode="none")
    params = np.zeros(op.params_size(), np.float32)
    for weight in op.params_to_canonical(params, copy=False)[0][::2]:
        weight[:] = np.eye(units)
    output, _ = op(np.ones((20, 4, units), np.float32), None, params)
    assert set(output.ravel()) == {0, 4}
    assert np.mean(output > 0) == pytest.approx(0.25, abs=0.03)


def test_the_backward_uses_the_forwards_masks():
    op = dropping()
    problem = make_problem(op, 3, 2, [3, 2], seed=8)
    state = op.dropout_state()

    def loss(x):
        op.set_dropout_state(state)
        y, h, c = op(x, problem.hx, problem.cx, problem.params, sequence_lengths=[3, 2])
        return np.sum(y * problem.dy) + np.sum(h * problem.dhy) + np.sum(c * problem.dcy)

    op.set_dropout_state(state)
    dx = problem.forward().backward(*problem.upstream()).input
    direction = np.random.default_rng(1).normal(size=problem.x.shape)
    slope = (loss(problem.x + 1e-6 * direction) - loss(problem.x - 1e-6 * direction)) / 2e-6
    assert slope == pytest.approx(np.sum(dx * direction), rel=1e-6)


@pytest.mark.parametrize(("p", "checkpoint_every"), [(0.99999, None), (1 - 2**-53, 1)])
def test_what_is_dropped_is_zero_where_float16_has_no_number_for_the_factor(p, checkpoint_every):
    """1 / (1 - p) is beyond 65504, and infinity times 0 would be NaN."""
    options = {"dtype": "float16", "compute_dtype": "float16", "seed": 2}
    op = ops.CudnnGRU(2, 16, 4, dropout=p, **options)
    problem = make_problem(op, 5, 3, None, seed=8)
    fwd = problem.forward(checkpoint_every=checkpoint_every)
    grads = fwd.backward(*problem.upstream())
    everything = make_problem(ops.CudnnGRU(2, 16, 4, dropout=1.0, **options), 5, 3, None, seed=8).forward()
    assert np.array_equal(fwd.output, everything.output), "of 240 units none survives"
    assert all(np.isfinite(array).all() for array in (fwd.output, grads.input, grads.input_h, grads.params))


def test_dropout_with_one_layer_warns_at_the_callers_line():
    for make in (lambda: dropping(layers=1), lambda: ops.from_spec(RNNSpec("gru", 1, 2, 3, dropout=0.1))):
        with pytest.warns(UserWarning, match="has no effect with one layer: .* between layers only") as caught:
            op = make()
        assert caught[0].filename == __file__
        op(*call_of(op))
        assert op.dropout_state().position == 0, "nothing was drawn"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropping(layers=2)
