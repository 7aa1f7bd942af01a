"""Results files, read: JSON lines, the environment first, then a row each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

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
