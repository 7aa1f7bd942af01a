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


def draw(folder: Path) -> None:
    """Draw all pictures into a folder."""
    with rc_context(TEXT):
        for name, spec in LAYOUTS.items():
            plot.draw_layout(ops.from_spec(spec).layout(), folder / name, title=repr(spec))


if __name__ == "__main__":
    draw(PICTURES)
