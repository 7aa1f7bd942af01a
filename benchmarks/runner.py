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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress

from . import figures
from .adapters import Competitor, NotRun
from .data import TOLERANCES, Array, reference, short, worst_error
from .environment import environment, now, state
from .hosts import Failed, Host, Local, Remote
from .problems import Problem, Row
from .results_files import SIZES, Record, json_line, place, record, write
from .timing import Sample, summary


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long to measure: rounds of a row, seconds of a round, and seconds or rows of the run (None: no limit)."""

    rounds: int = 3
    sample_s: float = 0.5
    budget_s: float | None = None
    rows_max: int | None = None

    def stops(self, measured: int, spent_s: float, next_s: float) -> str | None:
        """Return why no other row is begun, which would take about `next_s`; None where one may be."""
        if measured == self.rows_max:
            return f"the run's {measured} rows were measured"
        if measured and self.budget_s is not None and spent_s + next_s > self.budget_s:
            return f"the run's budget of {self.budget_s:g} s has no room for another row"
        return None


class Results:
    """A results file: JSON lines, the environment first and then a row each, every one on the disk when it is known."""

    def __init__(self, path: Path | None, environment: dict[str, Any]) -> None:
        self.environment, self.rows, self._path = environment, list[Record](), path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:  # another run may have chosen the same name
                file.write(json_line({"environment": environment}))

    def add(self, row: Record) -> None:
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json_line(row))

    def finish(self) -> None:
        """Write the whole again, with when it ended; a file without that was cut short."""
        self.environment |= {"after": state(), "finished": now()}
        if self._path is not None:
            write(self._path, self.environment, self.rows)


class Asked(NamedTuple):
    """Who runs a row: a competitor's name, with how many threads, in which host; once more has another number."""

    name: str
    threads: int | None
    host: Host
    copy: int = 1


class Part(NamedTuple):
    """Rows, and who runs them."""

    rows: Sequence[Row]
    hosts: Sequence[Asked]


def hosts_for(competitors: Sequence[Competitor], threads: Sequence[int]) -> list[Asked]:
    """A process for each CPU library and number of threads; what runs on a GPU is all in this one, in turns.

    A competitor that is named twice has two hosts: what they differ by is noise.
    """
    hosts: list[Asked] = []
    for n, who in enumerate(competitors):
        copy = 1 + [c.name for c in competitors[:n]].count(who.name)
        if who.device == "cpu":
            hosts += [Asked(who.name, count, Remote(who, count), copy) for count in threads]
        else:  # somebody's file may do anything to this process
            hosts.append(Asked(who.name, None, Remote(who) if who.module.endswith(".py") else Local(who), copy))
    return hosts


def measure(
    parts: Sequence[Part], settings: Settings, out: Path | None, console: Console, *, on_gpu: bool = False
) -> Results:
    """Run parts with a progress bar, and write the results file that `out` names: a new file, or a folder for one."""
    asked = sum(len(part.rows) * len(part.hosts) for part in parts)
    described = environment(rows=asked, settings=vars(settings))
    if not on_gpu:
        described["gpu"] = []  # one that is there and idle is no part of a run on the CPU, nor names its folder
    out = None if out is None else place(out, described)
    results = Results(out, described)
    timing = sum(settings.rounds * settings.sample_s * len(part.rows) * len(part.hosts) for part in parts)
    console.print(
        f"{sum(len(part.rows) for part in parts)} rows: {timing:.0f} s of timing, and checks and preparations"
    )
    with Progress(console=console) as progress:
        task = progress.add_task("compiling", total=sum(len(part.rows) for part in parts))
        run(parts, results, settings, lambda name: progress.update(task, advance=1, description=name), console.print)
    if out is not None:
        console.print(f"written to {out}")
    return results


def run(
    parts: Sequence[Part],
    results: Results,
    settings: Settings,
    advance: Callable[[str], Any] = lambda _: None,
    say: Callable[[str], Any] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure every row of every part by each of its hosts, and add a record for each to `results`.

    A row that does not fit into the budget is listed as not run, as is what an interrupt leaves; what was timed until
    then is kept. `advance` gets each row's name as it is done, `say` what can be said before the end.
    """
    reason = "interrupted"
    asked = [(row, part.hosts) for part in parts for row in part.rows]
    hosts = list({id(who.host): who.host for part in parts for who in part.hosts}.values())
    done: set[tuple[int, int]] = set()
    with contextlib.suppress(KeyboardInterrupt):
        for host in hosts:
            with contextlib.suppress(OSError):  # its rows will say why it cannot run
                host.start()
        compile_kernels(parts)
        started, seconds = clock(), list[float]()

        def over() -> bool:
            return settings.budget_s is not None and clock() - started > settings.budget_s

        for host in hosts:
            with contextlib.suppress(Exception):  # its rows will say why it cannot run
                results.environment["versions"] |= host.versions()
        for measured, (row, row_hosts) in enumerate(asked):
            begun = clock()
            expected = statistics.fmean(seconds) if seconds else settings.rounds * settings.sample_s * len(row_hosts)
            if stop := settings.stops(measured, begun - started, expected):
                reason = stop
                break
            peak_of(row, row_hosts, results.environment)
            _measure(row, row_hosts, settings, results, lambda n, at=measured: done.add((at, n)), over)
            advance(row.problem.name)
            seconds.append(clock() - begun)
            if over():
                reason = f"the run's budget of {settings.budget_s:g} s was used up"
            elif measured == 0 and settings.budget_s is not None:
                more = int(max(0.0, settings.budget_s - (clock() - started)) / max(seconds[0], 1e-9))
                say(f"about {min(len(asked), 1 + more)} of {len(asked)} rows fit into {settings.budget_s:g} s")
    for at, (row, row_hosts) in enumerate(asked):
        for n, who in enumerate(row_hosts):
            if (at, n) not in done:
                results.add(_record(row, who, "not_run", reason))
    results.environment["libraries"] = loaded = {}
    for name, host in {f"{w.name} {w.threads or ''}".strip(): w.host for part in parts for w in part.hosts}.items():
        with contextlib.suppress(Exception, KeyboardInterrupt):  # one that hung has none to tell
            loaded[name] = host.libraries()
    results.finish()
    for host in hosts:
        host.close()


def compile_kernels(parts: Sequence[Part]) -> None:
    """Let one process compile what all of them load from its cache: a tiny problem of each cell, pass and dtype."""
    kinds = {(r.problem.cell, r.which, r.dtype): r for part in parts for r in part.rows}
    host = next((who.host for part in parts for who in part.hosts if who.name == "compiled"), None)
    for row in kinds.values() if host is not None else ():
        tiny = row.problem.replace(T=8, B=8, I=16, U=16, L=1, D=1, P=None, lengths="full", carried=False)
        with contextlib.suppress(Failed, NotRun):  # its rows will say so
            host.results(row._replace(problem=tiny))


def peak_of(row: Row, hosts: Sequence[Asked], described: dict[str, Any]) -> None:
    """Measure what the machine can do in a row's dtype, with each number of threads, once a run."""
    peaks = described.setdefault("peaks", {})
    for who in hosts:
        if (key := f"{row.dtype} {who.threads or 'GPU'}") not in peaks:
            try:
                peaks[key] = who.host.peak(row.dtype)
            except Exception:  # noqa: BLE001  then no row has a share of it
                peaks[key] = {}


@dataclasses.dataclass
class _Entry:
    """One competitor on one row; `failure` is a status and a reason, once it is known that it will have no figure."""

    row: Row
    who: Asked
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
        checked = check(self.row, self.who.host)
        self.figures = self.who.host.prepare(self.row) | checked

    def sample(self, seconds: float) -> None:
        self.samples.append(self.who.host.sample(seconds))

    def record(self, peaks: dict[str, Any]) -> Record:
        if self.failure is not None:
            return _record(self.row, self.who, *self.failure)
        timed = self.figures | _record(self.row, self.who, "ok", None, **summary(self.samples))
        peak = peaks.get(f"{self.row.dtype} {self.who.threads or 'GPU'}", {})
        return timed | figures.of_row(timed, self.row.problem, peak)


def _measure(
    row: Row, hosts: Sequence[Asked], settings: Settings, results: Results, done: Callable[[int], Any],
    over: Callable[[], bool],
) -> None:  # fmt: skip
    """Check, prepare, time in turns; and add what became of each, also if an interrupt or the budget ends it."""
    entries = [_Entry(row, who) for who in hosts]
    try:
        for entry in entries:
            if not over():
                entry.attempt(entry.prepare)
        for turn in range(settings.rounds):
            for entry in entries if turn % 2 == 0 else reversed(entries):
                if not over():
                    entry.attempt(functools.partial(entry.sample, settings.sample_s))
        for entry in entries:
            with contextlib.suppress(Failed):  # one that died holds nothing any more
                entry.who.host.release()
    finally:
        for n, entry in enumerate(entries):
            if entry.samples or entry.failure:
                results.add(entry.record(results.environment.get("peaks", {})))
                done(n)


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


def _record(row: Row, who: Asked, status: str, reason: str | None, **more: Any) -> Record:
    p = row.problem
    return record(
        group=row.group, problem=p.name, competitor=who.name, copy=who.copy, which=row.which, dtype=row.dtype,
        threads=who.threads, caches=row.caches, status=status, reason=reason,
        sizes={name: getattr(p, name) for name in SIZES}, tag=p.tag, drawn_lengths=p.drawn_lengths, **more,
    )  # fmt: skip
