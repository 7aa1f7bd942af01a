"""Run by `test_jax_sharded.py` where JAX's CPU is two devices: prints each case that is right."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import rnn
from pycudnnrnn.testing.strategies import make_problem

jax.config.update("jax_enable_x64", True)
MESH = Mesh(np.array(jax.devices()), ("data",))
SHARDED = P(None, "data")
"""Data and states both have the batch as their second axis."""

LENGTHS = [5, 2, 5, 2]
"""What each device has of the batch has these lengths, so that one trace is for both."""


def problem_of(kind, lengths):
    return make_problem(kind(2, 6, 4, direction="bidirectional", dtype="float64"), 5, 4, lengths, seed=7)


def loss_of(problem, lengths, platform):
    def loss(params, x, h, c, dy):
        states = (h, c) if problem.spec.has_cell_state else (h,)
        results = rnn(params, x, *states, spec=problem.spec, sequence_lengths=lengths, platform=platform)
        return (dy * results[0]).sum() + sum((state**2).sum() for state in results[1:])

    return loss


def close(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def data_parallel(kind, lengths, platform="cpu"):
    """Values and every gradient of two devices are those of one, with the mesh axes checked, and without."""
    problem = problem_of(kind, lengths)
    arguments = [jnp.asarray(a) for a in (problem.params, problem.x, problem.hx, problem.cx, problem.dy)]
    whole = loss_of(problem, lengths, platform)
    value, gradients = jax.value_and_grad(whole, argnums=(0, 1, 2))(*arguments)
    part = loss_of(problem, lengths and lengths[:2], platform)
    specs = (P(), SHARDED, SHARDED, SHARDED, SHARDED)

    @jax.jit
    @partial(jax.shard_map, mesh=MESH, in_specs=specs, out_specs=(P(), (P(), SHARDED, SHARDED)))
    def both(*arguments):
        return jax.value_and_grad(lambda *a: jax.lax.psum(part(*a), "data"), argnums=(0, 1, 2))(*arguments)

    found, ours = both(*arguments)
    close([found, *ours], [value, *gradients])

    @partial(jax.shard_map, mesh=MESH, in_specs=specs, out_specs=(P(), SHARDED), check_vma=False)
    def unchecked(*arguments):
        d_params, dx = jax.grad(part, argnums=(0, 1))(*arguments)
        return jax.lax.psum(d_params, "data"), dx

    close(unchecked(*arguments), gradients[:2])


def others():
    """`vmap`, `checkpoint`, `scan` and dropout inside `shard_map`, and `pmap`."""
    problem = problem_of(ops.CudnnGRU, None)
    params, x, h, dy = (jnp.asarray(a) for a in (problem.params, problem.x, problem.hx, problem.dy))
    loss = loss_of(problem, None, "cpu")

    def mapped(p, x, h, dy):
        return jax.vmap(lambda k: loss(p, k * x, h, None, dy))(jnp.arange(1.0, 3.0)).sum()

    ways = {
        "vmap": mapped,
        "checkpoint": jax.checkpoint(lambda p, x, h, dy: loss(p, x, h, None, dy)),
        "scan": lambda p, x, h, dy: jax.lax.scan(
            lambda s, k: (s, loss(p, k * x, h, None, dy)), 0, jnp.arange(1.0, 3.0)
        )[1].sum(),
    }
    specs = (P(), SHARDED, SHARDED, SHARDED)
    for way in ways.values():

        @partial(jax.shard_map, mesh=MESH, in_specs=specs, out_specs=(P(), P()))
        def both(*arguments, way=way):
            return jax.value_and_grad(lambda *a: jax.lax.psum(way(*a), "data"))(*arguments)

        found, ours = both(params, x, h, dy)
        value, theirs = jax.value_and_grad(way)(params, x, h, dy)
        close([found, ours], [value, theirs])
    spec = problem.spec.replace(dropout=0.5)

    @partial(jax.shard_map, mesh=MESH, in_specs=(P(), SHARDED), out_specs=SHARDED)
    def dropping(params, x):
        return rnn(params, x, spec=spec, dropout_position=jax.lax.axis_index("data"))[0]

    halves = [rnn(params, x[:, 2 * k : 2 * k + 2], spec=spec, dropout_position=k)[0] for k in range(2)]
    close([dropping(params, x)], [jnp.concatenate(halves, axis=1)])
    stacked = jnp.stack([x, 2 * x])

    def one(x):
        return jax.value_and_grad(lambda p: loss(p, x, h, None, dy))(params)

    for ours, theirs in zip(jax.pmap(one)(stacked), jax.vmap(one)(stacked), strict=True):
        close([ours], [theirs])


def sharded_arrays():
    """Without `shard_map` sharded arrays give what whole ones give, by JAX's own choice of axes and by the user's."""
    problem = problem_of(ops.CudnnGRU, None)
    whole = [jnp.asarray(a) for a in (problem.params, problem.x, problem.hx)]

    def loss(params, x, h):
        return sum((array**2).sum() for array in rnn(params, x, h, spec=problem.spec))

    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
    value, gradients = gradient(*whole)
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((2,), ("data",), axis_types=(kind,))
        with jax.set_mesh(mesh):
            params, *data = (
                jax.device_put(a, NamedSharding(mesh, spec))
                for a, spec in zip(whole, (P(), SHARDED, SHARDED), strict=True)
            )
            if kind is AxisType.Explicit:
                with pytest.raises(ArgumentError, match="Invalid input_data sharding: "):
                    gradient(params, *data)
                data = [jax.sharding.reshard(array, P()) for array in data]
            for way in (gradient, jax.jit(gradient)):
                found, ours = way(params, *data)
                close([found, *ours], [value, *gradients])
    there = [jax.device_put(a, jax.devices()[1]) for a in whole]
    found, ours = gradient(*there)
    assert {device for array in (found, *ours) for device in array.devices()} == {jax.devices()[1]}
    close([found, *ours], [value, *gradients])


CASES = {
    "an LSTM": partial(data_parallel, ops.CudnnLSTM, None),
    "ragged": partial(data_parallel, ops.CudnnLSTM, LENGTHS),
    "by copies on the host": partial(data_parallel, ops.CudnnGRU, None, "host"),
    "other transformations": others,
    "sharded arrays": sharded_arrays,
}


def main():
    assert len(jax.devices()) == 2
    for case in sys.argv[1:]:
        CASES[case]()
        sys.stdout.write(f"{case}\n")
        sys.stdout.flush()


main()
