"""A layout for notebooks: the buffer to scale, and a table of its regions. Needs no library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

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
"""One colour per gate, from Paul Tol's bright scheme (made to be told apart without colour vision)."""

ROWS_MAX: Final = 200
"""Most regions shown; a bidirectional LSTM of 6 layers has 192."""

WIDTH: Final = 1000


def html(layout: ParamLayout) -> str:
    """Return the layout as HTML: an SVG strip of the buffer, and its regions."""
    shown = layout.regions[:ROWS_MAX]
    scale = WIDTH / max(layout.size, 1)
    boxes = "".join(
        f'<rect x="{r.offset * scale:.3f}" y="0" width="{r.size * scale:.3f}" height="24" fill="{_colour(r)}"'
        f' fill-opacity="{0.85 if r.kind == "weight" else 0.45}"><title>{escape(_words(r))}</title></rect>'
        for r in shown
    )
    rows = "".join(
        f"<tr><td>{r.pseudo_layer}</td><td>{r.kind}</td><td>{r.lin_layer_id}</td><td>{r.symbol}</td>"
        f'<td><span style="background:{_colour(r)}">&emsp;</span> {escape(r.gate)}</td>'
        f"<td>{' × '.join(map(str, r.shape))}</td><td>{r.offset:,}</td><td>{r.offset + r.size:,}</td></tr>"
        for r in shown
    )
    left = len(layout.regions) - len(shown)
    names = ("pseudo-layer", "kind", "lin_layer_id", "symbol", "gate", "shape", "offset", "end")
    head = "".join(f"<th>{name}</th>" for name in names)
    more = f"<p>and {left} more regions</p>" if left else ""
    return (
        f"<div><b>ParamLayout</b>: {layout.size:,} elements, {len(layout.regions)} regions"
        f'<br><svg viewBox="0 0 {WIDTH} 24" width="100%" height="24" preserveAspectRatio="none" role="img"'
        f' aria-label="regions of the params buffer, to scale">{boxes}</svg>'
        f'<div style="max-height: 30em; overflow: auto"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f"{more}</div>"
    )


def _words(region: Region) -> str:
    place = f"pseudo-layer {region.pseudo_layer} (layer {region.layer}, {region.direction})"
    return f"{region.symbol} {region.gate}: {region.kind} {region.lin_layer_id} of {place}, {region.shape}"


def _colour(region: Region) -> str:
    return GATE_COLOURS.get(region.gate, "#000000")
