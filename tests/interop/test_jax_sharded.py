"""`interop.jax.rnn` over two devices: `shard_map` with its checks, `pmap`, and what of JAX is used inside them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = {
    "an LSTM": ["data parallel", "CudnnLSTM", "equal", "cpu"],
    "ragged": ["data parallel", "CudnnLSTM", "ragged", "cpu"],
    "by copies on the host": ["data parallel", "CudnnGRU", "equal", "host"],
    "a training loop": ["training"],
    "other transformations": ["others"],
    "sharded arrays": ["sharded arrays"],
}


@pytest.mark.parametrize("case", CASES)
def test_two_devices_give_what_one_gives(case):
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-m", "tests.interop.sharded", *CASES[case]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("equal\n", 0), done.stderr
