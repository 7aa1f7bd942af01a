"""Forms: how a framework stores one cell, array by array. Each form is used for reading and for writing.

For each array of a cell, a form lists the matrices and biases of cuDNN that it contains, their order, and whether they
are transposed. The expected shapes follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]

RowKind = Literal["W", "R", "WR", "bW", "bR", "b", "P"]
"""W: input, R: recurrent, WR: both side by side; bW, bR: their biases, b: the sum of both; P: the projection."""


class PseudoLayer(NamedTuple):
    """One direction of one layer, gate by gate in cuDNN's order; the arrays may be views.

    Shapes:
        W: [U, I] each; R: [U, P or U] each; bW, bR: [U] each, or None where they do not exist; projection: [P, U].
    """

    W: Sequence[Array]
    R: Sequence[Array]
    bW: Sequence[Array] | None
    bR: Sequence[Array] | None
    projection: Array | None = None

    @property
    def weights(self) -> list[Array]:
        return [*self.W, *self.R, *([] if self.projection is None else [self.projection])]

    @property
    def biases(self) -> list[Array]:
        return [*(self.bW or ()), *(self.bR or ())]

    @property
    def zeros(self) -> list[Array]:
        return [np.zeros(len(R), R.dtype) for R in self.R]

    def part(self, kind: RowKind, gate: int) -> Array:
        """Return cuDNN's rows of one kind and gate; zeros for a bias that does not exist. A single bias is the sum."""
        if kind == "WR":
            return np.concatenate([self.W[gate], self.R[gate]], axis=1)
        if kind == "b" and self.bW is not None and self.bR is not None:
            with np.errstate(all="ignore"):  # an overflow to infinity is the sum, too
                return np.add(self.bW[gate], self.bR[gate])
        rows = {"W": self.W, "R": self.R, "bW": self.bW, "bR": self.bR, "b": self.bW or self.bR}
        rows["P"] = None if self.projection is None else [self.projection]
        return (rows[kind] or self.zeros)[gate]


def pseudo_layers(spec: RNNSpec, weights: Sequence[Array], biases: Sequence[Array]) -> list[PseudoLayer]:
    """Cut canonical lists into pseudo-layers."""
    G, count = spec.num_gates, spec.num_pseudo_layers
    layers = []
    for p in range(count):
        w, b = (arrays[p * len(arrays) // count : (p + 1) * len(arrays) // count] for arrays in (weights, biases))
        bW, bR = b[:G] if spec.has_input_bias else None, b[-G:] if spec.has_recurrent_bias else None
        layers.append(PseudoLayer(w[:G], w[G : 2 * G], bW, bR, w[-1] if spec.num_proj else None))
    return layers


class Tensor(NamedTuple):
    """One array of a cell: its name, the rows that it contains, and whether it is transposed (outputs as columns)."""

    name: str
    parts: tuple[tuple[RowKind, int], ...]
    columns: bool = False

    def shape(self, inputs: int, units: int, state: int) -> tuple[int, ...]:
        kind, count = self.parts[0][0], len(self.parts)
        if kind == "P":
            shape: tuple[int, ...] = (state, units)
        else:
            width = {"W": inputs, "R": state, "WR": inputs + state}.get(kind)
            shape = (count * units,) if width is None else (count * units, width)
        return shape[::-1] if self.columns else shape

    def of(self, layer: PseudoLayer) -> Array:
        """Return the array of this layer, as a copy."""
        rows = np.concatenate([layer.part(*part) for part in self.parts])
        return np.ascontiguousarray(rows.T) if self.columns else rows


Form = tuple[Tensor, ...]
"""The arrays of one cell, in the order in which they are written."""


def stack(name: str, kind: RowKind, gates: Iterable[int], *, columns: bool = False) -> Tensor:
    """Return a tensor that holds one kind of rows, gate by gate."""
    return Tensor(name, tuple((kind, int(gate)) for gate in gates), columns)


def unstack(form: Form, arrays: Mapping[str, Array], gates: int, *, sums: RowKind = "bW") -> PseudoLayer:
    """Split a cell's arrays, given by their names in the form. `sums`: which bias a sum of both becomes."""
    rows_of: dict[str, dict[int, Array]] = {}
    for tensor in form:
        rows = arrays[tensor.name].T if tensor.columns else arrays[tensor.name]
        each = np.split(rows, len(tensor.parts))
        for (kind, gate), part in zip(tensor.parts, each, strict=True):
            rows_of.setdefault(sums if kind == "b" else kind, {})[gate] = part
    if "WR" in rows_of:
        state = len(rows_of["P"][0]) if "P" in rows_of else len(rows_of["WR"][0])
        cut = {gate: np.split(part, [part.shape[1] - state], axis=1) for gate, part in rows_of["WR"].items()}
        for i, half in enumerate("WR"):
            rows_of[half] = rows_of.get(half, {}) | {gate: halves[i] for gate, halves in cut.items()}

    def each_gate(kind: RowKind) -> list[Array]:
        parts = rows_of[kind]
        return [parts[gate] if gate in parts else np.zeros_like(next(iter(parts.values()))) for gate in range(gates)]

    bW, bR = (each_gate(kind) if kind in rows_of else None for kind in ("bW", "bR"))
    return PseudoLayer(each_gate("W"), each_gate("R"), bW, bR, rows_of["P"][0] if "P" in rows_of else None)
