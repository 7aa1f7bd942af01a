"""A layout for notebooks: the buffer to scale, and a table of its regions. Needs no library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pycudnnrnn.layout._table import COLUMNS, row

if TYPE_CHECKING:
    from pycudnnrnn.layout import ParamLayout, Region

GATE_COLOURS: Final = {
    "input": "#4477aa",
    "forget": "#ee6677",
    "new": "#ccbb44",
    "output": "#228833",
    "reset": "#66ccee",
    "update": "#aa3377",
    "hidden": "#4477aa",
    "projection": "#bbbbbb",
}
"""One colour per gate, from Paul Tol's bright scheme, which works without colour vision."""

ROWS_MAX: Final = 200
"""Most regions shown; a bidirectional LSTM of 6 layers has 192."""

WIDTH: Final = 1000


def html(layout: ParamLayout) -> str:
    """Return the layout as HTML: an SVG strip of the buffer, and the table of its regions."""
    shown = layout.regions[:ROWS_MAX]
    scale = WIDTH / max(layout.size, 1)
    boxes = "".join(
        f'<rect x="{r.offset * scale:.3f}" y="0" width="{r.size * scale:.3f}" height="24" fill="{GATE_COLOURS[r.gate]}"'
        f' fill-opacity="{0.85 if r.kind == "weight" else 0.45}"><title>{_words(r)}</title></rect>'
        for r in shown
    )
    rows = "".join(f"<tr>{''.join(map(_cell, COLUMNS, row(r)))}</tr>" for r in shown)
    left = len(layout.regions) - len(shown)
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    more = f"<p>and {left} more regions</p>" if left else ""
    return (
        f"<div><b>ParamLayout</b>: {layout.size:,} elements, {len(layout.regions)} regions"
        f'<br><svg viewBox="0 0 {WIDTH} 24" width="100%" height="24" preserveAspectRatio="none" role="img"'
        f' aria-label="regions of the params buffer, to scale">{boxes}</svg>'
        f'<div style="max-height: 30em; overflow: auto"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f"{more}</div>"
    )


def _cell(column: str, text: str) -> str:
    sample = f'<span style="background:{GATE_COLOURS[text]}">&emsp;</span> ' if column == "gate" else ""
    return f"<td>{sample}{text}</td>"


def _words(region: Region) -> str:
    place = f"pseudo-layer {region.pseudo_layer} (layer {region.layer}, {region.direction})"
    return f"{region.symbol} {region.gate}: {region.kind} {region.lin_layer_id} of {place}, {region.shape}"
