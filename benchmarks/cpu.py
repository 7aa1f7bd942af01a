"""The group `cpu` as the page shows it: which run, in which settings, and the ratios of our time to each library's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .adapters import AGAINST, OURS
from .goals import Ratios, compare
from .results_files import Record, Run, newest
from .runner import ANYONE

TORCH: Final = "torch-cpu"

TITLES: Final = {"compiled": "ours, compiled", "numpy": "ours, NumPy", TORCH: "torch", "jax-cpu": "JAX"}
"""Column headings; other competitors keep their names."""

PASSES: Final = {"infer": "forward", "step": "training step"}


class Setting(NamedTuple):
    """A dtype and a number of threads."""

    dtype: str
    threads: int

    def __str__(self) -> str:
        return f"{self.dtype}, {self.threads} thread{'' if self.threads == 1 else 's'}"


def newest_run(found: Sequence[Run]) -> Run | None:
    """Return the newest run of the group."""
    return next((run for run in newest(list(found), "speed", "cpu") if rows(run)), None)


def rows(run: Run) -> list[Record]:
    """Return the rows that a competitor ran or was to run."""
    return [row for row in run.select(group="cpu", suite="speed") if row["competitor"] != ANYONE]


def competitors(run: Run) -> list[str]:
    """Return the names in the order of the columns: ours first."""
    there = dict.fromkeys(row["competitor"] for row in rows(run))
    usual = [name for name in (*OURS["cpu"], *AGAINST["cpu"]) if name in there]
    return usual + [name for name in there if name not in usual]


def missing(run: Run) -> list[str]:
    """Return the usual competitors that the run does not have."""
    return [name for name in (*OURS["cpu"], *AGAINST["cpu"]) if name not in competitors(run)]


def ours(run: Run) -> str:
    """Return which of ours the ratios are of: the first with a time, compiled before NumPy's."""
    timed = {row["competitor"] for row in rows(run) if row["status"] == "ok"}
    return next((name for name in OURS["cpu"] if name in timed), OURS["cpu"][0])


def settings(run: Run) -> list[Setting]:
    """Return every setting, float32 before other dtypes and few threads before many."""
    found = {Setting(row["dtype"], row["threads"]) for row in rows(run)}
    return sorted(found, key=lambda setting: (setting.dtype != "float32", setting))


def main_setting(run: Run) -> Setting:
    """Return the first setting with a ratio to torch, or the first of all."""
    every = settings(run)
    return next((one for one in every for which in PASSES if over_torch(run, ours(run), one, which).values), every[0])


def over_torch(run: Run, name: str, setting: Setting, which: str) -> Ratios:
    """Return the time of `name` divided by torch's, one value per problem."""
    wanted = ("cpu", which, *setting)
    return compare(run, name, TORCH, keep=lambda row: _of(row, "group", "pass", "dtype", "threads") == wanted)


def has_picture(run: Run) -> bool:
    """Return True if there is a ratio to torch to draw."""
    return any(over_torch(run, ours(run), main_setting(run), which).values for which in PASSES)


def ratio(run: Run, name: str, other: str, row: Record) -> float | None:
    """Return the time of `name` divided by that of `other`, for a row's problem, pass and setting."""
    keys = ("group", "problem", "pass", "dtype", "threads")
    found = compare(run, name, other, keep=lambda one: _of(one, *keys) == _of(row, *keys)).values
    return found[0] if found else None


def label(row: Record) -> str:
    """Return a problem's sizes in letters: T steps, B sequences, U units; I, L and D if they are not the usual ones."""
    sizes = row["sizes"]
    text = f"{sizes['cell'].upper()} T{sizes['T']} B{sizes['B']} U{sizes['H']}"
    text += f" I{sizes['I']}" if sizes["I"] != sizes["H"] else ""
    return text + "".join(f" {letter}{sizes[letter]}" for letter in "LD" if sizes[letter] > 1)


def lines(run: Run, setting: Setting) -> list[dict[str, Record]]:
    """Return the records of each pass and problem by competitor: all forwards, then all training steps."""
    found: dict[Any, dict[str, Record]] = {}
    for row in rows(run):
        if (row["dtype"], row["threads"]) == setting:
            found.setdefault((row["pass"], row["problem"]), {})[row["competitor"]] = row
    order = list(PASSES)
    return [found[key] for key in sorted(found, key=lambda key: order.index(key[0]) if key[0] in order else len(order))]


def _of(row: Record, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
