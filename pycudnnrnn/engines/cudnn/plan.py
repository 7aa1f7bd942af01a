"""Prepared calls on cuDNN: the caller's arrays, a workspace made once, and nothing else on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from pycudnnrnn.engines import ShortWay
from pycudnnrnn.engines.cudnn.checks import ALIGNMENT_NBYTES, check_array
from pycudnnrnn.engines.cudnn.device import addresses, scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.passes import DataDescriptors, Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.turns import Turns
from pycudnnrnn.passes import FORWARD, Arrays, Batch, Pass

_NOTHING: Final = contextlib.nullcontext()


class CudnnPlan:
    """See `engines.EnginePlan`. Calls use one workspace and one pair of data descriptors, of its own."""

    def __init__(self, runtime: Runtime, passes: Passes, batch: Batch) -> None:
        self._runtime, self._passes, self._dropout = runtime, passes, batch.dropout
        self._data = passes.data_of_its_own(batch.schedule)
        self._device = passes.device
        self.spec, self.slots = passes.spec, passes.slots
        self.workspace_nbytes, self.reserve_nbytes = passes.workspace_nbytes, passes.reserve_nbytes
        self._workspace = scratch(self._device, passes.workspace_nbytes)
        (self._workspace_at,) = addresses(self._device, self._workspace)
        self._turns = Turns(self._device, self, self._workspace)

    def short_way(self, which: Pass) -> ShortWay | None:
        if which not in self._passes.calls:
            return None
        recognise, launch = self._passes.recogniser(which.names), self._launching(which)

        def run(arrays: tuple[Any, ...], accumulate: bool = False) -> bool:
            at = recognise(arrays)
            if at is None:
                return False
            launch(at, accumulate)
            return True

        return run

    def run(self, which: Pass, arrays: Arrays, *, accumulate: bool = False) -> None:
        given = [arrays.get(name) for name in which.names]
        for name, array in zip(which.names, given, strict=True):
            check_array(name, array, self._device, ALIGNMENT_NBYTES)
        self._launching(which)(addresses(self._device, *given), accumulate)

    def hold(self, params: Any | None) -> None:
        """Do nothing: cuDNN reads params as they are."""

    def capture(self, params: Any, *, carry_state: bool) -> CudnnGraph:
        check_array("params", params, self._device, ALIGNMENT_NBYTES)
        return CudnnGraph(self._runtime, self._passes, self._data, self._dropout, params, carry_state=carry_state)

    def _launching(self, which: Pass) -> Callable[[Sequence[int | None], bool], None]:
        """Return what puts a pass on the current stream; one forward that drops after the other."""
        passes, device, turns, handle_on = self._passes, self._device, self._turns, self._runtime.handle_on
        (x_desc, y_desc), workspace, call = self._data.pointers, self._workspace_at, passes.calls[which]
        drops = self._dropout if which is FORWARD else None

        def launch(at: Sequence[int | None], accumulate: bool) -> None:
            with device.active():
                stream = device.stream()
                turns.on(stream)
                handle = handle_on(stream)
                if drops is not None:
                    with drops.forward_on(stream):
                        call(handle.pointer, x_desc, y_desc, workspace, *at)
                    return
                if which is not FORWARD:
                    passes.clear(which, handle, at, accumulate=accumulate)
                call(handle.pointer, x_desc, y_desc, workspace, *at)

        return launch


class CudnnGraph:
    """See `engines.EngineGraph`: all passes of one batch captured once, over memory of their own, and replayed."""

    def __init__(
        self,
        runtime: Runtime,
        passes: Passes,
        data: DataDescriptors,
        dropout: CudnnDropout | None,
        params: Any,
        *,
        carry_state: bool,
    ) -> None:
        self._runtime, self._dropout, self._device = runtime, dropout, passes.device
        self._passes, self._data = passes, data
        device = passes.device
        with device.active():
            device.refuse_capture(device.stream(), "capturing a plan")
            self.arrays = passes.step(params=params, **passes.new("x", "hx", "cx", zeros=True))
            pairs = (("hx", "hy"), ("cx", "cy")) if carry_state else ()
            self._carried = [(self.arrays[to], self.arrays[of]) for to, of in pairs if to in self.arrays]
            stay = _NOTHING if dropout is None else dropout.left_alone(device.stream())
            with stay:
                self._graph = device.capture(self._work)
                self._turns = Turns(device, self, *self.arrays.values(), self._graph)
            for state, _ in self._carried:  # the first run, before the capture, has written there
                device.fill_zero(state)

    def _work(self) -> None:
        """Put on the current stream what a replay does; nothing here takes memory or waits."""
        self._passes.run_all(self._runtime.handle_on(self._device.stream()), self._data, self.arrays)
        for state, result in self._carried:
            self._device.copy_bytes(state, result)

    def replay(self) -> None:
        self._runtime.handles.check_process()
        with self._device.active():
            stream = self._device.stream()
            self._turns.on(stream)
            if self._dropout is None:
                self._graph.launch()
            else:
                with self._dropout.forward_on(stream):
                    self._graph.launch()
