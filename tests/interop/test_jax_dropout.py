"""Dropout in `interop.jax.rnn`: a function of a position, or of states that go from call to call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn.engines import DropoutState
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import dropout_states, rnn
from tests.helpers.kinds import problem_of
from tests.interop.jax_problems import arguments_of, equal, expected_of, loss_of

pytestmark = pytest.mark.usefixtures("float64")


def test_dropout_is_a_function_of_the_seed_and_the_position():
    problem = problem_of(dropout=0.5, seed=11, lengths=None)
    params, x, *states = arguments_of(problem)

    @jax.jit
    def both(position, x):
        return jax.value_and_grad(loss_of(problem, dropout_position=position), argnums=0)(params, x, *states)

    for position in (3, 0, 3):
        problem.op.set_dropout_state(DropoutState("numpy", 11, position))
        assert np.array_equal(both(position, x)[1], expected_of(problem)[1][0])
    assert problem.op.dropout_state().position == 4, "a call leaves the op as it was"
    for axes, arguments in (((0, None), (jnp.arange(3), x)), ((None, 0), (3, jnp.stack([x, 2 * x, -x])))):
        mapped = jax.vmap(lambda *a: both(*a)[0], axes)(*arguments)
        each = [
            both(*(a if axis is None else a[k] for a, axis in zip(arguments, axes, strict=True)))[0] for k in range(3)
        ]
        assert np.array_equal(mapped, each), "each has the masks of a call of its own"
        assert len(set(map(float, mapped))) == 3
    evaluated = rnn(params, x, *states, spec=problem.spec, is_training=False)
    equal(evaluated, problem.op(problem.x, problem.hx, problem.cx, problem.params, False))


# --- states, from call to call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("platform", "x64", "seed"), [(None, True, 3), (None, False, None), ("host", False, 3)])
@pytest.mark.parametrize("way", [lambda f: f, jax.checkpoint], ids=["plain", "checkpoint"])
def test_states_give_the_masks_and_gradients_of_an_ops_forwards_one_after_the_other(platform, x64, seed, way):
    problem = problem_of(dtype="float32", dropout=0.5, seed=2**63 - 5)
    with jax.enable_x64(x64):
        params, *others = arguments_of(problem)

        def call(states, params=params):
            options = {"spec": problem.op, "sequence_lengths": problem.lengths, "platform": platform}
            return rnn(params, *others, dropout_states=states, **options)

        def loss(params, states):
            *results, advanced = call(states, params)
            return sum((d * a).sum() for d, a in zip(problem.upstream(), results, strict=True)), (advanced, results[0])

        def step(states, _=None):
            gradient, (states, output) = jax.grad(way(loss), has_aux=True)(params, states)
            return states, (output, gradient)

        states = dropout_states(problem.op, seed, platform=platform)
        jax.tree.map(np.testing.assert_array_equal, step(states), step(states))
        last, looped = jax.jit(lambda states: jax.lax.scan(step, states, length=3))(states)
        several = jnp.stack([states, dropout_states(problem.op, 5, platform=platform)])
        each = jax.tree.map(lambda *elements: jnp.stack(elements), *map(call, several))
        jax.tree.map(np.testing.assert_array_equal, jax.vmap(call)(several), each)
        for _ in range(3):
            states, _ = step(states)
    assert np.array_equal(last, states)
    problem.op.set_dropout_state(DropoutState("numpy", problem.spec.seed if seed is None else seed, 0))
    for output, gradient in zip(*looped, strict=True):
        results, gradients = expected_of(problem)
        assert np.array_equal(output, results[0])
        assert np.array_equal(gradient, gradients[0])


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ({"dropout": 0.5}, {"is_training": False}),
        ({}, {}),
        ({"dropout": 0.5}, {"sequence_lengths": [0, 0, 0]}),
        ({"dropout": 0.5}, {"sequence_lengths": jnp.zeros(3, "int32")}),
    ],
    ids=["evaluation", "no dropout", "no step", "no step, traced"],
)
def test_where_nothing_drops_the_states_come_back_as_they_were(options, keywords):
    problem = problem_of(lengths=None, **options)
    states = dropout_states(problem.spec)
    *results, moved = rnn(*arguments_of(problem), spec=problem.spec, dropout_states=states, **keywords)
    assert np.array_equal(moved, states)
    assert len(results) == 3


def test_states_are_refused_that_are_none():
    problem = problem_of(dropout=0.5)
    arguments, states = arguments_of(problem), dropout_states(problem.spec)

    def call(states, **keywords):
        return rnn(*arguments, spec=problem.spec, dropout_states=states, **keywords)

    expected = r"uint8 of shape \(16,\), as interop.jax.dropout_states makes them for numpy"
    for wrong in (states[:-1], states.astype("int32")):
        with pytest.raises(ArgumentError, match=f"Invalid dropout_states: .*, expecting {expected}"):
            jax.eval_shape(call, wrong)
    for text, wrong in (
        (r"dropout_states: <class 'int'>, expecting what interop\.jax", lambda: call(3)),
        ("dropout_position: a position, expecting None", lambda: call(states, dropout_position=1)),
        ("seed: -1", lambda: dropout_states(problem.spec, -1)),
        ("platform: 'tpu'", lambda: dropout_states(problem.spec, platform="tpu")),
    ):
        with pytest.raises(ArgumentError, match=f"Invalid {text}"):
            wrong()
    with pytest.raises(jax.errors.JaxRuntimeError, match="Invalid position in dropout_states: 18446744073709551615"):
        jax.block_until_ready(jax.jit(call)(jnp.full(16, 255, jnp.uint8)))
