"""`interop.jax.rnn` with `sequence_lengths` as a JAX array: one compilation for all lengths."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import dropout_states, rnn
from pycudnnrnn.testing.goldens import KINDS
from tests.helpers.kinds import DTYPES, problem_of
from tests.helpers.pairwise import pairwise
from tests.interop.jax_problems import arguments_of, equal, upstream_of

pytestmark = pytest.mark.usefixtures("float64")

LENGTHS = [(5, 2, 0), (5, 5, 5), (1, 3, 4), (0, 0, 0)]


def both_of(problem, **options):
    """Return a function of lengths and arguments: the results and all gradients."""
    upstream = tuple(map(jnp.asarray, upstream_of(problem)))

    def both(lengths, *arguments):
        call = {"spec": problem.spec, "sequence_lengths": lengths} | options
        results, pullback = jax.vjp(lambda *a: rnn(*a, **call), *arguments)
        return [*results, *pullback(upstream)]

    return both


@pytest.mark.parametrize(
    ("kind", "dtype", "platform", "time_major"),
    pairwise(KINDS, DTYPES, ["cpu", "host"], [True, False]),
)
def test_results_and_gradients_are_those_of_the_same_lengths_known_while_tracing(kind, dtype, platform, time_major):
    """To the bit, by one compilation, whatever is in the padding."""
    problem = problem_of(dtype, None, KINDS[kind])
    if not time_major:
        problem = dataclasses.replace(problem, x=problem.x.swapaxes(0, 1), dy=problem.dy.swapaxes(0, 1))
    both, (params, x, *states) = both_of(problem, platform=platform, time_major=time_major), arguments_of(problem)
    traced = jax.jit(both)
    for lengths in LENGTHS:
        valid = jnp.arange(5)[:, None] < jnp.array(lengths)
        padded = jnp.where((valid if time_major else valid.T)[..., None], x, jnp.nan)
        equal(traced(jnp.array(lengths, "int32"), params, padded, *states), both(lengths, params, x, *states))
    assert traced._cache_size() == 1


def test_dropout_draws_the_masks_of_the_same_lengths_known_while_tracing():
    problem = problem_of("float32", None, ops.CudnnLSTM, dropout=0.5)
    states, lengths = dropout_states(problem.spec, seed=3), (5, 2, 0)
    for how in ({"dropout_states": states}, {"dropout_position": 4}):
        options = {"spec": problem.spec} | how
        run = jax.jit(lambda n, options=options: rnn(*arguments_of(problem), sequence_lengths=n, **options))
        equal(run(jnp.array(lengths, "int32")), rnn(*arguments_of(problem), sequence_lengths=lengths, **options))


@pytest.mark.parametrize("lengths", [[6, 1, 1], [5, -1, 1]], ids=str)
@pytest.mark.parametrize("platform", ["cpu", "host"])
def test_a_length_out_of_range_is_named_when_the_call_runs(lengths, platform):
    problem = problem_of("float32", None, ops.CudnnGRU)
    run = jax.jit(lambda n: rnn(*arguments_of(problem), spec=problem.spec, sequence_lengths=n, platform=platform))
    bad = next(n for n in lengths if not 0 <= n <= 5)
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=rf"Invalid sequence_lengths\[\d\]: {bad}, exp"):
        jax.block_until_ready(run(jnp.array(lengths, "int32")))
    jax.block_until_ready(run(jnp.array([5, 1, 0], "int32")))


@pytest.mark.parametrize(("shape", "dtype"), [((3,), "int64"), ((3,), "float32"), ((4,), "int32"), ((), "int32")])
def test_an_array_of_another_shape_or_dtype_is_refused_while_tracing(shape, dtype):
    problem = problem_of("float32", None, ops.CudnnGRU)
    text = re.escape(f"Invalid sequence_lengths: {dtype} of shape {shape}, expecting int32 of shape (3,)")
    with pytest.raises(ArgumentError, match=text):
        rnn(*arguments_of(problem), spec=problem.spec, sequence_lengths=jnp.ones(shape, dtype))
