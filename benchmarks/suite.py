"""Choose rows and competitors, run them, and put a table on the screen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .adapters import COMPETITORS
from .environment import command_line, environment
from .hosts import Host, Local, Remote
from .problems import Row
from .results_files import Record, place
from .runner import ANYONE, Part, Results, Settings, run


def hosts_for(names: Sequence[str], threads: Sequence[int]) -> list[tuple[str, int | None, Host]]:
    """A process for each CPU library and number of threads; what runs on a GPU is all in this one, in turns."""
    found: list[tuple[str, int | None, Host]] = []
    for name in names:
        if COMPETITORS[name].device == "cpu":
            found += [(name, count, Remote(name, count)) for count in threads]
        else:
            found.append((name, None, Local(name)))
    return found


def measure(parts: Sequence[Part], settings: Settings, out: Path | None, console: Console) -> Results:
    """Run parts with a progress bar, and write the results file that `out` names.

    A folder gets a file by machine, date and commit.
    """
    described = environment(
        command_line(), rows=sum(len(part.rows) * len(part.hosts) for part in parts), settings=vars(settings)
    )
    if out is not None:
        out = place(out, described)
    results = Results(out, described)
    with _progress(sum(len(part.rows) for part in parts), console) as advance:
        run(parts, results, settings, advance)
    if out is not None:
        console.print(f"written to {out}")
    return results


@contextlib.contextmanager
def _progress(total: int, console: Console) -> Iterator[Callable[[str], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=total)
        yield lambda name: progress.update(task, advance=1, description=name)


def table(rows: Sequence[Record], ours: str, theirs: Sequence[str]) -> Table:
    """Microseconds of every row, and ours over each peer's: below 1 is faster. What has no figure says so."""
    made = Table(
        title=f"microseconds, median; and {ours} over each of the others",
        caption=f"{HOST_TIMED} by the host's clock, with its waiting, where the others are timed by events on the GPU",
    )
    for heading in ("problem", "pass", "dtype", "threads", ours, *theirs):
        made.add_column(heading, no_wrap=heading == "problem")
    lines: dict[Any, dict[str, Record]] = {}
    for row in rows:
        if row["competitor"] == ANYONE:
            continue
        key = tuple(row[name] for name in ("group", "problem", "pass", "dtype", "threads"))
        lines.setdefault(key, {})[row["competitor"]] = row
    for (_, problem, which, dtype, threads), line in lines.items():
        own = line.get(ours)
        cells = [cell(line.get(name), own if name != ours else None) for name in (ours, *theirs)]
        made.add_row(problem, which, dtype, "" if threads is None else str(threads), *cells)
    return made


HOST_TIMED = "(h)"
"""Beside a figure of a GPU: it was timed by the host's clock."""


def timed_by(row: Record) -> str:
    """Return the mark of what was timed on a GPU by the host's clock, which counts more than events do."""
    on_gpu = getattr(COMPETITORS.get(row["competitor"]), "device", "") == "cuda"
    return f" {HOST_TIMED}" if on_gpu and row.get("clock") == "host" else ""


def cell(row: Record | None, ours: Record | None = None) -> str:
    """One figure with its ratio, or why there is none."""
    if row is None:
        return ""
    if row["status"] != "ok":
        return str(row["status"]).replace("_", " ")
    text = f"{row['median_us']:,.0f}" if row["median_us"] >= 100 else f"{row['median_us']:.1f}"
    text += timed_by(row)
    if ours is not None and ours["status"] == "ok":
        text += f"  {ours['median_us'] / row['median_us']:.2f}"
    return text


def reasons(rows: Sequence[Record]) -> dict[str, int]:
    """Why rows have no figure, and how many each."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["status"] != "ok":
            text = f"{row['competitor']}, {row['status'].replace('_', ' ')}: {row['reason']}"
            counts[text] = counts.get(text, 0) + 1
    return counts


def part(rows: Sequence[Row], names: Sequence[str], threads: Sequence[int]) -> Part:
    return Part(rows, hosts_for(names, threads))
