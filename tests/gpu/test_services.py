"""What uses the device beside models: the self-test of the command line, and NCCL."""

import json
import sys

import numpy as np
import pytest

from pycudnnrnn import distributed


def test_the_self_test_passes_with_nothing_left_out(cuda, answer, monkeypatch, capsys):
    """It has TensorFlow's values and NVIDIA's checksums."""
    pytest.importorskip("rich")
    from pycudnnrnn.cli import check as self_test
    from pycudnnrnn.cli import main

    checks = self_test.GROUPS["cuDNN engine"]
    if cuda.on_shim:  # NVIDIA's checksums take NumPy half a minute
        checks = {name: each for name, each in checks.items() if "NVIDIA" not in name}
    monkeypatch.setattr(self_test, "GROUPS", {"cuDNN engine": checks})
    monkeypatch.setattr(sys, "argv", ["pycudnnrnn", "check", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    outcomes = json.loads(capsys.readouterr().out)["checks"]
    answer("check", outcomes)
    assert ended.value.code in {0, None}
    assert {check["outcome"] for check in outcomes} == {"passed"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nccl_of_one_rank_leaves_its_own_numbers(cuda, dtype):
    if cuda.on_shim:
        pytest.skip("NCCL needs a GPU; tests/cudnn_engine/test_distributed.py has a stand-in")
    nccl = pytest.importorskip("cupy.cuda.nccl")
    if not nccl.available:
        pytest.skip("this CuPy finds no NCCL")
    assert distributed.DTYPES[dtype] == getattr(nccl, f"NCCL_{dtype.upper()}")
    numbers, comm = np.arange(1000).astype(dtype), nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    array = cuda.put(numbers)
    cuda.device.synchronize(cuda.device.stream())  # the stream below waits for no other
    with cuda.device.xp.cuda.Stream(non_blocking=True) as stream:
        distributed.all_reduce_gradients(array, comm, reduction="mean", weight=3)
        distributed.broadcast_params(array, comm)
        stream.synchronize()
    assert np.array_equal(cuda.get(array), numbers)
    comm.destroy()
