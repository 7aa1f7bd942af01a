"""What the engine asks of a cell: `cells` has those of NumPy, `compiled` those with compiled time loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.schedule import Schedule, Step

Pieces = list[tuple[slice, Array]]
"""Gradients of pre-activations: the columns of the stacked gates, and their [rows, columns] array."""


class Sizes(NamedTuple):
    """Elements of the matrices of a pseudo-layer."""

    W: int
    R: int
    proj: int


class CellArithmetic(Protocol):
    """One direction of one layer.

    `steps` are rows of the tape's arrays and of `out` and `dy`. State arrays are updated in place; the rows running at
    a step are a prefix of theirs.

    Shapes:
        x: [rows, I]; h, dh: [B, P]; c, dc: [B, U]; out, dy: [rows, P]; tape["gates"]: [rows, G * U].
    """

    def forwards(self, w: Weights, schedule: Schedule) -> Weights:
        """The weights as `forward` takes them.

        The whole schedule decides, not the steps of one call: another order of a matrix gives other bits.
        """

    def backwards(self, w: Weights, schedule: Schedule) -> Weights:
        """The weights as `backward` takes them, W as it is."""

    def copied(self, sizes: Sizes, schedule: Schedule) -> tuple[int, int]:
        """Elements that `forwards` and `backwards` copy of matrices of these sizes."""

    def weight_product(self, rows: Array, others: Array, out: Array, *, adds: bool) -> None:
        """Write rows.T @ others, the part of a weight gradient of so many packed rows, or add it."""

    def product(self, rows: Array, matrix: Array, out: Array, *, adds: bool) -> None:
        """Write rows @ matrix, or add it."""

    def makes_ahead(self, schedule: Schedule, *, skips: bool) -> bool:
        """Whether a forward without a tape makes a block's gates before its steps; `skips`: some layer has no W."""

    def made_back(self, rows: int, B: int) -> int:
        """Elements that going back through a block of so many rows makes beside those of the tape."""

    def extra(self) -> dict[str, int]:
        """Names and widths of the tape arrays that this cell's backward needs beside those of all."""

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        """Walk the steps; a tape, where it has arrays, gets what backward needs."""

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        """Walk the steps the other way round, leaving gradients of pre-activations on the tape, in rows."""

    def input_pieces(self, tape: Tape) -> Pieces:
        """Gradients of what the input product was added to, after backward."""
