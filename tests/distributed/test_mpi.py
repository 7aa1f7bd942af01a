"""Several ranks on this machine, over mpi4py and MPICH from wheels."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import distributed
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from tests.helpers.mpi import mpiexec

RANKS = Path(__file__).parent / "ranks.py"


def launch(count, *cases):
    """Run cases one after the other on `count` ranks; return what each rank found, by case, and what was said."""
    done = mpiexec(count, RANKS, *cases, module=("-m", "mpi4py"))
    found = {}
    for line in done.stdout.splitlines():
        result = json.loads(line)
        found.setdefault(result["case"], []).append(result)
    return found, done.stderr


@functools.cache
def together(count):
    """Run every case for `count` ranks in one launch: starting the processes takes longer than the cases."""
    return launch(count, *CASES[count])


def run(count, *words):
    """Return what each rank found. A case that fails ends the launch; each case after it runs by itself."""
    case = "/".join(words)
    found, error = together(count)
    if case not in found:
        assert case != CASES[count][len(found)], error
        found, error = launch(count, case)
        assert case in found, error
    assert [each["rank"] for each in found[case]] == list(range(count))
    return found[case]


@pytest.mark.parametrize(
    ("count", "kind", "how"),
    [(1, "CudnnLSTM", "equal"), (3, "CudnnGRU", "equal"), (4, "CudnnLSTM", "unequal"), (4, "CudnnGRU", "unequal")],
)
def test_n_ranks_have_the_gradient_of_one_rank_on_the_whole_batch(count, kind, how):
    found = run(count, "gradients", kind, how)
    assert sum(each["part"] for each in found) == 12
    if how == "unequal" and count == 4:
        assert len({each["part"] for each in found}) > 2
    for each in found:
        assert each["scale"] > 1e-2
        assert max(each["errors"]) < 1e-12


def test_every_dtype_and_cpu_kind_is_reduced_and_sent_in_place():
    for each in run(3, "dtypes"):
        assert each["count"] == 26
        assert not each["wrong"]


DISAGREEMENTS = {
    # what the last rank's error says, and the others'
    "size": ("StateError: d_params differs between rank 0 and rank 2 in elements: 8 on rank 0, 9 on rank 2",) * 2,
    "dtype": ("StateError: d_params differs between rank 0 and rank 2 in bytes per element: 8 on rank 0, 4",) * 2,
    "same width": ("Invalid d_params dtype: int64, expecting 'float16', ", "rank 2 refused its arguments"),
    "contiguous": ("Invalid d_params: strides (16,), expecting a contiguous array", "rank 2 refused"),
    "read-only": ("Invalid d_params: a read-only one, expecting a writable array", "rank 2 refused"),
    "list": ("Invalid d_params: <class 'list'>", "rank 2 refused"),
    "reduction": ("StateError: d_params differs between rank 0 and rank 2 in reduction or root",) * 2,
    "unknown reduction": ("Invalid reduction: 'max', expecting 'sum' or 'mean'", "rank 2 refused"),
    "weight": ("Invalid weight: -1.0, expecting a finite number that is not negative", "rank 2 refused"),
    "weight of a sum": (
        "Invalid weight: 0, expecting 1 with reduction 'sum', which takes every rank",
        "rank 2 refused",
    ),
    "no weight": ("Invalid weight: 0 on all of them, expecting a positive number on some rank",) * 2,
    "roots": ("StateError: params differs between rank 0 and rank 2 in reduction or root",) * 2,
    "root": ("Invalid root: 3, expecting an integer from 0 to 2", "rank 2 refused"),
    "calls": ("differs between rank 0 and rank 2 in reduction or root",) * 2,
    "broadcast width": ("StateError: params differs between rank 0 and rank 2 in dtype",) * 2,
}


CASES = {
    1: ["gradients/CudnnLSTM/equal"],
    3: ["dtypes", "gradients/CudnnGRU/equal", *(f"disagree/{case}" for case in DISAGREEMENTS)],
    4: ["gradients/CudnnLSTM/unequal", "gradients/CudnnGRU/unequal"],
}
"""By number of ranks."""


@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_ranks_that_disagree_all_get_an_error_before_anything_hangs_and_can_go_on(case):
    own, others = DISAGREEMENTS[case]
    found = run(3, "disagree", case)
    for each in found:
        assert (own if each["rank"] == 2 else others) in each["error"]
        assert each["kept"], "nothing has been written"
        assert each["next"] == [3.0] * 4


@pytest.mark.parametrize("how", ["killed", *(pytest.param(how, marks=pytest.mark.long) for how in ("exits", "raises"))])
def test_a_rank_that_dies_ends_the_others_with_an_error_and_no_hang(how):
    done = mpiexec(3, RANKS, f"die/{how}", module=("-m", "mpi4py"))
    assert done.returncode != 0
    assert how != "raises" or "this rank is done for" in done.stderr


@pytest.mark.parametrize("comm", [None, "world", object()])
def test_something_else_than_a_communicator_is_refused(comm):
    with pytest.raises(ArgumentTypeError, match=r"Invalid comm: .*expecting an mpi4py intracommunicator, or CuPy's N"):
        distributed.broadcast_params(np.ones(3), comm)


def test_one_rank_checks_all_the_same():
    from mpi4py import MPI

    comm = MPI.COMM_SELF
    with pytest.raises(ArgumentError, match="Invalid d_params dtype: int64"):
        distributed.all_reduce_gradients(np.ones(3, int), comm, reduction="sum")
    with pytest.raises(TypeError, match="reduction"):
        distributed.all_reduce_gradients(np.ones(3), comm)
    array = np.full(3, 5.0)
    for weight in (0, 0.5, 5):
        with pytest.raises(ArgumentError, match=f"Invalid weight: {weight}, expecting 1 with reduction 'sum'"):
            distributed.all_reduce_gradients(array, comm, reduction="sum", weight=weight)
    distributed.all_reduce_gradients(array, comm, reduction="sum", weight=1)
    distributed.all_reduce_gradients(array, comm, reduction="mean", weight=7)
    assert (array == 5).all()
