"""DistributedDataParallel over gloo: two ranks train as one does on the whole batch.

`python -m tests.interop.test_torch_ddp RANK STORE OUT` is one rank. It trains on its share of the batch, and rank 0
writes its weights and what each all-reduce moved.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from pycudnnrnn.interop import torch as ours
from tests.interop.pairs import Model

ROOT = Path(__file__).parents[2]
STEPS, WORLD = 4, 2


def build():
    torch.manual_seed(0)
    return Model(ours.LSTM(3, 5, 2, bidirectional=True, dtype=torch.float64))


def train(model, rank, world):
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        whole = [torch.randn(6, 8, n, generator=generator, dtype=torch.float64) for n in (3, 10)]
        x, goal = (data.chunk(world, dim=1)[rank] for data in whole)
        optimizer.zero_grad()
        (model(x) - goal).square().mean().backward()
        optimizer.step()


def main(rank, store, out):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=WORLD)
    model = build()
    if rank:
        for weight in model.parameters():
            torch.nn.init.zeros_(weight)  # DDP has to bring them from rank 0
    train(DistributedDataParallel(model), rank, WORLD)
    sharded = FullyShardedDataParallel(build(), device_id=torch.device("cpu"))
    train(sharded, rank, WORLD)
    with FullyShardedDataParallel.summon_full_params(sharded):
        found = {"DDP": model.rnn.state_dict(), "FSDP": {n: w.clone() for n, w in sharded.rnn.named_parameters()}}
    if rank == 0:
        torch.save(found, out)
    os._exit(0)  # a thread of gloo may need Python's lock, and aborts the process while the interpreter ends


@pytest.mark.long
def test_two_ranks_train_as_one_does_on_the_whole_batch(tmp_path):
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.interop.test_torch_ddp"]
    started = [
        subprocess.Popen([*command, str(rank), tmp_path / "store", tmp_path / "out.pt"], env=environment, cwd=ROOT)
        for rank in range(WORLD)
    ]
    assert [process.wait() for process in started] == [0] * WORLD
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    alone = build()
    train(alone, 0, 1)
    for way, weights in found.items():
        for name, weight in alone.rnn.state_dict().items():
            assert (weight - weights[name]).abs().max() <= 1e-12, (way, name)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
