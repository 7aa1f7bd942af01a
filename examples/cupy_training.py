"""Train an LSTM on CuPy arrays with cuDNN: the adding problem, with Adam written out.

python examples/cupy_training.py            # needs a GPU, CuPy and cuDNN
python examples/cupy_training.py cpu        # the same on NumPy arrays

In each sequence two numbers are marked, and the model predicts their sum. The name xp selects NumPy or CuPy.
No GPU has run it yet: see docs/gpu-verification.md.
"""

import argparse
import sys

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.errors import PycudnnrnnError

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("device", nargs="?", choices=["cuda", "cpu"], default="cuda")
device = parser.parse_args().device

T, BATCH, UNITS, UPDATES = 12, 64, 24, 300

rng = np.random.default_rng(0)
op = ops.CudnnLSTM(num_layers=1, num_units=UNITS, input_size=2)
try:
    params = op.init_params(seed=1, device=device)  # in cuDNN's layout on a GPU
except PycudnnrnnError as error:  # no GPU, no CuPy or no cuDNN
    sys.exit(str(error))
if device == "cuda":
    import cupy as xp
else:
    xp = np
kernel = xp.asarray(rng.normal(size=(UNITS, 1), scale=0.2).astype("float32"))


def batch():
    """Draw numbers [T, B] with two of each sequence marked, and the sums [B, 1]."""
    numbers = rng.uniform(size=(T, BATCH)).astype("float32")
    marks = np.zeros_like(numbers)
    for b in range(BATCH):
        marks[rng.choice(T, 2, replace=False), b] = 1
    return xp.asarray(np.stack([numbers, marks], axis=2)), xp.asarray((numbers * marks).sum(axis=0)[:, None])


moments = [(array * 0, array * 0) for array in (params, kernel)]
for update in range(1, UPDATES + 1):
    x, sums = batch()
    fwd = op.forward(x, None, None, params)
    last = fwd.output_h[0]  # [B, UNITS]: the state after the last step
    difference = last @ kernel - sums
    loss = (difference * difference).mean()

    d_prediction = difference * (2 / BATCH)
    d_last = (d_prediction @ kernel.T)[None]
    gradients = [fwd.backward(d_output_h=d_last).params, last.T @ d_prediction]
    for array, gradient, (first, second) in zip((params, kernel), gradients, moments, strict=True):
        first[:] = 0.9 * first + 0.1 * gradient
        second[:] = 0.999 * second + 0.001 * gradient * gradient
        scale = (1 - 0.999**update) ** 0.5 / (1 - 0.9**update)
        array[:] = array - 0.02 * scale * first / (second**0.5 + 1e-8)
    if update % 50 == 0:
        print(f"update {update:4d}  loss {float(loss):.4f}")

print(f"trained {op.spec} on {device}; predicting the mean gives {2 / 12:.3f}")
