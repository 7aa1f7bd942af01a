"""`interop.jax` on a JAX before 0.6.2, without `jax.experimental.buffer_callback`: what is missing, what is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OLDER = """
import importlib.abc
import sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "jax.experimental.buffer_callback":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())

import jax
import jax.numpy as jnp
import numpy as np
from pycudnnrnn import ops
from pycudnnrnn.errors import MissingDependencyError
from pycudnnrnn.interop.jax import dropout_states, rnn

op = ops.CudnnLSTM(2, 4, 3, dropout=0.5, seed=3)
params, x = jnp.asarray(op.init_params(seed=1)), jnp.ones((5, 2, 3), "float32")

def loss(params, states=None, platform="host"):
    output, *_, states = rnn(params, x, spec=op, platform=platform, dropout_states=states)
    return (output**2).sum(), states
"""

REFUSES = """
def refused(call):
    try:
        call()
    except MissingDependencyError as error:
        text = "interop.jax without platform='host' needs JAX 0.10 or newer, which is not installed: pip install 'jax>"
        assert str(error).startswith(text), error
    else:
        raise AssertionError("no error")

for platform in (None, "cpu", "cuda"):
    refused(lambda: loss(params, platform=platform))
    refused(lambda: jax.jit(lambda p: loss(p, platform=platform))(params))
    refused(lambda: dropout_states(op, platform=platform))
print("refused")
"""

COMPUTES = """
(_, moved), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, dropout_states(op, platform="host"))
assert not np.array_equal(moved, dropout_states(op, platform="host"))
fwd = op.forward(np.asarray(x), None, None, np.asarray(params))
assert np.array_equal(gradient, fwd.backward(2 * fwd.output).params)

def each(p, x):
    return rnn(p, x, spec=op, is_training=False, platform="host")[0].sum()

whole = jax.grad(lambda p: jax.vmap(each, (None, 0))(p, jnp.stack([x, 2 * x])).sum())(params)
own = jax.vmap(jax.grad(each), (None, 0))(params, jnp.stack([x, 2 * x]))
np.testing.assert_allclose(whole, own.sum(0), rtol=0, atol=1e-4)
print("computed")
"""


def said_by(code):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", OLDER + code], env=environment, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_call_that_needs_xlas_buffers_says_what_is_missing():
    assert said_by(REFUSES) == "refused\n"


@pytest.mark.long
def test_the_host_path_is_whole():
    assert said_by(COMPUTES) == "computed\n"
