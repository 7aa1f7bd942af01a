"""`interop.jax.rnn` with `sequence_lengths` as a JAX array: one compilation for all lengths."""

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, PartitionSpec
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pycudnnrnn import convert, ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import dropout_states, rnn
from pycudnnrnn.testing.goldens import KINDS
from tests.helpers.kinds import problem_of
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
    pairwise(KINDS, ["float16", "bfloat16", "float32", "float64"], ["cpu", "host"], [True, False]),
)
def test_results_and_gradients_are_those_of_the_same_lengths_known_while_tracing(kind, dtype, platform, time_major):
    """To the bit, by one compilation."""
    problem = problem_of(dtype, None, KINDS[kind])
    if not time_major:
        problem = dataclasses.replace(problem, x=problem.x.swapaxes(0, 1), dy=problem.dy.swapaxes(0, 1))
    both, arguments = both_of(problem, platform=platform, time_major=time_major), arguments_of(problem)
    traced = jax.jit(both)
    for lengths in LENGTHS:
        equal(traced(jnp.array(lengths, "int32"), *arguments), both(lengths, *arguments))
    assert traced._cache_size() == 1


def test_they_are_torchs_packed_sequences():
    problem = problem_of("float64", None, ops.CudnnLSTM)
    spec = problem.spec
    module = torch.nn.LSTM(spec.input_size, spec.num_units, spec.num_layers, bidirectional=spec.num_dirs == 2)
    module = module.double()
    canonical = convert.Canonical(spec, *problem.op.params_to_canonical(problem.params))
    module.load_state_dict({k: torch.as_tensor(v) for k, v in convert.pytorch.from_canonical(canonical).items()})
    traced = jax.jit(both_of(problem))
    for lengths in LENGTHS[1:3]:
        x, h, c = (torch.tensor(a, requires_grad=True) for a in (problem.x, problem.hx, problem.cx))
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, states = module(packed, (h, c))
        y, _ = pad_packed_sequence(y, total_length=len(x))
        results = [y, *states]
        gradients = torch.autograd.grad(results, [x, h, c], [*map(torch.as_tensor, upstream_of(problem))])
        found = traced(jnp.array(lengths, "int32"), *arguments_of(problem))
        del found[3]  # of params
        for ours, theirs in zip(found, [*results, *gradients], strict=True):
            np.testing.assert_allclose(ours, theirs.detach(), rtol=0, atol=1e-12)


def test_padding_may_have_any_numbers():
    problem = problem_of("float64", None, ops.CudnnGRU)
    params, x, h = arguments_of(problem)
    lengths = jnp.array([5, 2, 0], "int32")
    padded = jnp.where(jnp.arange(5)[:, None, None] < lengths[:, None], x, jnp.nan)
    both = both_of(problem)
    equal(both(lengths, params, padded, h), both(lengths, params, x, h))


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("axes", [(None, 0), (0, 0), (0, None)], ids=str)
def test_vmap_is_one_wide_call_forward_and_backward(engine_calls, jit, axes):
    problem = problem_of("float64", None, ops.CudnnLSTM)
    params, x, h, c = arguments_of(problem)
    many = jnp.stack([x, 2 * x, -x])
    lengths = jnp.array([[5, 2, 0], [1, 1, 3], [5, 5, 5]], "int32")

    def loss(params, lengths, x):
        results = rnn(params, x, h, c, spec=problem.spec, sequence_lengths=lengths)
        return sum((result**2).sum() for result in results)

    chosen = [lengths[0] if axes[0] is None else lengths, x if axes[1] is None else many]

    def total(params):
        return jax.vmap(lambda n, x: loss(params, n, x), axes)(*chosen).sum()

    rows = range(3)
    each = [(lengths[0 if axes[0] is None else k], many[0 if axes[1] is None else k]) for k in rows]
    expected = sum(jax.grad(loss)(params, n, x) for n, x in each)
    jax.block_until_ready(expected)
    engine_calls.clear()
    found = jax.block_until_ready((jax.jit(jax.grad(total)) if jit else jax.grad(total))(params))
    assert [(name, config.schedule.B) for name, config, _ in engine_calls] == [
        ("forward", 9), ("backward_data", 9), ("backward_weights", 9)
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_scan_checkpoint_and_gradients_of_each_element_take_them():
    problem = problem_of("float64", None, ops.CudnnLSTM)
    lengths = jnp.array(LENGTHS, "int32")
    both = both_of(problem)
    each = [both(tuple(map(int, row)), *arguments_of(problem)) for row in lengths]
    ways = {
        "scan": jax.jit(lambda: jax.lax.scan(lambda _, n: (None, both(n, *arguments_of(problem))), None, lengths)[1]),
        "vmap": lambda: jax.vmap(lambda n: both(n, *arguments_of(problem)))(lengths),
        "checkpoint": lambda: jax.lax.map(jax.checkpoint(lambda n: both(n, *arguments_of(problem))), lengths),
    }
    for way in ways.values():
        for ours, theirs in zip(way(), zip(*each, strict=True), strict=True):
            np.testing.assert_allclose(ours, jnp.stack(theirs), rtol=0, atol=1e-12)


def test_each_device_of_a_mesh_may_have_its_own():
    problem = problem_of("float64", None, ops.CudnnLSTM)
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    params, x, *_ = arguments_of(problem)
    x, lengths = jnp.concatenate([x, -x], axis=1), jnp.array([5, 2, 0, 1, 1, 4], "int32")

    def loss(params, x, lengths):
        return sum((array**2).sum() for array in rnn(params, x, spec=problem.spec, sequence_lengths=lengths))

    specs = (PartitionSpec(), PartitionSpec(None, "data"), PartitionSpec("data"))

    @partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=specs[:2])
    def divided(*arguments):
        return jax.grad(lambda *a: jax.lax.psum(loss(*a), "data"), argnums=(0, 1))(*arguments)

    found, expected = divided(params, x, lengths), jax.grad(loss, argnums=(0, 1))(params, x, lengths)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


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
