"""DistributedDataParallel over gloo: two ranks are one on the whole batch, and none hangs when the other dies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402

from benchmarks.torch_ddp import gloo_group  # noqa: E402
from tests.interop.ddp_rank import STEPS, Model, train, train_in_parallel  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    """Give a function that runs two ranks and returns their exit statuses and error outputs."""
    started = []

    def start(*more):
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        script = Path(__file__).with_name("ddp_rank.py")
        for rank in range(2):
            command = [sys.executable, script, str(rank), "2", tmp_path / "store", tmp_path / "out.pt", *more]
            started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        errors = [process.communicate()[1] for process in started]
        return [process.returncode for process in started], errors

    yield start
    for process in started:
        process.kill()
        process.wait()


def assert_trained_as_one(out):
    """Assert that training in parallel left the weights of a model alone, with one all-reduce a step."""
    found = torch.load(out, weights_only=True)
    alone = Model()
    train(alone, 0, 1)
    for name, weight in alone.rnn.state_dict().items():
        assert (weight - found["weights"][name]).abs().max() <= 1e-12, name
    assert found["moved"] == [[tuple(alone.rnn.params.shape)]] * STEPS


def test_one_rank_trains_as_without_it(monkeypatch, tmp_path):
    """In this process; with two ranks in `make test-long`."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with gloo_group(0, 1, tmp_path / "store"):
        train_in_parallel(0, 1, tmp_path / "out.pt")
    assert_trained_as_one(tmp_path / "out.pt")


@pytest.mark.long
def test_two_ranks_train_as_one_does_on_the_whole_batch(run, tmp_path):
    statuses, errors = run()
    assert statuses == [0, 0], errors
    assert_trained_as_one(tmp_path / "out.pt")


@pytest.mark.long
def test_a_rank_that_dies_ends_the_other_with_an_error(run):
    statuses, errors = run("1")
    assert statuses[1] == 3
    assert statuses[0] not in {0, 3}
    assert "RuntimeError" in errors[0] or "DistBackendError" in errors[0], errors[0]
