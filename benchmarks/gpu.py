"""The GPU report inside eight minutes: `python -m benchmarks.gpu`.

Wherever it ends, what came before has told the most: a row of each group, then a second of each, and so on. What is not
reached in time is listed as not run.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import PycudnnrnnError

from . import report
from .adapters import COMPETITORS, raw_cudnn
from .hosts import Host, Local, Remote
from .problems import Problem, Row, rows_of
from .results_files import FOLDER
from .runner import Asked, Part, Settings, measure

BUDGET_S = 440.0
"""Of eight minutes, what is left beside the start, the build of the C++ program and the last row."""

OURS = ("eager", "plan", "graph", "auto")
PEERS = ("torch", "torch-ours", "torch-graph", "raw", "raw-graph", "jax", "jax-ours")
ALGORITHMS = ("rule", "standard", "persist_static", "persist_static_small_h")

COMPILED = ("persist_dynamic",)
"""Algorithms that cuDNN compiles for every shape, in seconds: their rows are the last."""

SOMETIMES = ("eager", "raw-graph", "torch-graph", "jax", "jax-ours")
"""Who runs on every third row of a part: their goals are read off the kind of a row, not off each."""

APART = ("auto", "jax", "jax-ours", *COMPILED, *(name for name in ALGORITHMS if name != "standard"))
"""Who runs in a process of its own: kernels that may wait for each other for ever, and who wants the whole memory."""

ANSWER_WITHIN_S = 20.0
"""After that a kernel is taken to wait for itself: its process is ended, and its competitor has no other row."""

EVERYONE = (*OURS, *PEERS, *ALGORITHMS, *COMPILED)

HOLES = ("holes", "holes-bfloat16")

Plan = list[tuple[Row, list[str]]]
"""Rows, each with who runs it."""


def plan(competitors: Sequence[str] = ()) -> Plan:
    """Return every row of the report, for these competitors or all: one row of each group, then a second of each."""

    def rows(group: str, *dtypes: str) -> list[Row]:
        return rows_of([group], lambda row: row.dtype in dtypes)

    anchor = [row for row in rows_of(["flashrnn"]) if (row.problem.B, row.problem.T, row.problem.U) == (16, 1024, 768)]
    order = breadth_first([
        (rows("stream", "float16"), (*OURS, *PEERS)),
        (rows("db10-lin", "float16", "tf32"), (*OURS, *PEERS)),
        (anchor, (*OURS, "torch", "torch-ours", "raw")),
        (rows("db10", "float16"), ("plan", "auto", "raw")),
        (rows_of(HOLES), ("auto", *ALGORITHMS)),
        (rows("frameworks", "float16", "float32"), (*OURS, *PEERS)),
        (rows("kinds", "float16"), ("plan", "auto", "torch", "torch-ours")),
        (rows("stream", "float32"), ("plan", "graph", "torch", "torch-graph")),
    ]) + breadth_first([(rows_of(HOLES), COMPILED)])  # fmt: skip
    chosen = [(row, [name for name in names if not competitors or name in competitors]) for row, names in order]
    return [entry for entry in chosen if entry[1]]


def breadth_first(parts: list[tuple[list[Row], Sequence[str]]]) -> Plan:
    """Take a row of each part in turn; `SOMETIMES` run on a part's first row and on every third after it."""
    turns = [
        [(row, [n for n in names if place % 3 == 0 or n not in SOMETIMES]) for place, row in enumerate(_in_turn(rows))]
        for rows, names in parts
    ]
    return [entry for turn in itertools.zip_longest(*turns) for entry in turn if entry is not None]


def _in_turn(rows: Sequence[Row]) -> Iterator[Row]:
    """Order rows so that a few are of every kind: each problem has one before any has two."""
    of: dict[Problem, list[Row]] = {}
    for row in rows:
        of.setdefault(row.problem, []).append(row)
    for turn in range(max(map(len, of.values()))):
        for place, own in enumerate(of.values()):
            if turn < len(own):
                yield own[(turn + place) % len(own)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=BUDGET_S, help="stop after so many")
    parser.add_argument("--rows", type=int, help="stop after so many rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=float, default=0.06, help="seconds of one round of one competitor")
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    parser.add_argument("--competitors", nargs="+", default=[], choices=EVERYONE, metavar="NAME", help="these alone")
    options = parser.parse_args()
    try:
        engine_for("cuda")
    except PycudnnrnnError as error:
        sys.exit(f"benchmarks.gpu needs an NVIDIA GPU, CuPy and cuDNN 9, and writes nothing without them: {error}")

    def host(name: str) -> Host:
        who = COMPETITORS[name]
        return Remote(who, None, ANSWER_WITHIN_S) if name in APART else Local(who)

    hosts = {name: host(name) for name, who in COMPETITORS.items() if who.device == "cuda"}
    parts, again = [], {name: host(name) for name in ("plan", "auto", *COMPILED)}
    for row, names in plan(options.competitors):
        twice = next((name for name in again if name in names), names[0])  # what the two differ by is noise
        once = [Asked(name, None, hosts[name]) for name in names]
        parts.append(Part([row], [*once, Asked(twice, None, again.setdefault(twice, host(twice)), 2)]))
    threading.Thread(target=_build, daemon=True).start()  # while the processes of the others start
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends a run early leaves a whole report
    settings = Settings(options.rounds, options.sample, options.seconds, options.rows)
    results = measure(parts, settings, options.out, Console(stderr=True), on_gpu=True)
    print(report.text(results.rows))


def _build() -> None:
    """Build the C++ program; its rows say why if it cannot be built."""
    with contextlib.suppress(Exception):
        raw_cudnn.program()


if __name__ == "__main__":
    main()
