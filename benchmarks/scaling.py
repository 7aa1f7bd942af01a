"""Time data-parallel training on the ranks of one machine: `python -m benchmarks.scaling`.

A step is forward, backward, one all-reduce and an update, of an LSTM on the NumPy engine with one thread per rank. Weak
scaling gives each rank a batch of its own, strong scaling a part of one; "apart" is weak scaling without the
all-reduce, which shows what the ranks take from each other by being there. The rank counts take turns, round by round;
a step's time is its slowest rank's. The all-reduce by itself is timed over buffer sizes.
`docs/scaling.md` quotes the results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.distributed import all_reduce_gradients

from .environment import command_line, environment, now
from .results_files import FOLDER, Record, place, record, write

T, B, I, H, L = 50, 32, 256, 256, 1
SIZES = [2**n for n in range(8, 23, 2)]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
CASES = ("weak", "apart", "strong", "all-reduce")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="in one round")
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    parser.add_argument("--worker", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(options)
    elif not MPIEXEC.exists():
        sys.exit(f"scaling needs MPI's mpiexec beside the Python that runs it, and mpi4py: there is no {MPIEXEC}")
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
    described = environment(command_line(), load=f"{os.getloadavg()[1]:.1f} processes over 5 minutes, these included")
    described["versions"] |= {"numpy": np.__version__}
    rows = [
        _row(case, ranks, name, found)
        for (case, ranks), by_name in sorted(times.items())
        for name, found in by_name.items()
    ]
    out = place(options.out, described, "scaling")
    write(out, described | {"finished": now()}, rows)
    _print_efficiencies(rows, max(options.ranks))
    print(f"written to {out}")


def _mpiexec(case: str, ranks: int, steps: int) -> dict[str, list[float]]:
    command = [str(MPIEXEC), "-iface", "lo", "-n", str(ranks), sys.executable]
    command += ["-m", "mpi4py", "-m", "benchmarks.scaling", "--worker", case, "--steps", str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def _row(case: str, ranks: int, name: str, times: list[float]) -> Record:
    """A row; `name` is what was timed of a step, or the bytes of an all-reduce's buffer."""
    alone = case == "all-reduce"
    return record(
        suite="scaling", group=case, problem=f"float32 {name}" if alone else f"lstm {T}/{B}/{I}/{H}/{L}",
        competitor="numpy", which="all_reduce" if alone else name, times_us=times, ranks=ranks,
        nbytes=int(name) if alone else 4 * ops.CudnnLSTM(L, H, I).params_size(),
    )  # fmt: skip


def _print_efficiencies(rows: list[Record], most: int) -> None:
    steps = {(row["group"], row["ranks"]): row for row in rows if row["pass"] == "step"}
    for case in ("weak", "apart", "strong"):
        for which in ("median_us", "lowest_us"):
            one, many = steps[case, 1][which], steps[case, most][which]
            ideal = one / most if case == "strong" else one
            print(f"{case} {which}: {one:,.0f} on 1, {many:,.0f} on {most}, efficiency {ideal / many:.2f}")


if __name__ == "__main__":
    main()
