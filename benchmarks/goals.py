"""The goals, and how each is read off a results file. What has no figure is not run, and a missing row is a miss."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .results_files import Record, Run
from .timing import ratio

KEYS: Final = ("group", "problem", "pass", "dtype", "threads")
"""What a row of two competitors has in common."""

Keep = Callable[[Record], bool]


@dataclasses.dataclass(frozen=True)
class Ratios:
    """Ours over a peer's, one value per row; `wanted` counts the rows that both were to run."""

    values: tuple[float, ...]
    wanted: int

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def geomean(self) -> float:
        return math.exp(statistics.fmean(map(math.log, self.values)))

    @property
    def worst(self) -> float:
        return max(self.values)

    def __str__(self) -> str:
        if not self.values:
            return f"no figure for any of {self.wanted} rows"
        spread = f"median {self.median:.2f}, geomean {self.geomean:.2f}, {min(self.values):.2f} to {self.worst:.2f}"
        missing = self.wanted - len(self.values)
        rest = f"; {missing} without a figure" if missing else ""
        return f"{spread}, {len(self.values)} of {self.wanted} rows{rest}"


def pairs(run: Run, ours: str, theirs: str, keep: Keep = lambda _: True) -> list[tuple[Record, Record]]:
    """Return the rows that both were to run."""
    by_key: dict[Any, dict[str, Record]] = {}
    for row in run.rows:
        if row["competitor"] in (ours, theirs) and keep(row):
            by_key.setdefault(tuple(row[name] for name in KEYS), {})[row["competitor"]] = row
    return [(pair[ours], pair[theirs]) for pair in by_key.values() if len(pair) == 2]


def compare(run: Run, ours: str, theirs: str, metric: str = "median_us", keep: Keep = lambda _: True) -> Ratios:
    """Return ours over theirs for the rows that both were to run, by what `metric` names.

    A row without a figure of one of them counts as wanted. Where both have the rounds' medians, the ratio is taken
    inside the rounds.
    """
    values = [over(*pair, metric) for pair in pairs(run, ours, theirs, keep)]
    return Ratios(tuple(value for value in values if value is not None), len(values))


def over(ours: Record | None, theirs: Record | None, metric: str = "median_us") -> float | None:
    """Return the ratio of two rows, or None if one of them has no figure."""
    if not ours or not theirs or not (ours["status"] == theirs["status"] == "ok"):
        return None
    if not ours.get(metric) or not theirs.get(metric):
        return None
    a, b = ours.get("round_medians_us"), theirs.get("round_medians_us")
    if metric == "median_us" and a and b and len(a) == len(b):
        return ratio(a, b)
    return float(ours[metric] / theirs[metric])


class Reading(NamedTuple):
    """What a run says about a goal: a number, words, and how many rows have no figure."""

    value: float | None
    text: str
    missing: int = 0


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal, its limit (None: it is only reported) and how it is read off a run that has rows for it."""

    id: str
    what: str
    most: float | None
    read: Callable[[Run], Reading | None] = lambda _: None

    def verdict(self, reading: Reading | None) -> str:
        """Return "met", "missed", "measured" or "not run". A row without a figure is a miss."""
        if reading is None or (reading.value is None and reading.missing):
            return "not run"
        if reading.missing:
            return f"missed: {reading.missing} rows without a figure"
        if self.most is None or reading.value is None:
            return "measured"
        return "met" if reading.value <= self.most else "missed"


def _over(ours: str, theirs: str, metric: str = "median_us", value: str = "worst", **wanted: Any) -> Any:
    """Read a ratio over the rows that `wanted` selects: a row's keys or sizes, with one value or a tuple of them."""

    def keep(row: Record) -> bool:
        known = row.get("sizes", {}) | row
        return all(
            known["pass" if n == "which" else n] in (v if isinstance(v, tuple) else (v,)) for n, v in wanted.items()
        )

    def read(run: Run) -> Reading | None:
        found = compare(run, ours, theirs, metric, keep)
        number = getattr(found, value) if found.values else None
        return Reading(number, str(found), found.wanted - len(found.values)) if found.wanted else None

    return read


def _host_beyond(ours: str, theirs: str) -> Any:
    """Read the host time of a call of ours, less that of the C++ program's."""

    def read(run: Run) -> Reading | None:
        found = pairs(run, ours, theirs, lambda row: row["pass"] == "infer")
        extra = [a["host_us"] - b["host_us"] for a, b in found if a.get("host_us") and b.get("host_us")]
        if not extra:
            return Reading(None, "no figure", len(found)) if found else None
        value = statistics.median(extra)
        text = f"{value:.1f} us (median of {len(extra)} of {len(found)} rows)"
        return Reading(value, text, len(found) - len(extra))

    return read


def _fastest_ms(problem: str, which: str, dtype: str) -> Any:
    """Read our fastest time of one problem."""

    def read(run: Run) -> Reading | None:
        rows = run.select(problem=problem, which=which, dtype=dtype)
        rows = [row for row in rows if row["competitor"] in ("eager", "plan", "graph", "auto")]
        timed = [row for row in rows if row["status"] == "ok"]
        if not timed:
            return Reading(None, "no figure", len(rows)) if rows else None
        best = min(timed, key=lambda row: float(row["median_us"]))
        return Reading(best["median_us"] / 1e3, f"{best['median_us'] / 1e3:.3f} ms ({best['competitor']})")

    return read


FLASH: Final = "lstm L1 D1 B16 T1024 I768 H768"
WIDE: Final = (16, 32, 64)

GOALS: Final = (
    Goal("B1", "prepared call over C++, host time, other pointers each time, us", None, _host_beyond("plan", "raw")),
    Goal("B2", "the same, with the same pointers, us", None),
    Goal("B3", "the op as it is called, over C++, host time, us", None, _host_beyond("eager", "raw")),
    Goal("B4", "host time of the op / of torch's module", 1.0, _over("eager", "torch", "host_us", "geomean")),
    Goal("B5", "graph replay over cudaGraphLaunch in C++, host time, us", 3.0, _host_beyond("graph", "raw-graph")),
    Goal("B6", "the op as it is called on ragged lengths, host time, us", None),
    Goal("B8", "import of the binding, no GPU touched, ms", 300.0),
    Goal("C1", "LSTM forward, B >= 16, compiled / torch, worst row", 1.0, _over("compiled", "torch-cpu", group="cpu", cell="lstm", which="infer", B=WIDE)),
    Goal("C2", "LSTM training step, B >= 16, compiled / torch, worst row", 1.0, _over("compiled", "torch-cpu", group="cpu", cell="lstm", which="step", B=WIDE)),
    Goal("C3", "GRU, B >= 16, compiled / torch, worst row", 0.9, _over("compiled", "torch-cpu", group="cpu", cell="gru", B=WIDE)),
    Goal("C4", "T1 B1 H512, compiled / torch, worst row", 1.1, _over("compiled", "torch-cpu", group="cpu", T=1)),
    Goal("C5", "T200 B1 H128, compiled / torch, worst row", 0.9, _over("compiled", "torch-cpu", group="cpu", T=200)),
    Goal("D1", "`db10`: plan / C++, in a queue, worst row", 1.03, _over("plan", "raw", "pipelined_us", group="db10")),
    Goal("D2", "`db10-lin`, `frameworks`: tuned / torch, worst row", 1.02, _over("auto", "torch", group=("db10-lin", "frameworks"))),
    Goal("D3", "`stream`: plan / torch, latency, geomean", 0.7, _over("plan", "torch", "latency_us", "geomean", group="stream")),
    Goal("D4", "`stream`: graph / torch's graph, latency, geomean", 1.05, _over("graph", "torch-graph", "latency_us", "geomean", group="stream")),
    Goal("D5", "`holes`: tuned / torch's choice, both through us, worst row", 1.02, _over("auto", "rule", group="holes")),
    Goal("D6", "`holes`: tuned / standard, worst row", 1.05, _over("auto", "standard", group="holes")),
    Goal("D7", "LSTM in float32: op / jax.experimental.rnn, latency, geomean", 0.9, _over("eager", "jax", "latency_us", "geomean", cell="lstm", dtype="float32")),
    Goal("D8", "`stream`: graph / plan, in a queue, geomean", 1.0, _over("graph", "plan", "pipelined_us", "geomean", group="stream")),
    Goal("D9", "`stream`, T = 1: graph / op, latency, geomean", 0.7, _over("graph", "eager", "latency_us", "geomean", group="stream", T=1)),
    Goal("D10", "ours as torch's modules / torch, geomean", 1.0, _over("torch-ours", "torch", value="geomean")),
    Goal("P1", "FlashRNN's row, LSTM 768 B16 T1024, float16, forward, ms (H100: 2.01)", 2.1, _fastest_ms(FLASH, "infer", "float16")),
    Goal("P2", "the same, a training step, ms (H100: 5.19)", 5.4, _fastest_ms(FLASH, "step", "float16")),
    Goal("P3", "the same, bfloat16, forward, ms (FlashRNN on an H100: 4.87)", 4.87, _fastest_ms(FLASH, "infer", "bfloat16")),
    Goal("P4", "LSTM 256 B16 T150, float16, forward, ms (V100: 4.07)", 1.2, _fastest_ms("lstm L1 D1 B16 T150 I256 H256 skip", "infer", "float16")),
    Goal("P5", "LSTM 4096 B128 T25, float16, forward, ms (V100: 6.64)", 2.15, _fastest_ms("lstm L1 D1 B128 T25 I4096 H4096 skip", "infer", "float16")),
)  # fmt: skip
"""GPU limits are meant for an H200; less is better."""


def readings(goal: Goal, found: list[Run]) -> list[tuple[Run, Reading]]:
    """Return what these runs say about a goal; a row can say itself that it measures one."""
    read: list[tuple[Run, Reading]] = []
    for run in found:
        for row in (row for row in run.rows if row.get("goal") == goal.id):
            value = row.get("value", row["median_us"]) if row["status"] == "ok" else None
            text = row["reason"] if value is None else f"{value:g} {row.get('unit', 'us')} ({row['pass']})"
            read.append((run, Reading(value, text, int(value is None))))
        own = goal.read(run) if "speed" in run.suites else None
        read += [(run, own)] if own else []
    return read
