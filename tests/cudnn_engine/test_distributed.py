"""What is asked of NCCL and of a CUDA-aware MPI, on which stream and after what; a recording object stands for both.

That NCCL and MPI do what they are asked for is tests/distributed (MPI, CPU arrays) and tests/gpu to show.
"""

import cupy
import ml_dtypes
import numpy as np
import pytest

from pycudnnrnn import _arrays, distributed
from pycudnnrnn.errors import StateError
from tests.helpers.oracles import need
from tests.stand_in.host_device import Stream, host

need("mpi4py")
from mpi4py import MPI  # noqa: E402


class NcclCommunicator:
    """CuPy's class in name and signatures; a world of `ranks` copies of this rank, or with other rows, `others`."""

    def __init__(self, ranks, others=None, device=0):
        self.ranks, self.others, self.device, self.calls = ranks, others or {}, device, []

    def size(self):
        return self.ranks

    def device_id(self):
        return self.device

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):  # noqa: N802
        self.calls.append(("allGather", count, datatype, stream))
        rows = view(recvbuf, self.ranks * count, "f8").reshape(self.ranks, count)
        rows[:] = view(sendbuf, count, "f8")
        for (rank, column), value in self.others.items():
            rows[rank, column] = value

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):  # noqa: N802
        self.calls.append(("allReduce", sendbuf, recvbuf, count, datatype, op, stream))

    def bcast(self, buff, count, datatype, root, stream):
        self.calls.append(("bcast", buff, count, datatype, root, stream))


def view(address, count, dtype):
    memory = cupy.cuda.UnownedMemory(address, 8 * count, None, 0)
    return host(cupy.ndarray(count, dtype, cupy.cuda.MemoryPointer(memory, 0)))


@pytest.fixture
def device(device, monkeypatch):
    """A shim's device; copies between it and the host, and products, are done on the host."""
    monkeypatch.setattr(_arrays, "move", lambda a, xp: host(a).copy() if xp is np else device.from_host(a))

    def scale(array, share):
        host(array)[...] = host(array) * host(array).dtype.type(share)

    monkeypatch.setattr(distributed, "_scale", scale)
    device.current = Stream()
    return device


@pytest.mark.parametrize(("dtype", "number"), [("f2", 6), ("f4", 7), ("f8", 8), (ml_dtypes.bfloat16, 9)])
def test_nccl_reduces_and_sends_in_place_on_the_current_stream(device, dtype, number):
    comm, array = NcclCommunicator(4), device.from_host(np.arange(6).astype(dtype))
    distributed.all_reduce_gradients(array, comm, reduction="mean", weight=3)
    stream, at = device.current.ptr, array.data.ptr
    assert comm.calls == [("allGather", 6, 8, stream), ("allReduce", at, at, 6, number, 0, stream)]
    assert np.array_equal(host(array), (np.arange(6) / 4).astype(dtype)), "3 of 12 sequences are this rank's"
    comm.calls.clear()
    distributed.broadcast_params(array, comm, root=2)
    assert comm.calls == [("allGather", 6, 8, stream), ("bcast", at, array.nbytes, 1, 2, stream)], "bytes are sent"


def test_where_another_rank_differs_nccl_is_asked_for_nothing(device):
    """tests/distributed has the other differences: the rows of all ranks are compared by the same code."""
    comm, array = NcclCommunicator(4, {(1, 1): 7}), device.from_host(np.arange(6.0))
    with pytest.raises(StateError, match="between rank 0 and rank 1 in elements: 6 on rank 0, 7 on rank 1"):
        distributed.all_reduce_gradients(array, comm, reduction="sum")
    assert [name for name, *_ in comm.calls] == ["allGather"]


class Recorded(MPI.Intracomm):
    """The world of one rank, which notes what it was given and what had been waited for then."""

    def Allreduce(self, _sendbuf, *arguments):  # noqa: N802
        self.device.check_here("a call of MPI")
        self.noted.append((*arguments, [stream.ptr for stream in self.device.synchronized]))

    def Bcast(self, *arguments):  # noqa: N802
        self.Allreduce(None, *arguments)


def test_mpi_is_given_a_device_array_after_what_is_on_its_stream_while_its_device_is_current(device):
    comm = Recorded(MPI.COMM_SELF)
    comm.device, comm.noted, stream = device, [], device.current.ptr
    array = device.from_host(np.arange(6.0).reshape(2, 3))
    device.here = 5
    distributed.all_reduce_gradients(array, comm, reduction="sum")
    distributed.broadcast_params(array, comm)
    (reduced, op, before), (sent, root, later) = comm.noted
    assert reduced is array
    assert (op, before, later) == (MPI.SUM, [stream], [stream] * 2)
    assert (sent.data.ptr, sent.dtype, sent.size, root) == (array.data.ptr, "u1", 48, 0)
