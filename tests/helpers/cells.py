"""Cells as a whole RNN, step by step: what an op, a layer or a converted model is compared with."""

import numpy as np

from pycudnnrnn.testing.reference import relu, sigmoid


def run_cells(steps, x, states, lengths, *, num_dirs=1, xp=np):
    """Return (output, h, c or None) of stacked cells, each sequence as long as `lengths` says: TF's dynamic_rnn.

    Each step is a function (x, h[, c]) -> (h[, c]). The steps, and the rows of `states`, are in cuDNN's order.
    """
    T, rows, last = len(x), list(x), []
    runs = [xp.asarray(t < np.asarray(lengths))[:, None] for t in range(T)]
    for layer in range(len(steps) // num_dirs):
        sides = []
        for direction in range(num_dirs):
            p = layer * num_dirs + direction
            state, outputs = [array[p] for array in states], {}
            for t in range(T)[:: -1 if direction else 1]:
                new = steps[p](rows[t], *state)
                state = [xp.where(runs[t], *pair) for pair in zip(new, state, strict=True)]
                outputs[t] = xp.where(runs[t], new[0], 0 * new[0])
            sides.append(outputs)
            last.append(state)
        rows = [xp.concatenate([outputs[t] for outputs in sides], axis=1) for t in range(T)]
    h, *c = (xp.stack(arrays) for arrays in zip(*last, strict=True))
    return xp.stack(rows), h, c[0] if c else None


def tf_step(spec, v):
    """Return the step of TF's cell on its own variables: core_rnn_cell / cudnn_rnn_ops.py (r1.15)."""

    def step(x, h, c=None):
        xh = np.concatenate([x, h], axis=1)
        if spec.mode == "lstm":
            i, j, f, o = np.split(xh @ v["kernel"] + v.get("bias", 0), 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
            h = sigmoid(o) * np.tanh(c)
            return (h @ v["projection/kernel"] if spec.num_proj else h), c
        if spec.mode == "gru":
            r, u = np.split(sigmoid(xh @ v["gates/kernel"] + v.get("gates/bias", 0)), 2, axis=1)
            into = x @ v["candidate/input_projection/kernel"] + v.get("candidate/input_projection/bias", 0)
            of = h @ v["candidate/hidden_projection/kernel"] + v.get("candidate/hidden_projection/bias", 0)
            return ((1 - u) * np.tanh(into + r * of) + u * h,)
        return ({"rnn_tanh": np.tanh, "rnn_relu": relu}[spec.mode](xh @ v["kernel"] + v.get("bias", 0)),)

    return step
