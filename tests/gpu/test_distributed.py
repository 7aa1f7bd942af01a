"""NCCL on one GPU: one rank, whose sums are its own; what more ranks add is in tests/distributed."""

import numpy as np
import pytest

from pycudnnrnn import distributed


@pytest.fixture
def comm(cuda):
    if cuda.on_shim:
        pytest.skip("NCCL needs a GPU; tests/cudnn_engine/test_distributed.py has a stand-in")
    from cupy.cuda import nccl

    if not nccl.available:
        pytest.skip("this CuPy finds no NCCL")
    made = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    yield made
    made.destroy()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nccl_takes_what_it_is_given(cuda, comm, dtype):
    numbers = np.arange(1000).astype(dtype)
    array = cuda.put(numbers)
    cuda.device.synchronize(cuda.device.stream())  # the stream below waits for no other
    with cuda.device.xp.cuda.Stream(non_blocking=True) as stream:
        distributed.all_reduce_gradients(array, comm, reduction="mean", weight=3)
        distributed.all_reduce_gradients(array, comm, reduction="sum")
        distributed.broadcast_params(array, comm)
        stream.synchronize()
    assert np.array_equal(cuda.get(array), numbers)


def test_nccl_constants_are_cupys(comm):
    from cupy.cuda import nccl

    ours = {"float16": nccl.NCCL_FLOAT16, "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64}
    assert ours | {"bfloat16": 9} == distributed.DTYPES
    assert (nccl.NCCL_UINT8, nccl.NCCL_SUM) == (distributed.NCCL_UINT8, distributed.NCCL_SUM)
