"""Several ranks on this machine, over mpi4py and MPICH from wheels. `ranks.py` asserts what each rank finds."""

from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import distributed
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from tests.helpers.mpi import mpiexec


def check(count, *cases):
    """Run cases one after the other on `count` ranks. One that waits for others for ever ends with its test."""
    done = mpiexec(count, Path(__file__).with_name("ranks.py"), *cases, module=("-m", "mpi4py"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("count", "cases"),
    [(1, ["CudnnLSTM/equal"]), (3, ["CudnnGRU/equal"]), (4, ["CudnnLSTM/unequal", "CudnnGRU/unequal"])],
)
def test_n_ranks_have_the_gradient_of_one_rank_on_the_whole_batch(count, cases):
    check(count, *(f"gradients/{case}" for case in cases))


def test_every_dtype_and_cpu_kind_is_reduced_and_sent_in_place():
    check(3, "dtypes")


def test_ranks_that_disagree_all_get_an_error_before_anything_hangs_and_can_go_on():
    check(3, "disagree")


def test_one_rank_checks_all_the_same():
    from mpi4py import MPI

    comm, array = MPI.COMM_SELF, np.full(3, 5.0)
    for wrong in (None, "world", object()):
        with pytest.raises(ArgumentTypeError, match=r"Invalid comm: .*expecting an mpi4py intracommunicator, or CuPy"):
            distributed.broadcast_params(array, wrong)
    with pytest.raises(ArgumentError, match=r"Invalid weight: 0\.5, expecting 1 with reduction 'sum'"):
        distributed.all_reduce_gradients(array, comm, reduction="sum", weight=0.5)
    distributed.all_reduce_gradients(array, comm, reduction="sum", weight=1)
    distributed.all_reduce_gradients(array, comm, reduction="mean", weight=7)
    assert (array == 5).all()
