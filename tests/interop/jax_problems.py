"""The arrays of a problem for `interop.jax.rnn`, and what an op finds for them."""

import jax
import jax.numpy as jnp
import numpy as np

from pycudnnrnn.interop.jax import rnn

RAGGED = (5, 2, 0)


def arguments_of(problem):
    states = (problem.hx, problem.cx) if problem.spec.has_cell_state else (problem.hx,)
    return [jnp.asarray(a) for a in (problem.params, problem.x, *states)]


def upstream_of(problem):
    return [a for a in problem.upstream() if a is not None]


def loss_of(problem, **keywords):
    """A scalar of every result, with gradients of its own in each."""
    options = {"spec": problem.op, "sequence_lengths": problem.lengths} | keywords

    def loss(*arguments):
        results = rnn(*arguments, **options)
        return sum((jnp.asarray(d) * a).sum() for d, a in zip(upstream_of(problem), results, strict=True))

    return loss


def expected_of(problem, **keywords):
    """The op's results and gradients: (output, states ...), (params, input, states ...)."""
    found = problem.results(**keywords)
    gradients = [found.pop(name) for name in ("dparams", "dx", "dhx", "dcx") if name in found]
    return [*found.values()], gradients


def equal(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert isinstance(ours, jax.Array)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(np.asarray(ours), theirs)
