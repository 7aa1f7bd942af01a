"""The CPU engine: cuDNN's semantics in NumPy, written to be fast; see `bound` for the arithmetic's order."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any, Final

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn.engines import ArrayFunctions, DropoutState, Memory
from pycudnnrnn.engines.numpy_engine.bound import NumpyCalls
from pycudnnrnn.engines.numpy_engine.calls import Calls
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout
from pycudnnrnn.engines.numpy_engine.memory import memory
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import INT32_MAX, RNNSpec

KINDS_MAX: Final = 64
"""Most kinds of calls that are remembered, those used last."""


KEPT_STEPS_MAX: Final = 1024
"""Most steps of calls that are kept: what depends on the steps takes 350 bytes for each, and little time to make."""


class HostArrays(ArrayFunctions):
    """See `engines.ArrayFunctions`."""

    address = staticmethod(_arrays.address)
    copy = staticmethod(np.ndarray.copy)
    zeros = staticmethod(functools.partial(_arrays.new, zeros=True))
    from_host = staticmethod(np.asarray)
    take: Any = staticmethod(np.take)

    @staticmethod
    def holds(array: object) -> bool:
        return type(array) is np.ndarray and array.flags.writeable


class NumpyEngine:
    """Run RNNs on NumPy arrays. The ops and layers call its methods, which are those of `engines.Engine`."""

    name = "numpy"
    device = "cpu"
    xp = np
    alignment = 1
    steps_max = INT32_MAX
    takes_empty = True
    arrays = HostArrays()

    @staticmethod
    def active() -> nullcontext[None]:
        """Return an empty context: the CPU has no current device."""
        return nullcontext()

    @staticmethod
    def on_stream(address: int | None, others: Collection[int | None], *, wait: bool) -> nullcontext[int]:  # noqa: ARG004
        """Return an empty context: the CPU has no streams.

        Args:
            address: ignored by this engine.
            others: ignored by this engine.
            wait: ignored by this engine.
        """
        return nullcontext(0)

    @staticmethod
    def ordered(streams: Sequence[Any], what: str) -> nullcontext[None]:  # noqa: ARG004
        """Return an empty context: the CPU has no streams.

        Args:
            streams: ignored by this engine.
            what: ignored by this engine.
        """
        return nullcontext()

    def dropout(self, spec: RNNSpec, state: DropoutState) -> NumpyDropout:  # noqa: ARG002
        """Return the dropout of one model, from a state on.

        Args:
            spec: description of the RNN.
            state: the dropout state to start from.
        """
        return NumpyDropout(state)

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Return the layout of the params buffer, which follows from arithmetic.

        Args:
            spec: description of the RNN.
        """
        return arithmetic_layout(spec)

    def calls(self, config: CallConfig) -> NumpyCalls:
        """Return the eager calls of one configuration.

        Args:
            config: the configuration of the calls; each may have other lengths.
        """
        return NumpyCalls(self._sized, config, plans=False)

    def plan(self, config: CallConfig) -> NumpyCalls:
        """Return the repeated calls of one configuration on the caller's buffers.

        Args:
            config: the configuration of the calls.
        """
        return NumpyCalls(self._sized, config, plans=True)

    def memory(self, config: CallConfig, *, adds: bool = False) -> Memory:
        """Return the memory that one kind of call takes, without running it.

        Args:
            config: the configuration of the call.
            adds: whether the array of the gradient of params exists before the backward. Default: False.
        """
        return memory(config, self.layout(config.spec).size, adds=adds)

    def _sized(self, config: CallConfig) -> Calls:
        make = _calls_of if config.schedule.T <= KEPT_STEPS_MAX else _calls_of.__wrapped__
        return make(self, config.spec, config.schedule, keeps=config.keep_reserve, drops=config.dropout is not None)


@functools.lru_cache(maxsize=KINDS_MAX)
def _calls_of(engine: NumpyEngine, spec: RNNSpec, schedule: Schedule, *, keeps: bool, drops: bool) -> Calls:
    return Calls(spec, schedule, engine.layout(spec), keeps=keeps, drops=drops)
