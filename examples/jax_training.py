"""Train an LSTM in JAX: one flat buffer of parameters, and gradients under jit.

python examples/jax_training.py
"""

import argparse
import sys

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()

try:
    from pycudnnrnn.interop.jax import rnn
except ImportError as error:
    sys.exit(str(error))
import jax
import jax.numpy as jnp

from pycudnnrnn import ops

T, B, INPUT, UNITS = 20, 16, 6, 12
op = ops.CudnnLSTM(num_layers=1, num_units=UNITS, input_size=INPUT)


def loss(weights, x, goal):
    """Return the mean squared error of a weighted sum of the last output."""
    params, readout = weights
    output, _, _ = rnn(params, x, spec=op)
    return jnp.mean((output[-1] @ readout - goal) ** 2)


@jax.jit
def update(weights, x, goal):
    value, gradients = jax.value_and_grad(loss)(weights, x, goal)
    return jax.tree.map(lambda w, g: w - g, weights, gradients), value


def train(steps):
    """Learn the mean of a sequence's first feature; return the losses."""
    keys = jax.random.split(jax.random.key(0), steps + 1)
    weights = jnp.asarray(op.init_params(seed=1)), 0.3 * jax.random.normal(keys[0], (UNITS,))
    losses = []
    for key in keys[1:]:
        x = jax.random.normal(key, (T, B, INPUT))
        weights, value = update(weights, x, x[..., 0].mean(axis=0))
        losses.append(float(value))
    return losses


losses = train(300)
for step in range(0, 300, 50):
    print(f"step {step:3d}: loss {sum(losses[step : step + 50]) / 50:.4f}")
