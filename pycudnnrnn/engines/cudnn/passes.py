"""The three passes of one kind of batch, compiled once: descriptors, sizes of scratch memory, calls."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pycudnnrnn._libcudnn import Library, cudnnForwardMode_t, cudnnRNNDataLayout_t, cudnnWgradMode_t
from pycudnnrnn.engines.cudnn.checks import DATA_ALIGNMENT_NBYTES, PARAMS_ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice, addresses
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.layout_query import weight_space_nbytes
from pycudnnrnn.engines.cudnn.nvrtc import load_nvrtc
from pycudnnrnn.engines.cudnn.plain import Recogniser, Wanted, recogniser
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, RNNSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


FORWARD: Final = ("x", "y", "hx", "hy", "cx", "cy", "params", "reserve")
BACKWARD_DATA: Final = ("y", "dy", "dx", "hx", "dhy", "dhx", "cx", "dcy", "dcx", "params", "reserve")
BACKWARD_WEIGHTS: Final = ("x", "hx", "y", "d_params", "reserve")
"""The arrays of a pass, in the order in which its call takes their addresses, after: a handle, the descriptors of x and
of y, the workspace."""

_C_NAMES: Final = {"params": "weightSpace", "d_params": "dweightSpace", "reserve": "reserveSpace"}


class Inputs(NamedTuple):
    """What a forward reads."""

    params: Any
    x: Any
    hx: Any | None
    cx: Any | None


class Passes:
    """The native side of one (spec, T, B, training), of equal lengths or of ragged ones. Its calls take no memory.

    Ragged lengths are no part of it: new ones set the two data descriptors, of which every thread has its own, and
    nothing else. Scratch memory is for the worst of them. What several threads share is only read once it is made.
    Where lengths are ragged dx has to be zeros before backward-data: cuDNN's documents promise its padding fill for y
    alone. `backward_data` sees to that; who makes the bare call does so by `clear`.

    Source: cudnnGetRNNTempSpaceSizes, cudnnRNNForward, cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8
    (cudnn_adv.h, 9.28).
    """

    def __init__(
        self,
        handle: Handle,
        device: CudaDevice,
        spec: RNNSpec,
        schedule: Schedule,
        *,
        training: bool,
        dropout: DropoutDescriptor | None,
    ) -> None:
        """Compile for a batch like `schedule`, whatever its lengths are."""
        library = handle.library
        self.device, self.spec, self.training = device, spec, training
        self.ragged = schedule.lengths is not None
        self.batch = Schedule(schedule.T, schedule.B, None, schedule.time_major)
        states = (spec.num_pseudo_layers, schedule.B)
        self.x_shape, self.y_shape = schedule.data_shape(spec.input_size), schedule.data_shape(spec.output_size)
        self.h_shape = (*states, spec.state_size)
        self.c_shape = (*states, spec.num_units) if spec.has_cell_state else None
        self._library = library
        dropout = dropout or DropoutDescriptor.of_none(handle)
        self._rnn = RNNDescriptor(library, spec, dropout, algo=spec.untuned_algo)
        self._h = TensorDescriptor(library, spec.dtype, self.h_shape)
        self._c = TensorDescriptor(library, spec.dtype, self.c_shape) if self.c_shape else None
        if spec.untuned_algo is Algorithm.PERSIST_DYNAMIC:
            load_nvrtc()
            library.cudnnBuildRNNDynamic(handle, self._rnn, schedule.B)
        self._equal, self._own = DataDescriptors(library, spec, self.batch), threading.local()
        mode = cudnnForwardMode_t.TRAINING if training else cudnnForwardMode_t.INFERENCE
        self.params_nbytes = weight_space_nbytes(handle, self._rnn)
        self.workspace_nbytes, self.reserve_nbytes = self._ask_sizes(handle, mode)
        self._bind(mode)

    def _ask_sizes(self, handle: Handle, mode: cudnnForwardMode_t) -> tuple[int, int]:
        """Ask for the workspace and the reserve that any lengths take, once.

        What lengths change is not documented. Most is taken by as many steps as there can be: with equal lengths, and
        where they may be ragged, with those that are hardly so.
        """
        asked = [self._equal]
        if self.ragged:
            asked.append(self.data_of_its_own(self.batch.hardly_ragged()))
        workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        sizes = []
        for data in asked:
            self._library.cudnnGetRNNTempSpaceSizes(handle, self._rnn, mode, data.x, workspace, reserve)
            sizes.append((workspace.value, reserve.value if self.training else 0))
        workspaces, reserves = zip(*sizes, strict=True)
        return max(workspaces), max(reserves)

    def _bind(self, mode: cudnnForwardMode_t) -> None:
        """Give the calls all that does not change."""
        library = self._library

        def left(arrays: tuple[str, ...]) -> list[str]:
            return ["handle", "xDesc", "yDesc", "workSpace", *(_C_NAMES.get(name, name) for name in arrays)]

        sizes = {"workSpaceSize": self.workspace_nbytes, "reserveSpaceSize": self.reserve_nbytes}
        same = {"rnnDesc": self._rnn, "devSeqLengths": None, "weightSpaceSize": self.params_nbytes, **sizes}
        states = {"hDesc": self._h, "cDesc": self._c}
        self.call_forward = library.cudnnRNNForward.bind(*left(FORWARD), fwdMode=mode, **same, **states)
        if self.training:
            self.call_backward_data = library.cudnnRNNBackwardData_v8.bind(*left(BACKWARD_DATA), **same, **states)
            self.call_backward_weights = library.cudnnRNNBackwardWeights_v8.bind(
                *left(BACKWARD_WEIGHTS), addGrad=cudnnWgradMode_t.ADD, hDesc=self._h, **same
            )  # cuDNN documents only ADD for it

    def data(self, schedule: Schedule) -> DataDescriptors:
        """Return descriptors that have a batch's lengths until this thread asks for others."""
        lengths = schedule.lengths
        if lengths is None:
            return self._equal
        own: DataDescriptors | None = getattr(self._own, "data", None)
        if own is None:
            own = self._own.data = self.data_of_its_own(schedule)
        elif own.schedule is not schedule:
            if own.schedule is None or own.schedule.lengths != lengths:
                own.set_lengths(schedule.lengths_int32)
            own.schedule = schedule
        return own

    def data_of_its_own(self, schedule: Schedule) -> DataDescriptors:
        """Return descriptors that keep a batch's lengths: what a graph reads of them, and when, is unknown."""
        return self._equal if schedule.lengths is None else DataDescriptors(self._library, self.spec, schedule)

    def recogniser(self, *names: str, apart: bool = True) -> Recogniser:
        """Return what recognises the arrays of a call, given in this order."""
        wanted = {name: self._wanted[name] for name in names}
        return recogniser(self.device.xp.ndarray, self.device.index, wanted, apart=apart)

    @functools.cached_property
    def _wanted(self) -> dict[str, Wanted]:
        dtype = self.spec.dtype.numpy
        x, y, h, c = (
            Wanted(shape, dtype, DATA_ALIGNMENT_NBYTES)
            for shape in (self.x_shape, self.y_shape, self.h_shape, self.c_shape)
        )
        params = Wanted((self.params_nbytes // dtype.itemsize,), dtype, PARAMS_ALIGNMENT_NBYTES)
        reserve = Wanted((self.reserve_nbytes,) if self.training else None, BYTES, DATA_ALIGNMENT_NBYTES)
        data = {"x": x, "dx": x, "y": y, "dy": y, "params": params, "d_params": params, "reserve": reserve}
        states = {"hx": h, "hy": h, "dhx": h, "cx": c, "cy": c, "dcx": c}
        return data | {name: state._replace(optional=True) for name, state in states.items()} | {"dhy": h, "dcy": c}

    def forward(
        self, handle: Handle, data: DataDescriptors, params: Any, x: Any, hx: Any | None, cx: Any | None, y: Any,
        hy: Any | None, cy: Any | None, workspace: Any | None, reserve: Any | None,
    ) -> None:  # fmt: skip
        at = addresses(self.device, workspace, x, y, hx, hy, cx, cy, params, reserve)
        self.call_forward(handle.pointer, *data.pointers, *at)

    def backward_data(
        self, handle: Handle, data: DataDescriptors, params: Any, y: Any, dy: Any, hx: Any | None, dhy: Any,
        dhx: Any | None, cx: Any | None, dcy: Any | None, dcx: Any | None, dx: Any, workspace: Any | None, reserve: Any,
    ) -> None:  # fmt: skip
        if self.ragged:
            self.device.fill_zero(dx)
        at = addresses(self.device, workspace, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve)
        self.call_backward_data(handle.pointer, *data.pointers, *at)

    def clear(self, dx: int | None, stream: int) -> None:
        """Fill dx with zeros on a stream where lengths are ragged; both by their addresses."""
        if self.ragged and dx is not None:
            self.device.zero_at(dx, math.prod(self.x_shape) * self.spec.dtype.itemsize, stream)

    def backward_weights(
        self, handle: Handle, data: DataDescriptors, x: Any, hx: Any | None, y: Any, d_params: Any,
        workspace: Any | None, reserve: Any,
    ) -> None:  # fmt: skip
        """Add the params gradient to `d_params`."""
        at = addresses(self.device, workspace, x, hx, y, d_params, reserve)
        self.call_backward_weights(handle.pointer, *data.pointers, *at)


class DataDescriptors:
    """The descriptors of x and y, and the batch whose lengths they have."""

    def __init__(self, library: Library, spec: RNNSpec, schedule: Schedule) -> None:
        layouts = cudnnRNNDataLayout_t
        layout = layouts.SEQ_MAJOR_UNPACKED if schedule.time_major else layouts.BATCH_MAJOR_UNPACKED
        T, B, lengths = schedule.T, schedule.B, schedule.lengths
        self.x, self._y = (
            RNNDataDescriptor(library, spec.dtype, T, B, width, lengths=lengths, layout=layout)
            for width in (spec.input_size, spec.output_size)
        )
        self.pointers = self.x.pointer, self._y.pointer
        self.schedule: Schedule | None = schedule

    def set_lengths(self, lengths: npt.NDArray[np.int32]) -> None:
        self.schedule = None  # what fails here leaves them with nobody's lengths
        self.x.set_lengths(lengths)
        self._y.set_lengths(lengths)
