"""Train a character model on several ranks. Each rank reads its part of the streams; all have the same model.

mpiexec -n 4 python -m mpi4py examples/data_parallel.py --updates 200

With `-m mpi4py`, an exception on one rank ends the others. The losses equal those of one rank with the whole batch.
"""

import argparse
import sys
from pydoc_data.topics import topics  # a text that is part of every Python

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.distributed import all_reduce_gradients, broadcast_params
from pycudnnrnn.errors import MissingDependencyError

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--updates", type=int, default=200)
parser.add_argument("--units", type=int, default=128)
parser.add_argument("--streams", type=int, default=32, help="number of streams, over all ranks")
parser.add_argument("--steps", type=int, default=64)
options = parser.parse_args()

try:
    from mpi4py import MPI
except ImportError:
    sys.exit(str(MissingDependencyError("mpi4py", "distributed", "data_parallel.py")))
comm = MPI.COMM_WORLD
if comm.size > options.streams:
    parser.error(f"{comm.size} ranks are too many for {options.streams} streams")

text = "\n".join(topics[name] for name in sorted(topics))
alphabet, symbols = np.unique(list(text), return_inverse=True)
streams = symbols[: len(symbols) // options.streams * options.streams].reshape(options.streams, -1).T
mine = np.array_split(streams, comm.size, axis=1)[comm.rank]
one_hot = np.eye(len(alphabet), dtype="float32")

# The whole model is one buffer: the LSTM's params, then the softmax's kernel and bias.
op = ops.CudnnLSTM(num_layers=1, num_units=options.units, input_size=len(alphabet))
ends = np.cumsum([op.params_size(), options.units * len(alphabet)])


def parts(buffer):
    """The model's three arrays, as views."""
    params, kernel, bias = np.split(buffer, ends)
    return params, kernel.reshape(options.units, -1), bias


bound = (6 / (options.units + len(alphabet))) ** 0.5
kernel = np.random.default_rng(comm.rank).uniform(-bound, bound, options.units * len(alphabet))
model = np.concatenate([op.init_params(seed=comm.rank), kernel, np.zeros(len(alphabet))], dtype="float32")
broadcast_params(model, comm)  # the seeds differ; from here on the models are the same


def loss_and_gradient(window, state, gradient):
    """Return the mean loss of predicting each symbol from those before it, and the state; write the gradient."""
    params, kernel, bias = parts(model)
    d_params, d_kernel, d_bias = parts(gradient)
    fwd = op.forward(one_hot[window[:-1]], *state, params)
    hidden = fwd.output.reshape(-1, options.units)
    p = hidden @ kernel + bias
    p = np.exp(p - p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    following = np.arange(len(p)), window[1:].reshape(-1)
    loss = -np.log(p[following]).mean()
    p[following] -= 1
    p /= len(p)
    d_kernel[:], d_bias[:] = hidden.T @ p, p.sum(axis=0)
    fwd.backward((p @ kernel.T).reshape(fwd.output.shape), out=d_params)
    return loss, (fwd.output_h, fwd.output_c)


first, second = np.zeros_like(model), np.zeros_like(model)  # Adam's moments
message = np.zeros(len(model) + 1, "float32")  # the gradient, then the loss: one all-reduce per update
gradient = message[:-1]
state, position = (None, None), 0
for update in range(options.updates):
    if position + options.steps + 1 > len(mine):
        state, position = (None, None), 0
    message[-1], state = loss_and_gradient(mine[position : position + options.steps + 1], state, gradient)
    all_reduce_gradients(message, comm, reduction="mean", weight=mine.shape[1])

    gradient *= min(1, 1 / np.linalg.norm(gradient))
    first += 0.1 * (gradient - first)
    second += 0.001 * (gradient**2 - second)
    rate = 6e-3 * (1 - 0.999 ** (update + 1)) ** 0.5 / (1 - 0.9 ** (update + 1))
    model -= rate * first / (second**0.5 + 1e-8)
    position += options.steps
    if comm.rank == 0 and (update % 20 == 0 or update == options.updates - 1):
        print(f"update {update} loss {message[-1]:.6f}", flush=True)
