"""What tests run under mpiexec: `python -m mpi4py ranks.py CASE...`; each rank asserts what it finds.

A case is a name and its arguments, "gradients/CudnnLSTM/equal".
"""

import sys

import ml_dtypes
import numpy as np
from mpi4py import MPI

from pycudnnrnn import distributed, ops
from pycudnnrnn.errors import PycudnnrnnError
from pycudnnrnn.testing.strategies import make_problem

COMM = MPI.COMM_WORLD
LAST = COMM.size - 1


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
    parts = COMM.allgather(len(mine))
    assert sum(parts) == B
    assert how == "equal" or len(set(parts)) > 2

    def run(rows):
        """The gradient of a loss that is a mean over the batch's sequences."""
        states = (whole.hx[:, rows], whole.cx[:, rows]) if op.spec.has_cell_state else (whole.hx[:, rows],)
        fwd = op.forward(whole.x[:, rows], *states, params, sequence_lengths=[lengths[i] for i in rows])
        return fwd.backward(whole.dy[:, rows] / max(len(rows), 1)).params

    expected, local = run(np.arange(B)), run(mine)
    summed = local * len(mine)
    distributed.all_reduce_gradients(local, COMM, reduction="mean", weight=len(mine))
    distributed.all_reduce_gradients(summed, COMM, reduction="sum")
    scale = np.abs(expected).max()
    assert scale > 1e-2
    for result in (local, summed / B):
        assert np.abs(result - expected).max() < 1e-12 * scale


def dtypes():
    """Sums and means of every dtype and kind, exactly: the numbers are small integers."""
    import torch

    for dtype in ("float16", "bfloat16", "float32", "float64"):
        base = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for kind in ("numpy", "torch"):
            array = base * (COMM.rank + 1)
            argument = array
            if kind == "torch":  # which reads no bfloat16 of NumPy's
                argument = torch.from_numpy(array.view("i2" if dtype == "bfloat16" else array.dtype))
                argument = argument.view(torch.bfloat16) if dtype == "bfloat16" else argument
            distributed.all_reduce_gradients(argument, COMM, reduction="sum")
            assert (array == base * (COMM.size * (COMM.size + 1) // 2)).all(), (dtype, kind)
            argument[...] = COMM.rank
            distributed.all_reduce_gradients(argument, COMM, reduction="mean", weight=2)
            assert (array == LAST / 2).all(), (dtype, kind)
            argument[...] = COMM.rank + 1
            distributed.broadcast_params(argument, COMM, root=LAST)
            assert (array == COMM.size).all(), (dtype, kind)
    nan = np.full(3, np.nan if COMM.rank else 1.0)
    distributed.all_reduce_gradients(nan, COMM, reduction="mean", weight=0 if COMM.rank else 3)
    assert (nan == 1).all(), "a weight of 0 is zeros"
    step = np.array([COMM.rank, 7])
    distributed.broadcast_params(step, COMM)
    assert step.tolist() == [0, 7], "integers are sent"
    distributed.all_reduce_gradients(np.zeros(0), COMM, reduction="sum")


def read_only(array):
    array.flags.writeable = False
    return array


REFUSED, DIFFERS = f"rank {LAST} refused", f"differs between rank 0 and rank {LAST} in"
DISAGREEMENTS = [
    # the last rank's array and its keywords; the others' are ones of float64 and "sum". What its error says, and theirs
    (np.ones(9), {}, f"StateError: d_params {DIFFERS} elements: 8 on rank 0, 9 on rank {LAST}", DIFFERS),
    (np.ones(8, "f4"), {}, f"StateError: d_params {DIFFERS} bytes per element: 8 on rank 0, 4", DIFFERS),
    (np.ones(8, "i8"), {}, "Invalid d_params dtype: int64, expecting 'float16', ", f"{REFUSED} its arguments"),
    (np.ones(16)[::2], {}, "Invalid d_params: strides (16,), expecting a contiguous array", REFUSED),
    (read_only(np.ones(8)), {}, "Invalid d_params: a read-only one, expecting a writable array", REFUSED),
    ([1.0] * 8, {}, "Invalid d_params: <class 'list'>", REFUSED),
    (np.ones(8), {"reduction": "mean"}, f"StateError: d_params {DIFFERS} reduction or root", DIFFERS),
    (np.ones(8), {"reduction": "max"}, "Invalid reduction: 'max', expecting 'sum' or 'mean'", REFUSED),
    (np.ones(8), {"reduction": "mean", "weight": -1.0}, "Invalid weight: -1.0, expecting a finite number", REFUSED),
    (np.ones(8), {"weight": 0}, "Invalid weight: 0, expecting 1 with reduction 'sum'", REFUSED),
    (np.ones(8), {"reduction": "mean", "weight": 0}, "Invalid weight: 0 on all of them, expecting a positive", None),
    (np.ones(8), {"root": 1}, f"StateError: params {DIFFERS} reduction or root", DIFFERS),
    (np.ones(8), {"root": COMM.size}, f"Invalid root: {COMM.size}, expecting an integer from 0 to {LAST}", REFUSED),
    (np.ones(8, "i8"), {"root": 0}, f"StateError: params {DIFFERS} dtype", DIFFERS),
]


def disagree():
    """The last rank calls differently: every rank gets an error, and the next collective works."""
    for array, keywords, local, others in DISAGREEMENTS:
        if COMM.rank == LAST or others is None:  # all ranks call alike
            check_error(array, keywords, local)
        else:
            check_error(np.ones(8), {"root": 0} if "root" in keywords else {}, others)
    check_error(np.ones(8), {"root": 0} if COMM.rank == LAST else {}, f"{DIFFERS} reduction or root")


def check_error(array, keywords, text):
    before = np.array(array)
    try:
        if "root" in keywords:
            distributed.broadcast_params(array, COMM, **keywords)
        else:
            distributed.all_reduce_gradients(array, COMM, **({"reduction": "sum"} | keywords))
    except PycudnnrnnError as caught:
        error = f"{type(caught).__name__}: {caught}"
    assert text in error
    assert np.array_equal(before, array), "nothing has been written"
    after = np.ones(4)
    distributed.all_reduce_gradients(after, COMM, reduction="sum")
    assert after.tolist() == [COMM.size] * 4


if __name__ == "__main__":
    for case in sys.argv[1:]:
        name, *rest = case.split("/")
        {"gradients": gradients, "dtypes": dtypes, "disagree": disagree}[name](*rest)
