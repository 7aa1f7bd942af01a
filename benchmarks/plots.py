"""The picture of docs/performance.md, as an SVG file: the same results give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pycudnnrnn._files import write_atomically

COLOURS: Final = ("#4477aa", "#ee6677")
"""Of Paul Tol's bright scheme, made to be told apart without colour vision."""


Ratios = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Our time divided by torch's: by the title of a pass, the kind of kernels and the problem."""


def draw(ratios: Ratios, setting: str, path: Path) -> None:
    """Write the picture of a run on a CPU; `setting` is its dtype and threads in words."""
    image = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "pycudnnrnn", "svg.fonttype": "none"}):  # ids and text that do not vary
        bars(ratios, setting).savefig(image, format="svg", metadata={"Date": None})
    write_atomically(path, image.getvalue())


def bars(ratios: Ratios, setting: str) -> Figure:
    """Draw one bar per problem and kind of kernels: forwards left, training steps right."""
    labels = list(dict.fromkeys(p for kinds in ratios.values() for found in kinds.values() for p in found))
    kinds = list(dict.fromkeys(name for found in ratios.values() for name in found))
    height = 0.8 / len(kinds)
    figure = Figure(figsize=(8, 1.4 + 0.2 * len(labels) * len(kinds)), layout="constrained")
    FigureCanvasSVG(figure)
    figure.subplots(1, len(ratios), sharex=True)
    for axes, (title, found) in zip(figure.axes, ratios.items(), strict=True):
        for nth, name in enumerate(kinds):
            offset = (nth - (len(kinds) - 1) / 2) * height
            values = {labels.index(p) + offset: ratio for p, ratio in found.get(name, {}).items()}
            drawn = axes.barh([*values], [*values.values()], height, color=COLOURS[nth], label=name)
            axes.bar_label(drawn, fmt="%.2f", fontsize=7, padding=2)
        axes.axvline(1, color="#333333", linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels if axes is figure.axes[0] else [""] * len(labels), fontsize=8)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_title(f"{title}, {setting}", fontsize=9)
        axes.set_xlabel("our time / torch's time: left of 1, ours is faster", fontsize=8)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure
