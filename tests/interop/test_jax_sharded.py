"""`interop.jax.rnn` over two devices: `shard_map` with its checks, `pmap`, and what of JAX is used inside them.

`tests/conftest.py` makes two devices of the CPU.
"""

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

pytestmark = pytest.mark.usefixtures("float64")

SHARDED = P(None, "data")
"""Data and states both have the batch as their second axis."""


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()[:2]), ("data",))


def problem_of(kind, lengths=None):
    return make_problem(kind(2, 6, 4, direction="bidirectional", dtype="float64"), 5, 4, lengths, seed=7)


def loss_of(problem, lengths=None, platform="cpu"):
    def loss(params, x, h, c, dy, traced=None):
        states, steps = (h, c) if problem.spec.has_cell_state else (h,), lengths if traced is None else traced
        results = rnn(params, x, *states, spec=problem.spec, sequence_lengths=steps, platform=platform)
        return (dy * results[0]).sum() + sum((state**2).sum() for state in results[1:])

    return loss


def assert_close(found, expected):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def twice(loss):
    """Map a checkpointed loss over two factors of the data."""
    each = jax.checkpoint(loss)
    return lambda p, x, *rest: jax.vmap(lambda k: each(p, k * x, *rest))(jnp.arange(1.0, 3.0)).sum()


@pytest.mark.parametrize(
    ("kind", "lengths", "traced", "platform", "within"),
    [
        (ops.CudnnLSTM, [5, 2, 5, 2], None, "cpu", lambda loss: loss),
        (ops.CudnnGRU, None, None, "host", lambda loss: loss),
        (ops.CudnnGRU, None, None, "cpu", twice),
        (ops.CudnnLSTM, None, jnp.array([5, 2, 0, 4], "int32"), "cpu", lambda loss: loss),
    ],
)
def test_values_and_gradients_of_two_devices_are_those_of_one(mesh, kind, lengths, traced, platform, within):
    """With the mesh axes checked, and without; lengths known while tracing are the same on each device."""
    problem = problem_of(kind, lengths)
    arguments = *(jnp.asarray(a) for a in (problem.params, problem.x, problem.hx, problem.cx, problem.dy)), traced
    whole, part = (within(loss_of(problem, n, platform)) for n in (lengths, lengths and lengths[:2]))
    expected = jax.value_and_grad(whole, argnums=(0, 1, 2))(*arguments)
    specs = (P(), SHARDED, SHARDED, SHARDED, SHARDED, P("data"))

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=(P(), (P(), SHARDED, SHARDED)))
    def both(*arguments):
        return jax.value_and_grad(lambda *a: jax.lax.psum(part(*a), "data"), argnums=(0, 1, 2))(*arguments)

    assert_close(both(*arguments), expected)

    @partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=(P(), SHARDED), check_vma=False)
    def unchecked(*arguments):
        d_params, dx = jax.grad(part, argnums=(0, 1))(*arguments)
        return jax.lax.psum(d_params, "data"), dx

    assert_close(unchecked(*arguments), expected[1][:2])


def test_pmap_runs_each_part_on_its_device():
    problem = problem_of(ops.CudnnGRU)
    params, x, h, dy = (jnp.asarray(a) for a in (problem.params, problem.x, problem.hx, problem.dy))
    parts = jnp.stack([x, 2 * x])
    each = [jax.grad(loss_of(problem))(params, part, h, None, dy) for part in parts]
    assert_close(jax.pmap(lambda x: jax.grad(loss_of(problem))(params, x, h, None, dy))(parts), jnp.stack(each))


def test_sharded_arrays_give_what_whole_ones_give():
    """Without `shard_map`, by JAX's own choice of axes and by the user's; and on the other device."""
    problem = problem_of(ops.CudnnGRU)
    whole = [jnp.asarray(a) for a in (problem.params, problem.x, problem.hx)]

    def loss(params, x, h):
        return sum((array**2).sum() for array in rnn(params, x, h, spec=problem.spec))

    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
    expected = gradient(*whole)
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
                assert_close(way(params, *data), expected)
    found = gradient(*(jax.device_put(a, jax.devices()[1]) for a in whole))
    assert {device for array in jax.tree.leaves(found) for device in array.devices()} == {jax.devices()[1]}
    assert_close(found, expected)
