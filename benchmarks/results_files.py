"""Results files, written and read: JSON lines, the environment first, then a row each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._files import write_atomically

from .environment import machine_folder

FOLDER: Final = Path(__file__).parent / "results"

KEYS: Final = (
    "suite", "group", "problem", "competitor", "pass", "dtype", "threads", "status", "reason",
    "median_us", "p10_us", "p90_us", "rounds",
)  # fmt: skip
"""What every row has; what a suite knows beside it is its own. With `goal`, `value` and `unit` a row says which of the
goals it measures, and with what result. A status is "ok", "not_run" or "failed"; a reason says why one is not "ok"."""

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


def record(*, which: str, **fields: Any) -> Record:
    """Return a row of a report."""
    return dict.fromkeys(KEYS) | {"pass": which} | fields


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
    """Read a file."""
    first, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return Run(path, first["environment"], tuple(rows))


def runs(folder: Path = FOLDER) -> list[Run]:
    """Every results file, the newest first."""
    found = [load(path) for path in sorted(folder.glob("*/*.jsonl"))]
    return sorted(found, key=lambda run: (str(run.environment["date"]), run.path.name), reverse=True)


def newest(found: Iterable[Run], suite: str, machine: str = "") -> Iterator[Run]:
    """The runs that have rows of a suite, the newest first; of one machine's folder, if named."""
    return (run for run in found if suite in run.suites and machine in ("", run.path.parent.name))
