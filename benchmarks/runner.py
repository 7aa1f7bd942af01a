"""Run rows by competitors, and write what came of each: a figure, or why there is none.

Before a competitor is timed on a row, one call's numbers are held against the NumPy engine in float64; wrong numbers
have no time. Competitors take turns: A B C, C B A, and so on. Nothing that one of them does ends the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from .adapters import NotRun
from .data import TOLERANCES, Array, reference, short, worst_error
from .environment import clocks, now
from .hosts import Failed, Host
from .problems import GROUPS, Problem, Row
from .results_files import Record, json_line, record, write
from .timing import Sample, summary

SUITE: Final = "speed"

ANYONE: Final = "*"
"""The competitor of a row that was run by none."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long to measure: rounds of a row, seconds of a round, and seconds or rows of the run (None: no limit)."""

    rounds: int = 3
    sample_s: float = 0.5
    budget_s: float | None = None
    rows_max: int | None = None


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
        self.environment |= {"finished": now(), "clocks_after": clocks()}
        if self._path is not None:
            write(self._path, self.environment, self.rows)


class Part(NamedTuple):
    """Rows, and who runs them: (competitor, threads, host)."""

    rows: Sequence[Row]
    hosts: Sequence[tuple[str, int | None, Host]]


def run(
    parts: Sequence[Part],
    results: Results,
    settings: Settings,
    advance: Callable[[str], Any] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure every row of every part by each of its hosts, and add a record for each to `results`.

    `advance` is told each row's name as it is done. Ctrl-C leaves the rest as not run.
    """
    started, stopped = clock(), ""
    hosts = list({id(host): host for part in parts for _, _, host in part.hosts}.values())
    for host in hosts:
        results.environment["versions"] |= _versions(host)
    for done, (row, part_hosts) in enumerate((row, part.hosts) for part in parts for row in part.rows):
        if not stopped and done == settings.rows_max:
            stopped = f"the run's {done} rows were measured"
        if not stopped and settings.budget_s is not None and clock() - started >= settings.budget_s:
            stopped = f"the run's budget of {settings.budget_s:g} s was spent"
        records: list[Record] = []
        if not stopped:
            try:
                records = _measure(row, part_hosts, settings)
            except KeyboardInterrupt:
                stopped = "interrupted"
        if stopped:
            records = [_record(row, name, threads, "not_run", stopped) for name, threads, _ in part_hosts]
        for found in records:
            results.add(found)
        advance(row.problem.name)
    for left in _left_out([row for part in parts for row in part.rows]):
        results.add(left)
    for host in hosts:
        host.close()
    results.finish()


def _left_out(rows: Sequence[Row]) -> Iterable[Record]:
    """What the groups have beside the rows that were chosen: every row of a group is in its report."""
    chosen = set(rows)
    for group in dict.fromkeys(row.group for row in rows):
        for row in GROUPS[group].rows():
            if row not in chosen:
                yield _record(row, ANYONE, None, "not_run", "not among the rows chosen for this run")


def _versions(host: Host) -> dict[str, Any]:
    try:
        return host.versions()
    except Exception:  # noqa: BLE001  its rows will say why it cannot run
        return {}


@dataclasses.dataclass
class _Entry:
    """One competitor on one row; `outcome` is there once it is known that it will have no figure."""

    row: Row
    name: str
    threads: int | None
    host: Host
    figures: Record = dataclasses.field(default_factory=dict)
    samples: list[Sample] = dataclasses.field(default_factory=list)
    calibrations: list[float] = dataclasses.field(default_factory=list)
    outcome: Record | None = None

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something; that it raises is the row's outcome."""
        if self.outcome is not None:
            return
        try:
            action()
        except NotRun as reason:
            self.outcome = self.record("not_run", str(reason))
        except Exception as error:  # noqa: BLE001  a row's exception is its result
            text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.outcome = self.record("failed", text)

    def prepare(self) -> None:
        checked = check(self.row, self.host)
        self.figures = self.host.prepare(self.row) | checked

    def sample(self, seconds: float) -> None:
        sample, calibration = self.host.sample(seconds)
        self.samples.append(sample)
        self.calibrations.append(calibration)

    def result(self) -> Record:
        if self.outcome is not None:
            return self.outcome
        calibration = [min(self.calibrations), max(self.calibrations)]
        return _rounded(self.record("ok", None, **summary(self.samples), calibration_us=calibration, **self.figures))

    def record(self, status: str, reason: str | None, **figures: Any) -> Record:
        return _record(self.row, self.name, self.threads, status, reason, **figures)


def _measure(row: Row, hosts: Sequence[tuple[str, int | None, Host]], settings: Settings) -> list[Record]:
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
    return [entry.result() for entry in entries]


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


def _rounded(row: Record) -> Record:
    """Five digits are more than any clock here knows."""

    def digits(value: Any) -> Any:
        if isinstance(value, list):
            return [digits(v) for v in value]
        return float(f"{value:.5g}") if isinstance(value, float) else value

    return {name: digits(value) for name, value in row.items()}


def rows_of(groups: Iterable[str], keep: Callable[[Row], bool] = lambda _: True) -> list[Row]:
    """List the rows of groups, in their order."""
    return [row for group in groups for row in GROUPS[group].rows() if keep(row)]
