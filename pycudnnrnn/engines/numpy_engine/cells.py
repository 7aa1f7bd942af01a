"""The four cells in NumPy: one direction of one layer, step by step.

Read `forward` next to the equations of `pycudnnrnn.testing.reference`: they are the same, for all sequences of a step
at once. `backward` is the chain rule, from the last line of a step to its first.

Every cell works on packed rows (see `schedule`): a step is some consecutive rows, one for each sequence that is still
running. Sequences are sorted, longest first, so these are the first rows of the states.

Letters: B sequences, I inputs, G gates, U units, P projected units (U without a projection).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn._arrays import aligned
from pycudnnrnn.spec import RNNMode, RNNSpec

Array = npt.NDArray[Any]

UNEVEN_MAX: Final = 1.5
"""How many times its equal share of the rows a group of sequences may have."""

Pieces = list[tuple[slice, Array]]
"""Gradients of pre-activations: the columns of the stacked gates, and their [rows, columns] array."""


Directions = Sequence[tuple["Weights", Sequence[tuple[Any, ...]]]]
"""For each direction its weights, and for each block of steps what `Cell.forward` or `Cell.backward` takes with it."""


class Steps(list[tuple[slice, slice]]):
    """The packed rows of each step, and the rows of its sequences in the states."""

    def __init__(self, steps: Iterable[tuple[slice, slice]]) -> None:
        super().__init__(steps)
        self._groups: dict[tuple[int, bool], list[tuple[slice, Array]]] = {}

    def groups(self, number: int, *, back: bool) -> list[tuple[slice, Array]]:
        """Cut the sequences into groups with about as many packed rows each: one, if the longest are too long for that.

        Return each group's rows in the states, and the first and the end of its packed rows in each step that it has,
        [steps, 2]; with `back` from the last step to the first.
        """
        if (number, back) not in self._groups:
            first, end = np.array([(rows.start, rows.stop) for rows, _ in self[:: -1 if back else 1]], np.int64).T
            rows_before = np.append(0, np.bincount(end - first)[:0:-1].cumsum()[::-1].cumsum())  # each sequence
            cuts = np.unique(rows_before.searchsorted(rows_before[-1] * np.arange(number + 1) / number))
            if np.diff(rows_before[cuts]).max() * number > UNEVEN_MAX * rows_before[-1]:
                cuts = cuts[[0, -1]]
            self._groups[number, back] = [
                (slice(low, high), np.stack((first + low, np.minimum(end, first + high)), axis=1)[first + low < end])
                for low, high in itertools.pairwise(cuts.tolist())
            ]
        return self._groups[number, back]


@dataclasses.dataclass
class Weights:
    """The parameters of one pseudo-layer in the compute dtype, the gates of a kind stacked by rows in id order.

    Shapes:
        R: [G * U, P]; W: [G * U, I], or None under skip input; bW, bR: [G * U] or None; proj: [P, U] or None;
        bias: bW + bR, [G * U] or None, where a cell adds only their sum.
    """

    R: Array
    W: Array | None = None
    bW: Array | None = None
    bR: Array | None = None
    proj: Array | None = None
    bias: Array | None = None


class Tape(dict[str, Array]):
    """What one direction of one layer keeps for its backward.

    Arrays with a row for each packed row, by name; `Cell.tape_widths` lists them. Empty where no backward follows.

    "gates" and "h_before" (the state that each step started from) are in every cell's; the rest is the cell's own.
    """

    def at(self, rows: slice) -> Tape:
        """Return a view of some rows."""
        return Tape({name: array[rows] for name, array in self.items()})

    def keep(self, rows: slice, **arrays: Any) -> None:
        """Write to some rows of the arrays with these names, except those that the tape does not have."""
        for name, array in arrays.items():
            if name in self:
                self[name][rows] = array

    def copy(self) -> Tape:
        return Tape({name: array.copy() for name, array in self.items()})


class Scratch(NamedTuple):
    """Elements that are allocated: copies of matrices, in a forward without a tape, in a backward, and in a product."""

    copies: int
    forward: int
    backward: int
    product: int


class Cell:
    """What the engine asks of a cell. The compiled cells replace the loops over time and the products.

    Shapes:
        x: [rows, I]; h, dh: [B, P]; c, dc: [B, U]; out, dy: [rows, P]; tape["gates"]: [rows, G * U].
    """

    def __init__(self, spec: RNNSpec) -> None:
        self.spec, self.units, self.width = spec, spec.num_units, spec.num_gates * spec.num_units
        self.dtype = spec.compute_dtype.numpy
        self.columns = [slice(k * self.units, (k + 1) * self.units) for k in range(spec.num_gates)]
        self.gates = [(slice(None), columns) for columns in self.columns]  # an index made here saves time at each step

    def tape_widths(self) -> dict[str, int]:
        """Return the number of columns of each array on the tape, by name."""
        return {"gates": self.width, "h_before": self.spec.state_size}

    def forward_weights(self, w: Weights) -> Weights:
        """Return the weights as `forward` reads them."""
        bias = w.bW if w.bR is None else w.bR if w.bW is None else w.bW + w.bR
        return Weights(w.R, w.W, w.bW, w.bR, w.proj, bias)

    def held_weights(self, w: Weights) -> Weights:
        """Return the weights of many forwards: in column order, in which BLAS multiplies a vector fastest."""
        copies = {}
        for name in ("W", "R", "proj"):
            if (matrix := getattr(w, name)) is not None:
                copies[name] = aligned(matrix.shape, self.dtype, order="F")
                copies[name][...] = matrix
        return dataclasses.replace(self.forward_weights(w), **copies)

    def backward_weights(self, w: Weights) -> Weights:
        """Return the weights as `backward` reads them, with W as it is."""
        return w

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Any:
        """Run the steps, updating h and c, or return what `run` needs. `tape` is empty if no backward follows."""
        raise NotImplementedError

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Any:
        """Run the steps in reverse, updating dh and dc; tape["gates"] gets the gradients of R h + bR."""
        raise NotImplementedError

    def input_gradients(self, tape: Tape) -> Pieces:
        """Return the gradients of W x + bW, after `backward`."""
        return [(slice(None), tape["gates"])]

    def run(self, prepare: Any, run: Any, directions: Directions, rows: int, *, ready: bool) -> None:  # noqa: ARG002
        """Run `forward` or `backward` over the blocks of each direction of a layer, which has so many packed rows.

        `prepare` is the method for their weights, if these are not `ready`.
        """
        for w, blocks in directions:
            weights = w if ready else prepare(w)
            for block in blocks:
                run(weights, *block)

    def biases(self, w: Weights) -> list[Array]:
        """Return bW and bR, zeros in the place of one that does not exist."""
        return [np.zeros(self.width, self.dtype) if bias is None else bias for bias in (w.bW, w.bR)]

    def input_product(self, w: Weights, x: Array, tape: Tape, bias: Array | None) -> Array:
        """Return W x + bias for all rows, in the tape's gates if it has them; under skip input, x for each gate."""
        gates = tape.get("gates")
        if w.W is not None:
            gates = x.dot(w.W.T, gates)
        else:
            gates = np.empty((len(x), self.width), x.dtype) if gates is None else gates
            gates.reshape(len(x), -1, self.units)[:] = x[:, None]
        if bias is not None:
            gates += bias
        return gates

    def write_product(self, rows: Array, matrix: Array, out: Array, *, adds: bool) -> None:
        """Write rows @ matrix to `out`, or add it."""
        if adds:
            out += rows.dot(matrix)
        else:
            rows.dot(matrix, out)

    def weight_products(self, terms: Sequence[tuple[Array, Array, Array]], *, adds: bool) -> None:
        """Write rows.T @ others to out, or add it, for each (rows, others, out): parts of the gradients of matrices."""
        for rows, others, out in terms:
            product = np.multiply if len(others) == 1 else np.matmul  # BLAS is slow at products of single rows
            if adds:
                np.add(out, product(rows.T, others), out=out)
            else:
                product(rows.T, others, out=out)

    def scratch(self, rows: int, columns: int, *, adds: bool) -> Scratch:
        """Return what passes through `rows` rows allocate, and `weight_products` where W has so many columns."""
        gates = rows * self.width
        return Scratch(0, gates, gates, self.width * max(columns, self.spec.state_size) if adds else 0)


class PlainCell(Cell):
    """h' = act(W x + bW + R h + bR), where act is tanh or relu."""

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.relu = spec.mode is RNNMode.RNN_RELU

    def scratch(self, rows: int, columns: int, *, adds: bool) -> Scratch:
        return super().scratch(rows, columns, adds=adds)._replace(backward=0)  # slopes are computed step by step

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Any:  # noqa: ARG002
        gates = self.input_product(w, x, tape, w.bias)
        for rows, now in steps:
            a, h_now = gates[rows], h[now]
            a += h_now.dot(w.R.T)
            if self.relu:
                np.maximum(a, 0, out=a)
            else:
                np.tanh(a, a)
            if tape:
                tape.keep(rows, h_before=h_now)
            h_now[...] = out[rows] = a

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Any:  # noqa: ARG002
        for rows, now in reversed(steps):
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

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Any:
        gates = self.input_product(w, x, tape, w.bias)
        inside: Any = None
        i, f, g, o = self.gates
        for rows, now in steps:
            a, h_now, c_now = gates[rows], h[now], c[now]
            if tape:
                tape.keep(rows, h_before=h_now, c_before=c_now)
            a += h_now.dot(w.R.T)
            # Sigmoid of i, f and o, and tanh of g, with one tanh: sigmoid(a) = tanh(a / 2) / 2 + 1 / 2.
            a *= self.scale
            np.tanh(a, a)
            a *= self.scale
            a += self.shift
            c_now *= a[f]
            c_now += a[i] * a[g]
            if self.clip:
                inside = (self.clip[0] <= c_now) & (c_now <= self.clip[1])
                np.clip(c_now, *self.clip, out=c_now)
            tanh_c = np.tanh(c_now)
            hidden = a[o] * tanh_c
            if tape:
                tape.keep(rows, tanh_c=tanh_c, inside=inside, hidden=hidden)
            h_now[...] = out[rows] = hidden if w.proj is None else hidden.dot(w.proj.T)

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Any:
        gates = tape["gates"]
        slopes, g = gates * (1 - gates), gates[self.gates[2]]  # of a sigmoid
        slopes[self.gates[2]] = 1 - g * g  # of tanh
        for rows, now in reversed(steps):
            da, tanh_c = gates[rows], tape["tanh_c"][rows]
            i, f, g, o = [da[gate] for gate in self.gates]
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

    sigmoid(a) = tanh(a / 2) / 2 + 1 / 2, since NumPy's tanh is faster than its exp. `half` is an array, because NumPy
    takes as long to convert a number as to multiply a few of them.

    The tape keeps q = Rn h + bRn, since r multiplies it. `backward` leaves the gradients on the recurrent side in
    "gates" and the n gate's on the input side in "q": they differ by the factor r.
    """

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.rz, self.half = (slice(None), slice(2 * self.units)), np.array(0.5, self.dtype)

    def forward_weights(self, w: Weights) -> Weights:
        return w

    def tape_widths(self) -> dict[str, int]:
        return super().tape_widths() | {"q": self.units}

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Steps, h: Array, c: Array, out: Array) -> Any:  # noqa: ARG002
        gates, half = self.input_product(w, x, tape, w.bW), self.half
        for rows, now in steps:
            a, h_now = gates[rows], h[now]
            Rh = h_now.dot(w.R.T)
            if w.bR is not None:
                Rh += w.bR
            rz, n, q = a[self.rz], a[self.gates[2]], Rh[self.gates[2]]
            rz += Rh[self.rz]
            rz *= half
            np.tanh(rz, rz)
            rz *= half
            rz += half
            n += a[self.gates[0]] * q
            np.tanh(n, n)
            if tape:
                tape.keep(rows, q=q, h_before=h_now)
            h_now -= n
            h_now *= a[self.gates[1]]
            h_now += n
            out[rows] = h_now

    def backward(self, w: Weights, tape: Tape, steps: Steps, dy: Array, dh: Array, dc: Array) -> Any:  # noqa: ARG002
        gates, slopes = tape["gates"], tape["gates"] * (1 - tape["gates"])
        for rows, now in reversed(steps):
            da, q = gates[rows], tape["q"][rows]
            r, z, n = [da[gate] for gate in self.gates]
            slope_r, slope_z, _ = [slopes[rows][gate] for gate in self.gates]
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
