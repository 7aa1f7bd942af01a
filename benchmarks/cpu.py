"""Time the NumPy engine against torch on the CPU: `python -m benchmarks.cpu`.

Every measurement is a process of its own, so that no library's threads disturb another's. Rounds are shuffled; a
figure is the median of the rounds' medians, beside the lowest time of all. Before anything is timed, one forward's
numbers are compared. Results go to one JSON file with the environment, and a table is printed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import importlib.metadata
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.problems import GROUPS, PASSES

COMPETITORS = ("numpy_engine", "torch_cpu")
TOLERANCE = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", choices=GROUPS, default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="for one measurement")
    parser.add_argument("--out", type=Path, help="results file (default: benchmarks/results/cpu/<date>-<commit>.json)")
    parser.add_argument("--worker", nargs=3, metavar=("COMPETITOR", "INDEX", "PASS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        competitor, index, which = options.worker
        print(json.dumps(_measure(competitor, GROUPS[options.group][int(index)], which, options.seconds)))
        return
    _run(options)


def _measure(competitor: str, problem: Any, which: str, seconds: float) -> list[float]:
    """Return single times in microseconds, after a warm-up."""
    call = importlib.import_module(f"benchmarks.adapters.{competitor}").prepare(problem)[which]
    for _ in range(3):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1000)
    return times


def _run(options: argparse.Namespace) -> None:
    problems = GROUPS[options.group]
    os.environ |= {
        name: str(options.threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    for problem in problems:
        ours, theirs = (importlib.import_module(f"benchmarks.adapters.{c}").outputs(problem) for c in COMPETITORS)
        error = float(np.abs(ours - theirs).max())
        if not error <= TOLERANCE:
            sys.exit(f"{problem.name}: outputs differ by {error}: nothing is timed")
    jobs = [(c, i, p) for c in COMPETITORS for i in range(len(problems)) for p in PASSES]
    medians: dict[tuple[str, int, str], list[float]] = {job: [] for job in jobs}
    lowest = dict.fromkeys(jobs, float("inf"))
    order = [job for _ in range(options.rounds) for job in random.sample(jobs, len(jobs))]
    for competitor, index, which in track(order, "measuring", console=Console(stderr=True)):
        command = [sys.executable, "-m", "benchmarks.cpu", "--group", options.group, "--seconds", str(options.seconds)]
        command += ["--worker", competitor, str(index), which]
        times = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        medians[competitor, index, which].append(statistics.median(times))
        lowest[competitor, index, which] = min(lowest[competitor, index, which], *times)
    rows = [
        {
            "problem": problem.name,
            "pass": which,
            **{
                competitor: {
                    "median_us": round(statistics.median(medians[competitor, index, which]), 1),
                    "lowest_us": round(lowest[competitor, index, which], 1),
                }
                for competitor in COMPETITORS
            },
        }
        for index, problem in enumerate(problems)
        for which in PASSES
    ]
    _report({**_environment(options), "rows": rows}, options.out)


def _environment(options: argparse.Namespace) -> dict[str, Any]:
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ": unknown")
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "command": " ".join(["python -m benchmarks.cpu", *sys.argv[1:]]),
        "machine": f"{cpu.partition(': ')[2]}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "threads": options.threads,
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in ("numpy", "torch", "pycudnnrnn")},
        "group": options.group,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "units": "microseconds; problem is cell T/B/I/H/L, float32",
    }


def _report(results: dict[str, Any], out: Path | None) -> None:
    out = out or Path(__file__).parent / "results" / "cpu" / f"{results['date'][:10]}-{results['commit']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    ours, theirs = COMPETITORS
    table = Table("problem", "pass", f"{ours}, us", f"{theirs}, us", "ratio of medians", "of lowest")
    for row in results["rows"]:
        median, lowest = (row[ours][k] / row[theirs][k] for k in ("median_us", "lowest_us"))
        times = (f"{row[c]['median_us']:,.0f} ({row[c]['lowest_us']:,.0f})" for c in COMPETITORS)
        table.add_row(row["problem"], row["pass"], *times, f"{median:.2f}", f"{lowest:.2f}")
    Console().print(table)
    Console().print(f"medians (lowest); written to {out}")


if __name__ == "__main__":
    main()
