"""Conversion between a flat params buffer and separate arrays, by a `ParamLayout`.

The canonical lists have cuDNN's order: pseudo-layer by pseudo-layer, then by linear-layer id. A weight is [output
width, input width]. The list of biases contains those that `bias_mode` has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout, Region


def to_canonical(params: Any, layout: ParamLayout, *, copy: bool = True) -> tuple[list[Any], list[Any]]:
    """Split a params buffer into its weights and biases.

    This works on any one-dimensional array that slices and reshapes. `copy=False` returns views into `params` if its
    library has views.

    Shapes:
        params: [layout.size]; weights: [rows, cols]; biases: [rows].
    """

    def part(region: Region) -> Any:
        view = params[region.slice].reshape(region.shape)
        if not copy:
            return view
        return view.copy() if hasattr(view, "copy") else view.clone()

    return [part(region) for region in layout.weights], [part(region) for region in layout.biases]


def from_canonical(weights: Sequence[Any], biases: Sequence[Any], layout: ParamLayout, out: Any) -> None:
    """Write weights and biases into the buffer `out`; padding becomes 0.

    All arrays are checked before anything is written. They must not share memory with `out`.

    Raises:
        ArgumentError: a wrong number of arrays, or an array that has neither its region's shape nor its flat shape.
    """
    placed = []
    for name, arrays, regions in (("weights", weights, layout.weights), ("biases", biases, layout.biases)):
        if len(arrays) != len(regions):
            raise ArgumentError(name, f"{len(regions)} arrays", f"{len(arrays)} arrays")
        for index, (array, region) in enumerate(zip(arrays, regions, strict=True)):
            if tuple(array.shape) not in {region.shape, (region.size,)}:
                expected = f"{region.shape} ({region.kind} of gate {region.gate!r}, pseudo-layer {region.pseudo_layer})"
                raise ArgumentError(f"{name}[{index}]", expected, tuple(array.shape), aspect="shape")
            placed.append((region, array))
    if sum(region.size for region, _ in placed) < layout.size:
        out[:] = 0
    for region, array in placed:
        out[region.slice] = array.reshape(-1)
