"""Reports of results files: tables, CSV, a picture, and what changed between two files.

A ratio is our time divided by another's, of the two times that are printed. Each run times one of ours twice. What
these two differ by is noise: a ratio is bold, and called faster or slower, only outside of it.
"""

from __future__ import annotations

import collections
import csv
import io
import math
import operator
import re
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pycudnnrnn._files import write_atomically

from .adapters import OURS, STEPS
from .results_files import Record, Run

TITLES: Final = {
    "compiled": "ours, compiled", "numpy": "ours, NumPy", "plan-cpu": "ours, plan", "stream-cpu": "ours, stream",
    "torch-cpu": "torch", "jax-cpu": "JAX",
}  # fmt: skip
"""Column headings; other competitors keep their names."""

NUMBER: Final = re.compile(r"(\*\*)?\d").match

NOTE: Final = (
    "microseconds, median of the rounds' medians, and half the range of these. Ratio: the time of {ours} divided by "
    "it; bold, and faster or slower ({ours} is), only outside what A/A shows, which is *noise*. On a GPU, (h): timed "
    "by the host's clock, waiting included; the others by events."
)

COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Of Paul Tol's bright scheme, made to be told apart without colour vision."""


class Line(NamedTuple):
    """The rows of one problem, pass, dtype, number of threads and state of caches, by competitor."""

    key: tuple[Any, ...]
    rows: dict[str, Record]

    @property
    def noise(self) -> float | None:
        """Return the largest in-round ratio of a competitor to itself, as a distance from 1.

        None without A/A, or with one round of it, which is no measure of chance.
        """
        ratios: list[float] = []
        for name, again in self.rows.items():
            first = self.rows.get(name.partition(" #")[0])
            if "#" in name and first is not None and timed(first) and timed(again):
                ratios += map(operator.truediv, first["round_medians_us"], again["round_medians_us"])
        return max(max(ratio, 1 / ratio) - 1 for ratio in ratios) if len(ratios) > 1 else None

    def ratio(self, ours: str, theirs: str) -> float | None:
        """Return the quotient of two times that are shown; None where one of them is not known."""
        a, b = self.rows.get(ours), self.rows.get(theirs)
        return float(a["median_us"] / b["median_us"]) if timed(a) and timed(b) and a is not b else None

    @property
    def head(self) -> tuple[str, ...]:
        """Return what a table says of all its rows."""
        problem, *others, caches = self.key
        return (problem if caches == "warm" else f"{problem}, {caches} caches", *map(str, others), percent(self.noise))

    def shown(self, ours: str, theirs: str) -> str:
        """Return the ratio as tables show it."""
        ratio = self.ratio(ours, theirs)
        return "" if ratio is None else marked(ratio, self.verdict(ours, theirs))

    def verdict(self, ours: str, theirs: str) -> str:
        """Return "faster" or "slower", of ours, where the quotient and the ratio in the rounds are outside noise."""
        ratio, noise = self.ratio(ours, theirs), self.noise
        if ratio is None or noise is None or "#" in theirs:
            return ""
        medians = (self.rows[name].get("round_medians_us", []) for name in (ours, theirs))
        inside = statistics.median([a / b for a, b in zip(*medians, strict=False)] or [ratio])
        return outside((ratio, inside), noise)


def outside(ratios: Iterable[float], noise: float) -> str:
    """Return what all ratios say that are further from 1 than noise; nothing where they do not agree."""
    words = {"faster" if r < 1 / (1 + noise) else "slower" if r > 1 + noise else "" for r in ratios}
    return words.pop() if len(words) == 1 else ""


def marked(ratio: float, verdict: str) -> str:
    return f"**{ratio:.2f}** {verdict}" if verdict else f"{ratio:.2f}"


def timed(row: Record | None) -> bool:
    return row is not None and row["status"] == "ok"


def label(row: Record) -> str:
    """Return a row's competitor, with a number where it is a copy."""
    return row["competitor"] if row["copy"] == 1 else f"{row['competitor']} #{row['copy']}"


def title(name: str) -> str:
    first, mark, copy = name.partition(" #")
    return TITLES.get(first, first) + mark + copy


def lines_of(rows: Iterable[Record]) -> list[Line]:
    """Group rows that are compared with each other, in their order."""
    lines: dict[Any, dict[str, Record]] = {}
    for row in rows:
        key = row["problem"], row["pass"], row["dtype"], row["threads"] or "", row["caches"]
        lines.setdefault(key, {})[label(row)] = row
    return [Line(key, line) for key, line in lines.items()]


def first_of_ours(rows: Sequence[Record]) -> str:
    """Return whom the ratios are of: the first of ours with a time, a plan first; or else the first of all."""
    names = dict.fromkeys(row["competitor"] for row in rows if timed(row))
    preferred = (*STEPS, *OURS["cpu"], "plan", "auto", "rule", *OURS["cuda"])
    return next((name for name in (*preferred, *names) if name in names), "")


HEADINGS: Final = (
    "problem", "pass", "dtype", "threads", "noise", "library", "us", "ratio", "GFLOP/s", "peak", "memory", "bound by",
)  # fmt: skip


def text(rows: Sequence[Record]) -> str:
    """Return a line for each time, with what it is worth; and why others have none."""
    ours, body = first_of_ours(rows), []
    for line in lines_of(rows):
        head = line.head
        for name, row in line.rows.items():
            if timed(row):
                shares = (row.get("share_of_peak"), row.get("share_of_bandwidth"))
                merits = [f"{row.get('gflops', math.nan):.3g}", *map(percent, shares), row.get("bound", "")]
                body.append((*head, title(name), time_of(row), line.shown(ours, name), *merits))
                head = ("",) * 5
    return "\n\n".join(filter(None, [note(ours), table(HEADINGS, body), without(rows)] if body else [without(rows)]))


def note(ours: str) -> str:
    return textwrap.fill(NOTE.format(ours=title(ours)), 120)


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def comparison(rows: Sequence[Record], unit: float = 1.0) -> str:
    """Return a table with a column for each competitor: times in `unit` of microseconds, and the ratio of ours."""
    ours = first_of_ours(rows)
    names = list(dict.fromkeys([ours, *map(label, rows)]))
    body = []
    for line in lines_of(rows):
        cells = []
        for name in names:
            shown = line.shown(ours, name).replace(" faster", "").replace(" slower", "")
            cells.append(time_of(line.rows.get(name), unit) + (f" ({shown})" if shown else ""))
        body.append((*line.head, *cells))
    return table((*HEADINGS[:5], *map(title, names)), body)


def time_of(row: Record | None, unit: float = 1.0) -> str:
    """Return a row's median in `unit` of microseconds with its spread; its status if it has none, "-" without a row."""
    if row is None or not timed(row):
        return "-" if row is None else str(row["status"]).replace("_", " ")
    value, spread = row["median_us"] / unit, row.get("spread")
    mark = " (h)" if row.get("clock") == "host" and row["threads"] is None else ""
    return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + ("" if spread is None else f" ±{spread:.0%}") + mark


def without(rows: Sequence[Record]) -> str:
    """Return why rows have no result, and how many; nothing if all have one."""
    counts = collections.Counter(
        (title(label(row)), row["status"].replace("_", " "), " ".join(row["reason"].split()))
        for row in rows
        if not timed(row)
    )
    lines = [f"- {who}, {n} row{'' if n == 1 else 's'}: {what} ({why})" for (who, what, why), n in counts.items()]
    return "Rows without a time:\n\n" + "\n".join(lines) if lines else ""


def as_csv(found: Sequence[Run]) -> str:
    """Return every row and figure of these files as CSV; sizes have columns of their own."""
    flat = [
        {"file": run.path.name, **row, **row["sizes"], "sizes": row["problem"]} for run in found for row in run.rows
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in flat for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def compare(before: Run, after: Run) -> str:
    """Return how two files' times differ: after divided by before, and what is outside the noise and spread of both."""
    old, new = ({line.key: line for line in lines_of(run.rows)} for run in (before, after))
    body, counts = [], collections.Counter[str]()
    for key in {**new, **old}:
        first, second = old.get(key, Line(key, {})), new.get(key, Line(key, {}))
        for name in {**second.rows, **first.rows}:
            other, row = first.rows.get(name), second.rows.get(name)
            times = (*second.head[:4], title(name), time_of(other), time_of(row))
            if other is None or row is None or not (timed(row) or timed(other)):
                counts["not in both" if other is None or row is None else "without a time in both"] += 1
            elif not (timed(row) and timed(other)):
                counts["with a time in one only"] += 1
                body.append((*times, "", ""))
            else:
                noises = first.noise, second.noise, *(one.get("spread") or 0 for one in (other, row))
                noise = None if None in noises else math.fsum(filter(None, noises))
                ratio = row["median_us"] / other["median_us"]
                verdict = "" if noise is None else outside([ratio], noise)
                counts[verdict or ("without A/A" if noise is None else "within noise")] += 1
                body.append((*times, marked(ratio, verdict), percent(noise)))
    changed = [
        f"{name}: {old_value} -> {new_value}"
        for name in ("machine", "cores", "host", "gpu", "commit", "versions", "variables", "settings")
        if (old_value := before.environment.get(name)) != (new_value := after.environment.get(name))
    ]
    headings = ("problem", "pass", "dtype", "threads", "library", before.path.stem, after.path.stem, "ratio", "noise")
    counted = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return "\n\n".join(filter(None, ["\n".join(changed), table(headings, body), f"Second over first: {counted}."]))


def picture(rows: Sequence[Record], path: Path) -> None:
    """Draw each library's times, over the letter that a sweep varies or else problem by problem.

    The same rows give the same file.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    if not (passes := list(dict.fromkeys(row["pass"] for row in rows if timed(row)))):
        raise ValueError("no row has a time to draw")
    varied = [letter for letter in "TBUL" if len({row["sizes"][letter] for row in rows}) > 1]
    figure = Figure(figsize=(5 * len(passes), 5), layout="constrained")
    FigureCanvasSVG(figure)
    for axes, which in zip(figure.subplots(1, len(passes), squeeze=False)[0], passes, strict=True):
        points: dict[str, dict[Any, float]] = {}
        for row in rows:
            if timed(row) and row["pass"] == which and row["copy"] == 1:
                at = row["sizes"][varied[0]] if len(varied) == 1 else row["problem"]
                points.setdefault(title(label(row)), {})[at] = row["median_us"]
        for n, (name, times) in enumerate(points.items()):
            axes.plot(list(times), list(times.values()), "o-", color=COLOURS[n % len(COLOURS)], label=name)
        axes.set(yscale="log", ylabel="microseconds", title=which)
        if len(varied) == 1:
            axes.set(xscale="log", xlabel=varied[0])
        axes.tick_params("x", rotation=0 if len(varied) == 1 else 90, labelsize=7)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    image = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "pycudnnrnn", "svg.fonttype": "none"}):  # ids and text that do not vary
        figure.savefig(image, format=path.suffix[1:], metadata=metadata)
    write_atomically(path, image.getvalue())


def table(headings: Iterable[Any], lines: Iterable[Iterable[Any]]) -> str:
    """Return a table in Markdown, aligned, with the columns of numbers on the right."""
    rows = [list(map(str, headings)), *(list(map(str, cells)) for cells in lines)]
    columns = []
    for heading, *cells in zip(*rows, strict=True):
        width = max(3, *map(len, (heading, *cells)))
        number = any(map(NUMBER, cells)) and all(
            NUMBER(cell) or cell in {"", "-", "not run", "failed"} for cell in cells
        )
        pad = str.rjust if number else str.ljust
        columns.append(
            [pad(heading, width), "-" * (width - number) + ":" * number, *(pad(cell, width) for cell in cells)]
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in zip(*columns, strict=True))
