"""Find out which arrays of a file went into each array of another."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pycudnnrnn._tf1.tensors import pairs_that_count
from pycudnnrnn.convert import Canonical
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.spec import RNNSpec


def origins_of(
    read: Callable[[dict[str, Any]], Canonical],
    arrays: Any,
    write: Callable[[Canonical], dict[str, Any]],
    spec: RNNSpec,
    written: Any,
) -> dict[str, list[str]]:
    """Return the arrays of SRC that are in each array of DST; none if it contains zeros or identity matrices.

    Both converters are run on arrays that contain only their own number.
    """
    origins = _into_canonical(read, flat(arrays))
    small = spec.replace(
        num_units=2, input_size=2, num_proj=1 if spec.num_proj else None, dtype="float64", algo="standard"
    )
    regions = list(canonical_shapes(small))
    into: dict[str, set[str]] = {name: set() for name in written}
    # Names do not depend on sizes, so a small model shows where each part goes. What is added up (two biases of a gate)
    # differs in its linear layer id, so each id is traced separately, through all layers at once.
    for own in sorted({(kind, lin_layer_id) for _, lin_layer_id, _, kind, _ in regions}):
        numbers = [i + 1.0 if (region[3], region[1]) == own else 0.0 for i, region in enumerate(regions)]
        parts = [(region[3], np.full(region[4], n)) for region, n in zip(regions, numbers, strict=True)]
        weights, biases = (tuple(part for kind, part in parts if kind == wanted) for wanted in ("weight", "bias"))
        with contextlib.suppress(ConvertError):  # nnx's GRU has no place for this bias: it goes nowhere
            for name, array in write(Canonical(small, weights, biases)).items():
                for number in np.unique(np.abs(array)):
                    into[name].update(origins[round(number) - 1] if number else ())
    return {name: sorted(found) for name, found in into.items()}


def flat(arrays: Any, above: str = "") -> dict[str, Any]:
    """Return the arrays of nested dicts under their paths."""
    found: dict[str, Any] = {}
    for key, value in arrays.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}/")
        elif hasattr(value, "shape"):
            found[f"{above}{key}"] = value
    return found


def _into_canonical(read: Callable[[dict[str, Any]], Canonical], arrays: dict[str, Any]) -> list[set[str]]:
    """Return the names of the arrays that are in each canonical weight, then in each bias."""
    names = list(arrays)
    numbers = {name: 2.0 * i + 1 for i, name in enumerate(names)}  # odd: none is the sum of two others
    # A bias that is read only to see that it is the sum of two others stays their sum.
    pairs = pairs_that_count({name: array for name, array in arrays.items() if isinstance(array, np.ndarray)})
    numbers |= {name: sum(numbers[part] for part in pair) for name, pair in pairs.items()}

    def traced(times: int) -> list[Any]:
        numbered = {name: np.full(np.shape(array), times * numbers[name]) for name, array in arrays.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = read(numbered)
        return [*found.weights, *found.biases]

    # What a converter adds, such as a forget gate's bias, is the same both times: the difference has only the number.
    return [
        {names[round(number) // 2] for number in np.unique(twice - once) if number}
        for once, twice in zip(traced(1), traced(2), strict=True)
    ]
