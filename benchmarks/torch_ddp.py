"""Time a data-parallel step of the torch modules: `python -m benchmarks.torch_ddp`.

One process with the whole batch on one thread, against two processes with half of it each, over gloo on the loopback.
Rounds alternate between the two.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .environment import command_line, environment, now
from .results_files import FOLDER, place, record, write

PROBLEMS = ("lstm 50/32/128/256/2", "lstm 50/64/256/512/2")
"""T/B/I/H/L; B is the whole batch."""

WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="in one round")
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    parser.add_argument("--rank", nargs=4, metavar=("PROBLEM", "RANK", "WORLD", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        problem, rank, world, store = options.rank
        print(json.dumps(_rank(problem, int(rank), int(world), store, options.steps)))
        return
    described = environment(command_line())
    described["versions"] |= {"torch": importlib.metadata.version("torch")}
    rows = []
    for problem in PROBLEMS:
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(options.rounds):
            for world, found in times.items():
                found.extend(_measure(problem, world, options.steps))
        for world, found in times.items():
            rows.append(record(suite="torch_ddp", group="strong", problem=problem, competitor="interop.torch",
                               which="step", times_us=found, ranks=world))  # fmt: skip
            print(
                f"{problem} on {world}: {rows[-1]['median_us'] / 1e3:.1f} ms, {rows[-1]['lowest_us'] / 1e3:.1f} lowest"
            )
    out = place(options.out, described, "torch-ddp")
    write(out, described | {"finished": now()}, rows)
    print(f"written to {out}")


def _measure(problem: str, world: int, steps: int) -> list[float]:
    """Return rank 0's step times in microseconds."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.torch_ddp", "--steps", str(steps), "--rank", problem]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(world), f"{folder}/store"], env=environment, stdout=subprocess.PIPE, text=True
            )
            for rank in range(world)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"the ranks ended with {[rank.returncode for rank in ranks]}")
    times: list[float] = json.loads(outputs[0])
    return times


@contextlib.contextmanager
def gloo_group(rank: int, world: int, store: str) -> Iterator[None]:
    """Be a rank of a group over gloo; its threads have ended behind the block, if nothing of the block is left.

    A thread of gloo drops tensors that Python knows, and takes Python's lock for it. If the interpreter is ending by
    then, Python unwinds that thread and C++ aborts the process. So the threads have to end before, and they do once
    nobody holds the group: a `DistributedDataParallel` holds it, and so do the default arguments of a module of torch
    that it imports, if that happens while there is a group.
    """
    import torch.distributed

    importlib.import_module("torch.distributed.nn.functional")  # before there is a group for it to hold
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    yield
    torch.distributed.destroy_process_group()  # not after an error: the error's frames hold the group


def _rank(problem: str, rank: int, world: int, store: str, steps: int) -> list[float]:
    with gloo_group(rank, world, store):
        return _steps(problem, world, steps)


def _steps(problem: str, world: int, steps: int) -> list[float]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from pycudnnrnn.interop.torch import LSTM

    T, B, I, U, L = map(int, problem.partition(" ")[2].split("/"))
    torch.set_num_threads(1)
    model = DistributedDataParallel(LSTM(I, U, L)) if world > 1 else LSTM(I, U, L)
    x = torch.randn(T, B // world, I)
    times = []
    for _ in range(WARM_UP + steps):
        torch.distributed.barrier()
        start = time.perf_counter_ns()
        model.zero_grad()
        model(x)[0].square().mean().backward()
        times.append((time.perf_counter_ns() - start) / 1000)
    return times[WARM_UP:]


if __name__ == "__main__":
    main()
