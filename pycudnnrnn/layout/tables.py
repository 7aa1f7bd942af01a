"""A layout to read: a row for each region, the table as plain text, and for notebooks the buffer to scale above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pycudnnrnn.layout import ParamLayout, Region

GATE_COLOURS: Final = {
    "input": "#4477aa", "forget": "#ee6677", "new": "#ccbb44", "output": "#228833", "reset": "#66ccee",
    "update": "#aa3377", "hidden": "#4477aa", "projection": "#bbbbbb",
}  # fmt: skip
"""One colour per gate, from Paul Tol's bright scheme, which works without colour vision."""

COLUMNS: Final = ("pseudo-layer", "layer", "direction", "kind", "id", "symbol", "gate", "shape", "offset", "end")

NUMBERS: Final = {"pseudo-layer", "layer", "id", "offset", "end"}
"""Columns that plain text aligns to the right."""

ROWS_MAX: Final = 40
"""Most rows of plain text. Longer tables leave out their middle."""

BOXES_MAX: Final = 200
"""Most regions drawn in a notebook; a bidirectional LSTM of 6 layers has 192."""

WIDTH: Final = 1000


def row(region: Region) -> list[str]:
    """Return a region's cells, in the order of `COLUMNS`."""
    place = [str(region.pseudo_layer), str(region.layer), region.direction]
    name = [region.kind, str(region.lin_layer_id), region.symbol, region.gate]
    return [*place, *name, " x ".join(map(str, region.shape)), f"{region.offset:,}", f"{region.offset + region.size:,}"]


def plain_text(layout: ParamLayout) -> str:
    """Return the layout as an aligned table."""
    regions = layout.regions
    left_out = len(regions) - ROWS_MAX
    shown = regions if left_out <= 0 else regions[: ROWS_MAX // 2] + regions[-(ROWS_MAX // 2) :]
    rows = [list(COLUMNS), *map(row, shown)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    columns = [f"{{:{'>' if name in NUMBERS else '<'}{width}}}" for name, width in zip(COLUMNS, widths, strict=True)]
    lines = ["  ".join(columns).format(*cells).rstrip() for cells in rows]
    if left_out > 0:
        lines.insert(1 + ROWS_MAX // 2, f"... {left_out:,} more regions ...")
    return "\n".join([f"ParamLayout: {layout.size:,} elements, {len(regions):,} regions", *lines])


def html(layout: ParamLayout) -> str:
    """Return the layout as HTML: the buffer as an SVG strip, the gates' colours, and the table. Needs no library."""
    scale = WIDTH / max(layout.size, 1)
    shown = layout.regions[:BOXES_MAX]
    boxes = "".join(
        f'<rect x="{r.offset * scale:.3f}" y="0" width="{r.size * scale:.3f}" height="24" fill="{GATE_COLOURS[r.gate]}"'
        f' fill-opacity="{0.85 if r.kind == "weight" else 0.45}"><title>{" ".join(row(r))}</title></rect>'
        for r in shown
    )
    gates = dict.fromkeys(r.gate for r in shown)
    legend = "".join(f'<span style="background:{GATE_COLOURS[gate]}">&emsp;</span> {gate} ' for gate in gates)
    return (
        f'<svg viewBox="0 0 {WIDTH} 24" width="100%" height="24" preserveAspectRatio="none" role="img">{boxes}</svg>'
        f"<p>{legend}({len(shown)} of {len(layout.regions)} regions, to scale)</p><pre>{plain_text(layout)}</pre>"
    )
