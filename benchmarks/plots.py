"""The pictures of docs/performance.md, as SVG files: the same results give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pycudnnrnn._atomic import write_atomically

from . import cpu
from .adapters import OURS
from .model import H200, flops, least_nbytes
from .problems import GROUPS
from .results_files import Record, Run, newest
from .runner import ANYONE

COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Paul Tol's bright scheme, made to be told apart without colour vision."""


def draw(found: Sequence[Run], folder: Path) -> None:
    """Write the pictures that these runs have rows for, and remove those of other runs."""
    wanted: dict[str, Figure] = {}
    run = cpu.newest_run(found)
    if run is not None and cpu.has_picture(run):
        wanted["cpu-ratios"] = bars(run)
    for machine in dict.fromkeys(
        r.path.parent.name for r in found if "speed" in r.suites and r.path.parent.name != "cpu"
    ):
        of = next(newest(list(found), "speed", machine))
        makers = {
            "against-T": lambda of=of: against(of, "T", "flashrnn"),
            "against-B": lambda of=of: against(of, "B", "flashrnn"),
            "against-H": lambda of=of: against(of, "H", "stream"),
            "roofline": lambda of=of: roofline(of),
            "ratios": lambda of=of: ratios(of, "plan"),
        }
        wanted |= {f"{machine}-{name}": makers[name]() for name in of.gpu_pictures}
    long = next(newest(list(found), "long_sequences"), None)
    if long is not None:
        from .long_sequences import figure

        wanted["long-sequences"] = figure(long.rows)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        if stale.stem not in wanted:
            stale.unlink()
    with mpl.rc_context({"svg.hashsalt": "pycudnnrnn", "svg.fonttype": "none"}):  # ids and text that do not vary
        for name, figure in wanted.items():
            image = io.BytesIO()
            figure.savefig(image, format="svg", metadata={"Date": None})
            write_atomically(folder / f"{name}.svg", image.getvalue())


def bars(run: Run) -> Figure:
    """Our time divided by torch's, one bar per problem and kind of kernels: forwards left, training steps right."""
    setting = cpu.main_setting(run)
    lines = cpu.lines(run, setting)
    labels = list(dict.fromkeys(cpu.label(_any(line)) for line in lines))
    colours = dict(zip(OURS["cpu"], COLOURS, strict=False))
    names = [n for n in colours if any(cpu.over_torch(run, n, setting, which).values for which in cpu.PASSES)]
    height = 0.8 / len(names)
    figure, _ = _figure(8, 1.4 + 0.2 * len(labels) * len(names), columns=len(cpu.PASSES))
    for axes, (which, title) in zip(figure.axes, cpu.PASSES.items(), strict=True):
        for nth, name in enumerate(names):
            of = [row for row in map(_any, lines) if row["pass"] == which]
            found = {labels.index(cpu.label(row)): cpu.ratio(run, name, cpu.TORCH, row) for row in of}
            values = {y + (nth - (len(names) - 1) / 2) * height: value for y, value in found.items() if value}
            drawn = axes.barh([*values], [*values.values()], height, color=colours[name], label=cpu.TITLES[name])
            axes.bar_label(drawn, fmt="%.2f", fontsize=7, padding=2)
        axes.axvline(1, color="#333333", linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels if axes is figure.axes[0] else [""] * len(labels), fontsize=8)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_title(f"{title}, {setting}", fontsize=9)
        axes.set_xlabel("our time / torch's time: left of 1, ours is faster", fontsize=8)
        axes.margins(x=0.12)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def ratios(run: Run, ours: str) -> Figure:
    """Our time divided by each peer's, one dot per row and one line per group, pass and dtype; logarithmic."""
    rows = [row for row in run.rows if row["status"] == "ok"]
    own = {_key(row): row for row in rows if row["competitor"] == ours}
    peers = [n for n in dict.fromkeys(r["competitor"] for r in rows) if n not in (ours, ANYONE)]
    lines = {line: y for y, line in enumerate(dict.fromkeys(map(_group_line, own.values())))}
    figure, axes = _figure(8, 1.2 + 0.2 * max(len(lines), 4))
    for peer, colour in zip(peers, COLOURS * len(peers), strict=False):
        theirs = [row for row in rows if row["competitor"] == peer and _key(row) in own]
        points = [(own[_key(row)]["median_us"] / row["median_us"], lines[_group_line(row)]) for row in theirs]
        axes.plot(*zip(*points, strict=True), "o", color=colour, label=peer, markersize=4)
    axes.axvline(1, color="#777777", linewidth=0.8)
    axes.set_yticks(range(len(lines)), list(lines), fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=f"time of {ours} / time of the other: left of 1, {ours} is faster")
    axes.legend(frameon=False, fontsize=8)
    return figure


def against(run: Run, size: str, group: str) -> Figure:
    """Time against one size of a problem, the others being those that most rows share."""
    rows = [r for r in run.rows if r["status"] == "ok" and r["group"] == group and r["pass"] == "infer"]
    rows = _most_alike(rows, size)
    figure, axes = _figure(6, 4)
    names = dict.fromkeys((row["competitor"], row["dtype"]) for row in rows)
    for (name, dtype), colour in zip(names, COLOURS * len(names), strict=False):
        points = sorted(
            (r["sizes"][size], r["median_us"]) for r in rows if (r["competitor"], r["dtype"]) == (name, dtype)
        )
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=f"{name}, {dtype}", markersize=4)
    others = {k: v for k, v in rows[0]["sizes"].items() if k not in (size, "I") and v is not None}
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel="median, us", title=f"{group}, forward: {others}")
    axes.title.set_fontsize(8)
    axes.legend(frameon=False, fontsize=7)
    return figure


def roofline(run: Run) -> Figure:
    """Rates of the forwards against their arithmetic intensity, under the two roofs of the GPU."""
    problems = {p.name: p for group in GROUPS.values() for p in group.problems}
    figure, axes = _figure(6, 4)
    intensities = [2.0**k for k in range(-2, 13)]
    roof = [min(H200.rates["float16"], i * H200.bandwidth) / 1e12 for i in intensities]
    axes.plot(intensities, roof, color="#777777", label=f"{H200.name}, float16")
    rows = [r for r in run.rows if r["status"] == "ok" and (r["pass"], r["dtype"]) == ("infer", "float16")]
    names = dict.fromkeys(row["competitor"] for row in rows)
    for name, colour in zip(names, COLOURS * len(names), strict=False):
        of = [(problems[r["problem"]], r["median_us"]) for r in rows if r["competitor"] == name]
        points = [(flops(p) / least_nbytes(p, 2), flops(p) / us / 1e6) for p, us in of]
        axes.plot(*zip(*points, strict=True), "o", color=colour, label=name, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="FLOP a byte, at least", ylabel="TFLOP/s")
    axes.legend(frameon=False, fontsize=7)
    return figure


def _most_alike(rows: list[Record], size: str) -> list[Record]:
    """The rows that differ only in `size`, of the set of other sizes that has most of it; I follows H."""

    def others(row: Record) -> tuple[Any, ...]:
        return tuple(v for k, v in row["sizes"].items() if k not in (size, "I"))

    values: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        values.setdefault(others(row), set()).add(row["sizes"][size])
    best = max(values, key=lambda key: len(values[key]))
    return [row for row in rows if others(row) == best]


def _any(line: dict[str, Record]) -> Record:
    """Return the record of any competitor: all of a line have the same problem, pass and setting."""
    return next(iter(line.values()))


def _key(row: Record) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("group", "problem", "pass", "dtype", "threads"))


def _group_line(row: Record) -> str:
    return f"{row['group']}, {row['pass']}, {row['dtype']}"


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    figure.subplots(1, columns, sharex=columns > 1)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, figure.axes[0]
