"""`python -m benchmarks`: time a group of problems with this package and others, and print the table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from benchmarks import adapters, problems, report, runner
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import PycudnnrnnError

TEXT = """Time RNNs of published sizes and compare with other libraries.

The results of each library are checked before it is timed. Every row that was asked for is reported, with its time
or with the reason why it has none. A ratio is our time divided by theirs: below 1, this package is faster.

examples:
  python -m benchmarks
  python -m benchmarks --group cpu --pass infer --against torch-cpu
  python -m benchmarks --threads 1 --threads 2 --json cpu.jsonl
  python -m benchmarks --device cuda --group stream --dtype float16
"""


def parser() -> argparse.ArgumentParser:
    """Every option; those of lists may be repeated."""
    found = argparse.ArgumentParser("benchmarks", None, TEXT, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = found.add_argument
    add("--group", action="append", choices=problems.GROUPS, help="problems (cpu, or stream on a GPU)")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--against", action="append", choices=adapters.COMPETITORS, help="a library (the usual ones)")
    add("--pass", action="append", choices=problems.PASSES, dest="passes", help="what to time (all of the group)")
    add("--dtype", action="append", choices=[*problems.GPU_DTYPES, "float64"], help="arithmetic (all of the group)")
    add("--threads", action="append", type=int, help="number of threads on the CPU (all that this process may use)")
    add("--seconds", type=float, help="stop after so many, and list the rows that were not reached")
    add("--rounds", type=int, default=4, help="how often each library is timed per row (4)")
    add("--sample", type=float, default=0.5, help="seconds per timing (0.5)")
    add("--json", type=Path, help="write JSON lines to this .jsonl file or folder")
    add("--list", action="store_true", help="list the groups and the libraries, and exit")
    return found


def main() -> None:
    options = parser().parse_args()
    device, passes, dtypes = options.device, options.passes, options.dtype
    if options.list:
        for group in problems.GROUPS.values():
            print(f"{group.name}: {len(group.problems)} problems, {group.why}")
        for competitor in adapters.COMPETITORS.values():
            print(f"{competitor.name} ({competitor.device}): {competitor.what}")
        return
    if min(options.rounds, *(options.threads or [1])) < 1:
        parser().error("--rounds and --threads take numbers from 1")
    if device == "cpu" and not hasattr(os, "sched_setaffinity"):
        parser().error("a library stays on as many processors as it has threads here, which needs Linux")
    if device == "cuda":
        engine_for("cuda")  # one error for what is missing, and not one in each row
    groups = options.group or ["cpu" if device == "cpu" else "stream"]
    rows = problems.rows_of(
        groups, lambda row: (not passes or row.which in passes) and (not dtypes or row.dtype in dtypes)
    )
    if not rows:
        parser().error(f"no row of {', '.join(groups)} has these passes and types")
    ours = (*adapters.STEPS, *adapters.OURS[device]) if "step" in groups else adapters.OURS[device]
    names = tuple(dict.fromkeys((*ours, *(options.against or adapters.AGAINST[device]))))
    cores = len(os.sched_getaffinity(0)) if device == "cpu" else os.cpu_count() or 1
    part = runner.Part(rows, runner.hosts_for(names, options.threads or [cores]))
    settings = runner.Settings(options.rounds, options.sample, options.seconds)
    results = runner.measure([part], settings, options.json, Console(stderr=True))
    first = report.first_of_ours(results.rows, device)
    print(report.comparison(results.rows, first), report.without(results.rows), sep="\n\n")


if __name__ == "__main__":
    try:
        main()
    except (PycudnnrnnError, OSError) as error:
        raise SystemExit(f"benchmarks: {error}") from None
