"""Draw the pictures of the pages: `python -m docs.pictures`.

The pictures are committed; a test compares them with what this script draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from matplotlib import rc_context

from pycudnnrnn import RNNSpec, ops, plot

PICTURES: Final = Path(__file__).parent / "pictures"

LAYOUTS: Final = {
    "lstm-layout.svg": RNNSpec("lstm", num_layers=1, num_units=16, input_size=8),
    "gru-layout.svg": RNNSpec("gru", num_layers=2, num_units=3, input_size=2, direction="bidirectional"),
}
"""The model whose params buffer each picture shows."""

TEXT: Final = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana"]}
"""Letters of nearly the same widths: text stays in its box where the first font is missing."""


OVERVIEW: Final = "overview.svg"
"""What the package does, for the first page: four boxes, with text that can be read on a phone."""

BOXES: Final = (
    (0, 50, 220, 120, "arrays in", "NumPy, CuPy,", "torch, JAX"),
    (290, 0, 220, 100, "cuDNN", "CUDA arrays"),
    (290, 120, 220, 100, "CPU", "all other arrays"),
    (580, 50, 220, 120, "arrays out", "the same kind,", "and gradients"),
)
"""Left, top, width, height, label, and the lines below it."""

ARROWS: Final = ((222, 90, 282, 55), (222, 130, 282, 165), (512, 55, 572, 90), (512, 165, 572, 130))

OPENING: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 820 240" text-anchor="middle"
 font-family="DejaVu Sans, Verdana, sans-serif">
<marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L10 5L0 10z" fill="#444"/></marker>
<rect x="-10" y="-10" width="820" height="240" rx="12" fill="#fff"/>"""


def overview() -> str:
    """Return the first page's picture. It has its own background, so that it can be read in dark pages, too."""
    parts = [OPENING]
    for left, top, width, height, label, *lines in BOXES:
        middle, first = left + width // 2, top + height // 2 - 13 * len(lines) + 8
        parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="10" fill="#e8eef7" stroke="#4477aa"'
            ' stroke-width="2"/>'
        )
        parts.append(f'<text x="{middle}" y="{first}" font-size="32" font-weight="bold" fill="#222">{label}</text>')
        parts += [
            f'<text x="{middle}" y="{first + 30 + 26 * i}" font-size="22" fill="#222">{line}</text>'
            for i, line in enumerate(lines)
        ]
    parts += [
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#444" stroke-width="3" marker-end="url(#tip)"/>'
        for x1, y1, x2, y2 in ARROWS
    ]
    return "\n".join([*parts, "</svg>\n"])


def draw(folder: Path) -> None:
    """Draw all pictures into a folder."""
    (folder / OVERVIEW).write_text(overview(), encoding="utf-8")
    with rc_context(TEXT):
        for name, spec in LAYOUTS.items():
            plot.draw_layout(ops.from_spec(spec).layout(), folder / name, title=repr(spec))


if __name__ == "__main__":
    draw(PICTURES)
