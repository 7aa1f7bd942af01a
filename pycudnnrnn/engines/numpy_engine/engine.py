"""The CPU engine: cuDNN's semantics in NumPy, written to be fast; see `forward` for the arithmetic's order."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn.engines import DropoutState, EagerForward, Memory, Results
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout
from pycudnnrnn.engines.numpy_engine.forward import forward
from pycudnnrnn.engines.numpy_engine.memory import memory
from pycudnnrnn.engines.numpy_engine.plan import NumpyPlan
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.passes import Arrays, Batch
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


class NumpyEngine:
    """Run an RNN on NumPy arrays; see `engines.Engine` for the calls."""

    name = "numpy"
    device = "cpu"
    xp = np
    alignment = 1
    address = staticmethod(_arrays.address)

    @staticmethod
    def copy(array: Any) -> Any:
        """Nothing is copied for being aligned: NumPy reads from any address."""
        return array

    @staticmethod
    def holds(array: object) -> bool:
        return type(array) is np.ndarray and array.flags.writeable

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
        return NumpyPlan(batch, self.layout(batch.spec))

    def memory(self, batch: Batch) -> Memory:
        return memory(batch, self.layout(batch.spec).size)

    def forward(self, batch: Batch) -> EagerForward:
        layout = self.layout(batch.spec)

        def run(schedule: Schedule, inputs: Arrays, _: Sequence[int | None]) -> Results:
            return forward(batch._replace(schedule=schedule), layout, inputs)

        return run


@functools.lru_cache(maxsize=256)
def _arithmetic_layout(spec: RNNSpec) -> ParamLayout:
    return arithmetic_layout(spec)
