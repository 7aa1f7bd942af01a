"""What JAX's users take for granted of any function, of `interop.jax.rnn`: types, donation, control flow, no jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import dropout_states, rnn
from tests.helpers.kinds import problem_of
from tests.interop.jax_problems import arguments_of, equal, expected_of, loss_of

OP = ops.CudnnGRU(1, 4, 3)
PARAMS = jnp.asarray(OP.init_params(seed=1))
X = jnp.asarray(np.random.default_rng(2).normal(size=(5, 2, 3)), "float32")


def output(params, x):
    return rnn(params, x, spec=OP)[0]


def loss(params, x):
    return (output(params, x) ** 2).sum()


GRADIENT = jax.grad(loss)(PARAMS, X)


def test_results_have_a_dtype_of_their_own_whatever_the_type_of_the_arguments_is_like():
    weak = jax.lax.full_like(jnp.full((5, 2, 3), 1.0), 0.5)
    assert weak.weak_type
    for result in jax.jit(lambda x: rnn(PARAMS, x, spec=OP))(weak):
        assert (result.dtype, result.weak_type) == (np.float32, False)
    assert jax.grad(lambda x: loss(PARAMS, x))(weak).dtype == np.float32


def test_shapes_and_dtypes_are_known_without_running():
    problem = problem_of(dtype="bfloat16")
    arguments = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arguments_of(problem)]
    shapes = jax.eval_shape(lambda *a: rnn(*a, spec=problem.spec), *arguments)
    assert [(s.shape, s.dtype) for s in shapes] == [(a.shape, a.dtype) for a in expected_of(problem)[0]]
    gradients = jax.eval_shape(jax.grad(lambda *a: rnn(*a, spec=problem.spec)[0].sum(), (0, 1, 2, 3)), *arguments)
    assert [(g.shape, g.dtype) for g in gradients] == [(a.shape, a.dtype) for a in arguments]


def test_buffers_may_be_donated():
    update = jax.jit(lambda params, x: params - 0.1 * jax.grad(loss)(params, x), donate_argnums=0)
    given = jnp.copy(PARAMS)
    updated = update(given, X)
    assert given.is_deleted()
    np.testing.assert_allclose(updated, PARAMS - 0.1 * GRADIENT, rtol=1e-6, atol=1e-6)


def test_without_jit_everything_is_as_with_it():
    problem = problem_of(dtype="float32", dropout=0.5)
    gradient = jax.value_and_grad(loss_of(problem, dropout_position=3), argnums=(0, 1, 2, 3))
    expected = jax.jit(gradient)(*arguments_of(problem))
    with jax.disable_jit():
        own = gradient(*arguments_of(problem))
        *_, moved = rnn(*arguments_of(problem), spec=problem.spec, dropout_states=dropout_states(problem.spec))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-4), own, expected)
    assert not np.array_equal(moved, dropout_states(problem.spec))


def test_control_flow_takes_it():
    start = jnp.zeros((1, 2, 4))

    def step(h):
        return rnn(PARAMS, X, h, spec=OP)[1]

    twice = step(step(start))
    equal([jax.lax.fori_loop(0, 2, lambda _, h: step(h), start)], [twice])
    branches = [lambda p: loss(p, X), lambda p: (p**2).sum()]
    for index, expected in enumerate((GRADIENT, 2 * PARAMS)):
        found = jax.jit(jax.grad(lambda p, k: jax.lax.switch(k, branches, p)))(PARAMS, index)
        np.testing.assert_array_equal(found, expected)


def test_linear_maps_go_backward_alone():
    value, tangents = jax.linearize(lambda p: loss(p, X), PARAMS)
    assert value == loss(PARAMS, X)
    np.testing.assert_array_equal(jax.linear_transpose(tangents, PARAMS)(jnp.float32(1))[0], GRADIENT)


def test_a_key_is_no_position_and_no_states():
    spec = ops.CudnnGRU(2, 4, 3, dropout=0.5).spec
    params, key = jnp.asarray(ops.from_spec(spec).init_params(seed=1)), jax.random.key(7)
    for name in ("dropout_position", "dropout_states"):
        with pytest.raises(ArgumentError, match=rf"Invalid {name}: key<fry> of shape \(\)") as caught:
            jax.jit(lambda key, name=name: rnn(params, X, spec=spec, **{name: key}))(key)
        assert ("jax.random.bits(key)" in str(caught.value)) == (name == "dropout_position")


def test_words_of_flax_and_of_jax_experimental_are_answered_with_what_they_are_here():
    words = {
        "seq_lengths": "it is sequence_lengths here", "initial_carry": "it is input_h and input_c",
        "training": "it is is_training here", "batch_first": "it is time_major=False here",
    }  # fmt: skip
    for name, hint in words.items():
        with pytest.raises(
            TypeError, match=rf"rnn\(\) got .*'{name}'; {name}: {hint}.*; taken are \(params, input_data"
        ):
            rnn(PARAMS, X, spec=OP, **{name: None})
    with pytest.raises(TypeError, match=r"'spec'.*\(params, input_data, input_h=None, input_c=None, \*, spec,"):
        rnn(PARAMS, X, OP)
