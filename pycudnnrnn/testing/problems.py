"""One call of an RNN with everything it needs, from a seed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import ops
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Problem:
    """One call with everything it needs, and upstream gradients for its backward.

    Shapes:
        x: [T, B, I]; hx, dhy: [L * D, B, P or U]; cx, dcy: [L * D, B, U]; dy: [T, B, D * (P or U)].
    """

    op: Any
    params: Array
    x: Array
    hx: Array
    cx: Array
    lengths: list[int] | None
    dy: Array
    dhy: Array
    dcy: Array

    @property
    def spec(self) -> RNNSpec:
        spec: RNNSpec = self.op.spec
        return spec

    @property
    def full_lengths(self) -> list[int]:
        """The lengths, with None spelt out."""
        T, B, _ = self.x.shape
        return [T] * B if self.lengths is None else self.lengths

    def forward(self, params: Array | None = None, **keywords: Any) -> ops.Forward:
        """Run the op's forward on this problem's arrays."""
        params = self.params if params is None else params
        states = (self.hx, self.cx) if self.spec.has_cell_state else (self.hx,)
        keywords = {"sequence_lengths": self.lengths} | keywords
        forward: ops.Forward = self.op.forward(self.x, *states, params, **keywords)
        return forward

    def results(self, *, retain: bool = False, **keywords: Any) -> dict[str, Any]:
        """Compute every result and gradient of this problem, by name.

        Args:
            retain: keep what the forward stored for a further backward.
            **keywords: passed to the op's `forward`, for example `time_major` or `checkpoint_every`.

        Returns:
            The results "y", "hy" and for an LSTM "cy", then the gradients "dx", "dhx", for an LSTM "dcx", and
            "dparams". Each is an array of the same kind as the problem's own arrays.
        """
        fwd = self.forward(**keywords)
        grads = fwd.backward(*self.upstream(), retain=retain)
        found = {
            "y": fwd.output, "hy": fwd.output_h, "cy": fwd.output_c,
            "dx": grads.input, "dhx": grads.input_h, "dcx": grads.input_c, "dparams": grads.params,
        }  # fmt: skip
        return {name: array for name, array in found.items() if array is not None}

    def upstream(self) -> tuple[Array, Array, Array | None]:
        """(dy, dhy, dcy), the last None where the cell has no c."""
        return self.dy, self.dhy, self.dcy if self.spec.has_cell_state else None


def make_problem(op: Any, T: int, B: int, lengths: list[int] | None, seed: int) -> Problem:
    """Fill a call with normal numbers from a seed, in the op's dtype; params are scaled so that gates stay open."""
    rng = np.random.default_rng(seed)
    spec: RNNSpec = op.spec
    dtype = spec.dtype.numpy

    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(dtype)

    states = (spec.num_pseudo_layers, B)
    params = (rng.normal(size=op.params_size()) * spec.num_units**-0.5).astype(dtype)
    return Problem(
        op, params, normal(T, B, spec.input_size), normal(*states, spec.state_size), normal(*states, spec.num_units),
        lengths, normal(T, B, spec.output_size), normal(*states, spec.state_size), normal(*states, spec.num_units),
    )  # fmt: skip
