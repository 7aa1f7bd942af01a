"""The table of a layout: its columns, a row for each region, and the whole as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pycudnnrnn.errors import LayoutError

if TYPE_CHECKING:
    from pycudnnrnn.layout import ParamLayout, Region

COLUMNS: Final = ("pseudo-layer", "layer", "direction", "kind", "id", "symbol", "gate", "shape", "offset", "end")

NUMBERS: Final = {"pseudo-layer", "layer", "id", "offset", "end"}
"""Columns that plain text aligns to the right."""

ROWS_MAX: Final = 40
"""Most rows of plain text. Longer tables leave out their middle."""


def row(region: Region) -> list[str]:
    """Return a region's cells, in the order of `COLUMNS`."""
    place = [str(region.pseudo_layer), str(region.layer), region.direction]
    name = [region.kind, str(region.lin_layer_id), region.symbol, region.gate]
    return [*place, *name, " x ".join(map(str, region.shape)), f"{region.offset:,}", f"{region.offset + region.size:,}"]


def plain_text(layout: ParamLayout) -> str:
    """Return the layout as an aligned table; without its rows if it has too many regions to list."""
    title = f"ParamLayout: {layout.size:,} elements"
    try:
        regions = layout.regions
    except LayoutError as error:
        return f"{title}; {error}"
    left_out = len(regions) - ROWS_MAX
    shown = regions if left_out <= 0 else regions[: ROWS_MAX // 2] + regions[-(ROWS_MAX // 2) :]
    rows = [list(COLUMNS), *map(row, shown)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = ["  ".join(map(_aligned, COLUMNS, cells, widths)).rstrip() for cells in rows]
    if left_out > 0:
        lines.insert(1 + ROWS_MAX // 2, f"... {left_out:,} more regions ...")
    return "\n".join([f"{title}, {len(regions):,} regions", *lines])


def _aligned(column: str, cell: str, width: int) -> str:
    return cell.rjust(width) if column in NUMBERS else cell.ljust(width)
