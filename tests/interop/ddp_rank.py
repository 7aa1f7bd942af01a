"""One rank of a data-parallel training: `python ddp_rank.py RANK WORLD STORE OUT`.

It trains on its share of the batch, and rank 0 writes its weights and what each all-reduce moved.
"""

import contextlib
import importlib
import sys
import weakref

import torch
import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from pycudnnrnn.interop import torch as ours

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


if __name__ == "__main__":
    main()
