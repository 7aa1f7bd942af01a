"""The GPU report inside eight minutes: `python -m benchmarks.gpu` (or `make bench-gpu`).

Wherever it ends, what came before has told the most: a row of each group, the one that a goal is read off or the
largest, and then a second of each. What is not reached in time is listed as not run. `--grid` times each algorithm on
each cell, H and B instead.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import PycudnnrnnError

from .adapters import COMPETITORS
from .goals import NETS
from .hosts import Host, Local, Remote
from .model import flops
from .problems import GROUPS, TRAINING, Problem, Row
from .results_files import FOLDER
from .runner import Part, Settings, rows_of
from .suite import measure, reasons, table

BUDGET_S = 440.0
"""Of eight minutes, what is left beside the start, the build of the C++ program and the last row."""

OURS = ("eager", "plan", "graph", "auto")
PEERS = ("torch", "torch-ours", "torch-graph", "raw", "raw-graph", "jax")
TORCH = tuple(name for name in PEERS if name in ("torch", "torch-ours"))
PREPARED = ("rule", "standard", "persist_static", "small_h")

COMPILED = ("persist_dynamic",)
"""Algorithms that cuDNN compiles for every shape, in seconds: their rows are the last."""

SOMETIMES = ("eager", "raw-graph", "torch-graph")
"""Who runs on every third row of a part: their goals are read off the kind of a row, not off each."""

APART = ("auto", "jax", "jax-ours", *COMPILED, *(name for name in PREPARED if name != "standard"))
"""Who runs in a process of its own: kernels that may wait for each other for ever, and who wants the whole memory."""

ANSWER_WITHIN_S = 60.0
"""After that a kernel is taken to wait for itself; its process is ended, and the next row gets another."""

Parts = list[tuple[list[Row], Sequence[str]]]
"""Rows, and who runs them."""


def plan() -> list[tuple[Row, list[str]]]:
    """Every row with who runs it: one row of each group, then a second of each, and so on."""

    def fast(*groups: str, dtypes: Sequence[str] = ("float16",), passes: Sequence[str] = TRAINING) -> list[Row]:
        return rows_of(groups, lambda row: row.dtype in dtypes and row.which in passes)

    holes = [row for row in _few_holes() if row.which == "infer" or row.problem.tag in ("H1", "H2")]
    anchor = [row for row in rows_of(["flashrnn"]) if (row.problem.B, row.problem.T) == (16, 1024)]
    parts: Parts = [
        (fast("stream"), (*OURS, *PEERS)),
        (fast("db10-lin", dtypes=["float16", "tf32"]), (*OURS, *PEERS)),
        (anchor, (*OURS, *TORCH, "raw")),
        (fast("db10", passes=["infer", "dgrad", "wgrad"]), ("plan", "auto", "raw")),
        (fast("deepbench", passes=["infer"])[:53], ("plan",)),
        (holes, ("auto", *PREPARED)),
        (fast("frameworks", dtypes=["float16", "float32"]), (*OURS, *PEERS)),
        (fast("jax", dtypes=["float32"]), ("jax-ours", "jax", "plan", "eager")),
        *((fast(group), ("auto", "plan", *TORCH)) for group in ("ragged", "bidir", "proj", "models")),
        (fast("deepbench", passes=["wgrad"]), ("plan",)),
        (fast("stream", dtypes=["bfloat16", "float32"]), ("plan", "graph", *TORCH, "torch-graph")),
    ]
    return _breadth_first(parts) + _breadth_first([(holes, COMPILED)])


def grid() -> list[tuple[Row, list[str]]]:
    """Every algorithm on a grid of sizes, with `rule` for what torch would choose there: inference before training."""
    rows = [rows_of(["grid"], lambda row, which=which: row.which == which) for which in TRAINING]
    return [entry for names in (PREPARED, COMPILED) for part in rows for entry in _breadth_first([(part, names)])]


def _breadth_first(parts: Parts) -> list[tuple[Row, list[str]]]:
    """Take a row of each part in turn; `SOMETIMES` run on a part's first row and on every third after it."""
    turns = [
        [(row, [n for n in names if place % 3 == 0 or n not in SOMETIMES]) for place, row in enumerate(_in_turn(rows))]
        for rows, names in parts
    ]
    return [entry for turn in itertools.zip_longest(*turns) for entry in turn if entry is not None]


def _in_turn(rows: Sequence[Row]) -> list[Row]:
    """Order rows so that a few of them are of every kind.

    What a goal names comes first, then the largest problem, the smallest, the next to the largest, and so on. Each has
    one row, of another type and pass than the one before, until all have had one.
    """
    of: dict[Problem, list[Row]] = {}
    for row in rows:
        of.setdefault(row.problem, []).append(row)
    largest = sorted(of, key=flops, reverse=True)
    named = [problem for problem in largest if of[problem][0].group == "stream" and problem.name in NETS]
    rest = [problem for problem in largest if problem not in named]
    problems = named + [problem for pair in zip(rest, reversed(rest), strict=True) for problem in pair][: len(rest)]
    most = max(map(len, of.values()))
    return [
        of[problem][(turn + place) % len(of[problem])]
        for turn in range(most)
        for place, problem in enumerate(problems)
        if turn < len(of[problem])
    ]


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
    apart = (*PREPARED, *COMPILED) if options.grid else APART
    hosts: dict[str, Host] = {
        name: Remote(name, None, ANSWER_WITHIN_S) if name in apart else Local(name)
        for name in COMPETITORS
        if COMPETITORS[name].device == "cuda"
    }
    order = grid() if options.grid else plan()
    parts = [Part([row], [(name, None, hosts[name]) for name in names]) for row, names in order]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends a run early leaves a whole report
    settings = Settings(options.rounds, options.sample, options.seconds, options.rows)
    results = measure(parts, settings, options.out, console)
    peers = ("eager", "graph", "auto", "torch", "torch-graph", "raw")
    ours, theirs = ("rule", (*PREPARED[1:], *COMPILED)) if options.grid else ("plan", peers)
    Console().print(table(results.rows, ours, theirs))
    for text, count in reasons(results.rows).items():
        console.print(f"{count} x {text}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
