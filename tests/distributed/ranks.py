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

from pycudnnrnn import distributed, ops
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


def dtypes():
    """Sums and means of every dtype and kind, exactly: the numbers are small integers."""
    import torch

    found = {}
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        base = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for kind in ("numpy", "torch"):
            array = base * (COMM.rank + 1)
            given = array
            if kind == "torch":  # which reads no bfloat16 of NumPy's
                given = torch.from_numpy(array.view("i2" if dtype == "bfloat16" else array.dtype))
                given = given.view(torch.bfloat16) if dtype == "bfloat16" else given
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


def read_only(array):
    array.flags.writeable = False
    return array


DISAGREEMENTS = {
    # the last rank's array and its keywords; the others' are ones of float64 and "sum"
    "size": (np.ones(9), {}),
    "dtype": (np.ones(8, "f4"), {}),
    "same width": (np.ones(8, "i8"), {}),
    "contiguous": (np.ones(16)[::2], {}),
    "read-only": (read_only(np.ones(8)), {}),
    "list": ([1.0] * 8, {}),
    "reduction": (np.ones(8), {"reduction": "mean"}),
    "unknown reduction": (np.ones(8), {"reduction": "max"}),
    "weight": (np.ones(8), {"reduction": "mean", "weight": -1.0}),
    "weight of a sum": (np.ones(8), {"weight": 0}),
    "no weight": (np.ones(8), {"reduction": "mean", "weight": 0}),
    "roots": (np.ones(8), {"root": 1}),
    "root": (np.ones(8), {"root": COMM.size}),
    "calls": (np.ones(8), {"root": 0}),
    "broadcast width": (np.ones(8, "i8"), {"root": 0}),
}


def disagree(case):
    """The last rank calls differently: every rank gets an error, and the next collective works."""
    array, keywords = DISAGREEMENTS[case]
    if COMM.rank < COMM.size - 1:
        array = np.ones(8)
        if case != "no weight":  # there all ranks give none
            keywords = {"root": 0} if "root" in keywords and case != "calls" else {}
    before = np.array(array)
    try:
        if "root" in keywords:
            distributed.broadcast_params(array, COMM, **keywords)
        else:
            distributed.all_reduce_gradients(array, COMM, **({"reduction": "sum"} | keywords))
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
    functions = {"gradients": gradients, "dtypes": dtypes, "disagree": disagree, "die": die}
    for case in sys.argv[1:]:
        name, *rest = case.split("/")
        result = functions[name](*rest)
        for line in COMM.gather(json.dumps({"case": case, "rank": COMM.rank} | result)) or []:
            print(line, flush=True)
