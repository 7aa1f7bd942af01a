"""The demo's character model, trained on several ranks: each reads its part of the streams, and all have one model.

mpiexec -n 4 python -m mpi4py examples/data_parallel.py --updates 200

`-m mpi4py` lets an exception on one rank end the others. The losses are those of one rank on the whole batch.
"""

import argparse

import numpy as np
from mpi4py import MPI

from pycudnnrnn.cli._char_lm import Adam, CharLM
from pycudnnrnn.cli.demo import load_text
from pycudnnrnn.distributed import all_reduce_gradients, broadcast_params

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--updates", type=int, default=200)
parser.add_argument("--units", type=int, default=128)
parser.add_argument("--streams", type=int, default=32, help="of all ranks together")
parser.add_argument("--steps", type=int, default=64)
options = parser.parse_args()

comm = MPI.COMM_WORLD
if comm.size > options.streams:
    parser.error(f"{comm.size} ranks are too many for {options.streams} streams")

text, _, alphabet = load_text(None)
model = CharLM.create(alphabet, options.units, seed=comm.rank, device="cpu")
for array in model.trainable:
    broadcast_params(array, comm)  # the seeds differ, the models no longer

streams = text[: len(text) // options.streams * options.streams].reshape(options.streams, -1).T
mine = np.array_split(streams, comm.size, axis=1)[comm.rank]
optimizer = Adam(model.trainable, clip=1.0)
state, position = (None, None), 0
for update in range(options.updates):
    if position + options.steps + 1 > len(mine):
        state, position = (None, None), 0
    window = mine[position : position + options.steps + 1]
    loss, gradients, state = model.loss_and_gradients(window[:-1], window[1:], state)

    # One buffer, one all-reduce: the gradients end to end, and the loss with them.
    buffer = np.concatenate([*(gradient.reshape(-1) for gradient in gradients), np.float32([loss])])
    all_reduce_gradients(buffer, comm, reduction="mean", weight=mine.shape[1])
    parts = np.split(buffer, np.cumsum([gradient.size for gradient in gradients]))
    gradients = [part.reshape(gradient.shape) for part, gradient in zip(parts, gradients, strict=False)]

    optimizer.update(gradients, 6e-3)
    position += options.steps
    if comm.rank == 0 and (update % 20 == 0 or update == options.updates - 1):
        print(f"update {update} loss {parts[-1][0]:.6f}", flush=True)
