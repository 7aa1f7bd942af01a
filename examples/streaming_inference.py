"""Run a model over a stream, one step at a time, in arrays that are allocated once.

python examples/streaming_inference.py

A plan computes all sizes and makes all descriptors before the first step. On cuDNN its calls allocate nothing; the
NumPy engine allocates temporary memory in each call. For a GPU, make the arrays with CuPy and prepare with
device="cuda". No GPU has run that yet: see docs/gpu-verification.md.
"""

import argparse

import numpy as np

from pycudnnrnn import ops

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()

STEPS, BATCH = 100, 4

op = ops.CudnnGRU(num_layers=2, num_units=32, input_size=8)
params = op.init_params(seed=0)
stream = np.random.default_rng(1).normal(size=(STEPS, BATCH, 8)).astype("float32")

plan = op.prepare(T=1, B=BATCH)
x, y = np.empty((1, BATCH, 8), "float32"), np.empty((1, BATCH, 32), "float32")
h, next_h = np.zeros((2, 2, BATCH, 32), "float32")

outputs = np.empty((STEPS, BATCH, 32), "float32")
for step in range(STEPS):
    x[0] = stream[step]  # the input of this step
    plan.forward(params, x, h, None, y, next_h, None)
    h, next_h = next_h, h  # the next call starts from this state; no copy
    outputs[step] = y[0]

whole, whole_h = op(stream, None, params, is_training=False)
print(f"{STEPS} steps of {BATCH} streams")
print(f"compared with one call for the whole sequence: worst difference {np.abs(outputs - whole).max():.1e}")
assert np.allclose(outputs, whole, atol=1e-6)
assert np.allclose(h, whole_h, atol=1e-6)
