"""Dropout in `interop.jax.rnn`: a function of a position, or of states that go from call to call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import dropout_states, rnn
from tests.helpers.kinds import problem_of
from tests.interop.jax_problems import arguments_of, equal, expected_of, loss_of

pytestmark = pytest.mark.usefixtures("float64")


def test_dropout_is_a_function_of_the_seed_and_the_position():
    problem = problem_of(dropout=0.5, seed=11, lengths=None)
    arguments = arguments_of(problem)
    loss = jax.jit(lambda position, *a: loss_of(problem, dropout_position=position)(*a))
    gradient = jax.jit(jax.grad(loss, argnums=1))
    for position in (3, 0, 3):
        problem.op.set_dropout_state(DropoutState("numpy", 11, position))
        _, expected = expected_of(problem)
        assert np.array_equal(gradient(position, *arguments), expected[0])
    mapped = jax.vmap(lambda k: loss(k, *arguments))(jnp.arange(3))
    assert np.array_equal(mapped, [loss(k, *arguments) for k in range(3)])
    assert len({float(v) for v in mapped}) == 3
    params, x, *states = arguments
    data = jnp.stack([x, 2 * x])
    found = jax.vmap(lambda x: loss(3, params, x, *states))(data)
    assert np.array_equal(found, [loss(3, params, x, *states) for x in data]), "each has the masks of a call of its own"
    assert problem.op.dropout_state().position == 4, "a call leaves the op as it was"
    evaluated = rnn(*arguments, spec=problem.spec, is_training=False)
    equal(evaluated, problem.op(problem.x, problem.hx, problem.cx, problem.params, False))


# --- states, from call to call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("platform", "x64", "seed"), [(None, True, 3), (None, False, None), ("host", False, 3)])
def test_states_give_the_masks_of_an_ops_forwards_one_after_the_other(platform, x64, seed):
    problem = problem_of(dtype="float32", dropout=0.5, seed=2**63 - 5)
    with jax.enable_x64(x64):
        arguments, states = arguments_of(problem), dropout_states(problem.op, seed, platform=platform)

        def step(states, _):
            output, _, _, states = rnn(
                *arguments, spec=problem.op, sequence_lengths=problem.lengths, dropout_states=states, platform=platform
            )
            return states, output

        found = []
        last, looped = jax.jit(lambda states: jax.lax.scan(step, states, length=3))(states)
        for _ in range(3):
            states, output = step(states, None)
            found.append(output)
    problem.op.set_dropout_state(DropoutState("numpy", problem.spec.seed if seed is None else seed, 0))
    expected = [problem.forward().output for _ in range(3)]
    assert np.array_equal(found, expected)
    assert np.array_equal(looped, expected)
    assert np.array_equal(last, states)


@pytest.mark.parametrize("way", [lambda f: f, jax.jit, jax.checkpoint], ids=["eager", "jit", "checkpoint"])
def test_gradients_with_states_are_the_ops_and_the_moved_states_come_beside_them(way):
    problem = problem_of(dropout=0.5, seed=11, lengths=None)
    problem.op.set_dropout_state(DropoutState("numpy", 11, 0))
    _, wanted = expected_of(problem)

    def loss(states, *arguments):
        *results, moved = rnn(*arguments, spec=problem.spec, dropout_states=states)
        return sum((d * a).sum() for d, a in zip(problem.upstream(), results, strict=True)), moved

    states = dropout_states(problem.spec)
    gradient = jax.grad(way(loss), argnums=(1, 2, 3, 4), has_aux=True)
    found, moved = gradient(states, *arguments_of(problem))
    equal(found, wanted)
    again, _ = gradient(states, *arguments_of(problem))
    equal(again, wanted)
    following, _ = gradient(moved, *arguments_of(problem))
    assert not np.array_equal(following[0], wanted[0])


def test_each_element_of_a_vmap_moves_its_own_states_on():
    problem = problem_of(dropout=0.5, lengths=None)
    arguments = arguments_of(problem)

    def call(states, x=arguments[1]):
        return rnn(arguments[0], x, *arguments[2:], spec=problem.spec, dropout_states=states)

    seeds = [dropout_states(problem.spec, seed) for seed in (1, 2)]
    data = jnp.stack([arguments[1], 2 * arguments[1]])
    for mapped, *each in (
        (jax.vmap(call)(jnp.stack(seeds)), *map(call, seeds)),
        (jax.vmap(call, (None, 0))(seeds[0], data), *(call(seeds[0], x) for x in data)),
    ):
        jax.tree.map(lambda found, *one: np.testing.assert_array_equal(found, jnp.stack(one)), mapped, *each)


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


def test_one_layer_drops_nothing_and_needs_neither_states_nor_a_position():
    op, x = ops.CudnnGRU(1, 6, 4), np.ones((5, 3, 4), "f4")
    equal(rnn(op.init_params(0), x, spec=op.spec.replace(dropout=0.5)), op(x, None, op.init_params(0)))


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
