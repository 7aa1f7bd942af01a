"""The engine for CUDA arrays: checks, plans, memory and the order of native calls; see `engines.Engine`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pycudnnrnn import _libcudnn
from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines import DropoutState, Memory
from pycudnnrnn.engines.cudnn import chunked, long_bidirectional, recompute
from pycudnnrnn.engines.cudnn.addressed import Addressed
from pycudnnrnn.engines.cudnn.algorithms import choose
from pycudnnrnn.engines.cudnn.checks import (
    DATA_ALIGNMENT_NBYTES,
    PARAMS_ALIGNMENT_NBYTES,
    aligned,
    check_array,
    check_sizes,
)
from pycudnnrnn.engines.cudnn.device import CudaDevice, addresses, in_order
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout, states_nbytes
from pycudnnrnn.engines.cudnn.eager import CudnnForward
from pycudnnrnn.engines.cudnn.long_bidirectional import LongReserve
from pycudnnrnn.engines.cudnn.memory import memory
from pycudnnrnn.engines.cudnn.passes import Inputs
from pycudnnrnn.engines.cudnn.plan import CudnnPlan
from pycudnnrnn.engines.cudnn.recompute import RecomputeReserve
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Chunk, Schedule, native_chunks
from pycudnnrnn.spec import TIME_MAX, Algorithm, RNNSpec

AnyReserve = CudnnReserve[Any] | LongReserve | RecomputeReserve


class CudnnEngine:
    """Run RNNs by libcudnn on one CUDA device.

    `runtime` has the state.
    """

    name = "cudnn"

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library, self.device = library, f"cuda:{device.index}"
        self._device = device
        self.runtime = Runtime(library, device)
        self.choices = self.runtime.choices

    @property
    def xp(self) -> Any:
        """CuPy, unless the device is lost."""
        self._device.watch.refuse_lost()
        return self._device.xp

    def active(self) -> contextlib.AbstractContextManager[Any]:
        return self._device.active()

    def layout(self, spec: RNNSpec) -> ParamLayout:
        return self.runtime.layout(spec)

    def dropout(self, spec: RNNSpec, state: DropoutState) -> CudnnDropout:
        with self.runtime.launching("setting up dropout states") as (handle, _):
            return CudnnDropout(handle, self._device, spec, state)

    def plan(self, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: CudnnDropout | None) -> CudnnPlan:
        check_sizes(spec, schedule, training=training)
        if schedule.has_empty:
            raise ArgumentError("sequence_lengths", "one native call: no empty sequence", "a length of 0")
        if schedule.T > TIME_MAX:
            raise ArgumentError("T", f"one native call: at most {TIME_MAX} steps", schedule.T)
        with self.runtime.launching("preparing a plan") as (handle, _):
            spec = self.resolved(spec, schedule, training=training, dropout=dropout)
            passes = self.runtime.passes(handle, spec, schedule, training=training, dropout=dropout)
            return CudnnPlan(self.runtime, passes, schedule, dropout)

    def dropout_states_nbytes(self) -> int:
        """Return the bytes of one model's random states on this device."""
        with self.runtime.launching("asking for the size of dropout states") as (handle, _):
            return states_nbytes(handle)

    def write_dropout_states(self, stream: int, states: int, seed: int) -> None:
        """Write random states at an address in another library's memory, from a seed; cuDNN itself may wait for it."""
        runtime = self.runtime
        with self._device.active():
            handle = runtime.handle_on(self._device.stream_at(stream))
            dropout = runtime.dropout_at(handle, states, 0.0)  # no rate is kept in them
            with dropout.lock:
                dropout.start(handle, seed)

    def addressed(self, stream: int, spec: RNNSpec, like: Schedule, *, training: bool, drops: bool) -> Addressed:
        """Prepare batches like this one, which come again and again, on another library's memory and streams."""
        check_sizes(spec, like, training=training)
        return Addressed(self.runtime, stream, spec, like, training=training, drops=drops)

    def device_of(self, address: int) -> int:
        """Return the index of the device whose memory an address is in."""
        return self._device.index_of(address)

    @contextlib.contextmanager
    def on_stream(self, address: int | None, others: Collection[int | None], *, wait: bool) -> Iterator[int]:
        device = self._device
        with device.active():
            stream, *around = (device.stream() if a is None else device.stream_at(a) for a in (address, *others))
            try:
                with in_order(device, stream, around), device.using(stream):
                    yield device.stream_address(stream)
            finally:
                if wait and not device.watch.lost:
                    device.synchronize(stream)

    def memory(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        training: bool,
        dropout: CudnnDropout | None,
        checkpoint_every: int | None,
    ) -> Memory:
        check_sizes(spec, schedule, training=training)
        chunks = self._chunks(spec, schedule, checkpoint_every, dropout)
        recomputes = checkpoint_every is not None
        return memory(self.runtime, spec, schedule, chunks, training=training, dropout=dropout, recomputes=recomputes)

    @staticmethod
    def _chunks(
        spec: RNNSpec, schedule: Schedule, checkpoint_every: int | None, dropout: CudnnDropout | None
    ) -> list[Chunk]:
        """The native calls of a forward.

        Raises:
            ArgumentError: dropout where each direction of each layer would run by itself.
        """
        chunks = native_chunks(schedule, TIME_MAX if checkpoint_every is None else min(checkpoint_every, TIME_MAX))
        if len(chunks) > 1 and spec.num_dirs == 2 and dropout is not None:
            steps = f"more than {TIME_MAX} steps" if checkpoint_every is None else "checkpoint_every"
            raise ArgumentError("dropout", f"0 in training with both directions and {steps}", spec.dropout)
        return chunks

    def resolved(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        training: bool,
        dropout: CudnnDropout | None,
        data: Inputs | None = None,
    ) -> RNNSpec:
        """Return the spec with "auto" decided."""
        if spec.algo is not Algorithm.AUTO:
            return spec
        drops = dropout is not None
        choice = choose(self.runtime, spec, schedule, training=training, drops=drops, data=data)
        return spec.replace(algo=choice.algo, math_type=choice.math_type)

    def eager(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        dropout: CudnnDropout | None,
        keep_reserve: bool,
        data: Inputs | None = None,
    ) -> CudnnForward | None:
        if not schedule.T or not schedule.B or schedule.T > TIME_MAX or schedule.has_empty:
            return None
        training = keep_reserve or dropout is not None
        with self.runtime.launching("an eager forward, which takes memory") as (handle, _):
            spec = self.resolved(spec, schedule, training=training, dropout=dropout, data=data)
            passes = self.runtime.passes(handle, spec, schedule, training=training, dropout=dropout)
        return CudnnForward(self.runtime, passes, dropout=dropout, keep_reserve=keep_reserve)

    def forward(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        params: Any,
        x: Any,
        hx: Any | None,
        cx: Any | None,
        *,
        dropout: CudnnDropout | None,
        keep_reserve: bool,
        checkpoint_every: int | None = None,
    ) -> tuple[Any, Any, Any | None, Any]:
        check_sizes(spec, schedule, training=keep_reserve or dropout is not None)
        for name, array in (("input_data", x), ("input_h", hx), ("input_c", cx)):
            check_array(name, array, self._device)
        check_array("params", params, self._device, PARAMS_ALIGNMENT_NBYTES)
        inputs, keeps = Inputs(params, *self._aligned(x, hx, cx)), keep_reserve
        every = checkpoint_every if keeps else None
        if every is None or every >= schedule.T:
            call = self.eager(spec, schedule, dropout=dropout, keep_reserve=keeps, data=inputs)
            if call is not None:
                return call.run(schedule, *inputs)
        chunks = self._chunks(spec, schedule, every, dropout)
        if len(chunks) > 1 and spec.num_dirs == 2:
            return long_bidirectional.forward(
                self, self.runtime, spec, schedule, inputs, keep_reserve=keeps, checkpoint_every=every
            )
        if len(chunks) > 1 and every is not None:
            return recompute.forward(self, self.runtime, spec, schedule, chunks, inputs, dropout=dropout)
        return chunked.forward(self.runtime, spec, schedule, chunks, inputs, dropout=dropout, keep_reserve=keeps)

    def backward_data(
        self, reserve: AnyReserve, dy: Any | None, dhy: Any | None, dcy: Any | None
    ) -> tuple[Any, Any, Any | None]:
        return reserve.backward_data(dy, dhy, dcy)

    def check_gradient(self, out: Any) -> None:
        check_array("out", out, self._device, PARAMS_ALIGNMENT_NBYTES)

    def backward_weights(self, reserve: AnyReserve, out: Any, *, accumulate: bool) -> None:
        reserve.backward_weights(out, accumulate=accumulate)

    def _aligned(self, *arrays: Any | None) -> Sequence[Any | None]:
        if not any(at and at % DATA_ALIGNMENT_NBYTES for at in addresses(self._device, *arrays)):
            return arrays
        with self.runtime.launching("copying what is not aligned, which takes memory"):
            return aligned(self._device, *arrays)


def cudnn_engine(index: int | None) -> CudnnEngine:
    """Return the engine of a device, the current one for None; made once.

    Raises:
        MissingDependencyError: CuPy is not installed.
        EngineError: no such device, or no libcudnn that can be used.
    """
    index = CudaDevice().index if index is None else index
    with _making:  # the cache by itself would let two threads make one each
        return _engine(index)


_making = threading.Lock()


@functools.cache
def _engine(index: int) -> CudnnEngine:
    device = CudaDevice(index)
    return CudnnEngine(_libcudnn.load(), device)
