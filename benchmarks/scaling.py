"""Time data-parallel training on the ranks of one machine: `python -m benchmarks.scaling`.

A step is forward, backward, one all-reduce and an update, of an LSTM on the NumPy engine with one thread a rank. Weak
scaling gives each rank a batch of its own, strong scaling a part of one; "apart" is weak scaling without the
all-reduce, which shows what the ranks take from each other by being there. The rank counts take turns, round by round;
a step's time is its slowest rank's. The all-reduce alone is timed over buffer sizes. One JSON file, which
`docs/scaling.md` quotes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.distributed import all_reduce_gradients

T, B, I, H, L = 50, 32, 256, 256, 1
SIZES = [2**n for n in range(8, 23, 2)]
CASES = ("weak", "apart", "strong", "all-reduce")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="in one round")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/cpu/<date>-<commit>-scaling.json")
    parser.add_argument("--worker", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(options)
    else:
        _run(options)


def _work(options: argparse.Namespace) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    found = _all_reduces(comm, options.steps) if options.worker == "all-reduce" else _steps(comm, options)
    slowest = {name: np.max(comm.allgather(times), axis=0).tolist() for name, times in found.items()}
    if comm.rank == 0:
        print(json.dumps(slowest))


def _steps(comm: Any, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the times of steps, and of the all-reduce within them, in microseconds."""
    batch = len(np.array_split(np.arange(B), comm.size)[comm.rank]) if options.worker == "strong" else B
    op = ops.CudnnLSTM(L, H, I)
    params = op.init_params(seed=0)
    x = np.random.default_rng(comm.rank).normal(size=(T, batch, I)).astype("f4")
    found: dict[str, list[float]] = {"step": [], "all_reduce": []}
    for step in range(options.steps + 2):
        comm.Barrier()
        start = time.perf_counter_ns()
        fwd = op.forward(x, None, None, params)
        gradient = fwd.backward(fwd.output).params
        reduce = time.perf_counter_ns()
        if options.worker != "apart":
            all_reduce_gradients(gradient, comm, reduction="mean", weight=batch)
        reduced = time.perf_counter_ns()
        params -= 1e-4 * gradient
        end = time.perf_counter_ns()
        if step >= 2:
            found["step"].append((end - start) / 1000)
            found["all_reduce"].append((reduced - reduce) / 1000)
    return found


def _all_reduces(comm: Any, steps: int) -> dict[str, list[float]]:
    """Return the times of the all-reduce by the bytes of its buffer."""
    found: dict[str, list[float]] = {}
    for size in SIZES:
        buffer, times = np.zeros(size, np.float32), []
        for step in range(steps + 2):
            comm.Barrier()
            start = time.perf_counter_ns()
            all_reduce_gradients(buffer, comm, reduction="sum")
            if step >= 2:
                times.append((time.perf_counter_ns() - start) / 1000)
        found[str(buffer.nbytes)] = times
    return found


def _run(options: argparse.Namespace) -> None:
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    cases = [(case, n) for case in CASES for n in options.ranks if (case, n) != ("strong", 1)]
    times: dict[tuple[str, int], dict[str, list[float]]] = {case: {} for case in cases}
    for _ in range(options.rounds):
        for case, ranks in cases:
            for name, found in _mpiexec(case, ranks, options.steps).items():
                times[case, ranks].setdefault(name, []).extend(found)
    times["strong", 1] = times["weak", 1]
    figures = {
        f"{case} {ranks}": {name: _figure(found) for name, found in by_name.items()}
        for (case, ranks), by_name in sorted(times.items())
    }
    _report(figures, options)


def _mpiexec(case: str, ranks: int, steps: int) -> dict[str, list[float]]:
    command = [str(Path(sys.executable).parent / "mpiexec"), "-iface", "lo", "-n", str(ranks), sys.executable]
    command += ["-m", "mpi4py", "-m", "benchmarks.scaling", "--worker", case, "--steps", str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def _figure(times: list[float]) -> dict[str, float]:
    return {"median_us": round(statistics.median(times), 1), "lowest_us": round(min(times), 1)}


def _report(figures: dict[str, Any], options: argparse.Namespace) -> None:
    commit = subprocess.run(["git", "describe", "--always"], capture_output=True, text=True, check=False).stdout.strip()
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ": unknown")
    results = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "command": " ".join(["python -m benchmarks.scaling", *sys.argv[1:]]),
        "machine": f"{cpu.partition(': ')[2]}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "load": f"{os.getloadavg()[1]:.1f} processes over 5 minutes, these included",
        "problem": f"lstm {T}/{B}/{I}/{H}/{L}, float32, one thread a rank",
        "buffer_nbytes": 4 * ops.CudnnLSTM(L, H, I).params_size(),
        "units": "microseconds, of the slowest rank; all-reduce by the bytes of its buffer",
        "figures": figures,
    }
    out = options.out or Path(__file__).parent / "results" / "cpu" / f"{results['date'][:10]}-{commit}-scaling.json"
    out.write_text(json.dumps(results, indent=1) + "\n")
    most = max(options.ranks)
    for case in ("weak", "apart", "strong"):
        for which in ("median_us", "lowest_us"):
            one, many = figures[f"{case} 1"]["step"][which], figures[f"{case} {most}"]["step"][which]
            ideal = one / most if case == "strong" else one
            print(f"{case} {which}: {one:,.0f} on 1, {many:,.0f} on {most}, efficiency {ideal / many:.2f}")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
