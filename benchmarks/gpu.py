"""The GPU report inside eight minutes: `python -m benchmarks.gpu` (or `make bench-gpu`).

The rows that goals are read off come first, one row of each regime before many of one; what is not reached in time is
listed as not run. `--grid` times each algorithm on each cell, H and B instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import PycudnnrnnError

from .adapters import COMPETITORS
from .hosts import Host, Local, Remote
from .problems import GROUPS, Row
from .results_files import FOLDER
from .runner import Part, Settings, rows_of
from .suite import measure, reasons, table

BUDGET_S = 440.0
"""Of eight minutes, what is left beside the start, the build of the C++ program and the last row."""

OURS = ("eager", "plan", "graph", "auto")
PEERS = ("torch", "torch-graph", "raw", "raw-graph", "jax")
ALGORITHMS = ("rule", "standard", "persist_static", "persist_dynamic", "small_h")

APART = ("auto", "jax", "jax-ours", *(name for name in ALGORITHMS if name != "standard"))
"""Who runs in a process of its own: kernels that may wait for each other for ever, and who wants the whole memory."""

ANSWER_WITHIN_S = 60.0
"""After that a kernel is taken to wait for itself; its process is ended, and the next row gets another."""


def plan() -> list[tuple[list[Row], Sequence[str]]]:
    """The rows in the order of what they decide, each with who runs them."""

    def fast(*groups: str, dtypes: Sequence[str], passes: Sequence[str] = ("infer", "step")) -> list[Row]:
        return rows_of(groups, lambda row: row.dtype in dtypes and row.which in passes)

    holes = [row for row in _few_holes() if row.which == "infer" or row.problem.tag in ("H1", "H2")]
    anchor = [row for row in rows_of(["flashrnn"]) if (row.problem.B, row.problem.T) == (16, 1024)]
    return [
        (fast("stream", dtypes=["float16"]), (*OURS, *PEERS)),
        (fast("db10-lin", dtypes=["float16", "tf32"]), (*OURS, *PEERS)),
        (anchor, (*OURS, "torch", "raw")),
        (fast("db10", dtypes=["float16"], passes=["infer", "dgrad", "wgrad"]), ("plan", "auto", "raw")),
        (fast("deepbench", dtypes=["float16"], passes=["infer"])[:53], ("plan",)),
        (holes, ("auto", *ALGORITHMS)),
        (fast("frameworks", dtypes=["float16", "float32"]), (*OURS, *PEERS)),
        (fast("jax", dtypes=["float32"]), ("jax-ours", "jax", "plan")),
        (fast("deepbench", dtypes=["float16"], passes=["wgrad"]), ("plan",)),
        (fast("ragged", dtypes=["float16"]), ("auto", "plan", "torch", "torch-ours")),
        (fast("bidir", "proj", "models", dtypes=["float16"]), ("auto", "plan", "torch")),
        (fast("stream", dtypes=["bfloat16", "float32"]), ("plan", "graph", "torch", "torch-graph")),
    ]


def grid() -> list[tuple[list[Row], Sequence[str]]]:
    """Every algorithm on a grid of sizes, with `rule` for what torch would choose there: inference before training."""
    rows = [rows_of(["grid"], lambda row, which=which: row.which == which) for which in ("infer", "step")]
    return [(part, ALGORITHMS) for part in rows]


def _few_holes() -> list[Row]:
    """Two dozen problems of the holes, in the first of their types: every seventh of each hole, its first at least."""
    rows = []
    for tag in dict.fromkeys(problem.tag for problem in GROUPS["holes"].problems):
        if tag.startswith("H8"):  # its algorithm is among those that every row is run with
            continue
        chosen = set([p for p in GROUPS["holes"].problems if p.tag == tag][::7])
        rows += rows_of(
            ["holes"], lambda row, chosen=chosen: row.problem in chosen and row.dtype == row.problem.dtypes[0]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=BUDGET_S, help="stop after so many")
    parser.add_argument("--rows", type=int, help="stop after so many rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=float, default=0.06, help="seconds of one round of one competitor")
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    parser.add_argument("--grid", action="store_true", help="each algorithm on a grid of sizes, and nothing else")
    options = parser.parse_args()
    console = Console(stderr=True)
    try:
        engine_for("cuda")
    except PycudnnrnnError as error:
        sys.exit(f"bench-gpu needs an NVIDIA GPU, CuPy and cuDNN 9, and writes nothing without them: {error}")
    apart = ALGORITHMS if options.grid else APART
    hosts: dict[str, Host] = {
        name: Remote(name, None, ANSWER_WITHIN_S) if name in apart else Local(name)
        for name in COMPETITORS
        if COMPETITORS[name].device == "cuda"
    }
    parts = [
        Part(rows, [(name, None, hosts[name]) for name in names])
        for rows, names in (grid() if options.grid else plan())
    ]
    settings = Settings(options.rounds, options.sample, options.seconds, options.rows)
    results = measure(parts, settings, options.out, console)
    peers = ("eager", "graph", "auto", "torch", "torch-graph", "raw")
    ours, theirs = ("rule", ALGORITHMS[1:]) if options.grid else ("plan", peers)
    Console().print(table(results.rows, ours, theirs))
    for text, count in reasons(results.rows).items():
        console.print(f"{count} x {text}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
