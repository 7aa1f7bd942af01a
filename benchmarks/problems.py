"""The problems, by group. A pass is `infer` (forward, evaluation) or `step` (training forward and all gradients)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Problem:
    """One RNN and one batch, float32: T steps, B sequences, I inputs, H units, L layers."""

    cell: str
    T: int
    B: int
    I: int
    H: int
    L: int

    @property
    def name(self) -> str:
        return f"{self.cell} {self.T}/{self.B}/{self.I}/{self.H}/{self.L}"

    def draw(self, *shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
        """Normal numbers scaled so that gates stay open; the same for every competitor."""
        return (np.random.default_rng(seed).normal(size=shape) * self.H**-0.5).astype(np.float32)


PASSES = ("infer", "step")

_SHAPES = [
    (50, 32, 256, 256, 1),
    (100, 64, 512, 512, 2),
    (200, 1, 128, 128, 1),
    (25, 16, 1024, 1024, 1),
    (1, 1, 512, 512, 1),
]

GROUPS = {
    "cpu": [Problem(cell, *shape) for shape in _SHAPES for cell in ("lstm", "gru")],
    "smoke": [Problem(cell, 3, 2, 8, 8, 1) for cell in ("lstm", "gru")],
}
