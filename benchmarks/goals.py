"""The goals, and how each is read off a results file. What has no figure is not run, and a missing row is a miss."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from .model import flops
from .problems import GROUPS, Problem
from .published import deepbench_v100
from .results_files import Record, Run
from .runner import ANYONE
from .timing import ratios


@dataclasses.dataclass(frozen=True)
class Ratios:
    """Ours over a peer's, one value per row; `wanted` counts the rows that a group has."""

    values: tuple[float, ...]
    wanted: int

    @property
    def geomean(self) -> float:
        return math.exp(statistics.fmean(map(math.log, self.values)))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def worst(self) -> float:
        return max(self.values)

    @property
    def missing(self) -> int:
        return self.wanted - len(self.values)

    def __str__(self) -> str:
        if not self.values:
            return f"no figure for any of {self.wanted} rows"
        spread = f"median {self.median:.2f}, geomean {self.geomean:.2f}, {min(self.values):.2f} to {self.worst:.2f}"
        rest = f"; {self.missing} without a figure" if self.missing else ""
        return f"{spread}, {len(self.values)} of {self.wanted} rows{rest}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """What came of a goal: numbers to hold against its limits, and words. `missing` rows make it a miss."""

    values: tuple[float, ...]
    text: str
    missing: int = 0


def compare(
    run: Run, ours: str, theirs: str, metric: str = "median_us", keep: Callable[[Record], bool] = lambda _: True
) -> Ratios:
    """Return ours over theirs for the rows that both were to run, by what `metric` names.

    A row counts as missing when either has no figure, or when nobody ran it. Rows of figures come from the same run, and where both have the
    rounds' medians the ratio is taken inside the rounds.
    """
    by_key: dict[Any, dict[str, Record]] = {}
    left_out = sum(row["competitor"] == ANYONE and keep(row) for row in run.rows)
    for row in run.rows:
        if row["competitor"] in (ours, theirs) and keep(row):
            key = tuple(row[name] for name in ("group", "problem", "pass", "dtype", "threads"))
            by_key.setdefault(key, {})[row["competitor"]] = row
    pairs = [pair for pair in by_key.values() if len(pair) == 2]
    values = [_ratio(pair[ours], pair[theirs], metric) for pair in pairs]
    return Ratios(tuple(v for v in values if v is not None), len(pairs) + (left_out if pairs else 0))


def _ratio(ours: Record, theirs: Record, metric: str) -> float | None:
    if ours["status"] != "ok" or theirs["status"] != "ok" or not ours.get(metric) or not theirs.get(metric):
        return None
    a, b = ours.get("round_medians_us"), theirs.get("round_medians_us")
    if metric == "median_us" and a and b and len(a) == len(b):
        return ratios(a, b)[0]
    return float(ours[metric] / theirs[metric])


Measure = Callable[[Run], Measured | None]


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal with its three levels in words and, where numbers decide, as limits: one or several a level."""

    id: str
    measure: str
    must: str
    target: str
    moonshot: str
    limits: tuple[float | tuple[float, ...], ...] = ()
    read: Measure | None = None
    more_is_better: bool = False

    def verdict(self, measured: Measured | None) -> str:
        """Say which level was reached."""
        if measured is None:
            return "not run"
        if measured.missing:
            if not measured.values:
                return "not run"
            return f"missed: {measured.missing} rows without a figure"
        if not measured.values or not self.limits:
            return "measured"
        reached = "missed"
        for level, limit in zip(("must", "target", "moonshot"), self.limits, strict=False):
            limits = limit if isinstance(limit, tuple) else (limit,)
            sign = -1 if self.more_is_better else 1
            if any(sign * value > sign * most for value, most in zip(measured.values, limits, strict=True)):
                break
            reached = f"{level} met"
        return reached


def of_rows(found: Ratios, *values: str) -> Measured | None:
    """Read numbers off ratios by their names; None where there were no such rows at all."""
    if not found.wanted:
        return None
    read = tuple(getattr(found, value) for value in values) if found.values else ()
    return Measured(read, str(found), found.missing)


def _cpu(cells: str, passes: str, problem: str = "") -> Measure:
    """Ours on the CPU, compiled, over torch, worst row: of batches of 16 and more, or of one problem."""

    def keep(row: Record) -> bool:
        sizes = row["sizes"]
        chosen = row["problem"].endswith(problem) if problem else sizes["B"] >= 16
        return bool(
            row["group"] == "cpu" and sizes["cell"] in cells.split() and row["pass"] in passes.split() and chosen
        )

    return lambda run: of_rows(compare(run, "compiled", "torch-cpu", keep=keep), "worst")


def _c6(_run: Run) -> Measured | None:
    project = Path(__file__).parents[1] / "pyproject.toml"
    if not project.exists():
        return None
    needs = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    return Measured((), f"needs {', '.join(needs)}")


def _extra_host(ours: str, raw: str) -> Measure:
    """Host time of a call of ours, less that of the C++ program's."""

    def read(run: Run) -> Measured | None:
        theirs = {_key(row): row for row in run.select(competitor=raw, which="infer")}
        pairs = [(row, theirs[_key(row)]) for row in run.select(competitor=ours, which="infer") if _key(row) in theirs]
        extra = [a["host_us"] - b["host_us"] for a, b in pairs if a.get("host_us") and b.get("host_us")]
        if not pairs:
            return None
        missing = len(pairs) - len(extra)
        if not extra:
            return Measured((), f"no figure for any of {len(pairs)} rows", missing)
        text = f"{statistics.median(extra):.1f} us (median of {len(extra)} of {len(pairs)} rows)"
        return Measured((statistics.median(extra),), text, missing)

    return read


def _key(row: Record) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("group", "problem", "pass", "dtype"))


def _ratio_goal(
    ours: str,
    theirs: str,
    metric: str = "median_us",
    values: tuple[str, ...] = ("geomean",),
    keep: Callable[[Record], bool] = lambda _: True,
) -> Measure:
    return lambda run: of_rows(compare(run, ours, theirs, metric, keep), *values)


def _in(*groups: str) -> Callable[[Record], bool]:
    return lambda row: row["group"] in groups


def _d1(run: Run) -> Measured | None:
    long = {_key(row) for row in run.select(competitor="raw", status="ok") if row["median_us"] >= 200}
    return of_rows(compare(run, "plan", "raw", "pipelined_us", lambda row: _key(row) in long), "worst")


def _d6(run: Run) -> Measured | None:
    algorithms = ("standard", "persist_static", "persist_dynamic", "small_h")
    best: dict[Any, float] = {}
    for row in run.rows:
        if row["competitor"] in algorithms and row["status"] == "ok":
            best[_key(row)] = min(best.get(_key(row), math.inf), row["median_us"])
    tuned = [row for row in run.select(competitor="auto") if _key(row) in best]
    values = tuple(row["median_us"] / best[_key(row)] for row in tuned if row["status"] == "ok")
    return of_rows(Ratios(values, len(tuned)), "worst")


def _launch_bound(row: Record) -> bool:
    sizes = row["sizes"]
    return bool(sizes["H"] <= 512 and sizes["T"] <= 150 and row.get("algo", "standard") == "standard")


def _device_bound(row: Record) -> bool:
    sizes = row["sizes"]
    return (sizes["cell"], sizes["H"]) in {("gru", 2816), ("lstm", 4096)}


def _d11(run: Run) -> Measured | None:
    """Ours on padded arrays over torch on packed ones, which is another row of the group."""
    values, wanted = [], 0
    for row in run.select(group="ragged", competitor="auto"):
        if "packed" in row["problem"]:
            continue
        peers = run.select(
            group="ragged",
            competitor="torch",
            which=row["pass"],
            dtype=row["dtype"],
            problem=f"{row['problem']} packed",
        )
        wanted += len(peers)
        values += [row["median_us"] / p["median_us"] for p in peers if row["status"] == p["status"] == "ok"]
    return of_rows(Ratios(tuple(values), wanted), "worst")


def _best_ms(cell: str, H: int, B: int, T: int, which: str, dtype: str, *, skip: bool = False) -> Measure:
    def read(run: Run) -> Measured | None:
        found = _best(run, cell, H, B, T, which, dtype, skip=skip)
        return found and Measured(
            (found["median_us"] / 1e3,), f"{found['median_us'] / 1e3:.3f} ms ({found['competitor']})"
        )

    return read


def _best(run: Run, cell: str, H: int, B: int, T: int, which: str, dtype: str, *, skip: bool) -> Record | None:
    name = f"{cell} L1 D1 B{B} T{T} I{H} H{H}" + (" skip" if skip else "")
    ours = ("eager", "plan", "graph", "auto", "standard")
    rows = [r for r in run.select(problem=name, which=which, dtype=dtype, status="ok") if r["competitor"] in ours]
    return min(rows, key=lambda row: float(row["median_us"]), default=None)


def _p4(run: Run) -> Measured | None:
    published = deepbench_v100()
    shapes = [shape for shape in published if shape[3] > 1]  # a single step is nothing but launches
    best = [(shape, _best(run, *shape, "infer", "float16", skip=True)) for shape in shapes]
    faster = [published[shape]["float16_infer"] * 1e3 / row["median_us"] for shape, row in best if row]
    if not faster:
        return None
    found = Ratios(tuple(faster), len(shapes))
    return Measured((found.geomean,), f"{found} times as fast", found.missing)


def _tflops(keep: Callable[[Problem], bool], which: str) -> Measure:
    """The slowest row, in TFLOP/s of one pass."""

    def read(run: Run) -> Measured | None:
        rates = []
        problems = [p for p in GROUPS["deepbench"].problems if which in p.passes and keep(p)]
        for p in problems:
            row = _best(run, p.cell, p.H, p.B, p.T, which, "float16", skip=True)
            rates += [flops(p) / row["median_us"] / 1e6] if row else []
        if not rates:
            return None
        text = f"{min(rates):.0f} to {max(rates):.0f} TFLOP/s, {len(rates)} of {len(problems)} rows"
        return Measured((min(rates),), text, len(problems) - len(rates))

    return read


NETS: Final = (
    "lstm L1 D1 B1 T1 I128 H128",
    "lstm L1 D1 B1 T1 I256 H256",
    "lstm L2 D1 B1 T1 I128 H128",
    "lstm L3 D1 B1 T1 I256 H256",
)
"""The problems of `stream` that P9 is read off."""


def _p9(run: Run) -> Measured | None:
    rows = [r for r in run.select(group="stream", competitor="graph", dtype="float16") if r["problem"] in NETS]
    figures = [(r["latency_us"], r["latency_p99_us"]) for r in rows if r["status"] == "ok"]
    if not figures:
        return None
    p50, p99 = (max(column) for column in zip(*figures, strict=True))
    return Measured((p50, p99), f"p50 {p50:.1f} us, p99 {p99:.1f} us (the slowest net)", len(NETS) - len(figures))


def _stated(row: Record) -> Measured:
    """Read a row that says itself which goal it measures."""
    if row["status"] != "ok":
        return Measured((), row["reason"], 1)
    value = row.get("value", row["median_us"])
    return Measured((value,), f"{value:g} {row.get('unit', 'us')} ({row['pass']}; {row['problem']})")


def measured_by(goal: Goal, found: Iterable[Run]) -> list[tuple[Run, Measured]]:
    """Every reading of a goal in these runs, of the goal's own rows first: a row can say that it measures one."""
    readings: list[tuple[Run, Measured]] = []
    for run in found:
        readings += [(run, _stated(row)) for row in run.rows if row.get("goal") == goal.id]
        own = goal.read(run) if goal.read and "speed" in run.suites else None
        if own is not None:
            readings.append((run, own))
    return readings


GOALS: Final = (
    Goal("B1", "prepared call over C++, host time, other pointers each time", "no bound", "-", "-", (), _extra_host("plan", "raw")),
    Goal("B2", "the same, with the same pointers", "no bound", "-", "-", ()),
    Goal("B3", "the op as it is called, over C++, host time", "no bound", "-", "-", (), _extra_host("eager", "raw")),
    Goal("B4", "host time of the op / of torch's module", "<= 1.0", "<= 0.5", "<= 0.3", (1, 0.5, 0.3), _ratio_goal("eager", "torch", "host_us")),
    Goal("B5", "graph replay over cudaGraphLaunch in C++, host time", "<= 3 us", "<= 1 us", "<= 0.4 us", (3, 1, 0.4), _extra_host("graph", "raw-graph")),
    Goal("B6", "the op as it is called on ragged lengths, host time", "no bound", "-", "-", ()),
    Goal("B7", "hidden synchronisations and size queries in a repeated call", "0 / 0", "-", "-", (0,)),
    Goal("B8", "import of the binding, no GPU touched", "<= 300 ms", "<= 120 ms", "-", (300, 120)),
    Goal("C1", "LSTM forward, B >= 16, over torch, worst row", "<= 1.0", "<= 0.92", "<= 0.85", (1.0, 0.92, 0.85), _cpu("lstm", "infer")),
    Goal("C2", "LSTM training step, B >= 16, over torch, worst row", "<= 1.0", "<= 0.92", "<= 0.85", (1.0, 0.92, 0.85), _cpu("lstm", "step")),
    Goal("C3", "GRU forward and training step, B >= 16, over torch, worst row", "<= 0.9", "<= 0.8", "<= 0.7", (0.9, 0.8, 0.7), _cpu("gru", "infer step")),
    Goal("C4", "T1 B1 H512, both cells and passes, over torch, worst row", "<= 1.1", "<= 1.0", "<= 0.8", (1.1, 1.0, 0.8), _cpu("lstm gru", "infer step", "B1 T1 I512 H512")),
    Goal("C5", "T200 B1 H128, both cells and passes, over torch, worst row", "<= 0.9", "<= 0.8", "<= 0.7", (0.9, 0.8, 0.7), _cpu("lstm gru", "infer step", "B1 T200 I128 H128")),
    Goal("C6", "what has to be installed", "NumPy, and what reads files", "the same", "accelerators found, never required", (), _c6),
    Goal("D1", "rows of 200 us and more: plan / C++, in a queue, worst row", "<= 1.03", "<= 1.01", "1.00", (1.03, 1.01, 1.0), _d1),
    Goal("D2", "`db10-lin`, `frameworks`: tuned / torch", "<= 1.02 on every row", "geomean <= 0.85", "geomean <= 0.6", ((1.02, math.inf), (1.02, 0.85), (1.02, 0.6)),
         _ratio_goal("auto", "torch", values=("worst", "geomean"), keep=_in("db10-lin", "frameworks"))),
    Goal("D3", "`stream`: plan / torch, latency", "<= 0.7", "<= 0.4", "<= 0.25", (0.7, 0.4, 0.25), _ratio_goal("plan", "torch", "latency_us", keep=_in("stream"))),
    Goal("D4", "`stream`: graph / torch's graph, latency", "<= 1.05", "<= 0.95", "<= 0.8", (1.05, 0.95, 0.8), _ratio_goal("graph", "torch-graph", "latency_us", keep=_in("stream"))),
    Goal("D5", "`holes`: tuned / torch's choice, both through us", "never > 1.02", "geomean <= 0.8", "geomean <= 0.5", ((1.02, math.inf), (1.02, 0.8), (1.02, 0.5)), _ratio_goal("auto", "rule", values=("worst", "geomean"), keep=_in("holes"))),
    Goal("D6", "tuned / best of the four algorithms, worst row", "<= 1.05", "<= 1.02", "-", (1.05, 1.02), _d6),
    Goal("D7", "LSTM in float32: op / jax.experimental.rnn, latency", "<= 0.9", "geomean <= 0.6", "<= 0.3 at T <= 25", (0.9, 0.6, 0.3), _ratio_goal("eager", "jax", "latency_us")),
    Goal("D8", "H <= 512, T <= 150: graph / plan, in a queue", "<= 1.0", "<= 0.75", "<= 0.5", (1, 0.75, 0.5), _ratio_goal("graph", "plan", "pipelined_us", keep=_launch_bound)),
    Goal("D9", "`stream`, T = 1: graph / op, latency", "<= 0.7", "<= 0.5", "<= 0.35", (0.7, 0.5, 0.35),
         _ratio_goal("graph", "eager", "latency_us", keep=lambda row: bool(row["group"] == "stream" and row["sizes"]["T"] == 1))),
    Goal("D10", "GRU 2816 and LSTM 4096: graph / plan, in a queue", "1.00 +- 0.02, reported", "-", "-", (), _ratio_goal("graph", "plan", "pipelined_us", keep=_device_bound)),
    Goal("D11", "`ragged`: ours padded / torch packed, worst row", "<= 1.02", "<= 0.9", "<= 0.6", (1.02, 0.9, 0.6), _d11),
    Goal("P1", "FlashRNN's row, LSTM 768 B16 T1024, float16, forward (H100: 2.01 ms)", "<= 2.1 ms", "<= 1.9 ms", "<= 1.5 ms", (2.1, 1.9, 1.5), _best_ms("lstm", 768, 16, 1024, "infer", "float16")),
    Goal("P2", "the same, a training step (H100: 5.19 ms)", "<= 5.4 ms", "<= 4.8 ms", "<= 4.0 ms", (5.4, 4.8, 4.0), _best_ms("lstm", 768, 16, 1024, "step", "float16")),
    Goal("P3", "the same, bfloat16, forward (FlashRNN on an H100: 4.87 ms)", "< 4.87 ms", "within 1.05 of float16", "-", (4.87,), _best_ms("lstm", 768, 16, 1024, "infer", "bfloat16")),
    Goal("P4", "`deepbench`, float16, forward, 52 rows: times as fast as a V100", ">= 4", ">= 7", ">= 12", (4, 7, 12), _p4, more_is_better=True),
    Goal("P5", "LSTM 4096 B128 T25, float16, forward (V100: 64.7 TFLOP/s)", ">= 200 TFLOP/s", ">= 300", ">= 400", (200, 300, 400),
         _tflops(lambda p: (p.cell, p.H, p.B) == ("lstm", 4096, 128), "infer"), more_is_better=True),
    Goal("P6", "GRU 2816 B32 T1500, float16, forward (V100: 180 ms)", "<= 60 ms", "<= 40 ms", "<= 27 ms", (60, 40, 27), _best_ms("gru", 2816, 32, 1500, "infer", "float16", skip=True)),
    Goal("P7", "backward-weights of 100 GFLOP and more, float16, slowest row (V100: 93 TFLOP/s at best)", ">= 250 TFLOP/s", ">= 400", ">= 550", (250, 400, 550),
         _tflops(lambda p: flops(p) >= 100e9, "wgrad"), more_is_better=True),
    Goal("P8", "LSTM 256 B16 T150, float16, forward (V100: 4.07 ms)", "<= 1.2 ms", "<= 0.6 ms", "<= 0.25 ms", (1.2, 0.6, 0.25), _best_ms("lstm", 256, 16, 150, "infer", "float16", skip=True)),
    Goal("P9", "LSTM L1 to L3, H 128 and 256, B1 T1, graph, latency", "p50 <= 30 us", "p50 <= 15 us, p99 <= 25 us", "p50 <= 10 us", ((30, math.inf), (15, 25), (10, math.inf)), _p9),
    Goal("P10", "reserve and workspace over torch's peak", "<= 1.0", "<= 0.9", "-", (1, 0.9)),
)  # fmt: skip
"""Must, target, moonshot. GPU figures are meant for an H200; ratios are ours over the peer's, and less is better."""
