"""Time a data-parallel step of the torch modules: `python -m benchmarks.torch_ddp`.

One process with the whole batch on one thread, against two processes with half of it each, over gloo on the loopback.
Rounds alternate between the two; a figure is the median of the rounds' medians, beside the lowest time of all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROBLEMS = {"lstm 50/32/128/256/2": (50, 32, 128, 256, 2), "lstm 50/64/256/512/2": (50, 64, 256, 512, 2)}
WARM_UP, STEPS = 3, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rank", nargs=4, metavar=("PROBLEM", "RANK", "WORLD", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        problem, rank, world, store = options.rank
        print(json.dumps(_rank(PROBLEMS[problem], int(rank), int(world), store)))
        return
    rows = []
    for problem in PROBLEMS:
        rounds: dict[int, list[list[float]]] = {1: [], 2: []}
        for _ in range(options.rounds):
            for world, times in rounds.items():
                times.append(_measure(problem, world))
        row: dict[str, Any] = {"problem": problem}
        for world, times in rounds.items():
            median = statistics.median(map(statistics.median, times))
            row[f"{world}_processes"] = {"median_ms": round(median, 2), "lowest_ms": round(min(map(min, times)), 2)}
        one, two = (row[f"{world}_processes"]["lowest_ms"] for world in (1, 2))
        row["speedup_of_lowest"] = round(one / two, 3)
        rows.append(row)
        print(row)
    if options.out:
        machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
        units = "milliseconds a step; problem is T/B/I/H/L, float32, B the whole batch"
        content = {"command": "python -m benchmarks.torch_ddp", "machine": machine, "rounds": options.rounds}
        options.out.write_text(json.dumps({**content, "units": units, "rows": rows}, indent=1) + "\n")


def _measure(problem: str, world: int) -> list[float]:
    """Return rank 0's step times in milliseconds."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.torch_ddp", "--rank", problem]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(world), f"{folder}/store"], env=environment, stdout=subprocess.PIPE, text=True
            )
            for rank in range(world)
        ]
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    times: list[float] = json.loads(outputs[0])
    return times


def _rank(sizes: tuple[int, ...], rank: int, world: int, store: str) -> list[float]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from pycudnnrnn.interop.torch import LSTM

    T, B, I, U, L = sizes
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    model = DistributedDataParallel(LSTM(I, U, L)) if world > 1 else LSTM(I, U, L)
    x = torch.randn(T, B // world, I)
    times = []
    for _ in range(WARM_UP + STEPS):
        torch.distributed.barrier()
        start = time.perf_counter()
        model.zero_grad()
        model(x)[0].square().mean().backward()
        times.append(1000 * (time.perf_counter() - start))
    torch.distributed.destroy_process_group()
    return times[WARM_UP:]


if __name__ == "__main__":
    main()
