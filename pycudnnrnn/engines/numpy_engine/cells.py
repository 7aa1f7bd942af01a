"""The four cells in NumPy, one direction of one layer at a time, written for speed.

Every cell works on packed rows (see `schedule`). Its gates arrive as rows holding the input product. LSTM and GRU add
the recurrent product and the biases in scratch of the step's own, [features, sequences]; where a backward will come,
the activations then take the place of the rows, block by block. Backward turns the activations of many steps at once
into the factors that do not depend on the incoming gradient, so that a step is a few calls, and leaves gradients of
the pre-activations as rows again, for the products over the whole sequence.

A step of one sequence is small enough for the calls themselves to cost: hence arrays of full shape instead of
broadcasts, and `dot`, which takes less time to start than `matmul`.

`pycudnnrnn.testing.reference` has the same equations as a person would write them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

import numpy as np

from pycudnnrnn.engines.numpy_engine.arithmetic import Pieces, Sizes
from pycudnnrnn.engines.numpy_engine.tape import Tape, runs
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, write_or_add
from pycudnnrnn.schedule import Schedule, Step
from pycudnnrnn.spec import RNNMode, RNNSpec

FACTOR_ELEMENTS = 1 << 17
"""Gate elements whose factors a backward computes at a time. Measured flat from 2**16 to 2**20."""

COLUMN_ELEMENTS = 1 << 16
COLUMN_STEPS = 16
"""A recurrent matrix no larger than this, used for at least this many steps, is copied to column order first: its
product with few sequences is up to a third faster then. A larger one gains no more than its copy costs
(with OpenBLAS)."""


class NumpyCell:
    """Weights as they lie in params, and NumPy's products."""

    factors = 0
    """Arrays of `units` columns that backward makes for some steps at a time."""

    def __init__(self, spec: RNNSpec) -> None:
        self.units, self.width = spec.num_units, spec.num_gates * spec.num_units
        self.R_nbytes = self.width * spec.state_size * spec.compute_dtype.numpy.itemsize

    def forwards(self, w: Weights, schedule: Schedule) -> Weights:
        copies, _ = self.copied(Sizes(0, w.R.size, 0), schedule)
        return dataclasses.replace(w, R=np.asfortranarray(w.R)) if copies else w

    def backwards(self, w: Weights, schedule: Schedule) -> Weights:  # noqa: ARG002
        return w

    def copied(self, sizes: Sizes, schedule: Schedule) -> tuple[int, int]:
        return (sizes.R if sizes.R <= COLUMN_ELEMENTS and len(schedule.steps) >= COLUMN_STEPS else 0), 0

    def makes_ahead(self, schedule: Schedule, *, skips: bool) -> bool:  # noqa: ARG002
        return True

    def made_back(self, rows: int, B: int) -> int:
        return min(rows, max(B, FACTOR_ELEMENTS // self.width)) * self.factors * self.units

    def input_product(self, w: Weights, x: Array, tape: Tape) -> Array:
        """Return gates that hold W x, the tape's if it has them; x itself in each gate where there is no W."""
        gates = tape["gates"] if tape else np.empty((len(x), self.width), x.dtype)
        if w.W is None:
            gates.reshape(len(x), -1, self.units)[:] = x[:, None]
        else:
            self.product(x, w.W.T, gates, adds=False)
        return gates

    def weight_product(self, rows: Array, others: Array, out: Array, *, adds: bool) -> None:
        # BLAS takes a product of single rows for one of matrices, and does it slowly
        product = np.multiply if len(others) == 1 else np.matmul
        write_or_add(functools.partial(product, rows.T, others), out, adds=adds)

    def product(self, rows: Array, matrix: Array, out: Array, *, adds: bool) -> None:
        write_or_add(functools.partial(np.matmul, rows, matrix), out, adds=adds)


class PlainCell(NumpyCell):
    """h' = act(W x + bW + R h + bR), act being tanh or relu.

    It works on rows as they are: with one gate, seeing them across costs more than the product gains.
    """

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.relu = spec.mode is RNNMode.RNN_RELU

    def extra(self) -> dict[str, int]:
        return {}

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        gates, h_before, bias = self.input_product(w, x, tape), tape.get("h_before"), w.bias
        product = np.empty_like(h)
        for first, last in steps:
            a, h_now = gates[first:last], h[: last - first]
            if h_before is not None:
                h_before[first:last] = h_now
            a += np.matmul(h_now, w.R.T, out=product[: last - first])
            if bias is not None:
                a += bias
            if self.relu:
                np.maximum(a, 0, out=a)
            else:
                np.tanh(a, out=a)
            h_now[:] = a
            out[first:last] = a

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        gates = tape["gates"]
        bits = np.dtype(f"i{gates.itemsize}")
        if self.relu:  # all bits or none, to choose and not to multiply: a closed unit lets no NaN through
            np.negative(~(gates <= 0), out=gates.view(bits), dtype=bits, casting="unsafe")  # open at NaN, as in torch
        else:
            np.multiply(gates, gates, out=gates)
            np.subtract(1, gates, out=gates)
        for first, last in reversed(steps):
            da, dh_now = gates[first:last], dh[: last - first]
            dh_now += dy[first:last]
            if self.relu:
                np.bitwise_and(da.view(bits), dh_now.view(bits), out=da.view(bits))
            else:
                da *= dh_now
            np.matmul(da, w.R, out=dh_now)

    def input_pieces(self, tape: Tape) -> Pieces:
        return [(slice(None), tape["gates"])]


class LSTMCell(NumpyCell):
    """c' = clip(f * c + i * g), h' = o * tanh(c') or its projection; gates i, f, g, o.

    sigmoid(x) is computed as (1 + tanh(x / 2)) / 2, which turns four gates into one tanh between two scalings.
    """

    factors = 3

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.state, self.clip = spec.state_size, spec.cell_clip
        dtype = spec.compute_dtype.numpy
        self.scale = np.repeat(np.array([0.5, 0.5, 1, 0.5], dtype), self.units)
        self.shift = np.repeat(np.array([0.5, 0.5, 0, 0.5], dtype), self.units)

    def extra(self) -> dict[str, int]:
        names = {"tanh_c": self.units, "c_before": self.units}
        if self.clip:
            names["inside"] = self.units
        if self.state != self.units:
            names |= {"hidden": self.units, "dh": self.state}
        return names

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:
        gates = self.input_product(w, x, tape)
        for run in runs(steps):
            h_now, c_now = run.take(h), run.take(c)
            a, t = np.empty((4 * self.units, run.sequences), h.dtype), np.empty_like(c_now)
            i, f, g, o = a.reshape(4, *c_now.shape)
            scale, shift, bias = run.spread(self.scale), run.spread(self.shift), run.spread(w.bias)
            rows = (run.across(array) for array in (gates, out, tape.get("h_before"), tape.get("hidden")))
            blocks = (run.blocks(tape.get(name)) for name in ("gates", "c_before", "tanh_c", "inside"))
            for Wx, y, h_before, hidden, kept, c_before, tanh_c, inside in zip(*rows, *blocks, strict=False):
                if h_before is not None:
                    h_before[...] = h_now
                    c_before[...] = c_now
                w.R.dot(h_now, a)
                np.add(a, Wx, a)
                if bias is not None:
                    np.add(a, bias, a)
                np.multiply(a, scale, a)
                np.tanh(a, a)
                np.multiply(a, scale, a)
                np.add(a, shift, a)
                np.multiply(c_now, f, c_now)
                np.multiply(i, g, t)
                np.add(c_now, t, c_now)
                if self.clip:
                    np.clip(c_now, *self.clip, out=t)
                    if inside is not None:
                        np.equal(t, c_now, out=inside)
                    c_now[...] = t
                np.tanh(c_now, t)
                if h_before is not None:
                    kept[...] = a
                    tanh_c[...] = t
                if w.proj is None:
                    np.multiply(o, t, h_now)
                else:
                    np.multiply(o, t, t)
                    w.proj.dot(t, h_now)
                    if hidden is not None:
                        hidden[...] = t
                y[...] = h_now
            run.put(h, h_now)
            run.put(c, c_now)

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:
        for run in runs(steps[::-1], FACTOR_ELEMENTS // (4 * self.units)):
            dh_now, dc_now = run.take(dh), run.take(dc)
            da, t = np.empty((4, *dc_now.shape), dh.dtype), np.empty_like(dc_now)
            dm = dh_now if w.proj is None else np.empty_like(dc_now)
            factors = run.blocks(tape["gates"]).reshape(-1, 4, *dc_now.shape)
            h_factors, forgets = run.blocks(tape["tanh_c"]), run.blocks(tape["c_before"])
            self._factors(factors, h_factors, forgets)
            rows = (run.across(array) for array in (dy, tape["gates"], tape.get("dh")))
            views = factors, h_factors, forgets, *rows, run.blocks(tape.get("inside"))
            for factor, h_factor, forget, dy_now, kept, dh_kept, inside in zip(*views, strict=False):
                np.add(dh_now, dy_now, dh_now)
                if w.proj is not None:
                    dh_kept[...] = dh_now
                    w.proj.T.dot(dh_now, dm)
                np.multiply(factor[3], dm, da[3])
                np.multiply(dm, h_factor, t)
                np.add(dc_now, t, dc_now)
                if inside is not None:
                    np.multiply(dc_now, inside, dc_now)
                np.multiply(factor[:3], dc_now, da[:3])
                np.multiply(dc_now, forget, dc_now)
                stacked = da.reshape(-1, run.sequences)
                w.R.T.dot(stacked, dh_now)
                kept[...] = stacked
            run.put(dh, dh_now)
            run.put(dc, dc_now)

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


class GRUCell(NumpyCell):
    """n = tanh(Wn x + bWn + r * (Rn h + bRn)), h' = n + z * (h - n); gates r, z, n, reset after the product.

    The n gate's product is kept ("q"), since r multiplies it. Backward leaves the gradients on the recurrent side in
    "gates" and the n gate's on the input side in "q": they differ by the factor r.
    """

    factors = 3

    def __init__(self, spec: RNNSpec) -> None:
        super().__init__(spec)
        self.half = np.array(0.5, spec.compute_dtype.numpy)

    def extra(self) -> dict[str, int]:
        return {"q": self.units}

    def forward(self, w: Weights, x: Array, tape: Tape, steps: Sequence[Step], h: Array, c: Array, out: Array) -> None:  # noqa: ARG002
        gates = self.input_product(w, x, tape)
        rz_end = 2 * self.units
        inside, outside = self._biases(w)
        for run in runs(steps):
            h_now = run.take(h)
            a = np.empty((3 * self.units, run.sequences), h.dtype)
            rz, (r, z, n) = a[:rz_end], a.reshape(3, *h_now.shape)
            bias, n_bias = run.spread(inside), run.spread(outside)
            Wx = run.across(gates)
            rows = (run.across(array) for array in (out, tape.get("h_before")))
            blocks = (run.blocks(tape.get(name)) for name in ("gates", "q"))
            for x_rz, x_n, y, h_before, kept, q in zip(Wx[:, :rz_end], Wx[:, rz_end:], *rows, *blocks, strict=False):
                w.R.dot(h_now, a)
                np.add(rz, x_rz, rz)
                if bias is not None:
                    np.add(a, bias, a)
                np.multiply(rz, self.half, rz)
                np.tanh(rz, rz)
                np.multiply(rz, self.half, rz)
                np.add(rz, self.half, rz)
                if h_before is not None:
                    h_before[...] = h_now
                    q[...] = n
                np.multiply(r, n, n)
                np.add(n, x_n, n)
                if n_bias is not None:
                    np.add(n, n_bias, n)
                np.tanh(n, n)
                np.subtract(h_now, n, h_now)
                np.multiply(h_now, z, h_now)
                np.add(h_now, n, h_now)
                y[...] = h_now
                if h_before is not None:
                    kept[...] = a
            run.put(h, h_now)

    def _biases(self, w: Weights) -> tuple[Array | None, Array | None]:
        """What is added to R h, and what to the n gate after r has multiplied that."""
        if w.bW is None:
            return w.bR, None
        n = slice(2 * self.units, None)
        inside = w.bW.copy() if w.bR is None else w.bW + w.bR
        inside[n] = 0 if w.bR is None else w.bR[n]
        return inside, w.bW[n]

    def backward(self, w: Weights, tape: Tape, steps: Sequence[Step], dy: Array, dh: Array, dc: Array) -> None:  # noqa: ARG002
        for run in runs(steps[::-1], FACTOR_ELEMENTS // (3 * self.units)):
            dh_now = run.take(dh)
            da, dn, carried = np.empty((3, *dh_now.shape), dh.dtype), np.empty_like(dh_now), np.empty_like(dh_now)
            factors, n_factors = run.blocks(tape["gates"]).reshape(-1, *da.shape), run.blocks(tape["q"])
            zs = self._factors(factors, n_factors, run.across(tape["h_before"]))
            rows = (run.across(array) for array in (dy, tape["gates"], tape["q"]))
            for factor, n_factor, z, dy_now, kept, dn_kept in zip(factors, n_factors, zs, *rows, strict=True):
                np.add(dh_now, dy_now, dh_now)
                np.multiply(n_factor, dh_now, dn)
                np.multiply(factor[1], dh_now, da[1])
                np.multiply(factor[0::2], dn, da[0::2])
                np.multiply(z, dh_now, carried)
                stacked = da.reshape(-1, run.sequences)
                w.R.T.dot(stacked, dh_now)
                np.add(dh_now, carried, dh_now)
                kept[...] = stacked
                dn_kept[...] = dn
            run.put(dh, dh_now)

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


CELLS: Final[dict[RNNMode, type[PlainCell | LSTMCell | GRUCell]]] = {
    RNNMode.LSTM: LSTMCell,
    RNNMode.GRU: GRUCell,
    RNNMode.RNN_TANH: PlainCell,
    RNNMode.RNN_RELU: PlainCell,
}
