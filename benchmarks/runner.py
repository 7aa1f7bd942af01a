"""Run rows by competitors, and write what came of each: a figure, or why there is none.

Before a competitor is timed on a row, one call's numbers are held against the NumPy engine in float64; wrong numbers
have no time. Competitors take turns: A B C, C B A, and so on. Nothing that one of them does ends the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import Progress

from .adapters import COMPETITORS, NotRun
from .data import TOLERANCES, Array, reference, short, worst_error
from .environment import environment, now
from .hosts import Failed, Host, Local, Remote
from .problems import Problem, Row
from .results_files import Record, json_line, place, record, write
from .timing import Sample, summary

SUITE: Final = "speed"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long to measure: rounds of a row, seconds of a round, and seconds or rows of the run (None: no limit)."""

    rounds: int = 3
    sample_s: float = 0.5
    budget_s: float | None = None
    rows_max: int | None = None

    def stops(self, measured: int, spent_s: float) -> str | None:
        """Return why no other row is begun; None where one may be."""
        if measured == self.rows_max:
            return f"the run's {measured} rows were measured"
        if self.budget_s is not None and spent_s >= self.budget_s:
            return f"the run's budget of {self.budget_s:g} s was spent"
        return None


class Results:
    """A results file: JSON lines, the environment first and then a row each, every one on the disk when it is known."""

    def __init__(self, path: Path | None, environment: dict[str, Any]) -> None:
        self.environment, self.rows, self._path = environment, list[Record](), path
        if path is not None:
            write(path, environment, ())

    def add(self, row: Record) -> None:
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json_line(row))

    def finish(self) -> None:
        """Write the whole again, with when it ended; a file without that was cut short."""
        self.environment["finished"] = now()
        if self._path is not None:
            write(self._path, self.environment, self.rows)


Asked = tuple[str, int | None, Host]
"""Who runs a row: competitor, threads, host."""


class Part(NamedTuple):
    """Rows, and who runs them."""

    rows: Sequence[Row]
    hosts: Sequence[Asked]


def hosts_for(names: Sequence[str], threads: Sequence[int]) -> list[Asked]:
    """A process for each CPU library and number of threads; what runs on a GPU is all in this one, in turns."""
    found: list[Asked] = []
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
    asked = sum(len(part.rows) * len(part.hosts) for part in parts)
    described = environment(rows=asked, settings=vars(settings))
    if all(COMPETITORS[name].device == "cpu" for part in parts for name, *_ in part.hosts):
        described["gpu"] = []  # one that is there and idle is no part of a run on the CPU, nor names its folder
    out = None if out is None else place(out, described)
    results = Results(out, described)
    with Progress(console=console) as progress:
        task = progress.add_task("measuring", total=sum(len(part.rows) for part in parts))
        run(parts, results, settings, lambda name: progress.update(task, advance=1, description=name))
    if out is not None:
        console.print(f"written to {out}")
    return results


def run(
    parts: Sequence[Part],
    results: Results,
    settings: Settings,
    advance: Callable[[str], Any] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure every row of every part by each of its hosts, and add a record for each to `results`.

    A row that is not begun within the budget is listed as not run, as is what an interrupt leaves. `advance` gets each
    row's name as it is done.
    """
    started, reason = clock(), "interrupted"
    asked = [(row, part.hosts) for part in parts for row in part.rows]
    hosts = list({id(host): host for part in parts for _, _, host in part.hosts}.values())
    with contextlib.suppress(KeyboardInterrupt):
        for host in hosts:
            with contextlib.suppress(OSError):  # its rows will say why it cannot run
                host.start()
        for host in hosts:
            with contextlib.suppress(Exception):  # its rows will say why it cannot run
                results.environment["versions"] |= host.versions()
        for measured, (row, row_hosts) in enumerate(asked):
            if stop := settings.stops(measured, clock() - started):
                reason = stop
                break
            for found in _measure(row, row_hosts, settings):
                results.add(found)
            advance(row.problem.name)
    wanted = [(row, name, threads) for row, row_hosts in asked for name, threads, _ in row_hosts]
    for left in wanted[len(results.rows) :]:
        results.add(_record(*left, "not_run", reason))
    results.finish()
    for host in hosts:
        host.close()


@dataclasses.dataclass
class _Entry:
    """One competitor on one row; `failure` is a status and a reason, once it is known that it will have no figure."""

    row: Row
    name: str
    threads: int | None
    host: Host
    figures: Record = dataclasses.field(default_factory=dict)
    samples: list[Sample] = dataclasses.field(default_factory=list)
    failure: tuple[str, str] | None = None

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something; that it raises is the row's outcome."""
        if self.failure is not None:
            return
        try:
            action()
        except NotRun as reason:
            self.failure = "not_run", str(reason)
        except Failed as reason:
            self.failure = "failed", str(reason)
        except Exception as error:  # noqa: BLE001  a row's exception is its result
            self.failure = "failed", f"{type(error).__name__}: {error}"

    def prepare(self) -> None:
        checked = check(self.row, self.host)
        self.figures = self.host.prepare(self.row) | checked

    def sample(self, seconds: float) -> None:
        self.samples.append(self.host.sample(seconds))

    def record(self) -> Record:
        if self.failure is not None:
            return _record(self.row, self.name, self.threads, *self.failure)
        return _record(self.row, self.name, self.threads, "ok", None, **summary(self.samples), **self.figures)


def _measure(row: Row, hosts: Sequence[Asked], settings: Settings) -> list[Record]:
    """Check, prepare, time in turns; and say what became of each."""
    entries = [_Entry(row, *entry) for entry in hosts]
    for entry in entries:
        entry.attempt(entry.prepare)
    for turn in range(settings.rounds):
        for entry in entries if turn % 2 == 0 else reversed(entries):
            entry.attempt(functools.partial(entry.sample, settings.sample_s))
    for entry in entries:
        with contextlib.suppress(Failed):  # one that died holds nothing any more
            entry.host.release()
    return [entry.record() for entry in entries]


def check(row: Row, host: Host) -> dict[str, float]:
    """Hold one call's numbers against the NumPy engine.

    Raises:
        Failed: they are wrong.
    """
    small = row._replace(problem=short(row.problem))
    error = worst_error(host.results(small), _reference(small.problem, row.which))
    allowed = TOLERANCES[row.dtype]
    if not error <= allowed:
        raise Failed(f"wrong numbers: an error of {error:.3g} of the largest, where {allowed:g} is allowed")
    return {"error": error, "error_allowed": allowed}


@functools.lru_cache(maxsize=2)
def _reference(problem: Problem, which: str) -> dict[str, Array]:
    return reference(problem, which)


def _record(row: Row, competitor: str, threads: int | None, status: str, reason: str | None, **figures: Any) -> Record:
    p = row.problem
    sizes = {name: getattr(p, name) for name in ("cell", "L", "D", "B", "T", "I", "H", "P")}
    return record(
        suite=SUITE, group=row.group, problem=p.name, competitor=competitor, which=row.which, dtype=row.dtype,
        threads=threads, status=status, reason=reason, sizes=sizes, tag=p.tag, **figures,
    )  # fmt: skip
