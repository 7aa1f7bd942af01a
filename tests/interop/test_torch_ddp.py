"""DistributedDataParallel over gloo: ranks train as one does on the whole batch, in one process and in two.

`python -m tests.interop.test_torch_ddp RANK WORLD STORE OUT` is one rank. It trains on its share of the batch, and
rank 0 writes its weights and what each all-reduce moved.
"""

import contextlib
import importlib
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
import torch.distributed  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from pycudnnrnn.interop import torch as ours  # noqa: E402

ROOT = Path(__file__).parents[2]
STEPS = 4


@contextlib.contextmanager
def gloo_group(rank, world, store):
    """Be a rank of a group over gloo; its threads have ended behind the block, if nothing of the block is left.

    A thread of gloo drops tensors that Python knows, and takes Python's lock for it. If the interpreter is ending by
    then, Python unwinds that thread and C++ aborts the process. So the threads have to end before, and they do once
    nobody holds the group: a `DistributedDataParallel` holds it, and so do the default arguments of a module of torch
    that it imports, if that happens while there is a group.
    """
    importlib.import_module("torch.distributed.nn.functional")  # before there is a group for it to hold
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    yield
    torch.distributed.destroy_process_group()  # not after an error: the error's frames hold the group


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = ours.LSTM(3, 5, 2, bidirectional=True, dtype=torch.float64)

    def forward(self, x):
        return self.rnn(x)[0]


def batch(step):
    """Return [T, B, I] data and its goal, of an even B."""
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(6, 8, n, generator=generator, dtype=torch.float64) for n in (3, 10))


def train(model, rank, world):
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    for step in range(STEPS):
        x, goal = (data.chunk(world, dim=1)[rank] for data in batch(step))
        optimizer.zero_grad()
        (model(x) - goal).square().mean().backward()
        optimizer.step()


def train_in_parallel(rank, world, out):
    model = Model()
    if rank:
        torch.nn.init.zeros_(model.rnn.params)  # DDP has to bring them from rank 0
    parallel = DistributedDataParallel(model)
    moved = []

    def hook(state, bucket):
        moved.append([tuple(parameter.shape) for parameter in bucket.parameters()])
        return allreduce_hook(state, bucket)

    parallel.register_comm_hook(None, hook)
    train(parallel, rank, world)
    if rank == 0:
        torch.save({"weights": model.rnn.state_dict(), "moved": moved}, out)


def main():
    rank, world, store, out = sys.argv[1:]
    torch.set_num_threads(1)
    with gloo_group(int(rank), int(world), store):
        group = weakref.ref(torch.distributed.group.WORLD)
        train_in_parallel(int(rank), int(world), out)
    assert group() is None, "somebody holds the group, and its threads race with the interpreter's end"


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
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.interop.test_torch_ddp"]
    started = [
        subprocess.Popen(
            [*command, str(rank), "2", tmp_path / "store", tmp_path / "out.pt"],
            env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for rank in range(2)
    ]  # fmt: skip
    errors = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    assert_trained_as_one(tmp_path / "out.pt")


@pytest.mark.long
def test_the_example_trains_alike_with_both():
    need("ml_dtypes")
    command = [sys.executable, ROOT / "examples/torch_drop_in.py"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found = re.findall(r"^(\S+): loss (\S+) -> (\S+)$", out, re.MULTILINE)
    assert [name for name, *_ in found] == ["torch.nn.modules.rnn.LSTM", "pycudnnrnn.interop.torch.LSTM"]
    theirs, ours = ([float(loss) for loss in losses] for _, *losses in found)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[1] < 0.6 * ours[0]


if __name__ == "__main__":
    main()
