"""The four cells in NumPy: one direction of one layer, step by step.

Read `forward` next to the equations of `pycudnnrnn.testing.reference`: they are the same, for all sequences of a step
at once. `backward` is the chain rule, from the last line of a step to its first.

Every cell works on packed rows (see `schedule`): a step is some consecutive rows, one for each sequence that is still
running. Sequences are sorted, longest first, so these are the first rows of the states.

Letters: B sequences, I inputs, G gates, U units, P projected units (U without a projection).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, write_or_add
from pycudnnrnn.schedule import Schedule, Step
from pycudnnrnn.spec import RNNMode, RNNSpec

Pieces = list[tuple[slice, Array]]
"""Gradients of pre-activations: the columns of the stacked gates, and their [rows, columns] array."""


class Cell:
    """What the engine asks of a cell. The compiled cells replace the loops over time and the products.

    Shapes:
        x: [rows, I]; h, dh: [B, P]; c, dc: [B, U]; out, dy: [rows, P]; tape["gates"]: [rows, G * U].
    """

    def __init__(self, spec: RNNSpec) -> None:
        self.spec, self.units, self.width = spec, spec.num_units, spec.num_gates * spec.num_units
        self.dtype = spec.compute_dtype.numpy
        self.columns = [slice(k * self.units, (k + 1) * self.units) for k in range(spec.num_gates)]

    def tape_widths(self) -> dict[str, int]:
        """Return the number of columns of each array on the tape, by name."""
        return {"gates": self.width, "h_before": self.spec.state_size}

    def forward_weights(self, w: Weights, schedule: Schedule) -> Weights:  # noqa: ARG002
        """Return the weights as `forward` reads them in a call of this kind."""
        return w

    def backward_weights(self, w: Weights, schedule: Schedule) -> Weights:  # noqa: ARG002
        """Return the weights as `backward` reads them in a call of this kind, with W as it is."""
        return w

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        """Run the steps, updating h and c in place. `tape` is empty where no backward follows."""
        raise NotImplementedError

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        """Run the steps in reverse, updating dh and dc; tape["gates"] gets the gradients of R h + bR."""
        raise NotImplementedError

    def input_gradients(self, tape: Tape) -> Pieces:
        """Return the gradients of W x + bW, after `backward`."""
        return [(slice(None), tape["gates"])]

    def biases(self, w: Weights) -> list[Array]:
        """Return bW and bR, zeros in the place of one that does not exist."""
        return [np.zeros(self.width, self.dtype) if bias is None else bias for bias in (w.bW, w.bR)]

    def split(self, gates: Array) -> list[Array]:
        """Return the gates of some rows one by one: [rows, U] each."""
        return [gates[:, columns] for columns in self.columns]

    def input_product(self, w: Weights, x: Array, tape: Tape) -> Array:
        """Return W x for all rows, in the tape's gates if it has them; under skip input, x for each gate."""
        gates = tape["gates"] if tape else np.empty((len(x), self.width), x.dtype)
        if w.W is None:
            gates.reshape(len(x), -1, self.units)[:] = x[:, None]
        else:
            self.product(x, w.W.T, gates, adds=False)
        return gates

    def product(self, rows: Array, matrix: Array, out: Array, *, adds: bool) -> None:
        """Write rows @ matrix to `out`, or add it."""
        write_or_add(functools.partial(np.matmul, rows, matrix), out, adds=adds)

    def weight_product(self, rows: Array, others: Array, out: Array, *, adds: bool) -> None:
        """Write rows.T @ others to `out`, or add it: part of the gradient of a matrix."""
        product = np.multiply if len(others) == 1 else np.matmul  # BLAS is slow at products of single rows
        write_or_add(functools.partial(product, rows.T, others), out, adds=adds)

    def copied_elements(self, schedule: Schedule) -> int:  # noqa: ARG002
        """Return how many elements `forward_weights` copies of a pseudo-layer's matrices."""
        return 0

    def backward_elements(self, rows: int) -> int:
        """Return how many elements a backward through `rows` rows allocates in addition to the tape."""
        return rows * self.width

    def forward_elements(self, rows: int, layer: int, schedule: Schedule) -> int:  # noqa: ARG002
        """Return how many elements a forward through `rows` rows of a layer allocates if there is no tape."""
        return rows * self.width

    def weight_elements(self, rows: int, columns: int, *, adds: bool) -> int:  # noqa: ARG002
        """Return how many elements `weight_product` allocates for `rows` rows and a matrix of so many columns."""
        return self.width * columns if adds else 0


def rows_of(steps: Iterable[Step]) -> Iterator[tuple[slice, slice]]:
    """Give the packed rows of each step, and the rows of its sequences in the states."""
    for first, last in steps:
        yield slice(first, last), slice(last - first)


def sigmoid(a: Array) -> Array:
    """Return 1 / (1 + exp(-a)), computed with tanh: NumPy's tanh is faster than its exp."""
    found: Array = 0.5 * np.tanh(0.5 * a) + 0.5
    return found


class PlainCell(Cell):
    """h' = act(W x + bW + R h + bR), where act is tanh or relu."""

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.relu = spec.mode is RNNMode.RNN_RELU

    def backward_elements(self, rows: int) -> int:  # noqa: ARG002  the slopes are computed step by step
        return 0

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        Wx = self.input_product(w, x, tape)
        Wx += np.add(*self.biases(w))
        for rows, now in rows_of(steps):
            a = Wx[rows] + h[now].dot(w.R.T)
            h_new = np.maximum(a, 0) if self.relu else np.tanh(a)
            if tape:
                tape.keep(rows, gates=h_new, h_before=h[now])
            h[now] = out[rows] = h_new

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        for rows, now in rows_of(reversed(steps)):
            y, dh_new = tape["gates"][rows], dh[now] + dy[rows]
            # Where y is 0, the gradient is 0 even for NaN. Where y is NaN, the gradient passes. Both as in torch.
            da = np.where(y <= 0, 0, dh_new) if self.relu else dh_new * (1 - y * y)
            y[:] = da
            dh[now] = da.dot(w.R)


class LSTMCell(Cell):
    """c' = clip(f * c + i * g), h' = o * tanh(c') or its projection; gates i, f, g, o."""

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.clip = spec.cell_clip
        self.scale = np.repeat(np.array([[0.5, 0.5, 1, 0.5]], self.dtype), self.units, axis=1)
        self.shift = np.repeat(np.array([[0.5, 0.5, 0, 0.5]], self.dtype), self.units, axis=1)

    def tape_widths(self) -> dict[str, int]:
        names = super().tape_widths() | {"c_before": self.units, "tanh_c": self.units}
        if self.clip:
            names["inside"] = self.units
        if self.spec.num_proj:
            names |= {"hidden": self.units, "dh": self.spec.state_size}
        return names

    def activate(self, a: Array) -> Array:
        """Return sigmoid of the gates i, f and o, and tanh of g, by one tanh: sigmoid(a) = tanh(a / 2) / 2 + 1 / 2."""
        found: Array = np.tanh(a * self.scale) * self.scale + self.shift
        return found

    def slopes(self, gates: Array) -> Array:
        """Return the derivative of each gate's activation: y * (1 - y) of a sigmoid, 1 - y * y of a tanh."""
        found: Array = gates * (1 - gates)
        g = gates[:, self.columns[2]]
        found[:, self.columns[2]] = 1 - g * g
        return found

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        Wx = self.input_product(w, x, tape)
        Wx += np.add(*self.biases(w))
        inside: Any = None
        for rows, now in rows_of(steps):
            a = self.activate(Wx[rows] + h[now].dot(w.R.T))
            i, f, g, o = self.split(a)
            c_new = f * c[now] + i * g
            if self.clip:
                low, high = self.clip
                inside = (low <= c_new) & (c_new <= high)
                c_new = np.clip(c_new, low, high)
            tanh_c = np.tanh(c_new)
            hidden = o * tanh_c
            h_new = hidden if w.proj is None else hidden.dot(w.proj.T)
            if tape:
                tape.keep(rows, gates=a, h_before=h[now], c_before=c[now], tanh_c=tanh_c, inside=inside, hidden=hidden)
            c[now] = c_new
            h[now] = out[rows] = h_new

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        gates, slopes = tape["gates"], self.slopes(tape["gates"])
        for rows, now in rows_of(reversed(steps)):
            da, tanh_c = gates[rows], tape["tanh_c"][rows]
            i, f, g, o = self.split(da)
            dh_new = dh[now] + dy[rows]
            d_hidden = dh_new if w.proj is None else dh_new.dot(w.proj)
            dc_new = dc[now] + d_hidden * o * (1 - tanh_c * tanh_c)
            if self.clip:
                dc_new *= tape["inside"][rows]
            dc[now] = dc_new * f
            # The gradients take the place of the gates.
            i[:], f[:], g[:], o[:] = dc_new * g, dc_new * tape["c_before"][rows], dc_new * i, d_hidden * tanh_c
            da *= slopes[rows]
            tape.keep(rows, dh=dh_new)
            dh[now] = da.dot(w.R)


class GRUCell(Cell):
    """n = tanh(Wn x + bWn + r * (Rn h + bRn)), h' = n + z * (h - n); gates r, z, n, reset after the product.

    The tape keeps q = Rn h + bRn, since r multiplies it. `backward` leaves the gradients on the recurrent side in
    "gates" and the n gate's on the input side in "q": they differ by the factor r.
    """

    def tape_widths(self) -> dict[str, int]:
        return super().tape_widths() | {"q": self.units}

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        Wx, (bW, bR) = self.input_product(w, x, tape), self.biases(w)
        Wx += bW
        Wx_rz, Wx_n = Wx[:, : 2 * self.units], Wx[:, 2 * self.units :]
        for rows, now in rows_of(steps):
            Rh = h[now].dot(w.R.T) + bR[None]
            q = Rh[:, 2 * self.units :]
            rz = sigmoid(Wx_rz[rows] + Rh[:, : 2 * self.units])
            r, z = rz[:, : self.units], rz[:, self.units :]
            n = np.tanh(Wx_n[rows] + r * q)
            h_new = n + z * (h[now] - n)
            if tape:
                tape.keep(rows, q=q, h_before=h[now])
                Wx_rz[rows], Wx_n[rows] = rz, n
            h[now] = out[rows] = h_new

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        gates, slopes = tape["gates"], tape["gates"] * (1 - tape["gates"])
        for rows, now in rows_of(reversed(steps)):
            da, q = gates[rows], tape["q"][rows]
            r, z, n = self.split(da)
            slope_r, slope_z, _ = self.split(slopes[rows])
            dh_new = dh[now] + dy[rows]
            dh_before = dh_new * z
            dz = dh_new * (tape["h_before"][rows] - n)
            dan = (dh_new - dh_before) * (1 - n * n)
            # The gradients take the place of the gates and of q.
            r[:], z[:], n[:], q[:] = dan * q * slope_r, dz * slope_z, dan * r, dan
            dh[now] = dh_before + da.dot(w.R)

    def input_gradients(self, tape: Tape) -> Pieces:
        start = 2 * self.units
        return [(slice(start), tape["gates"][:, :start]), (slice(start, None), tape["q"])]


CELLS: Final[dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]]] = {
    RNNMode.LSTM: LSTMCell,
    RNNMode.GRU: GRUCell,
    RNNMode.RNN_TANH: PlainCell,
    RNNMode.RNN_RELU: PlainCell,
}
