"""Pictures, with matplotlib (extra "plot"): where a params buffer holds what, and how a loss went down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from pycudnnrnn.errors import MissingDependencyError
from pycudnnrnn.layout import ParamLayout, Region

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingDependencyError("matplotlib", "plot", "drawing") from error

GATE_COLOURS = {
    "input": "#4477aa",
    "forget": "#ee6677",
    "new": "#ccbb44",
    "output": "#228833",
    "reset": "#66ccee",
    "update": "#aa3377",
    "hidden": "#4477aa",
    "projection": "#bbbbbb",
}
"""One colour a gate, from Paul Tol's bright scheme (made to be told apart without colour vision)."""


def draw_layout(layout: ParamLayout, path: str | PathLike[str], title: str = "params") -> None:
    """Draw a params buffer to `path` (PNG, SVG or PDF by its suffix).

    The strip on top is the buffer to scale. Below it each region is a box of one size: a row for the weights and one
    for the biases of each pseudo-layer, with the gate, the linear-layer id, the shape and the offset in elements.
    """
    rows = _rows(layout)
    columns = max(len(regions) for _, regions in rows)
    figure = _figure(2 + 1.25 * columns, 1.8 + 0.85 * len(rows))
    strip, boxes = figure.subplots(2, 1, height_ratios=[1, 1.7 * len(rows)])

    strip.set_title(f"{title}: {layout.size:,} elements", loc="left")
    for region in layout.regions:
        strip.barh(0, region.size, left=region.offset, **_box_style(region))
    strip.set(xlim=(0, layout.size), yticks=[])
    strip.set_xlabel("offset [elements]")

    for y, (_, regions) in enumerate(rows):
        for x, region in enumerate(regions):
            boxes.barh(y, 0.94, left=x, height=0.86, **_box_style(region))
            shape = " x ".join(map(str, region.shape))
            text = f"{region.gate}\nid {region.lin_layer_id}   {shape}\n@ {region.offset:,}"
            boxes.text(x + 0.47, y, text, ha="center", va="center", fontsize=7)
    boxes.set(xlim=(0, columns), ylim=(len(rows) - 0.5, -0.5), xticks=[])
    boxes.set_yticks(range(len(rows)), [name for name, _ in rows])
    boxes.tick_params(length=0)
    boxes.spines[:].set_visible(False)
    figure.savefig(path)


def draw_losses(
    path: str | PathLike[str], losses: Sequence[float], every: int, baselines: Mapping[str, float], held_out: float
) -> None:
    """Draw training losses, one point for `every` updates, beside horizontal lines to beat.

    Units:
        nats a character throughout.
    """
    figure = _figure(7, 4)
    axes = figure.subplots()
    axes.plot([every * (i + 1) for i in range(len(losses))], losses, color=GATE_COLOURS["input"], label="training")
    for (name, value), style in zip(baselines.items(), ("dotted", "dashdot", "dashed"), strict=False):
        axes.axhline(value, color="#777777", linestyle=style, label=f"{name} {value:.2f}")
    axes.axhline(held_out, color=GATE_COLOURS["forget"], label=f"LSTM, held out {held_out:.2f}")
    axes.set(xlabel="updates", ylabel="loss [nats a character]")
    axes.legend(edgecolor="none", framealpha=1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _rows(layout: ParamLayout) -> list[tuple[str, list[Region]]]:
    rows: dict[str, list[Region]] = {}
    for region in layout.regions:
        kind = "weights" if region.kind == "weight" else "biases"
        rows.setdefault(f"{kind}\npseudo-layer {region.pseudo_layer}", []).append(region)
    return list(rows.items())


def _box_style(region: Region) -> dict[str, Any]:
    return {
        "color": GATE_COLOURS[region.gate],
        "alpha": 0.75 if region.kind == "weight" else 0.4,
        "edgecolor": "white",
        "linewidth": 0.5,
    }
