"""Results files, written and read: JSON lines, the environment first, then a row each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pycudnnrnn._atomic import write_atomically

from .environment import machine_folder

FOLDER: Final = Path(__file__).parent / "results"

KEYS: Final = (
    "suite", "group", "problem", "competitor", "pass", "dtype", "threads", "status", "reason",
    "median_us", "p10_us", "p90_us", "rounds",
)  # fmt: skip
"""What every row has; what a suite knows beside it is its own. With `goal`, `value` and `unit` a row says which of the
goals it measures, and with what result."""

STATUSES: Final = ("ok", "not_run", "failed")

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """One results file."""

    path: Path
    environment: Record
    rows: tuple[Record, ...]

    @property
    def suites(self) -> set[str]:
        return {row["suite"] for row in self.rows}

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(row["group"] for row in self.rows))

    def select(self, **wanted: Any) -> list[Record]:
        """The rows that have these values; "which" stands for the key "pass"."""
        wanted = {"pass" if name == "which" else name: value for name, value in wanted.items()}
        return [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]


def record(
    *,
    suite: str,
    group: str,
    problem: str,
    competitor: str,
    which: str,
    dtype: str = "float32",
    threads: int | None = 1,
    reason: str | None = None,
    status: str = "ok",
    times_us: Sequence[float] = (),
    **more: Any,
) -> Record:
    """Return a row of a report; `times_us` are summed up in it, `more` is the suite's own."""
    found: Record = dict.fromkeys(("median_us", "p10_us", "p90_us", "rounds"))
    if len(times_us):
        p10, median, p90 = (round(float(np.percentile(times_us, percent)), 3) for percent in (10, 50, 90))
        found = {"median_us": median, "p10_us": p10, "p90_us": p90, "rounds": len(times_us)}
        found["lowest_us"] = round(min(times_us), 3)
    kept = {"suite": suite, "group": group, "problem": problem, "competitor": competitor, "pass": which}
    return kept | {"dtype": dtype, "threads": threads, "status": status, "reason": reason} | found | more


def place(out: Path, environment: Record, suite: str = "") -> Path:
    """Return the file that `out` means: itself, or in a folder one by machine, date, commit and suite."""
    if out.suffix == ".jsonl":
        return out
    name = f"{environment['date'][:10]}-{environment['commit']}{'-dirty' if environment['dirty'] else ''}"
    return out / machine_folder(environment) / f"{name}{suite and '-'}{suite}.jsonl"


def write(path: Path, environment: Record, rows: Iterable[Record]) -> None:
    """Write a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json_line(line) for line in ({"environment": environment}, *rows)]
    write_atomically(path, "".join(lines).encode())


def json_line(line: Record) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"


def load(path: Path) -> Run:
    """Read a file.

    Raises:
        ValueError: not a results file, with the line that is none.
    """
    rows: list[Record] = []
    environment: Record | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if environment is None:
            if set(found) != {"environment"}:
                raise ValueError(f'{path}: expecting {{"environment": ...}} in the first line')
            environment = found["environment"]
            continue
        missing = [key for key in KEYS if key not in found]
        if missing or found["status"] not in STATUSES:
            raise ValueError(f"{path}, line {number}: without {', '.join(missing) or 'a status that is known'}")
        if (found["status"] == "ok") != (found["reason"] is None):
            raise ValueError(f"{path}, line {number}: a reason belongs to what is not ok, and only there")
        rows.append(found)
    if environment is None:
        raise ValueError(f"{path}: empty")
    return Run(path, environment, tuple(rows))


def runs(folder: Path = FOLDER) -> list[Run]:
    """Every results file, the newest first."""
    found = [load(path) for path in sorted(folder.glob("*/*.jsonl"))]
    return sorted(found, key=lambda run: (str(run.environment["date"]), run.path.name), reverse=True)


def newest(found: list[Run], suite: str, machine: str = "") -> Iterator[Run]:
    """The runs that have rows of a suite, the newest first; of one machine's folder, if named."""
    return (run for run in found if suite in run.suites and machine in ("", run.path.parent.name))
