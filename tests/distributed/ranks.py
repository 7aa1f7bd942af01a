"""What tests run under mpiexec: `python -m mpi4py ranks.py CASE...`.

A case is a name and its arguments, "disagree/size". Rank 0 prints a line of JSON for each rank after each case.
"""

import json
import os
import signal
import sys
import time

import ml_dtypes
import numpy as np
from mpi4py import MPI

from pycudnnrnn import CudnnLSTM, distributed, ops
from pycudnnrnn.errors import PycudnnrnnError
from pycudnnrnn.testing.strategies import make_problem

COMM = MPI.COMM_WORLD


def part_of(B, how):
    """The sequences of this rank: equal parts, or very unequal ones, some of them empty."""
    if how == "equal":
        return np.array_split(np.arange(B), COMM.size)[COMM.rank]
    cuts = np.random.default_rng(4).integers(0, B + 1, COMM.size - 1)
    return np.split(np.arange(B), np.sort(cuts))[COMM.rank]


def gradients(kind, how):
    """Each rank's part of a ragged batch, against the whole batch on this rank alone."""
    op = getattr(ops, kind)(2, 7, 5, direction="bidirectional", dtype="float64")
    B, T = 12, 6
    lengths = [int(n) for n in np.random.default_rng(3).integers(0, T + 1, B)]
    whole = make_problem(op, T, B, lengths, seed=5)
    params = whole.params if COMM.rank == 0 else np.zeros_like(whole.params)
    distributed.broadcast_params(params, COMM)
    mine = part_of(B, how)

    def run(rows):
        """The gradient of a loss that is a mean over the batch's sequences."""
        states = (whole.hx[:, rows], whole.cx[:, rows]) if op.spec.has_cell_state else (whole.hx[:, rows],)
        fwd = op.forward(whole.x[:, rows], *states, params, sequence_lengths=[lengths[i] for i in rows])
        return fwd.backward(whole.dy[:, rows] / max(len(rows), 1)).params

    expected, own = run(np.arange(B)), run(mine)
    summed = own * len(mine)
    distributed.all_reduce_gradients(own, COMM, reduction="mean", weight=len(mine))
    distributed.all_reduce_gradients(summed, COMM, reduction="sum")
    scale = np.abs(expected).max()
    errors = [float(np.abs(found - expected).max() / scale) for found in (own, summed / B)]
    return {"errors": errors, "part": len(mine), "scale": float(scale)}


def training():
    """Layers that differ at first train to one, step by step with a layer on the whole batch."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 8, 3))
    layer, alone = (CudnnLSTM(1, 4, seed=seed, dtype="float64") for seed in (COMM.rank + 1, 1))
    layer.build((None, None, 3))
    alone.build((None, None, 3))
    distributed.broadcast_params(layer.params, COMM)
    mine = part_of(8, "equal")
    for _ in range(5):
        for model, rows in ((layer, mine), (alone, np.arange(8))):
            fwd = model.forward(x[:, rows])
            gradient = fwd.backward(2 * fwd.outputs / len(rows)).params
            if model is layer:
                distributed.all_reduce_gradients(gradient, COMM, reduction="mean", weight=len(rows))
            model.params -= 0.1 * gradient
    return {"errors": [float(np.abs(layer.params - alone.params).max())]}


def dtypes():
    """Sums and means of every dtype and kind, exactly: the numbers are small integers."""
    import torch

    found = {}
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        base = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for kind in ("numpy", "torch"):
            array = base * (COMM.rank + 1)
            given = array
            if kind == "torch":
                given = (
                    torch.from_numpy(array.view("i2")).view(torch.bfloat16)
                    if dtype == "bfloat16"
                    else torch.from_numpy(array)
                )
            distributed.all_reduce_gradients(given, COMM, reduction="sum")
            ranks = COMM.size * (COMM.size + 1) // 2
            found[f"{dtype} {kind} sum"] = bool((array == base * ranks).all())
            given[...] = COMM.rank
            distributed.all_reduce_gradients(given, COMM, reduction="mean", weight=2)
            found[f"{dtype} {kind} mean"] = bool((array == (COMM.size - 1) / 2).all())
            given[...] = COMM.rank + 1
            distributed.broadcast_params(given, COMM, root=COMM.size - 1)
            found[f"{dtype} {kind} broadcast"] = bool((array == COMM.size).all())
    nan = np.full(3, np.nan if COMM.rank else 1.0)
    distributed.all_reduce_gradients(nan, COMM, reduction="mean", weight=0 if COMM.rank else 3)
    found["a weight of 0 is zeros"] = bool((nan == 1).all())
    step = np.array([COMM.rank, 7])
    distributed.broadcast_params(step, COMM)
    found["integers are sent"] = step.tolist() == [0, 7]
    empty = np.zeros(0)
    distributed.all_reduce_gradients(empty, COMM, reduction="sum")
    return {"wrong": [name for name, right in found.items() if not right], "count": len(found)}


def disagree(case):
    """The last rank calls differently: every rank gets an error, and the next collective works."""
    last = COMM.rank == COMM.size - 1
    array, call = np.ones(8), {"reduction": "sum"}
    if case == "size" and last:
        array = np.ones(9)
    elif case == "dtype" and last:
        array = np.ones(8, "f4")
    elif case == "same width" and last:
        array = np.ones(8, "i8")
    elif case == "contiguous" and last:
        array = np.ones(16)[::2]
    elif case == "read-only" and last:
        array.flags.writeable = False
    elif case == "list" and last:
        array = [1.0] * 8
    elif case == "reduction" and last:
        call["reduction"] = "mean"
    elif case == "unknown reduction" and last:
        call["reduction"] = "max"
    elif case == "weight" and last:
        call |= {"reduction": "mean", "weight": -1.0}
    elif case == "weight of a sum" and last:
        call |= {"weight": 0}
    elif case == "no weight":
        call |= {"reduction": "mean", "weight": 0}
    before = np.array(array)
    try:
        if case == "roots":
            distributed.broadcast_params(array, COMM, root=int(last))
        elif case == "root":
            distributed.broadcast_params(array, COMM, root=COMM.size if last else 0)
        elif case == "calls" and last:
            distributed.broadcast_params(array, COMM)
        else:
            distributed.all_reduce_gradients(array, COMM, **call)
        error = None
    except PycudnnrnnError as caught:
        error = f"{type(caught).__name__}: {caught}"
    after = np.ones(4)
    distributed.all_reduce_gradients(after, COMM, reduction="sum")
    return {"error": error, "kept": bool(np.array_equal(before, array)), "next": after.tolist()}


def die(how):
    """The last rank ends in the middle of a training loop."""
    for update in range(1000):
        if COMM.rank == COMM.size - 1 and update == 3:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "exits":
                os._exit(3)
            if how == "raises":
                raise RuntimeError("this rank is done for")
        distributed.all_reduce_gradients(np.ones(1000), COMM, reduction="mean")
        time.sleep(0.01)
    return {}


if __name__ == "__main__":
    functions = {"gradients": gradients, "training": training, "dtypes": dtypes, "disagree": disagree, "die": die}
    for case in sys.argv[1:]:
        name, *rest = case.split("/")
        result = functions[name](*rest)
        for line in COMM.gather(json.dumps({"case": case, "rank": COMM.rank} | result)) or []:
            print(line, flush=True)
