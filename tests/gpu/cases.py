"""Small cases of every path, for `tests.gpu.sanitize` to watch: `python -m tests.gpu.cases` runs them and names each.

With names behind it, `python -m tests.gpu.cases NAME...` runs those alone.

Each array is an allocation of its own, so that a byte beside one is nobody's.
"""

import sys

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.machine import machine

T, B, U, INPUTS = 4, 3, 12, 7
RAGGED = (4, 1, 3)

CASES = {
    f"{kind} {dtype} {direction} {'ragged' if lengths else 'equal'}": (
        KINDS[kind], {"dtype": dtype, "direction": direction}, lengths, {},
    )
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for dtype in ("float32", "float16")
    for direction in ("unidirectional", "bidirectional")
    for lengths in (None, RAGGED)
}  # fmt: skip
CASES |= {
    "projection": (ops.CudnnLSTM, {"num_proj": 5}, RAGGED, {}),
    "clip": (ops.CudnnLSTM, {"cell_clip": 0.3, "dtype": "float64"}, None, {}),
    "skip input": (ops.CudnnGRU, {"input_mode": "skip_input", "input_size": U}, RAGGED, {}),
    "no bias": (ops.CudnnRNNTanh, {"bias_mode": "none"}, None, {}),
    "dropout": (ops.CudnnLSTM, {"dropout": 0.5, "seed": 1}, None, {}),
    "parts": (ops.CudnnLSTM, {"direction": "bidirectional"}, (4, 0, 3), {}),
    "recomputing": (ops.CudnnGRU, {}, None, {"checkpoint_every": 2}),
    "graph": (ops.CudnnLSTM, {}, RAGGED, {"graph": True}),
}


def run(cuda, op, lengths, *, graph=False, checkpoint_every=None):
    """Forward and backward, eager, or captured and replayed."""
    problem = make_problem(op, T, B, None if lengths is None else list(lengths), seed=3)
    put = {name: cuda.put(getattr(problem, name)) for name in ("x", "hx", "cx", "params", "dy", "dhy", "dcy")}
    lstm = op.spec.has_cell_state
    if graph:
        plan = op.prepare(T, B, is_training=True, sequence_lengths=problem.lengths, device="cuda")
        captured = plan.capture(put["params"])
        for _ in range(2):
            captured.replay()
        found = captured.y, captured.d_params
    else:
        states = (put["hx"], put["cx"]) if lstm else (put["hx"],)
        fwd = op.forward(
            put["x"], *states, put["params"], sequence_lengths=problem.lengths, checkpoint_every=checkpoint_every
        )
        found = fwd.output, fwd.backward(put["dy"], put["dhy"], put["dcy"] if lstm else None).params
    assert all(np.isfinite(cuda.get(array).astype("f4")).all() for array in found)


def main():
    with machine() as cuda:
        if not cuda.on_shim:
            cuda.device.xp.cuda.set_allocator(None)
        for name in sys.argv[1:] or CASES:
            kind, options, lengths, how = CASES[name]
            print(f"case: {name}", flush=True)  # noqa: T201  the log says by it where a finding belongs
            given = {"num_layers": 2, "num_units": U, "input_size": INPUTS} | options
            run(cuda, kind(**given), lengths, **how)
            if cuda.on_shim and not all(memory.intact() for memory in cuda.device.allocations):
                sys.exit(f"{name}: bytes outside an array were written")
        print("cases: all", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
