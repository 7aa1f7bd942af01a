"""One call of an RNN with all of its arrays, drawn from a seed."""

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
    """One call of an op: its arrays, and upstream gradients for its backward pass.

    Letters: T steps, B sequences, I inputs, L layers, D directions, U units, P projected units.

    Args:
        op: the op to call.
        params: the params buffer, [op.params_size()].
        x: the input, [T, B, I].
        hx: h before the first step, [L * D, B, U], or [L * D, B, P] with a projection.
        cx: c of an LSTM before the first step, [L * D, B, U]. Other ops ignore it.
        lengths: the steps of each sequence, B integers from 0 to T. None: T for all.
        dy: gradient of the output, [T, B, D * U], or [T, B, D * P] with a projection.
        dhy: gradient of the final h, shaped as `hx`.
        dcy: gradient of the final c, shaped as `cx`.

    Example:
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.testing import strategies
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> problem = strategies.make_problem(op, T=5, B=4, lengths=None, seed=0)
        >>> problem.x.shape, problem.full_lengths
        ((5, 4, 2), [5, 5, 5, 5])
        >>> sorted(problem.results())
        ['dhx', 'dparams', 'dx', 'hy', 'y']
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
        """The description of the op's RNN."""
        spec: RNNSpec = self.op.spec
        return spec

    @property
    def full_lengths(self) -> list[int]:
        """The steps of each sequence as a list, also if `lengths` is None."""
        T, B, _ = self.x.shape
        return [T] * B if self.lengths is None else self.lengths

    def forward(self, params: Array | None = None, **keywords: Any) -> ops.Forward:
        """Run the op's forward on this problem's arrays.

        Args:
            params: a params buffer to use in place of the problem's. Default: None, the problem's.
            **keywords: passed to the op's `forward`, for example `time_major` or `checkpoint_every`.

        Returns:
            The results of the call.
        """
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
        """Return (dy, dhy, dcy). The last one is None for cells without c."""
        return self.dy, self.dhy, self.dcy if self.spec.has_cell_state else None


def make_problem(op: Any, T: int, B: int, lengths: list[int] | None, seed: int) -> Problem:
    """Draw the arrays of a call from a normal distribution, in the op's dtype.

    Params are scaled by 1 / sqrt(U), so that the gates do not saturate.

    Args:
        op: the op to call.
        T: number of steps.
        B: number of sequences.
        lengths: the steps of each sequence, B integers from 0 to T. None: T for all.
        seed: seed of the numbers.

    Returns:
        The arrays of the call, and upstream gradients for its backward pass.

    Example:
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.testing import strategies
        >>> op = ops.CudnnLSTM(1, num_units=3, input_size=2)
        >>> problem = strategies.make_problem(op, T=5, B=2, lengths=[5, 3], seed=0)
        >>> problem.forward().output.shape
        (5, 2, 3)
    """
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
