"""The opaque params buffer to and from separate arrays, through a `ParamLayout`.

The canonical lists are cuDNN's: pseudo-layer by pseudo-layer, linear-layer id order, weights [rows = output,
cols = input], and the biases that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout, Region


def to_canonical(params: Any, layout: ParamLayout, *, copy: bool = True) -> tuple[list[Any], list[Any]]:
    """Split a params buffer into its weights and biases.

    Works on any one-dimensional array that slices and reshapes. `copy=False` gives views into `params` where its
    library has views.

    Shapes:
        params: [layout.size]; weights: [rows, cols]; biases: [rows].
    """

    def part(region: Region) -> Any:
        view = params[region.slice].reshape(region.shape)
        return _copied(view) if copy else view

    return [part(region) for region in layout.weights], [part(region) for region in layout.biases]


def from_canonical(weights: Sequence[Any], biases: Sequence[Any], layout: ParamLayout, out: Any) -> None:
    """Write weights and biases into the buffer `out`; padding becomes 0.

    Everything is checked before anything is written. The arrays must not share memory with `out`.

    Raises:
        ArgumentError: a wrong number of arrays, or an array that is neither of its region's shape nor flat with as
            many elements.
    """
    placed = []
    for name, arrays, regions in (("weights", weights, layout.weights), ("biases", biases, layout.biases)):
        if len(arrays) != len(regions):
            raise ArgumentError(name, f"{len(regions)} arrays", f"{len(arrays)} arrays")
        for index, (array, region) in enumerate(zip(arrays, regions, strict=True)):
            if tuple(array.shape) not in {region.shape, (region.size,)}:
                raise ArgumentError(f"{name}[{index}]", _describe(region), tuple(array.shape), aspect="shape")
            placed.append((region, array))
    if sum(region.size for region, _ in placed) < layout.size:
        out[:] = 0
    for region, array in placed:
        out[region.slice] = array.reshape(-1)


def _copied(array: Any) -> Any:
    return array.copy() if hasattr(array, "copy") else array.clone()


def _describe(region: Region) -> str:
    return f"{region.shape} ({region.kind} of gate {region.gate!r}, pseudo-layer {region.pseudo_layer})"
