"""The picture of docs/performance.md, as an SVG file: the same results give the same bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pycudnnrnn._atomic import write_atomically

from . import report
from .adapters import OURS
from .results_files import Run

COLOURS: Final = ("#4477aa", "#ee6677")
"""Of Paul Tol's bright scheme, made to be told apart without colour vision."""


def draw(run: Run, path: Path) -> None:
    """Write the picture of a run on a CPU."""
    image = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "pycudnnrnn", "svg.fonttype": "none"}):  # ids and text that do not vary
        bars(run).savefig(image, format="svg", metadata={"Date": None})
    write_atomically(path, image.getvalue())


def bars(run: Run) -> Figure:
    """Our time divided by torch's, one bar per problem and kind of kernels: forwards left, training steps right."""
    setting = report.settings(run)[0]
    labels = list(dict.fromkeys(problem for problem, _, _ in report.cpu_lines(run, setting)))
    kinds = [n for n in OURS["cpu"] if any(report.over_torch(run, n, setting, t) for t in report.PASSES.values())]
    height = 0.8 / len(kinds)
    figure = Figure(figsize=(8, 1.4 + 0.2 * len(labels) * len(kinds)), layout="constrained")
    FigureCanvasSVG(figure)
    figure.subplots(1, len(report.PASSES), sharex=True)
    for axes, title in zip(figure.axes, report.PASSES.values(), strict=True):
        for nth, name in enumerate(kinds):
            found = report.over_torch(run, name, setting, title)
            values = {labels.index(p) + (nth - (len(kinds) - 1) / 2) * height: ratio for p, ratio in found.items()}
            drawn = axes.barh([*values], [*values.values()], height, color=COLOURS[nth], label=report.TITLES[name])
            axes.bar_label(drawn, fmt="%.2f", fontsize=7, padding=2)
        axes.axvline(1, color="#333333", linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels if axes is figure.axes[0] else [""] * len(labels), fontsize=8)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_title(f"{title}, {report.setting_name(setting)}", fontsize=9)
        axes.set_xlabel("our time / torch's time: left of 1, ours is faster", fontsize=8)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure
