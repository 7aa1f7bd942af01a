"""Run rows by competitors, and write what came of each: a figure, or why there is none.

Before a competitor is timed on a row, one call's numbers are held against the NumPy engine in float64; wrong numbers
have no time. Competitors take turns: A B C, C B A, and so on. Nothing that one of them does ends the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
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

    def stops(self, measured: int, spent_s: float, needed_s: float) -> str | None:
        """Return why no row is begun that needs so many seconds; None where one may be."""
        if measured == self.rows_max:
            return f"the run's {measured} rows were measured"
        if self.budget_s is None or spent_s + needed_s < self.budget_s:
            return None
        if spent_s >= self.budget_s:
            return f"the run's budget of {self.budget_s:g} s was spent"
        left = f"{self.budget_s - spent_s:.2g} of the run's {self.budget_s:g} s were left"
        return f"it takes about {needed_s:.2g} s, and {left}"


class Pace:
    """How long competitors take over a row: the median of what each has taken so far."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def note(self, competitor: str, seconds: float) -> None:
        self._seconds.setdefault(competitor, []).append(seconds)

    def of(self, competitors: Sequence[str]) -> float:
        """Return the seconds of a row of these; of one that has run nothing yet, what the others take."""
        medians = {name: statistics.median(seconds) for name, seconds in self._seconds.items()}
        unknown = statistics.median(medians.values()) if medians else 0.0
        return sum(medians.get(name, unknown) for name in competitors)


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


Asked = tuple[str, int | None, Host]
"""Who runs a row: competitor, threads, host."""


class Part(NamedTuple):
    """Rows, and who runs them."""

    rows: Sequence[Row]
    hosts: Sequence[Asked]


def run(
    parts: Sequence[Part],
    results: Results,
    settings: Settings,
    advance: Callable[[str], Any] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure every row of every part by each of its hosts, and add a record for each to `results`.

    A row that would not end within the budget, by what its competitors took before, is listed as not run. `advance` is
    told each row's name as it is done. An interrupt leaves the rest as not run.
    """
    started, pace = clock(), Pace()
    asked = [(row, part.hosts) for part in parts for row in part.rows]
    hosts = list({id(host): host for part in parts for _, _, host in part.hosts}.values())
    with contextlib.suppress(KeyboardInterrupt):
        for host in hosts:
            with contextlib.suppress(OSError):  # its rows will say why it cannot run
                host.start()
        for host in hosts:
            results.environment["versions"] |= _versions(host)
        measured = 0
        for row, row_hosts in asked:
            reason = settings.stops(measured, clock() - started, pace.of([name for name, _, _ in row_hosts]))
            records = [_record(row, name, threads, "not_run", reason) for name, threads, _ in row_hosts]
            if not reason:
                records, measured = _measure(row, row_hosts, settings, pace, clock), measured + 1
            for found in records:
                results.add(found)
            advance(row.problem.name)
    for left in _unlisted(asked, results.rows):
        results.add(left)
    results.finish()
    for host in hosts:
        host.close()


def _unlisted(asked: Sequence[tuple[Row, Sequence[Asked]]], listed: Sequence[Record]) -> list[Record]:
    """What a report lacks: what an interrupted run was asked for, and every row of the groups beside those chosen."""

    def key(record: Record) -> tuple[Any, ...]:
        return tuple(record[name] for name in ("group", "problem", "pass", "dtype", "competitor", "threads"))

    known, chosen = {key(record) for record in listed}, {row for row, _ in asked}
    all_asked = [_record(row, who, threads, "not_run", "interrupted") for row, to in asked for who, threads, _ in to]
    beside = [
        _record(row, ANYONE, None, "not_run", "not among the rows chosen for this run")
        for group in dict.fromkeys(row.group for row, _ in asked)
        for row in GROUPS[group].rows()
        if row not in chosen
    ]
    return [record for record in all_asked if key(record) not in known] + beside


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
    seconds: float = 0.0
    samples: list[Sample] = dataclasses.field(default_factory=list)
    calibrations: list[float] = dataclasses.field(default_factory=list)
    outcome: Record | None = None

    def attempt(self, action: Callable[[], None], clock: Callable[[], float]) -> None:
        """Do something, and count its seconds; that it raises is the row's outcome."""
        if self.outcome is not None:
            return
        started = clock()
        try:
            action()
        except NotRun as reason:
            self.outcome = self.record("not_run", str(reason))
        except Exception as error:  # noqa: BLE001  a row's exception is its result
            text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.outcome = self.record("failed", text)
        self.seconds += clock() - started

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


def _measure(
    row: Row,
    hosts: Sequence[Asked],
    settings: Settings,
    pace: Pace,
    clock: Callable[[], float],
) -> list[Record]:
    """Check, prepare, time in turns; and say what became of each."""
    entries = [_Entry(row, *entry) for entry in hosts]
    for entry in entries:
        entry.attempt(entry.prepare, clock)
    for turn in range(settings.rounds):
        for entry in entries if turn % 2 == 0 else reversed(entries):
            entry.attempt(functools.partial(entry.sample, settings.sample_s), clock)
    for entry in entries:
        pace.note(entry.name, entry.seconds)
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
