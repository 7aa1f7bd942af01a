"""The engine for CUDA arrays: checks, plans, memory and the order of native calls; see `engines.Engine`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn import _libcudnn
from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines import DropoutState, Memory
from pycudnnrnn.engines.cudnn import chunked, long_bidirectional, recompute
from pycudnnrnn.engines.cudnn.algorithms import Data, choose
from pycudnnrnn.engines.cudnn.checks import PARAMS_ALIGNMENT_NBYTES, check_array, check_matrices, check_sizes
from pycudnnrnn.engines.cudnn.choices import ChoiceBook
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.eager import EagerForward
from pycudnnrnn.engines.cudnn.handles import Handle, HandlePool
from pycudnnrnn.engines.cudnn.layout_query import query_layout, weight_space_nbytes
from pycudnnrnn.engines.cudnn.long_bidirectional import LongReserve
from pycudnnrnn.engines.cudnn.memory import memory
from pycudnnrnn.engines.cudnn.plan import Plan
from pycudnnrnn.engines.cudnn.prepared import PreparedPlan
from pycudnnrnn.engines.cudnn.recompute import RecomputeReserve
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Chunk, Schedule, native_chunks
from pycudnnrnn.spec import TIME_MAX, Algorithm, RNNSpec

PLANS_MAX: Final = 64
"""Plans kept by an engine, oldest dropped first: a plan is a few small native objects."""


AnyReserve = CudnnReserve | LongReserve | RecomputeReserve


class CudnnEngine:
    """Run RNNs by libcudnn on one CUDA device.

    State: the handle pool, the layouts and plans asked for so far, under a lock, and the algorithms chosen.
    """

    name = "cudnn"

    def __init__(self, library: Library, device: CudaDevice) -> None:
        self.library = library
        self.device = f"cuda:{device.index}"
        self.xp = device.xp
        self._device = device
        self._handles = HandlePool(library)
        self._layouts: dict[RNNSpec, ParamLayout] = {}
        self._plans: dict[Any, Plan] = {}
        self._lock = threading.Lock()
        self.choices = ChoiceBook(device.gpu, library.version)

    def layout(self, spec: RNNSpec) -> ParamLayout:
        spec = spec.without_dropout
        known = self._layouts.get(spec)
        if known is not None:
            return known
        check_matrices(spec)
        with self._device.active():
            stream = self._device.stream()
            self._device.refuse_capture(stream, "asking for a layout")
            handle = self.handle_on(stream)
            with RNNDescriptor(self.library, spec, algo=spec.untuned_algo) as rnn:
                nbytes = weight_space_nbytes(handle, rnn)
                base = self._device.empty((nbytes,), BYTES)
                layout = query_layout(handle, rnn, spec, self._device.address(base), nbytes)
        self._layouts[spec] = layout
        return layout

    def dropout(self, spec: RNNSpec, state: DropoutState) -> CudnnDropout:
        with self._device.active():
            stream = self._device.stream()
            self._device.refuse_capture(stream, "setting up dropout states")
            return CudnnDropout(self.handle_on(stream), self._device, spec, state)

    def plan(self, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: CudnnDropout | None) -> PreparedPlan:
        check_sizes(spec, schedule)
        chunks = native_chunks(schedule, TIME_MAX)
        if len(chunks) != 1 or not chunks[0].covers(schedule):
            if schedule.lengths is not None and 0 in schedule.lengths:
                raise ArgumentError("sequence_lengths", "one native call: no empty sequence", "a length of 0")
            raise ArgumentError("T", f"one native call: at most {TIME_MAX} steps", schedule.T)
        with self._device.active():
            stream = self._device.stream()
            self._device.refuse_capture(stream, "preparing a plan")
            spec = self.resolved(spec, schedule, training=training, dropout=dropout)
            handle = self.handle_on(stream)
            native = self._plan(handle, spec, schedule, chunks[0], training=training, dropout=dropout)
            return PreparedPlan(self, self._device, spec, schedule, native, dropout)

    @contextlib.contextmanager
    def on_stream(self, address: int | None, others: Collection[int | None], *, wait: bool) -> Iterator[int]:
        device = self._device
        with device.active():
            stream, *around = (device.stream() if a is None else device.stream_at(a) for a in (address, *others))
            for other in around:
                device.wait(stream, other)
            try:
                with device.using(stream):
                    yield device.stream_address(stream)
            finally:
                for other in around:
                    device.wait(other, stream)
                if wait:
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
        check_sizes(spec, schedule)
        chunks = self._chunks(spec, schedule, checkpoint_every, dropout)
        recomputes = checkpoint_every is not None
        return memory(self, spec, schedule, chunks, training=training, dropout=dropout, recomputes=recomputes)

    def sizes(
        self, spec: RNNSpec, schedule: Schedule, chunks: list[Chunk], *, training: bool, dropout: CudnnDropout | None
    ) -> list[tuple[int, int]]:
        """Ask cuDNN for the workspace and the reserve of each chunk, in bytes."""
        with self.launching() as (handle, _):
            plans = [self._plan(handle, spec, schedule, chunk, training=training, dropout=dropout) for chunk in chunks]
        return [(plan.workspace_nbytes, plan.reserve_nbytes) for plan in plans]

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
        data: Data | None = None,
    ) -> RNNSpec:
        """Return the spec with "auto" decided."""
        if spec.algo is not Algorithm.AUTO:
            return spec
        drops = dropout is not None
        choice = choose(self, self._device, spec, schedule, training=training, drops=drops, data=data)
        return spec.replace(algo=choice.algo, math_type=choice.math_type)

    def eager(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        dropout: CudnnDropout | None,
        keep_reserve: bool,
        data: Data | None = None,
    ) -> EagerForward | None:
        chunks = native_chunks(schedule, TIME_MAX)
        if len(chunks) != 1 or not chunks[0].covers(schedule):
            return None
        training = keep_reserve or dropout is not None
        with self._device.active():
            stream = self._device.stream()
            self._device.refuse_capture(stream, "an eager forward, which takes memory")
            spec = self.resolved(spec, schedule, training=training, dropout=dropout, data=data)
            handle = self.handle_on(stream)
            plan = self._plan(handle, spec, schedule, chunks[0], training=training, dropout=dropout)
        return EagerForward(
            self, self._device, spec, schedule, chunks[0], plan, dropout=dropout, keep_reserve=keep_reserve
        )

    def check_process(self) -> None:
        """Refuse to work in a forked child.

        Raises:
            ForkError: the process is a fork of one that used this engine.
        """
        self._handles.check_process()

    @contextlib.contextmanager
    def launching(self) -> Iterator[tuple[Handle, Any]]:
        """Give this thread's handle, on the current stream."""
        with self._device.active():
            stream = self._device.stream()
            yield self.handle_on(stream), stream

    def handle_on(self, stream: Any) -> Handle:
        """Give this thread's handle, set to a stream."""
        handle = self._handles.get()
        handle.set_stream(self._device.stream_address(stream))
        return handle

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
        device, dtype = self._device, spec.dtype.numpy
        check_sizes(spec, schedule)
        for name, array in (("input_data", x), ("input_h", hx), ("input_c", cx)):
            self._check(name, array, dtype.itemsize)
        self._check("params", params, PARAMS_ALIGNMENT_NBYTES)
        chunks = self._chunks(spec, schedule, checkpoint_every if keep_reserve else None, dropout)
        if len(chunks) > 1 and spec.num_dirs == 2:
            return long_bidirectional.forward(
                self, device, spec, schedule, params, x, hx, cx,
                keep_reserve=keep_reserve, checkpoint_every=checkpoint_every,
            )  # fmt: skip
        if len(chunks) > 1 and checkpoint_every is not None and keep_reserve:
            return recompute.forward(self, device, spec, schedule, chunks, params, x, hx, cx, dropout=dropout)
        data = Data(params, x, hx, cx)
        call = self.eager(spec, schedule, dropout=dropout, keep_reserve=keep_reserve, data=data)
        if call is not None:
            return call.run(params, x, hx, cx)
        return self._forward_in_parts(
            spec, schedule, chunks, params, x, hx, cx, dropout=dropout, keep_reserve=keep_reserve
        )

    def _forward_in_parts(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        chunks: Sequence[Chunk],
        params: Any,
        x: Any,
        hx: Any | None,
        cx: Any | None,
        *,
        dropout: CudnnDropout | None,
        keep_reserve: bool,
    ) -> tuple[Any, Any, Any | None, CudnnReserve | None]:
        """Run the chunks that make a batch; "auto" runs the standard algorithm here, and nothing is tuned."""
        device, dtype = self._device, spec.dtype.numpy
        training = keep_reserve or dropout is not None
        with device.active():
            stream = device.stream()
            device.refuse_capture(stream, "a batch in parts, which takes memory")
            handle = self.handle_on(stream)
            plans = [self._plan(handle, spec, schedule, chunk, training=training, dropout=dropout) for chunk in chunks]
            states = (spec.num_pseudo_layers, schedule.B)
            y = device.zeros(schedule.data_shape(spec.output_size), dtype)
            hy = self._start(hx, (*states, spec.state_size), dtype)
            cy = self._start(cx, (*states, spec.num_units), dtype) if spec.has_cell_state else None
            workspace = self._scratch(max((plan.workspace_nbytes for plan in plans), default=0))
            natives = [
                (plan, chunk, self._scratch(plan.reserve_nbytes)) for plan, chunk in zip(plans, chunks, strict=True)
            ]
            prepared = chunked.prepare_forward(device, schedule, natives, x, y, hy, cy)
            with contextlib.nullcontext() if dropout is None else dropout.forward_on(stream):
                chunked.run_forward(device, handle, schedule, prepared, params, x, y, hy, cy, workspace)
            pieces = [part.piece for part in prepared]
            reserve = CudnnReserve(spec, schedule, params, pieces, stream, device) if keep_reserve else None
        return y, hy, cy, reserve

    def backward_data(
        self, reserve: AnyReserve, dy: Any | None, dhy: Any | None, dcy: Any | None
    ) -> tuple[Any, Any, Any | None]:
        device, spec, schedule = self._device, reserve.spec, reserve.schedule
        dtype = spec.dtype.numpy
        if isinstance(reserve, LongReserve):
            return long_bidirectional.backward_data(self, device, reserve, dy, dhy, dcy)
        if isinstance(reserve, RecomputeReserve):
            return recompute.backward_data(self, device, reserve, dy, dhy, dcy)
        for name, array in (("d_output", dy), ("d_output_h", dhy), ("d_output_c", dcy)):
            self._check(name, array, dtype.itemsize)
        states = (spec.num_pseudo_layers, schedule.B)
        with self._following(reserve) as handle:
            dy = device.zeros(schedule.data_shape(spec.output_size), dtype) if dy is None else dy
            dhy = device.zeros((*states, spec.state_size), dtype) if dhy is None else dhy
            if spec.has_cell_state and dcy is None:
                dcy = device.zeros((*states, spec.num_units), dtype)
            dcx: Any = None
            workspace = self._scratch(max((piece.plan.workspace_nbytes for piece in reserve.pieces), default=0))
            if reserve.whole:
                dx = device.empty(schedule.data_shape(spec.input_size), dtype)
                dhx = device.empty((*states, spec.state_size), dtype)
                if spec.has_cell_state:
                    dcx = device.empty((*states, spec.num_units), dtype)
                (piece,) = reserve.pieces
                reserve.touched = True
                piece.plan.backward_data(
                    handle, reserve.params, piece.y, dy, piece.hx, dhy, dhx, piece.cx, dcy, dcx, dx,
                    workspace, piece.space,
                )  # fmt: skip
            else:
                dx, dhx = device.zeros(schedule.data_shape(spec.input_size), dtype), device.copy(dhy)
                if spec.has_cell_state:
                    dcx = device.copy(dcy)
                prepared = chunked.prepare_backward(device, reserve, dy, dx, dhx, dcx)
                reserve.touched = True
                chunked.run_backward(device, handle, reserve, prepared, dy, dx, dhx, dcx, workspace)
        return dx, dhx, dcx

    def backward_weights(self, reserve: AnyReserve, out: Any, *, accumulate: bool) -> None:
        self._check("out", out, PARAMS_ALIGNMENT_NBYTES)
        if isinstance(reserve, LongReserve):
            long_bidirectional.backward_weights(self, self._device, reserve, out, accumulate=accumulate)
            return
        if isinstance(reserve, RecomputeReserve):
            recompute.backward_weights(self, self._device, reserve, out, accumulate=accumulate)
            return
        with self._following(reserve) as handle:
            workspace = self._scratch(max((piece.plan.workspace_nbytes for piece in reserve.pieces), default=0))
            if not accumulate:
                self._device.fill_zero(out)
            for piece in reserve.pieces:
                piece.plan.backward_weights(handle, piece.x, piece.hx, piece.y, out, workspace, piece.space)

    @contextlib.contextmanager
    def _following(self, reserve: CudnnReserve) -> Iterator[Handle]:
        """Work on the current stream after the forward's, which then waits: its memory goes back to its own pool."""
        with self._device.active():
            stream = self._device.stream()
            self._device.refuse_capture(stream, "an eager backward, which takes memory")
            self._device.wait(stream, reserve.stream)
            yield self.handle_on(stream)
            self._device.wait(reserve.stream, stream)

    def _plan(
        self,
        handle: Handle,
        spec: RNNSpec,
        schedule: Schedule,
        chunk: Chunk,
        *,
        training: bool,
        dropout: CudnnDropout | None,
    ) -> Plan:
        native = chunk.within(schedule)
        plans = self._plans if dropout is None else dropout.plans
        key = (spec, native, training)
        with self._lock:
            plan = plans.pop(key, None)
        if plan is None:
            descriptor = None if dropout is None else dropout.descriptor
            plan = Plan(handle, self._device, spec, native, training=training, dropout=descriptor)
        with self._lock:
            plans[key] = plan
            while len(plans) > PLANS_MAX:
                del plans[next(iter(plans))]
        return plan

    def _scratch(self, nbytes: int) -> Any | None:
        return self._device.empty((nbytes,), BYTES) if nbytes else None

    def _start(self, given: Any | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """States for parts to update: zeros, or a copy of what is given."""
        return self._device.zeros(shape, dtype) if given is None else self._device.copy(given)

    def _check(self, name: str, array: Any | None, alignment: int) -> None:
        if array is not None and array.size:
            check_array(name, array, self._device.address(array), alignment)


def cudnn_engine(index: int | None) -> CudnnEngine:
    """Return the engine of a device, the current one for None; made once.

    Raises:
        MissingDependencyError: CuPy is not installed.
        EngineError: no such device, or no libcudnn that can be used.
    """
    return _engine(CudaDevice().index if index is None else index)


_making = threading.Lock()


@functools.cache
def _engine(index: int) -> CudnnEngine:
    with _making:  # a cache alone lets two threads make one each
        return _made(index)


@functools.cache
def _made(index: int) -> CudnnEngine:
    device = CudaDevice(index)
    return CudnnEngine(_libcudnn.load(), device)
