"""The CPU engine: cuDNN's semantics in NumPy, written to be fast.

A call works on packed rows (`schedule`), so that padding costs nothing and cannot leak. The input product of a
direction is a GEMM over each group of rows, gradients are one over each block of groups, and the only Python loop is
the one over time (`cells`). 16-bit types are computed in the spec's compute dtype and rounded where they leave the
engine.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from contextlib import nullcontext

import numpy as np

from pycudnnrnn.engines import DropoutState, EnginePlan, Memory
from pycudnnrnn.engines.numpy_engine.cells import cell_of
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout, drop, dropout_mask
from pycudnnrnn.engines.numpy_engine.gradients import GradientSums
from pycudnnrnn.engines.numpy_engine.memory import memory
from pycudnnrnn.engines.numpy_engine.packing import NO_OUTS, Outs, new_rows, pack, results, sorted_states
from pycudnnrnn.engines.numpy_engine.plan import NumpyPlan
from pycudnnrnn.engines.numpy_engine.recompute import RecomputeReserve
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve, make_reserve
from pycudnnrnn.engines.numpy_engine.walk import directions_of, for_steps, run, run_back
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, all_stacks, load_weights
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


class NumpyEngine:
    """Run an RNN on NumPy arrays; see `engines.Engine` for the calls."""

    name = "numpy"
    device = "cpu"
    xp = np

    @staticmethod
    def active() -> nullcontext[None]:
        """There is no current device on the CPU."""
        return nullcontext()

    @staticmethod
    def on_stream(address: int | None, others: Collection[int | None], *, wait: bool) -> nullcontext[int]:  # noqa: ARG004
        """There is none on the CPU."""
        return nullcontext(0)

    def dropout(self, spec: RNNSpec, state: DropoutState) -> NumpyDropout:  # noqa: ARG002
        return NumpyDropout(state)

    def layout(self, spec: RNNSpec) -> ParamLayout:
        return _arithmetic_layout(spec)

    def plan(self, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: NumpyDropout | None) -> EnginePlan:
        return NumpyPlan(self, spec, schedule, training=training, dropout=dropout)

    def eager(self, *_: object, **__: object) -> None:
        """None: the checks take no time worth saving beside the arithmetic."""

    def memory(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        training: bool,
        dropout: NumpyDropout | None,
        checkpoint_every: int | None,
    ) -> Memory:
        size = self.layout(spec).size
        return memory(spec, schedule, size, training=training, drops=dropout is not None, every=checkpoint_every)

    @np.errstate(all="ignore")  # NaN and infinity are data
    def forward(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        params: Array,
        x: Array,
        hx: Array | None,
        cx: Array | None,
        *,
        dropout: NumpyDropout | None,
        keep_reserve: bool,
        checkpoint_every: int | None = None,
        weights: list[Weights] | None = None,
        buffer: Array | None = None,
        outs: Outs = NO_OUTS,
    ) -> tuple[Array, Array, Array | None, NumpyReserve | RecomputeReserve | None]:
        """Run, with `weights` where params have been read already.

        What is kept goes into `buffer`, and the results into `outs`, where they are given.
        """
        with nullcontext() if dropout is None else dropout.forward() as drawn:
            dtype = spec.compute_dtype.numpy
            cell = cell_of(spec)
            weights = self.weights(spec, params) if weights is None else weights
            h = sorted_states(hx, schedule, (spec.num_pseudo_layers, schedule.B, spec.state_size), dtype, outs[1])
            c = sorted_states(cx, schedule, (spec.num_pseudo_layers, schedule.B, spec.num_units), dtype, outs[2])
            rows = pack(x, schedule, dtype)
            if keep_reserve and checkpoint_every is not None:
                recomputing = RecomputeReserve(spec, schedule, weights, x, drawn, checkpoint_every)
                return *results(recomputing.forward(rows, h, c), h, c, spec, schedule, outs), recomputing
            reserve = None
            if keep_reserve:
                reserve = make_reserve(spec, schedule, weights, rows, drops=drawn is not None, buffer=buffer)
            for layer in range(spec.num_layers):
                kept = reserve is not None and layer + 1 < spec.num_layers
                above = reserve.inputs[layer + 1] if reserve and kept else None
                if above is None:
                    last = layer + 1 == spec.num_layers
                    above = new_rows(schedule, spec.output_size, dtype, outs[0] if last else None)
                for direction, steps in directions_of(spec, schedule):
                    p = layer * spec.num_dirs + direction
                    out = above[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                    w = for_steps(weights[p], len(steps))
                    run(cell, spec, w, rows, steps, h[p], c[p], out, reserve.tapes[p] if reserve else None)
                if drawn and layer + 1 < spec.num_layers:
                    mask = dropout_mask(drawn, spec, layer + 1, 0, above.shape)
                    drop(above, mask, spec.dropout)
                    if reserve:
                        reserve.masks[layer + 1][:] = mask  # type: ignore[index]  # there is one where something drops
                rows = above
            return *results(rows, h, c, spec, schedule, outs), reserve

    def weights(self, spec: RNNSpec, params: Array) -> list[Weights]:
        """Read params into what the cells work with: views of it, where its dtype and layout are theirs."""
        return load_weights(self.layout(spec), params, spec)

    def reserve_in(
        self, spec: RNNSpec, schedule: Schedule, weights: list[Weights], x: Array | None, buffer: Array, *, drops: bool
    ) -> NumpyReserve:
        """Find again what a forward has left in `buffer`; `backward_data` needs no x, `backward_weights` no weights."""
        dtype = spec.compute_dtype.numpy
        rows = np.empty((0, spec.input_size), dtype) if x is None else pack(x, schedule, dtype)
        return make_reserve(spec, schedule, weights, rows, drops=drops, buffer=buffer)

    @np.errstate(all="ignore")
    def backward_data(
        self,
        reserve: NumpyReserve | RecomputeReserve,
        dy: Array | None,
        dhy: Array | None,
        dcy: Array | None,
        *,
        outs: Outs = NO_OUTS,
    ) -> tuple[Array, Array, Array | None]:
        spec, schedule = reserve.spec, reserve.schedule
        dtype = spec.compute_dtype.numpy
        cell = cell_of(spec)
        dh = sorted_states(dhy, schedule, (spec.num_pseudo_layers, schedule.B, spec.state_size), dtype, outs[1])
        dc = sorted_states(dcy, schedule, (spec.num_pseudo_layers, schedule.B, spec.num_units), dtype, outs[2])
        drows = np.zeros((schedule.num_rows, spec.output_size), dtype) if dy is None else pack(dy, schedule, dtype)
        if not isinstance(reserve, NumpyReserve):
            found = results(
                reserve.backward(all_stacks(self.layout(spec), spec), drows, dh, dc), dh, dc, spec, schedule, outs
            )
            reserve.touched = True  # what is kept is read alone: a backward that failed can be tried again
            return found
        reserve.touched = True
        for layer in reversed(range(spec.num_layers)):
            below = new_rows(schedule, spec.layer_input_size(layer), dtype, None if layer else outs[0])
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                own = drows[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                w, tape = reserve.weights[p], reserve.tapes[p]
                run_back(cell, spec, w, steps, tape, own, dh[p], dc[p], below, add=direction > 0)
            mask = reserve.masks[layer]
            if mask is not None:
                drop(below, mask, spec.dropout)
            drows = below
        return results(drows, dh, dc, spec, schedule, outs)

    def check_gradient(self, out: Array) -> None:
        """Do nothing: NumPy writes to any address."""

    @np.errstate(all="ignore")
    def backward_weights(self, reserve: NumpyReserve | RecomputeReserve, out: Array, *, accumulate: bool) -> None:
        spec, schedule = reserve.spec, reserve.schedule
        layout = self.layout(spec)
        if not accumulate and (not schedule.num_rows or sum(region.size for region in layout.regions) < layout.size):
            out[:] = 0
        stacks = all_stacks(layout, spec)
        # Added to a copy: memory that runs out on the way would leave a part in `out`, and a second try add it again.
        total = out.copy() if accumulate else out
        if not isinstance(reserve, NumpyReserve):
            for p, sums in enumerate(reserve.gradients):
                sums.put(total, stacks[p], accumulate=accumulate)
        else:
            cell = cell_of(spec)
            for layer in range(spec.num_layers):
                for direction, steps in directions_of(spec, schedule):
                    p = layer * spec.num_dirs + direction
                    sums = GradientSums(spec, stacks[p], None if accumulate else out)
                    sums.add_run(cell, steps, reserve.tapes[p], reserve.inputs[layer])
                    sums.put(total, stacks[p], accumulate=accumulate)
        if accumulate:
            out[...] = total


@functools.lru_cache(maxsize=256)
def _arithmetic_layout(spec: RNNSpec) -> ParamLayout:
    return arithmetic_layout(spec)
