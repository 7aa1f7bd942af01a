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

from pycudnnrnn.engines import DropoutState, Memory, Results
from pycudnnrnn.engines.numpy_engine.cells import cell_of
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout, drop, dropout_mask
from pycudnnrnn.engines.numpy_engine.memory import memory
from pycudnnrnn.engines.numpy_engine.packing import NO_OUTS, Outs, new_rows, pack, results, sorted_states
from pycudnnrnn.engines.numpy_engine.plan import NumpyPlan
from pycudnnrnn.engines.numpy_engine.recompute import RecomputeReserve
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve, make_reserve
from pycudnnrnn.engines.numpy_engine.walk import directions_of, for_steps, run
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, load_weights
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.passes import Batch, Inputs
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

    def plan(self, batch: Batch) -> NumpyPlan:
        return NumpyPlan(self, batch)

    def eager(self, batch: Batch) -> None:
        """None: the checks take no time worth saving beside the arithmetic."""

    def memory(self, batch: Batch) -> Memory:
        return memory(batch, self.layout(batch.spec).size)

    @np.errstate(all="ignore")  # NaN and infinity are data
    def forward(
        self, batch: Batch, inputs: Inputs, *, weights: list[Weights] | None = None, buffer: Array | None = None,
        outs: Outs = NO_OUTS,
    ) -> Results:  # fmt: skip
        """Run, with `weights` where params have been read already.

        What is kept goes into `buffer`, and the results into `outs`, where they are given.
        """
        spec, schedule, dropout = batch.spec, batch.schedule, batch.dropout
        with nullcontext() if dropout is None else dropout.forward() as drawn:
            dtype, layout = spec.compute_dtype.numpy, self.layout(spec)
            cell = cell_of(spec)
            weights = self.weights(spec, inputs.params) if weights is None else weights
            h, c = sorted_states(spec, schedule, inputs.hx, inputs.cx, outs)
            rows = pack(inputs.x, schedule, dtype)
            if batch.keeps and batch.every is not None:
                recomputing = RecomputeReserve(spec, schedule, layout, weights, inputs.x, drawn, batch.every)
                return *results(recomputing.forward(rows, h, c), h, c, spec, schedule, outs), recomputing
            reserve = make_reserve(batch, layout, weights, rows, buffer) if batch.keeps else None
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

    def reserve_in(self, batch: Batch, weights: list[Weights], x: Array | None, buffer: Array) -> NumpyReserve:
        """Find again what a forward has left in `buffer`; `backward_data` needs no x, `backward_weights` no weights."""
        dtype = batch.spec.compute_dtype.numpy
        rows = np.empty((0, batch.spec.input_size), dtype) if x is None else pack(x, batch.schedule, dtype)
        return make_reserve(batch, self.layout(batch.spec), weights, rows, buffer)

    def check_gradient(self, out: Array) -> None:
        """Do nothing: NumPy writes to any address."""


@functools.lru_cache(maxsize=256)
def _arithmetic_layout(spec: RNNSpec) -> ParamLayout:
    return arithmetic_layout(spec)
