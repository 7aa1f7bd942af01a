"""The equations as a person would write them: one sequence, one step, one gate after the other, in float64.

Nothing here is fast, batched or shared with an engine. It is the oracle where no other library has the case, and the
page to read when the question is what an RNN of this package computes.

Source: the equations in cuDNN's documentation of cudnnRNNMode_t; PyTorch, Keras and ONNX Runtime compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn.spec import InputMode, RNNMode, RNNSpec

__all__ = ["Step", "clip", "forward", "gradients", "relu", "sigmoid"]
__dir__ = __all__.copy

Array = npt.NDArray[Any]

COMPLEX_STEP = 1e-30
"""The step of `gradients`. No subtraction follows, so it can be so small that the next order vanishes."""


class Step:
    """One step of one pseudo-layer: (x, h, c) to (h, c)."""

    def __init__(self, spec: RNNSpec, pseudo_layer: int, weights: Sequence[Array], biases: Sequence[Array]) -> None:
        gates = spec.num_gates
        per_layer = len(weights) // spec.num_pseudo_layers
        own = weights[pseudo_layer * per_layer : (pseudo_layer + 1) * per_layer]
        self.W, self.R, self.projection = own[:gates], own[gates : 2 * gates], own[2 * gates :]
        per_layer = len(biases) // spec.num_pseudo_layers
        given = list(biases[pseudo_layer * per_layer : (pseudo_layer + 1) * per_layer])
        absent = [np.zeros(spec.num_units)] * gates
        self.bW = given[:gates] if spec.has_input_bias else absent
        self.bR = given[-gates:] if spec.has_recurrent_bias else absent
        self.spec = spec
        self.skip = spec.input_mode is InputMode.SKIP_INPUT and pseudo_layer < spec.num_dirs

    def from_input(self, gate: int, x: Array) -> Array:
        product: Array = x if self.skip else self.W[gate] @ x
        return product + self.bW[gate]

    def from_state(self, gate: int, h: Array) -> Array:
        product: Array = self.R[gate] @ h
        return product + self.bR[gate]

    def gates(self, x: Array, h: Array) -> tuple[Array, ...]:
        """Return the gates after their sigmoid, tanh or relu, by linear-layer id."""
        mode = self.spec.mode
        if mode is RNNMode.RNN_TANH:
            return (np.tanh(self.from_input(0, x) + self.from_state(0, h)),)
        if mode is RNNMode.RNN_RELU:
            return (relu(self.from_input(0, x) + self.from_state(0, h)),)
        if mode is RNNMode.GRU:
            r = sigmoid(self.from_input(0, x) + self.from_state(0, h))
            z = sigmoid(self.from_input(1, x) + self.from_state(1, h))
            n = np.tanh(self.from_input(2, x) + r * self.from_state(2, h))
            return r, z, n
        i = sigmoid(self.from_input(0, x) + self.from_state(0, h))
        f = sigmoid(self.from_input(1, x) + self.from_state(1, h))
        g = np.tanh(self.from_input(2, x) + self.from_state(2, h))
        o = sigmoid(self.from_input(3, x) + self.from_state(3, h))
        return i, f, g, o

    def __call__(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        gates = self.gates(x, h)
        if self.spec.mode in (RNNMode.RNN_TANH, RNNMode.RNN_RELU):
            return gates[0], c
        if self.spec.mode is RNNMode.GRU:
            _, z, n = gates
            return (1 - z) * n + z * h, c
        i, f, g, o = gates
        c = f * c + i * g
        if self.spec.cell_clip:
            c = clip(c, *self.spec.cell_clip)
        h = o * np.tanh(c)
        return (self.projection[0] @ h if self.projection else h), c


def forward(
    spec: RNNSpec,
    weights: Sequence[Array],
    biases: Sequence[Array],
    x: Array,
    hx: Array,
    cx: Array,
    lengths: Sequence[int],
    gates: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return output, output_h, output_c, without dropout; c goes through untouched where the cell has none.

    With `gates`, every gate of every step is written there.

    Shapes:
        weights, biases: canonical lists; x: [T, B, I]; hx: [L * D, B, P or U]; cx: [L * D, B, U]; lengths: [B];
        gates: [L * D, T, B, G, U]; output: [T, B, D * (P or U)].
    """
    T, B, _ = x.shape
    width = spec.state_size
    dtype = np.result_type(np.float64, x, hx, cx, *weights, *biases)
    output, output_h, output_c = np.zeros((T, B, spec.output_size), dtype), hx.astype(dtype), cx.astype(dtype)
    for b in range(B):
        below = x[: lengths[b], b]
        for layer in range(spec.num_layers):
            above = np.zeros((lengths[b], spec.output_size), dtype)
            for direction in range(spec.num_dirs):
                p = layer * spec.num_dirs + direction
                step = Step(spec, p, weights, biases)
                h, c = output_h[p, b], output_c[p, b]
                for t in range(lengths[b]) if direction == 0 else reversed(range(lengths[b])):
                    if gates is not None:
                        gates[p, t, b] = step.gates(below[t], h)
                    h, c = step(below[t], h, c)
                    above[t, direction * width : (direction + 1) * width] = h
                output_h[p, b], output_c[p, b] = h, c
            below = above
        output[: lengths[b], b] = below
    return output, output_h, output_c


def gradients(
    spec: RNNSpec,
    arguments: tuple[Sequence[Array], Sequence[Array], Array, Array, Array],
    lengths: Sequence[int],
    upstream: tuple[Array, Array, Array],
) -> tuple[list[Array], list[Array], Array, Array, Array]:
    """Return the gradient of sum(upstream * results) for each of `forward`'s array arguments, in the same nesting.

    By complex step: f(a + i h).imag / h, one element at a time. The chain rule is not written out again, so a mistake
    in it cannot be made twice.
    """
    weights, biases, x, hx, cx = arguments
    given = [array.astype(np.complex128) for array in (*weights, *biases, x, hx, cx)]

    def objective() -> complex:
        results = forward(
            spec, given[: len(weights)], given[len(weights) : -3], given[-3], given[-2], given[-1], lengths
        )
        return sum(complex(np.sum(u * r)) for u, r in zip(upstream, results, strict=True))

    found = []
    for array in given:
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            array[index] += 1j * COMPLEX_STEP
            gradient[index] = objective().imag / COMPLEX_STEP
            array[index] = array[index].real
        found.append(gradient)
    return found[: len(weights)], found[len(weights) : -3], found[-3], found[-2], found[-1]


def sigmoid(a: Array) -> Array:
    """Return 1 / (1 + exp(-a)), or exp(a) / (1 + exp(a)) where the first exponential could overflow."""
    positive = np.real(a) > 0
    small = np.exp(np.where(positive, -a, a))
    value: Array = np.where(positive, 1, small) / (1 + small)
    return value


def relu(a: Array) -> Array:
    return np.where(np.real(a) > 0, a, 0)


def clip(c: Array, low: float, high: float) -> Array:
    """Bound c; a bound lets the gradient through where it is met exactly, and not where it is passed."""
    return np.where(np.real(c) < low, low, np.where(np.real(c) > high, high, c))
