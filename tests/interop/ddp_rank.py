"""One rank of a data-parallel training: `python ddp_rank.py RANK WORLD STORE OUT [CRASHING_RANK]`.

It trains on its share of the batch, and rank 0 writes its weights and what each all-reduce moved.
"""

import datetime as dt
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from pycudnnrnn.interop import torch as ours

STEPS = 4


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


def train(model, rank, world, crashing=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    for step in range(STEPS):
        if step == 2 and rank == crashing:
            os._exit(3)
        x, goal = (data.chunk(world, dim=1)[rank] for data in batch(step))
        optimizer.zero_grad()
        (model(x) - goal).square().mean().backward()
        optimizer.step()


def main():
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{sys.argv[3]}", rank=rank, world_size=world, timeout=dt.timedelta(seconds=60)
    )
    model = Model()
    if rank:
        torch.nn.init.zeros_(model.rnn.params)  # DDP has to bring them from rank 0
    parallel = DistributedDataParallel(model)
    moved = []

    def hook(state, bucket):
        moved.append([tuple(parameter.shape) for parameter in bucket.parameters()])
        return allreduce_hook(state, bucket)

    parallel.register_comm_hook(None, hook)
    train(parallel, rank, world, int(sys.argv[5]) if len(sys.argv) > 5 else None)
    if rank == 0:
        torch.save({"weights": model.rnn.state_dict(), "moved": moved}, sys.argv[4])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
