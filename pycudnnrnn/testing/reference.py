"""The equations of all RNNs as a person would write them: one sequence, one step and one gate at a time, in float64.

The code is slow on purpose and shares nothing with an engine. Read it to see what an RNN of this package computes, and
compare with it where no other library has the case.

Letters: T steps, B sequences, I inputs, L layers, D directions, G gates, U units, P projected units. A pseudo-layer is
one layer in one direction; its number is layer * D + direction.

Source: the equations in cuDNN's documentation of cudnnRNNMode_t; PyTorch, Keras and ONNX Runtime compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pycudnnrnn._arrays import Array
from pycudnnrnn.spec import InputMode, RNNMode, RNNSpec

__all__ = ["Step", "clip", "forward", "gradients", "relu", "sigmoid"]
__dir__ = __all__.copy


COMPLEX_STEP = 1e-30
"""The step of `gradients`. No subtraction follows, so it can be small enough to make higher orders vanish."""


class Step:
    """One step of one pseudo-layer for one sequence: from (x, h, c) to the new (h, c).

    Args:
        spec: description of the RNN.
        pseudo_layer: number of the pseudo-layer: layer * D + direction.
        weights: canonical weights of the whole RNN, as `op.params_to_canonical` returns them.
        biases: canonical biases of the whole RNN.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.testing import reference
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> canonical = op.params_to_canonical(op.init_params(seed=1))
        >>> step = reference.Step(op.spec, 0, *canonical)
        >>> h, c = step(np.ones(2), np.zeros(3), np.zeros(3))
        >>> h.shape
        (3,)
    """

    def __init__(self, spec: RNNSpec, pseudo_layer: int, weights: Sequence[Array], biases: Sequence[Array]) -> None:
        gates = spec.num_gates
        per_layer = len(weights) // spec.num_pseudo_layers
        matrices = weights[pseudo_layer * per_layer : (pseudo_layer + 1) * per_layer]
        self.W, self.R, self.projection = matrices[:gates], matrices[gates : 2 * gates], matrices[2 * gates :]
        per_layer = len(biases) // spec.num_pseudo_layers
        vectors = list(biases[pseudo_layer * per_layer : (pseudo_layer + 1) * per_layer])
        absent = [np.zeros(spec.num_units)] * gates
        self.bW = vectors[:gates] if spec.has_input_bias else absent
        self.bR = vectors[-gates:] if spec.has_recurrent_bias else absent
        self.spec = spec
        self.skip = spec.input_mode is InputMode.SKIP_INPUT and pseudo_layer < spec.num_dirs

    def gates(self, x: Array, h: Array) -> tuple[Array, ...]:
        """Return the gates after their sigmoid, tanh or relu, in the order of their linear-layer ids.

        Below, `a` are the input products with their biases and `b` the recurrent ones. With "skip_input", layer 0 takes
        x itself.

        Args:
            x: the input of this step, one vector.
            h: the output of the last step, one vector.
        """
        a = [(x if self.skip else W @ x) + bias for W, bias in zip(self.W, self.bW, strict=True)]
        b = [R @ h + bias for R, bias in zip(self.R, self.bR, strict=True)]
        if self.spec.mode is RNNMode.RNN_TANH:
            return (np.tanh(a[0] + b[0]),)
        if self.spec.mode is RNNMode.RNN_RELU:
            return (relu(a[0] + b[0]),)
        if self.spec.mode is RNNMode.GRU:
            r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
            return r, z, np.tanh(a[2] + r * b[2])
        i, f, o = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1]), sigmoid(a[3] + b[3])
        return i, f, np.tanh(a[2] + b[2]), o

    def __call__(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Return the new (h, c) after this step.

        Args:
            x: the input of this step, one vector.
            h: the output of the last step, [U], or [P] with a projection.
            c: the cell state of an LSTM, [U]. The other cells return it unchanged.
        """
        gates = self.gates(x, h)
        if self.spec.mode is RNNMode.GRU:
            _, z, n = gates
            return (1 - z) * n + z * h, c
        if len(gates) == 1:
            return gates[0], c
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
    hx: Array | None = None,
    cx: Array | None = None,
    lengths: Sequence[int] | None = None,
    gates: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Run an RNN on a batch of sequences, without dropout.

    Args:
        spec: description of the RNN.
        weights: canonical weights, as `op.params_to_canonical` returns them.
        biases: canonical biases, as `op.params_to_canonical` returns them.
        x: the input, [T, B, I].
        hx: h before the first step, [L * D, B, U], or [L * D, B, P] with a projection. None: zeros. Default: None.
        cx: c of an LSTM before the first step, [L * D, B, U]. The other cells return it unchanged. None: zeros.
            Default: None.
        lengths: the steps of each sequence, B integers from 0 to T. None: T for all. Default: None.
        gates: None, or an array [L * D, T, B, G, U] to which every gate of every step is written. Default: None.

    Returns:
        The tuple (output, output_h, output_c). `output` is [T, B, D * U], or [T, B, D * P] with a projection; the
        states are shaped as `hx` and `cx`.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.testing import reference
        >>> op = ops.CudnnLSTM(2, num_units=3, input_size=2, dtype="float64")
        >>> params, x = op.init_params(seed=1), np.ones((5, 4, 2))
        >>> results = reference.forward(op.spec, *op.params_to_canonical(params), x)
        >>> expected = op(x, None, None, params)
        >>> all(map(np.allclose, results, expected))
        True
    """
    T, B, _ = x.shape
    lengths = [T] * B if lengths is None else lengths
    hx, cx = _states(spec, B, hx, cx)
    width = spec.state_size
    dtype = np.result_type(np.float64, x, hx, cx, *weights, *biases)
    output, output_h, output_c = np.zeros((T, B, spec.output_size), dtype), hx.astype(dtype), cx.astype(dtype)
    for b in range(B):
        below = x[: lengths[b], b].astype(dtype)  # layer 0's product would else be in the type of x and W
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
    arguments: tuple[Sequence[Array], Sequence[Array], Array, Array | None, Array | None],
    lengths: Sequence[int] | None,
    upstream: tuple[Array | None, Array | None, Array | None],
) -> tuple[list[Array], list[Array], Array, Array, Array]:
    """Compute the gradient of sum(upstream * results) with respect to each array argument of `forward`.

    The method is the complex step, f(a + i h).imag / h, one element at a time. It does not use the chain rule, so it
    cannot repeat a mistake of an engine.

    Args:
        spec: description of the RNN.
        arguments: the arrays (weights, biases, x, hx, cx), as in `forward`; hx and cx may be None.
        lengths: the steps of each sequence, B integers from 0 to T. None: T for all.
        upstream: the factors of (output, output_h, output_c), shaped as these. None: zeros.

    Returns:
        The gradients of `arguments`, in the same nesting.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops
        >>> from pycudnnrnn.testing import reference
        >>> op = ops.CudnnGRU(1, num_units=2, input_size=2, dtype="float64")
        >>> params = op.init_params(seed=1)
        >>> x = dy = np.ones((3, 1, 2))
        >>> arguments = *op.params_to_canonical(params), x, None, None
        >>> gradients = reference.gradients(op.spec, arguments, None, (dy, None, None))
        >>> expected = op.forward(x, None, params).backward(dy)
        >>> np.allclose(gradients[2], expected.input)
        True
    """
    weights, biases, x, hx, cx = arguments
    hx, cx = _states(spec, x.shape[1], hx, cx)
    inputs = [array.astype(np.complex128) for array in (*weights, *biases, x, hx, cx)]

    def objective() -> complex:
        results = forward(
            spec, inputs[: len(weights)], inputs[len(weights) : -3], inputs[-3], inputs[-2], inputs[-1], lengths
        )
        return sum(complex(np.sum(u * r)) for u, r in zip(upstream, results, strict=True) if u is not None)

    slopes = []
    for array in inputs:
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            array[index] += 1j * COMPLEX_STEP
            gradient[index] = objective().imag / COMPLEX_STEP
            array[index] = array[index].real
        slopes.append(gradient)
    return slopes[: len(weights)], slopes[len(weights) : -3], slopes[-3], slopes[-2], slopes[-1]


def _states(spec: RNNSpec, B: int, hx: Array | None, cx: Array | None) -> tuple[Array, Array]:
    """Return the initial states, zeros for None."""
    rows = spec.num_pseudo_layers, B
    return (
        np.zeros((*rows, spec.state_size)) if hx is None else hx,
        np.zeros((*rows, spec.num_units)) if cx is None else cx,
    )


def sigmoid(a: Array) -> Array:
    """Return 1 / (1 + exp(-a)), or exp(a) / (1 + exp(a)) where the first exponential could overflow.

    Args:
        a: the array of arguments, real or complex.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn.testing import reference
        >>> reference.sigmoid(np.array([-1000.0, 0.0, 1000.0]))
        array([0. , 0.5, 1. ])
    """
    positive = np.real(a) > 0
    small = np.exp(np.where(positive, -a, a))
    value: Array = np.where(positive, 1, small) / (1 + small)
    return value


def relu(a: Array) -> Array:
    """Return the elements whose real part is positive, and 0 for the others.

    Args:
        a: the array of arguments, real or complex.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn.testing import reference
        >>> reference.relu(np.array([-2.0, 0.0, 3.0]))
        array([0., 0., 3.])
    """
    return np.where(np.real(a) > 0, a, 0)


def clip(c: Array, low: float, high: float) -> Array:
    """Bound the cell state. The gradient is 0 outside the bounds, and passes through at the bounds and between them.

    Args:
        c: the cell state, real or complex.
        low: the lower bound of the real part.
        high: the upper bound of the real part.

    Returns:
        The bounded state.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn.testing import reference
        >>> reference.clip(np.array([-2.0, 0.5, 3.0]), -1.0, 1.0)
        array([-1. ,  0.5,  1. ])
    """
    return np.where(np.real(c) < low, low, np.where(np.real(c) > high, high, c))
