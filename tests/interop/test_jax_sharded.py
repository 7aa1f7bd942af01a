"""`interop.jax.rnn` over two devices: `shard_map` with its checks, `pmap`, and what of JAX is used inside them."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ("ragged", "by copies on the host", "other transformations", "sharded arrays")


def launch(*cases):
    """Run cases in a process where JAX's CPU is two devices; return those that were right, and what was said."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-m", "tests.interop.sharded", *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.splitlines(), done.stderr


@functools.cache
def together():
    """Run every case in one process: importing JAX takes longer than most of them."""
    return launch(*CASES)


def test_two_devices_give_what_one_gives():
    right, error = launch("an LSTM")
    assert right == ["an LSTM"], error


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_two_devices_give_what_one_gives_in_every_way(case):
    """A case that fails ends the process; each case after it runs by itself."""
    right, error = together()
    if case not in right:
        assert case != CASES[len(right)], error
        right, error = launch(case)
        assert right == [case], error
