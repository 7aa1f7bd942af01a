"""DistributedDataParallel over gloo: ranks train as one does on the whole batch, in one process and in two."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402

from tests.interop.ddp_rank import STEPS, Model, gloo_group, train, train_in_parallel  # noqa: E402

ROOT = Path(__file__).parents[2]


def run(tmp_path):
    """Run two ranks; return their exit statuses and error outputs."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script, files = Path(__file__).with_name("ddp_rank.py"), (tmp_path / "store", tmp_path / "out.pt")
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), "2", *files], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    errors = [process.communicate()[1] for process in started]
    return [process.returncode for process in started], errors


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
def test_two_ranks_train_as_one_does_on_the_whole_batch(tmp_path):
    statuses, errors = run(tmp_path)
    assert statuses == [0, 0], errors
    assert_trained_as_one(tmp_path / "out.pt")


@pytest.mark.long
def test_the_example_trains_alike_with_both():
    need("ml_dtypes")
    command = [sys.executable, ROOT / "examples/torch_drop_in.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\S+): loss (\S+) -> (\S+)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in found] == ["torch.nn.modules.rnn.LSTM", "pycudnnrnn.interop.torch.LSTM"]
    theirs, ours = ([float(loss) for loss in losses] for _, *losses in found)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[1] < 0.6 * ours[0]
