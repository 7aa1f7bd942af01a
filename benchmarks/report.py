"""Write docs/performance.md and its pictures from the results files: `python -m benchmarks.report`.

One function a section, each of which reads the runs that it is about; what a results file does not say is not in the
document, and what was not measured is. The document is a function of nothing but the committed results.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._atomic import write_atomically

from .adapters import COMPETITORS
from .goals import GOALS, compare, measured_by
from .model import H200, MIB, floor, flops, recurrent_nbytes
from .problems import DTYPES, GROUPS, PASSES
from .published import deepbench_v100
from .results_files import FOLDER, Record, Run, newest, runs
from .runner import ANYONE
from .suite import HOST_TIMED, timed_by

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "performance.md"
PICTURES: Final = "performance"
"""The folder beside the document."""

HEAD: Final = """\
# Performance

<!-- Made by `python -m benchmarks.report` from benchmarks/results/. Edit those, not this. -->

What was measured, on which machine, beside what, and what was not measured. Every ratio is our time over a peer's in
the same run, on the same numbers: below 1 is faster. Before anything was timed, its results were held against the NumPy
engine in float64. `make bench` makes the CPU's results, `make bench-gpu` a GPU's, and `pycudnnrnn bench --list` names
the problems.
"""

Section = Callable[[Sequence[Run]], str]


def document(found: Sequence[Run]) -> str:
    """Return the whole text."""
    return "\n".join([HEAD, *(text for text in (section(found) for section in SECTIONS) if text)])


def goals(found: Sequence[Run]) -> str:
    """Every goal beside what was measured for it, or `not run`."""
    latest = _latest(found)
    lines = []
    for goal in GOALS:
        readings = measured_by(goal, latest)
        text = "<br>".join(f"{_linked(run)}: {measured.text}" for run, measured in readings) or "not run"
        verdict = "<br>".join(goal.verdict(measured) for _, measured in readings) or "not run"
        lines.append((goal.id, goal.measure, goal.must, goal.target, goal.moonshot, text, verdict))
    return _section(
        "Goals",
        "B: what the binding costs. C: the CPU. D: ratios on a GPU. P: times on one. GPU figures are meant for an "
        "H200. A row of a group that has no figure is a miss, whatever the others are.",
        _table(("", "measure", "must", "target", "moonshot", "measured", "verdict"), lines),
    )


def cpu(found: Sequence[Run]) -> str:
    """The NumPy engine beside other libraries on the CPU."""
    run = next((r for r in newest(list(found), "speed", "cpu") if "cpu" in r.groups), None)
    if run is None:
        return _section("CPU", "Not measured.")
    rows = run.select(group="cpu")
    picture = f"![ratios on the CPU]({PICTURES}/cpu-ratios.svg)"
    return _section(
        "CPU", _where(run), picture, _comparison(rows, "compiled"), _ratios(run, "compiled"), _without(run, "cpu")
    )


def gpu(found: Sequence[Run]) -> str:
    """Each GPU's newest run."""
    machines = dict.fromkeys(r.path.parent.name for r in found if "speed" in r.suites and r.path.parent.name != "cpu")
    if not machines:
        return _section(
            "GPU",
            "Not measured: no run on a GPU has been made. `make bench-gpu` makes one, in eight minutes; until then "
            "every row below is what a GPU could do at best, not what it does.",
        )
    parts: list[str] = []
    for machine in machines:
        run = next(newest(list(found), "speed", machine))
        parts += [f"### {machine}", _where(run)]
        parts += [f"![{name}]({PICTURES}/{machine}-{name}.svg)" for name in run.gpu_pictures]
        for group in run.groups:
            parts += [f"#### {group}", _comparison(run.select(group=group), "plan"), _without(run, group)]
        parts.append(_ratios(run, "plan"))
    return _section("GPU", *parts)


def host_cost(found: Sequence[Run]) -> str:
    """What a call costs on the host before cuDNN does anything."""
    run = next(newest(list(found), "host_cost"), None)
    if run is None:
        return _section("Host cost", "Not measured.")
    others = "lowest_us", "first_us"
    lines = [
        (row["pass"], row["problem"], row.get("goal") or "", _stated(row), *(_us(row.get(name)) for name in others))
        for row in run.select(suite="host_cost")
    ]
    headings = ("what", "problem", "goal", "median, us", "lowest, us", "after other calls, us")
    return _section("Host cost", _where(run), _table(headings, lines), _without(run, "binding"))


def long_sequences(found: Sequence[Run]) -> str:
    """Training on long sequences, recomputing or not."""
    run = next(newest(list(found), "long_sequences"), None)
    if run is None:
        return _section("Long sequences", "Not measured.")
    from .long_sequences import section

    heading, _, rest = section(run.rows).partition("\n\n")
    return "\n\n".join([heading, _where(run), rest])


def limits(found: Sequence[Run]) -> str:
    """DeepBench's training rows: what a V100 took, what an H200 needs at least, and what one took."""
    ours = _deepbench_times(found)
    lines = []
    for problem in GROUPS["deepbench"].problems:
        if problem.tag != "training":
            continue
        shape = (problem.cell, problem.H, problem.B, problem.T)
        least = floor(problem, "float16")
        measured = ours.get(problem.name)
        lines.append((
            f"{problem.cell} {problem.H}/{problem.B}/{problem.T}",
            f"{flops(problem) / 1e9:.1f}",
            f"{recurrent_nbytes(problem, 2) / MIB:.1f}",
            f"{deepbench_v100()[shape]['float16_infer']:.2f}",
            *(_ms(time) for time in (least.hard_us, least.persist_us, least.graph_us, least.eager_us)),
            "not run" if measured is None else _ms(measured),
        ))  # fmt: skip
    headings = ("cell H/B/T", "GFLOP", "R, MiB", "V100", "hard", "persistent", "graph", "eager", "measured")
    return _section(
        "The limit model beside the measurement",
        f"A forward in float16 with skip input, in ms, on an {H200.name}. *V100* is DeepBench's published figure. "
        "The next four are computed: *hard* is the larger of arithmetic and bytes; *persistent* is one barrier per "
        "step while the recurrent matrix R fits the chip; *graph* and *eager* are one kernel, or two launches, per "
        "step, each at the pace of its GEMM or of reading R. The rates and their sources are in `benchmarks/model.py`; "
        "real kernels are expected to take 1.5 to 4 times a floor.",
        _table(headings, lines),
    )


def _deepbench_times(found: Sequence[Run]) -> dict[str, float]:
    times: dict[str, float] = {}
    for run in _latest(found):
        for group in ("deepbench", "db10"):
            for row in run.select(group=group, which="infer", dtype="float16", status="ok"):
                if COMPETITORS[row["competitor"]].module == "ours_cuda":
                    times[row["problem"]] = min(times.get(row["problem"], row["median_us"]), row["median_us"])
    return times


def not_measured(found: Sequence[Run]) -> str:
    """The groups and goals that nothing committed has a figure for."""
    timed = {row["group"] for run in found for row in run.rows if row["status"] == "ok" and row["suite"] == "speed"}
    lines = [
        (f"`{g.name}`", len(g.problems), len(list(g.rows())), g.why, g.source)
        for g in GROUPS.values()
        if g.name not in timed
    ]
    unread = [goal.id for goal in GOALS if not measured_by(goal, _latest(found))]
    return _section(
        "What was not measured",
        f"Goals without a figure: {', '.join(unread) or 'none'}. Groups without a figure:",
        _table(("group", "problems", "rows", "why it is there", "source"), lines),
        "A row is a problem in one type (" + ", ".join(f"`{n}`: {t}" for n, t in DTYPES.items()) + ") and one pass ("
        + ", ".join(f"`{n}`: {t}" for n, t in PASSES.items()) + ").",
    )  # fmt: skip


SECTIONS: Final[tuple[Section, ...]] = (goals, cpu, long_sequences, host_cost, gpu, limits, not_measured)
"""In the order of the document. A new kind of results is a new function here, and a suite's name in its rows."""


def _latest(found: Sequence[Run]) -> list[Run]:
    """The newest run of each suite on each machine; for speed on a CPU, that of the group `cpu`."""
    chosen: dict[tuple[str, str], Run] = {}
    for run in found:
        for suite in sorted(run.suites):
            machine = run.path.parent.name
            if suite == "speed" and machine == "cpu" and "cpu" not in run.groups:
                continue
            chosen.setdefault((machine, suite), run)
    return list({id(run): run for run in chosen.values()}.values())


def _section(heading: str, *parts: str) -> str:
    return "\n".join([f"## {heading}", *(f"\n{part}" for part in parts if part), ""])


def _table(headings: Iterable[Any], lines: Iterable[Iterable[Any]]) -> str:
    headings = list(headings)
    rows = [
        "| " + " | ".join(map(str, cells)) + " |" for cells in (headings, ["---"] * len(headings), *map(list, lines))
    ]
    return "\n".join(rows)


def _linked(run: Run) -> str:
    return f"[{run.path.stem}](../benchmarks/results/{run.path.parent.name}/{run.path.name})"


def _where(run: Run) -> str:
    e = run.environment
    versions = ", ".join(f"{name} {value}" for name, value in e["versions"].items() if isinstance(value, (str, int)))
    machine = "; ".join([f"{e['machine']}, {e['cores']} cores", *e["gpu"]])
    changed = " with changes that are not committed" if e.get("dirty") else ""
    library = f" libcudnn: {e['library']}." if "library" in e else ""
    cut = "" if "finished" in e or "rows" not in e else " **The run was cut short.**"
    note = f" {e['note']}" if "note" in e else ""
    return (
        f"{_linked(run)}: {machine}; commit {e['commit']}{changed}; {versions}. `{e['command']}`.{library}{cut}{note}"
    )


def _comparison(rows: Sequence[Record], ours: str) -> str:
    """Microseconds of every competitor, a row each; with the ratio of ours to it."""
    names = [name for name in dict.fromkeys(row["competitor"] for row in rows) if name not in (ANYONE, ours)]
    lines: dict[Any, dict[str, Record]] = {}
    for row in rows:
        if row["competitor"] != ANYONE:
            key = (row["problem"], row["pass"], row["dtype"], row["threads"])
            lines.setdefault(key, {})[row["competitor"]] = row
    body = []
    for (problem, which, dtype, threads), line in lines.items():
        own = line.get(ours)
        peers = []
        for name in names:
            row = line.get(name)
            text = "" if row is None else _time(row) + (timed_by(row) if row["status"] == "ok" else "")
            if row and own and row["status"] == own["status"] == "ok":
                text += f" ({own['median_us'] / row['median_us']:.2f})"
            peers.append(text)
        body.append((problem, which, dtype, threads or "", "" if own is None else _time(own), *peers))
    by_host = any(HOST_TIMED in text for line in body for text in map(str, line))
    note = (
        f"; {HOST_TIMED} by the host's clock, with its waiting, and the others by events on the GPU" if by_host else ""
    )
    return f"Median microseconds, and in brackets ours over it{note}:\n\n" + _table(
        ("problem", "pass", "type", "threads", ours, *names), body
    )


def _ratios(run: Run, ours: str) -> str:
    """Ours over each peer, over whole groups."""
    lines = []
    for row in run.rows:
        kind = (row["group"], row["pass"], row["competitor"], row["threads"])
        if row["competitor"] in (ANYONE, ours) or kind in dict(lines):
            continue

        def alike(other: Record, kind: tuple[Any, ...] = kind) -> bool:
            group, which, _, threads = kind
            own_kind = (other["group"], other["pass"], other["threads"])
            return own_kind in {(group, which, threads), (group, which, None)}

        lines.append((kind, compare(run, ours, row["competitor"], keep=alike)))
    table = _table(
        ("group", "pass", "peer", "threads", "ratio"),
        [(group, which, peer, threads or "", found) for (group, which, peer, threads), found in lines if found.values],
    )
    return f"{ours} over each peer:\n\n{table}"


def _without(run: Run, group: str) -> str:
    """Why rows of a group have no figure."""
    counts: dict[tuple[str, str, str], int] = {}
    for row in run.select(group=group):
        if row["status"] != "ok":
            key = (row["competitor"], row["status"].replace("_", " "), row["reason"])
            counts[key] = counts.get(key, 0) + 1
    if not counts:
        return "Every row has a figure."
    lines = [(n, "nobody" if who == ANYONE else who, what, _escaped(why)) for (who, what, why), n in counts.items()]
    return "Rows without a figure:\n\n" + _table(("rows", "competitor", "", "why"), lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _time(row: Record) -> str:
    return _us(row["median_us"]) if row["status"] == "ok" else row["status"].replace("_", " ")


def _stated(row: Record) -> str:
    """What a row says it measured: microseconds, or a value with its unit."""
    if row["status"] != "ok" or row.get("unit", "us") == "us":
        return _time(row)
    return f"{row['value']:g} {row['unit']}"


def _us(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e3:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=DOCUMENT)
    options = parser.parse_args()
    from .plots import draw  # matplotlib is for those who draw

    found = runs(options.results)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(found, options.out.parent / PICTURES)
    write_atomically(options.out, document(found).encode())
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
