"""The four cells in NumPy, one direction of one layer at a time, written for speed.

Every cell works on packed rows (see `schedule`). Its gates arrive holding the input product, are turned in place into
activations, and by backward in place into gradients of the pre-activations. Backward first turns the activations of a
whole group of steps into the factors that do not depend on the incoming gradient, so that a step is a few calls.

`pycudnnrnn.testing.reference` has the same equations as a person would write them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pycudnnrnn.schedule import Step
from pycudnnrnn.spec import RNNMode, RNNSpec

Array = npt.NDArray[Any]

Pieces = list[tuple[slice, Array]]
"""Gradients of pre-activations: the columns of the stacked gates, and their [rows, columns] array."""


@dataclasses.dataclass
class Weights:
    """The parameters of one pseudo-layer in the compute dtype, the gates of a kind stacked by rows in id order.

    Shapes:
        W: [G * U, I], or None under skip input; R: [G * U, P]; R_T: [P, G * U], R's transpose, perhaps copied;
        bW, bR: [G * U] or None; proj: [P, U] or None.
    """

    W: Array | None
    R: Array
    R_T: Array
    bW: Array | None
    bR: Array | None
    proj: Array | None

    @property
    def bias(self) -> Array | None:
        """The sum of the biases that exist."""
        if self.bW is None or self.bR is None:
            return self.bR if self.bW is None else self.bW
        return self.bW + self.bR


class Tape(dict[str, Array]):
    """What one direction of one layer remembers for its backward: arrays with a row for each packed row.

    "gates" and "h_before" (the state each step started from) are in every cell's; the rest is the cell's own.
    """

    def rows(self, first: int, last: int) -> Tape:
        """A view of some rows."""
        return Tape({name: array[first:last] for name, array in self.items()})

    def copy(self) -> Tape:
        return Tape({name: array.copy() for name, array in self.items()})


class Cell(Protocol):
    """One direction of one layer.

    `steps` are rows of the tape's arrays and of `out` and `dy`. State arrays are updated in place; the rows running at
    a step are a prefix of theirs.

    Shapes:
        h, dh: [B, P]; c, dc: [B, U]; out, dy: [rows, P]; tape["gates"]: [rows, G * U].
    """

    def extra(self, keep: bool) -> dict[str, int]:
        """Names and widths of the cell's own tape arrays; fewer where no backward will come."""

    def input_bias(self, w: Weights) -> Array | None:
        """What is added to the gates before the time loop."""

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        """Walk the steps, leaving activations in the tape's gates."""

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        """Walk the steps the other way round, leaving gradients of pre-activations on the tape."""

    def input_pieces(self, tape: Tape) -> Pieces:
        """Gradients of what the input product was added to, after backward."""


class PlainCell:
    """h' = act(W x + bW + R h + bR), act being tanh or relu."""

    def __init__(self, spec: RNNSpec) -> None:
        self.relu = spec.mode is RNNMode.RNN_RELU

    def extra(self, keep: bool) -> dict[str, int]:  # noqa: ARG002
        return {}

    def input_bias(self, w: Weights) -> Array | None:
        return w.bias

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        gates, h_before = tape["gates"], tape.get("h_before")
        product = np.empty_like(h)
        for first, last in steps:
            a, h_now = gates[first:last], h[: last - first]
            if h_before is not None:
                h_before[first:last] = h_now
            a += np.matmul(h_now, w.R_T, out=product[: last - first])
            if self.relu:
                np.maximum(a, 0, out=a)
            else:
                np.tanh(a, out=a)
            h_now[:] = a
            out[first:last] = a

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        gates = tape["gates"]
        if self.relu:
            np.greater(gates, 0, out=gates)
        else:
            np.multiply(gates, gates, out=gates)
            np.subtract(1, gates, out=gates)
        for first, last in reversed(steps):
            da, dh_now = gates[first:last], dh[: last - first]
            dh_now += dy[first:last]
            da *= dh_now
            np.matmul(da, w.R, out=dh_now)

    def input_pieces(self, tape: Tape) -> Pieces:
        return [(slice(None), tape["gates"])]


class LSTMCell:
    """c' = clip(f * c + i * g), h' = o * tanh(c') or its projection; gates i, f, g, o.

    sigmoid(x) is computed as (1 + tanh(x / 2)) / 2, which turns four gates into one tanh between two scalings.
    """

    def __init__(self, spec: RNNSpec) -> None:
        self.units, self.state = spec.num_units, spec.state_size
        self.clip = spec.cell_clip
        dtype = spec.compute_dtype.numpy
        self.scale = np.repeat(np.array([0.5, 0.5, 1, 0.5], dtype), self.units)
        self.shift = np.repeat(np.array([0.5, 0.5, 0, 0.5], dtype), self.units)

    def extra(self, keep: bool) -> dict[str, int]:
        names = {"tanh_c": self.units}
        if keep:
            names["c_before"] = self.units
        if keep and self.clip:
            names["inside"] = self.units
        if keep and self.state != self.units:
            names |= {"hidden": self.units, "dh": self.state}
        return names

    def input_bias(self, w: Weights) -> Array | None:
        return w.bias

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        units = self.units
        gates, tanh_c = tape["gates"], tape["tanh_c"]
        h_before, c_before = tape.get("h_before"), tape.get("c_before")
        inside, hidden = tape.get("inside"), tape.get("hidden")
        product = np.empty((len(h), 4 * units), h.dtype)
        for first, last in steps:
            a, p, h_now, c_now = gates[first:last], product[: last - first], h[: last - first], c[: last - first]
            if h_before is not None and c_before is not None:
                h_before[first:last] = h_now
                c_before[first:last] = c_now
            a += np.matmul(h_now, w.R_T, out=p)
            a *= self.scale
            np.tanh(a, out=a)
            a *= self.scale
            a += self.shift
            i, f, g, o = a[:, :units], a[:, units : 2 * units], a[:, 2 * units : 3 * units], a[:, 3 * units :]
            c_now *= f
            c_now += np.multiply(i, g, out=p[:, :units])
            if self.clip:
                clipped = np.clip(c_now, *self.clip, out=p[:, :units])
                if inside is not None:
                    np.equal(clipped, c_now, out=inside[first:last])
                c_now[:] = clipped
            t = np.tanh(c_now, out=tanh_c[first:last])
            if w.proj is None:
                np.multiply(o, t, out=h_now)
            else:
                m = np.multiply(o, t, out=t if hidden is None else hidden[first:last])
                np.matmul(m, w.proj.T, out=h_now)
            out[first:last] = h_now

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        units = self.units
        gates = tape["gates"].reshape(-1, 4, units)
        h_factor, forget, inside, dh_kept = tape["tanh_c"], tape["c_before"], tape.get("inside"), tape.get("dh")
        self._factors(gates, h_factor, forget)
        product = np.empty_like(dc)
        for first, last in reversed(steps):
            da, dh_now, dc_now = gates[first:last], dh[: last - first], dc[: last - first]
            dh_now += dy[first:last]
            if w.proj is None:
                dm = dh_now
            else:
                if dh_kept is not None:
                    dh_kept[first:last] = dh_now
                dm = np.matmul(dh_now, w.proj, out=product[: last - first])
            da[:, 3] *= dm
            dc_now += np.multiply(dm, h_factor[first:last], out=product[: last - first])
            if inside is not None:
                dc_now *= inside[first:last]
            da[:, :3] *= dc_now[:, None]
            dc_now *= forget[first:last]
            np.matmul(da.reshape(-1, 4 * units), w.R, out=dh_now)

    @staticmethod
    def _factors(gates: Array, tanh_c: Array, c_before: Array) -> None:
        """Turn activations into what each gate's gradient is dc or dh times; tanh_c into dc/dh, c_before into f."""
        i, f, g, o = (gates[:, k] for k in range(4))
        o_slope = o * tanh_c
        np.multiply(o_slope, tanh_c, out=tanh_c)
        np.subtract(o, tanh_c, out=tanh_c)  # o * (1 - tanh_c**2)
        np.subtract(1, o, out=o)
        o *= o_slope
        g_slope = g * g
        np.subtract(1, g_slope, out=g_slope)
        g_slope *= i
        g *= i
        np.subtract(1, i, out=i)
        i *= g  # g * i * (1 - i)
        g[:] = g_slope
        f_slope = c_before * f
        c_before[:] = f
        np.subtract(1, f, out=f)
        f *= f_slope

    def input_pieces(self, tape: Tape) -> Pieces:
        return [(slice(None), tape["gates"])]


class GRUCell:
    """n = tanh(Wn x + bWn + r * (Rn h + bRn)), h' = n + z * (h - n); gates r, z, n, reset after the product.

    The n gate's product is kept ("q"), since r multiplies it. Backward leaves the gradients on the recurrent side in
    "gates" and the n gate's on the input side in "q": they differ by the factor r.
    """

    def __init__(self, spec: RNNSpec) -> None:
        self.units = spec.num_units

    def extra(self, keep: bool) -> dict[str, int]:  # noqa: ARG002
        return {"q": self.units}

    def input_bias(self, w: Weights) -> Array | None:
        if w.bR is None:
            return w.bW
        outside = w.bR.copy()
        outside[2 * self.units :] = 0
        return outside if w.bW is None else outside + w.bW

    def forward(self, w: Weights, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        units = self.units
        gates, q_kept, h_before = tape["gates"], tape["q"], tape.get("h_before")
        inner_bias = 0 if w.bR is None else w.bR[2 * units :]
        product = np.empty((len(h), 3 * units), h.dtype)
        for first, last in steps:
            a, p, h_now = gates[first:last], product[: last - first], h[: last - first]
            if h_before is not None:
                h_before[first:last] = h_now
            np.matmul(h_now, w.R_T, out=p)
            rz = a[:, : 2 * units]
            rz += p[:, : 2 * units]
            rz *= 0.5
            np.tanh(rz, out=rz)
            rz *= 0.5
            rz += 0.5
            r, z, n = a[:, :units], a[:, units : 2 * units], a[:, 2 * units :]
            q = np.add(p[:, 2 * units :], inner_bias, out=q_kept[first:last])
            n += np.multiply(r, q, out=p[:, :units])
            np.tanh(n, out=n)
            h_now -= n
            h_now *= z
            h_now += n
            out[first:last] = h_now

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        units = self.units
        gates, dn_kept = tape["gates"].reshape(-1, 3, units), tape["q"]
        dh_carried = self._factors(gates, dn_kept, tape["h_before"])
        for first, last in reversed(steps):
            da, dn, dh_now, carried = gates[first:last], dn_kept[first:last], dh[: last - first], dh_carried[first:last]
            dh_now += dy[first:last]
            dn *= dh_now
            da[:, 1] *= dh_now
            da[:, 0::2] *= dn[:, None]
            carried *= dh_now
            np.matmul(da.reshape(-1, 3 * units), w.R, out=dh_now)
            dh_now += carried

    @staticmethod
    def _factors(gates: Array, q: Array, h_before: Array) -> Array:
        """Turn activations into what each gate's gradient is dn (r, n) or dh (z) times; q into dn/dh; return z."""
        r, z, n = (gates[:, k] for k in range(3))
        z_copy = z.copy()
        z_slope = h_before - n
        z_slope *= z
        np.subtract(1, z, out=z)  # 1 - z
        z_slope *= z
        np.multiply(n, n, out=n)
        np.subtract(1, n, out=n)
        n *= z  # (1 - z) * (1 - n**2)
        z[:] = z_slope
        r_slope = 1 - r
        r_slope *= r
        r_slope *= q
        q[:] = n
        n[:] = r
        r[:] = r_slope
        return z_copy

    def input_pieces(self, tape: Tape) -> Pieces:
        units = self.units
        return [(slice(2 * units), tape["gates"][:, : 2 * units]), (slice(2 * units, None), tape["q"])]


CELLS: dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]] = {
    RNNMode.LSTM: LSTMCell,
    RNNMode.GRU: GRUCell,
    RNNMode.RNN_TANH: PlainCell,
    RNNMode.RNN_RELU: PlainCell,
}
