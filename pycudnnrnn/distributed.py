"""Data-parallel training: add the gradients of all ranks, and send the params of one rank to all ranks.

The communicator is one of mpi4py, or CuPy's NCCL communicator. The arrays are those that an op takes, and are written
in place. CPU arrays go over MPI; CUDA arrays go over NCCL or a CUDA-aware MPI. A model's gradient is one flat buffer,
so an update needs one collective call.

Before each collective call, the ranks exchange six numbers each. If their arguments do not match, every rank raises an
error, where otherwise the call would hang or mix up buffers. A rank that dies is not detected here: mpiexec then ends
the other ranks. Start scripts with `python -m mpi4py`, which also ends them after an exception.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind
from pycudnnrnn._checks import check_int, check_real, one_of, shorten
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, PycudnnrnnError, StateError

__all__ = ["DTYPES", "all_reduce_gradients", "broadcast_params"]
__dir__ = __all__.copy

DTYPES: Final = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
"""The dtypes that can be reduced, with NCCL's numbers. Source: ncclDataType_t, nccl.h 2.10 and later."""

NCCL_UINT8, NCCL_FLOAT64, NCCL_SUM = 1, 8, 0
REDUCTIONS = ("sum", "mean")


def all_reduce_gradients(d_params: Any, comm: Any, *, reduction: Literal["sum", "mean"], weight: float = 1.0) -> None:
    """Replace a gradient on every rank by the sum, or the weighted mean, over all ranks.

    All ranks must call this. Over MPI, 16-bit types are added in float32 and rounded once. NCCL adds them as they are.

    Args:
        d_params: the gradient, overwritten with the result: a contiguous array with the same shape and dtype on all
            ranks, in "float16", "bfloat16", "float32" or "float64".
        comm: an mpi4py intracommunicator, or CuPy's `NcclCommunicator`.
        reduction: "sum" adds the gradients. It takes no weights: a rank without data must pass zeros. "mean" adds
            them in proportion to `weight`.
        weight: this rank's share of a "mean": the number of items that its loss is a mean over, such as its sequences.
            Then the result is the gradient of the whole batch. A rank with weight 0 counts as zeros, even if its array
            has NaN. Default: 1.0.

    Raises:
        ArgumentError: an unusable array, reduction or weight. The collective call has not begun then.
        ArgumentTypeError: another kind of array or communicator.
        StateError: the ranks' arguments differ, or another rank raised an error. No rank continues then.

    Example:
        >>> import numpy as np
        >>> from mpi4py import MPI
        >>> from pycudnnrnn import distributed
        >>> d_params = np.array([1.0, 2.0])
        >>> comm = MPI.COMM_SELF  # a script uses MPI.COMM_WORLD
        >>> distributed.all_reduce_gradients(d_params, comm, reduction="mean", weight=8)
        >>> d_params
        array([1., 2.])
    """
    ranks = _ranks(comm)
    with _agreed(ranks, "d_params", d_params) as call:
        if reduction not in REDUCTIONS:
            raise ArgumentError("reduction", one_of([*REDUCTIONS]), shorten(reduction))
        call.choice = REDUCTIONS.index(reduction)
        call.weight = check_real("weight", weight)
        if not 0 <= call.weight < math.inf:
            raise ArgumentError("weight", "a finite number that is not negative", weight)
        if reduction == "sum" and call.weight != 1:
            raise ArgumentError("weight", "1 with reduction 'sum', which takes every rank as it is", weight)
        if call.native.dtype.name not in DTYPES:
            raise ArgumentError("d_params", one_of([*DTYPES]), call.native.dtype, aspect="dtype")
    share = 1.0
    if reduction == "mean":
        if not call.total:
            raise ArgumentError("weight", "a positive number on some rank", "0 on all of them")
        share = call.weight / call.total
    ranks.all_reduce(call.kind, call.native, share)


def broadcast_params(params: Any, comm: Any, root: int = 0) -> None:
    """Replace the params on every rank by those of one rank, bit for bit.

    All ranks must call this.

    Args:
        params: the params buffer, overwritten on the other ranks: a contiguous array with the same shape and dtype on
            all ranks.
        comm: an mpi4py intracommunicator, or CuPy's `NcclCommunicator`.
        root: number of the rank that sends its params. Default: 0.

    Raises:
        ArgumentError: an unusable array, or a root that does not exist. The collective call has not begun then.
        ArgumentTypeError: another kind of array or communicator.
        StateError: the ranks' arguments differ, or another rank raised an error. No rank continues then.

    Example:
        >>> from mpi4py import MPI
        >>> from pycudnnrnn import distributed, ops
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> comm = MPI.COMM_SELF  # a script uses MPI.COMM_WORLD
        >>> params = op.init_params(seed=comm.rank)  # different on every rank
        >>> distributed.broadcast_params(params, comm)  # now those of rank 0
    """
    ranks = _ranks(comm)
    with _agreed(ranks, "params", params) as call:
        call.choice = len(REDUCTIONS) + check_int("root", root, 0, ranks.size - 1)
    ranks.broadcast(call.kind, call.native, root)


class _Share:
    """One rank's arguments, and the sum of all ranks' weights."""

    def __init__(self, ranks: _MPI | _NCCL, name: str, array: Any) -> None:
        self.kind = _arrays.kind_of(name, array)
        if ranks.device not in {None, self.kind.device}:
            expected = f"an array on {ranks.device}, where the communicator is"
            raise ArgumentError(name, expected, self.kind.device, "device")
        xp = np if self.kind.device == "cpu" else engine_for(self.kind.device).xp
        self.native = _arrays.to_engine(name, array, self.kind.device, xp)
        _arrays.check_writable(name, array, self.native)
        if not self.native.flags.c_contiguous:
            raise ArgumentError(name, "a contiguous array", f"strides {self.native.strides}")
        self.choice = -1
        self.weight = self.total = 1.0


@contextlib.contextmanager
def _agreed(ranks: _MPI | _NCCL, name: str, array: Any) -> Iterator[_Share]:
    """Check a rank's arguments in the block, then compare them on all ranks. Either all ranks continue or none."""
    refused: PycudnnrnnError | None = None
    row = [0.0] * 6  # 1, elements, bytes per element, dtype, operation, weight; all 0 from a rank that raised an error
    try:
        call = _Share(ranks, name, array)
        yield call
        dtype = call.native.dtype
        number = DTYPES.get(dtype.name, 1000 + dtype.num)
        row = [1.0, call.native.size, dtype.itemsize, number, call.choice, call.weight]
    except PycudnnrnnError as error:
        refused = error
    rows = ranks.gather(np.array(row))
    if refused is not None:
        raise refused
    bad = np.flatnonzero(rows[:, 0] == 0)
    if bad.size:
        raise StateError(f"rank {bad[0]} refused its arguments: the error there says why")
    for column, what in ((1, "elements"), (2, "bytes per element"), (3, "dtype"), (4, "reduction or root")):
        values = rows[:, column]
        if (values != values[0]).any():
            other = int(np.flatnonzero(values != values[0])[0])
            got = "" if column > 2 else f": {values[0]:.0f} on rank 0, {values[other]:.0f} on rank {other}"
            raise StateError(f"{name} differs between rank 0 and rank {other} in {what}{got}")
    call.total = float(rows[:, 5].sum())


def _ranks(comm: Any) -> _MPI | _NCCL:
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Intracomm):
        return _MPI(comm, mpi)
    if type(comm).__name__ == "NcclCommunicator" and hasattr(comm, "allReduce"):
        return _NCCL(comm)
    raise ArgumentTypeError("comm", "an mpi4py intracommunicator, or CuPy's NcclCommunicator", type(comm))


def _scale(array: Any, share: float) -> None:
    if share == 0:
        array[...] = 0  # NaN too
    elif share != 1:
        array *= array.dtype.type(share)


def _on_stream(kind: ArrayKind, *, wait: bool) -> contextlib.AbstractContextManager[int]:
    """Work on the current stream of the array's library. The block gets its address. `wait`: wait for it at the end."""
    return engine_for(kind.device).on_stream(_arrays.stream_address(kind.library, kind.device), (), wait=wait)


class _MPI:
    """mpi4py. CUDA arrays need a CUDA-aware MPI. It does not know streams, so work on them must be finished first."""

    device = None
    """Arrays may be on any device."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self._comm, self._mpi = comm, mpi
        self.size: int = comm.Get_size()

    def gather(self, row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return every rank's row."""
        rows = np.empty((self.size, row.size))
        self._comm.Allgather(row, rows)
        return rows

    def all_reduce(self, kind: ArrayKind, array: Any, share: float) -> None:
        """Replace `array` by the sum of all ranks' `share * array`."""
        with _on_stream(kind, wait=True):
            wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array
            _scale(wide, share)
        with engine_for(kind.device).active():  # MPI uses the thread's current device
            self._comm.Allreduce(self._mpi.IN_PLACE, wide, self._mpi.SUM)
        if wide is not array:
            with _on_stream(kind, wait=True):
                array[...] = wide.astype(array.dtype)

    def broadcast(self, kind: ArrayKind, array: Any, root: int) -> None:
        with _on_stream(kind, wait=True):
            data = array.reshape(-1).view(np.uint8)
        with engine_for(kind.device).active():
            self._comm.Bcast(data, root)


class _NCCL:
    """CuPy's NCCL communicator, on the current stream of the array's library."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.size: int = comm.size()
        self.device = f"cuda:{comm.device_id()}"

    def gather(self, row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        xp = engine_for(self.device).xp
        with _on_stream(ArrayKind("cupy", self.device), wait=False) as stream:
            sent, rows = _arrays.move(row, xp), xp.empty((self.size, row.size))
            self._comm.allGather(sent.data.ptr, rows.data.ptr, row.size, NCCL_FLOAT64, stream)
            host: npt.NDArray[np.float64] = _arrays.move(rows, np)
        return host

    def all_reduce(self, kind: ArrayKind, array: Any, share: float) -> None:
        with _on_stream(kind, wait=False) as stream:
            _scale(array, share)
            at = array.data.ptr
            self._comm.allReduce(at, at, array.size, DTYPES[array.dtype.name], NCCL_SUM, stream)

    def broadcast(self, kind: ArrayKind, array: Any, root: int) -> None:
        with _on_stream(kind, wait=False) as stream:
            self._comm.bcast(array.data.ptr, array.nbytes, NCCL_UINT8, root, stream)
