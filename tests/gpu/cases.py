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
from tests.gpu.numbers import run
from tests.gpu.prepared import captured

U, RAGGED = 12, [4, 1, 3]

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
    "parts": (ops.CudnnLSTM, {"direction": "bidirectional"}, [4, 0, 3], {}),
    "recomputing": (ops.CudnnGRU, {}, None, {"checkpoint_every": 2}),
    "graph": (ops.CudnnLSTM, {}, RAGGED, None),
}


def results(cuda, problem, keywords):
    """Results of a forward and backward, eager, or captured and replayed where there are no keywords."""
    if keywords is not None:
        return run(cuda, problem, **keywords).values()
    graph = captured(cuda, problem)
    for _ in range(2):
        graph.replay()
    return cuda.get(graph.y), cuda.get(graph.d_params)


def main():
    with machine() as cuda:
        if not cuda.on_shim:
            cuda.device.xp.cuda.set_allocator(None)
        for name in sys.argv[1:] or CASES:
            kind, options, lengths, keywords = CASES[name]
            print(f"case: {name}", flush=True)  # noqa: T201  the log says by it where a finding belongs
            op = kind(**{"num_layers": 2, "num_units": U, "input_size": 7} | options)
            problem = make_problem(op, 4, 3, lengths, seed=3)
            assert all(np.isfinite(array.astype("f4")).all() for array in results(cuda, problem, keywords))
            if cuda.on_shim and not all(memory.intact() for memory in cuda.device.allocations):
                sys.exit(f"{name}: bytes outside an array were written")
        print("cases: all", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
