"""Results files, written and read: JSON lines, the environment first, then a row each. None is ever overwritten."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._files import write_atomically

from .environment import SCHEMA, machine_folder
from .problems import Problem

FOLDER: Final = Path(__file__).parent / "results"

KEYS: Final = "group problem competitor copy pass dtype threads caches status reason median_us spread"
"""What every row has. A status is "ok", "not_run" or "failed"; a reason says why one is not "ok". Copies of a
competitor have the numbers 1, 2 and so on: they show what is noise."""

SIZES: Final = ("cell", "T", "B", "I", "U", "L", "D", "P", "input", "lengths", "carried")

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """One results file."""

    path: Path
    environment: Record
    rows: tuple[Record, ...]

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(row["group"] for row in self.rows))

    def select(self, **values: Any) -> list[Record]:
        """The rows that have these values; "which" stands for the key "pass"."""
        values = {"pass" if name == "which" else name: value for name, value in values.items()}
        return [row for row in self.rows if all(row.get(name) == value for name, value in values.items())]


def record(*, which: str, **fields: Any) -> Record:
    """Return a row of a report."""
    return dict.fromkeys(KEYS.split()) | {"copy": 1, "caches": "warm", "pass": which} | fields


def place(out: Path, environment: Record) -> Path:
    """Return the new file that `out` means: itself, or in a folder one by machine, second and commit.

    Raises:
        FileExistsError: `out` is a file that exists.
    """
    if out.suffix == ".jsonl":
        if out.exists():
            raise FileExistsError(f"{out} exists, and results are never overwritten: name another file, or a folder")
        return out
    time, dirty = environment["date"][:19].replace("T", "-").replace(":", ""), environment["dirty"]
    return out / machine_folder(environment) / f"{time}-{environment['commit']}{'-dirty' if dirty else ''}.jsonl"


def write(path: Path, environment: Record, rows: Iterable[Record]) -> None:
    """Write a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json_line(line) for line in ({"environment": environment}, *rows)]
    write_atomically(path, "".join(lines).encode())


def json_line(line: Record) -> str:
    return json.dumps(line, separators=(",", ":"), default=lambda v: getattr(v, "tolist", v.__str__)()) + "\n"


def load(path: Path) -> Run:
    """Read a file.

    Raises:
        ValueError: it is no results file, or of a newer schema.
    """
    try:
        first, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        environment = first["environment"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no results file: {type(error).__name__}: {error}") from error
    if environment.get("schema", 1) > SCHEMA:
        raise ValueError(f"{path} has schema {environment['schema']}, expecting {SCHEMA} or older")
    if "schema" not in environment:
        rows = [_upgraded(row) for row in rows]
    return Run(path, environment, tuple(rows))


def _upgraded(row: Record) -> Record:
    """Return a row of schema 1 in the letters of today."""
    sizes = {{"H": "U"}.get(name, name): value for name, value in row["sizes"].items()}
    return record(which=row["pass"], **{k: v for k, v in row.items() if k != "pass"}) | {
        "sizes": sizes, "problem": Problem(**sizes).name
    }  # fmt: skip


def runs(folder: Path = FOLDER) -> list[Run]:
    """Every results file, the newest first."""
    found = [load(path) for path in sorted(folder.glob("*/*.jsonl"))]
    return sorted(found, key=lambda run: (str(run.environment["date"]), run.path.name), reverse=True)
