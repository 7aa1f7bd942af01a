"""The engine for CUDA arrays: checks, plans, memory and the order of native calls; see `engines.Engine`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pycudnnrnn import _libcudnn
from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines import DropoutState, Memory
from pycudnnrnn.engines.cudnn import long_bidirectional, recompute
from pycudnnrnn.engines.cudnn.checks import PARAMS_ALIGNMENT_NBYTES, check_array, check_sizes
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.handles import Handle, HandlePool
from pycudnnrnn.engines.cudnn.layout_query import query_layout, weight_space_nbytes
from pycudnnrnn.engines.cudnn.long_bidirectional import LongReserve
from pycudnnrnn.engines.cudnn.memory import memory
from pycudnnrnn.engines.cudnn.parts import cut, put, put_rows, rows
from pycudnnrnn.engines.cudnn.plan import Plan
from pycudnnrnn.engines.cudnn.prepared import PreparedPlan
from pycudnnrnn.engines.cudnn.recompute import RecomputeReserve
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Chunk, Schedule, native_chunks
from pycudnnrnn.spec import TIME_MAX, RNNSpec

PLANS_MAX: Final = 64
"""Plans kept by an engine, oldest dropped first: a plan is a few small native objects."""

BYTES: Final = np.dtype(np.uint8)


@dataclasses.dataclass
class Piece:
    """One native forward: what its backward reads again."""

    plan: Plan
    chunk: Chunk
    x: Any
    hx: Any | None
    cx: Any | None
    y: Any
    space: Any | None


@dataclasses.dataclass
class CudnnReserve:
    """What a forward leaves for its backward, and what must live until its kernels are done."""

    spec: RNNSpec
    schedule: Schedule
    params: Any
    pieces: list[Piece]
    stream: Any
    device: CudaDevice

    def copy(self) -> CudnnReserve:
        with self.device.active():
            copies = [
                dataclasses.replace(piece, space=None if piece.space is None else self.device.copy(piece.space))
                for piece in self.pieces
            ]
        return dataclasses.replace(self, pieces=copies)


AnyReserve = CudnnReserve | LongReserve | RecomputeReserve


class CudnnEngine:
    """Run RNNs by libcudnn on one CUDA device.

    State: the handle pool, and the layouts and plans asked for so far, under a lock.
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

    def layout(self, spec: RNNSpec) -> ParamLayout:
        spec = spec.replace(seed=0, dropout=0.0) if spec.seed or spec.dropout else spec
        known = self._layouts.get(spec)
        if known is not None:
            return known
        with self._device.active():
            handle = self._handle(self._device.stream())
            with RNNDescriptor(self.library, spec, algo=spec.untuned_algo) as rnn:
                nbytes = weight_space_nbytes(handle, rnn)
                base = self._device.empty((nbytes,), BYTES)
                layout = query_layout(handle, rnn, spec, self._device.address(base), nbytes)
        self._layouts[spec] = layout
        return layout

    def dropout(self, spec: RNNSpec, state: DropoutState) -> CudnnDropout:
        with self._device.active():
            return CudnnDropout(self._handle(self._device.stream()), self._device, spec, state)

    def plan(self, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: CudnnDropout | None) -> PreparedPlan:
        check_sizes(spec, schedule)
        chunks = native_chunks(schedule, TIME_MAX)
        if len(chunks) != 1 or not chunks[0].covers(schedule):
            raise ArgumentError(
                "sequence_lengths", f"one native call: 1 to {TIME_MAX} steps, no empty sequence", "a batch in parts"
            )
        with self._device.active():
            handle = self._handle(self._device.stream())
            native = self._plan(handle, spec, schedule, chunks[0], training=training, dropout=dropout)
            return PreparedPlan(self, native, dropout, self._scratch(native.workspace_nbytes))

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

    @contextlib.contextmanager
    def launching(self) -> Iterator[tuple[Handle, Any]]:
        """Give this thread's handle, on the current stream."""
        with self._device.active():
            stream = self._device.stream()
            yield self._handle(stream), stream

    def fill_zero(self, array: Any) -> None:
        self._device.fill_zero(array)

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
        training = keep_reserve or dropout is not None
        lock = contextlib.nullcontext() if dropout is None else dropout.lock
        with device.active(), lock:
            stream = device.stream()
            handle = self._handle(stream)
            plans = [self._plan(handle, spec, schedule, chunk, training=training, dropout=dropout) for chunk in chunks]
            whole = len(chunks) == 1 and chunks[0].covers(schedule)
            states = (spec.num_pseudo_layers, schedule.B)
            make = device.empty if whole else device.zeros
            y = make(schedule.data_shape(spec.output_size), dtype)
            hy = self._start(hx, (*states, spec.state_size), dtype, whole=whole)
            cy = self._start(cx, (*states, spec.num_units), dtype, whole=whole) if spec.has_cell_state else None
            spaces = [self._scratch(plan.reserve_nbytes) for plan in plans]
            workspace = self._scratch(max((plan.workspace_nbytes for plan in plans), default=0))
            if dropout is not None:
                dropout.launched_on(stream)
            pieces = []
            for plan, chunk, space in zip(plans, chunks, spaces, strict=True):
                if whole:
                    piece = Piece(plan, chunk, x, hx, cx, y, space)
                    plan.forward(handle, params, x, hx, cx, y, hy, cy, workspace, space)
                else:
                    piece = self._forward_part(handle, plan, schedule, chunk, params, x, y, hy, cy, workspace, space)
                pieces.append(piece)
            if dropout is not None:
                dropout.position += 1
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
        whole = len(reserve.pieces) == 1 and reserve.pieces[0].chunk.covers(schedule)
        states = (spec.num_pseudo_layers, schedule.B)
        with self._following(reserve) as handle:
            dy = device.zeros(schedule.data_shape(spec.output_size), dtype) if dy is None else dy
            dhy = device.zeros((*states, spec.state_size), dtype) if dhy is None else dhy
            if spec.has_cell_state and dcy is None:
                dcy = device.zeros((*states, spec.num_units), dtype)
            make = device.empty if whole else device.zeros
            dx = make(schedule.data_shape(spec.input_size), dtype)
            dhx = self._start(dhy, dhy.shape, dtype, whole=whole)
            dcx = self._start(dcy, (*states, spec.num_units), dtype, whole=whole) if spec.has_cell_state else None
            workspace = self._scratch(max((piece.plan.workspace_nbytes for piece in reserve.pieces), default=0))
            for piece in reversed(reserve.pieces):
                if whole:
                    piece.plan.backward_data(
                        handle, reserve.params, piece.y, dy, piece.hx, dhy, dhx, piece.cx, dcy, dcx, dx,
                        workspace, piece.space,
                    )  # fmt: skip
                else:
                    self._backward_part(handle, reserve, piece, dy, dhx, dcx, dx, workspace)
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

    def _forward_part(
        self,
        handle: Handle,
        plan: Plan,
        schedule: Schedule,
        chunk: Chunk,
        params: Any,
        x: Any,
        y: Any,
        h: Any,
        c: Any | None,
        workspace: Any | None,
        space: Any | None,
    ) -> Piece:
        """Run a chunk from the states in `h` and `c`, and leave its own there and its output in `y`."""
        device = self._device
        part = cut(device, schedule, chunk)
        x_part, y_part = part(x), device.empty(chunk.within(schedule).data_shape(y.shape[2]), y.dtype)
        h_part, c_part = rows(device, h, chunk), None if c is None else rows(device, c, chunk)
        hy, cy = device.empty(h_part.shape, h.dtype), None if c_part is None else device.empty(c_part.shape, h.dtype)
        plan.forward(handle, params, x_part, h_part, c_part, y_part, hy, cy, workspace, space)
        put(device, schedule, chunk, y, y_part)
        put_rows(device, chunk, h, hy)
        if c is not None:
            put_rows(device, chunk, c, cy)
        return Piece(plan, chunk, x_part, h_part, c_part, y_part, space)

    def _backward_part(
        self,
        handle: Handle,
        reserve: CudnnReserve,
        piece: Piece,
        dy: Any,
        dh: Any,
        dc: Any | None,
        dx: Any,
        workspace: Any | None,
    ) -> None:
        """Go back through a chunk, from the state gradients in `dh` and `dc` to those before it."""
        device, chunk, schedule = self._device, piece.chunk, reserve.schedule
        dy_part = cut(device, schedule, chunk)(dy)
        dx_part = device.empty(chunk.within(schedule).data_shape(dx.shape[2]), dx.dtype)
        dhy, dcy = rows(device, dh, chunk), None if dc is None else rows(device, dc, chunk)
        dhx, dcx = device.empty(dhy.shape, dh.dtype), None if dcy is None else device.empty(dcy.shape, dh.dtype)
        piece.plan.backward_data(
            handle, reserve.params, piece.y, dy_part, piece.hx, dhy, dhx, piece.cx, dcy, dcx, dx_part,
            workspace, piece.space,
        )  # fmt: skip
        put(device, schedule, chunk, dx, dx_part)
        put_rows(device, chunk, dh, dhx)
        if dc is not None:
            put_rows(device, chunk, dc, dcx)

    def _handle(self, stream: Any) -> Handle:
        handle = self._handles.get()
        handle.set_stream(self._device.stream_address(stream))
        return handle

    @contextlib.contextmanager
    def _following(self, reserve: CudnnReserve) -> Iterator[Handle]:
        """Work on the current stream after the forward's, which then waits: its memory goes back to its own pool."""
        with self._device.active():
            stream = self._device.stream()
            self._device.wait(stream, reserve.stream)
            yield self._handle(stream)
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

    def _start(self, given: Any | None, shape: tuple[int, ...], dtype: np.dtype[Any], *, whole: bool) -> Any:
        """Where states go: fresh memory for one native call, or a copy of what is given that parts will update."""
        if whole:
            return self._device.empty(shape, dtype)
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
    device = CudaDevice(index)
    return _engine(device.index)


@functools.cache
def _engine(index: int) -> CudnnEngine:
    return CudnnEngine(_libcudnn.load(), CudaDevice(index))
