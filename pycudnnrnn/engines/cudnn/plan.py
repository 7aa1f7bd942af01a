"""What one kind of call needs, made once: its descriptors and the sizes of its scratch memory."""

from __future__ import annotations

import ctypes
from typing import Any

from pycudnnrnn._libcudnn import Library, cudnnForwardMode_t, cudnnRNNDataLayout_t, cudnnWgradMode_t
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.layout_query import weight_space_nbytes
from pycudnnrnn.engines.cudnn.nvrtc import load_nvrtc
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, RNNSpec


class Plan:
    """The native side of one (spec, T, B, lengths, training). Its calls launch and allocate nothing.

    Descriptors are only read once it is made, so that several threads may use one plan, each with its own handle.

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
        library = handle.library
        self.device, self.spec, self.schedule, self.training = device, spec, schedule, training
        T, B, lengths = schedule.T, schedule.B, schedule.lengths
        layout = (
            cudnnRNNDataLayout_t.SEQ_MAJOR_UNPACKED
            if schedule.time_major
            else cudnnRNNDataLayout_t.BATCH_MAJOR_UNPACKED
        )
        self._rnn = RNNDescriptor(library, spec, dropout, algo=spec.untuned_algo)
        self._x, self._y = (
            RNNDataDescriptor(library, spec.dtype, T, B, width, lengths=lengths, layout=layout)
            for width in (spec.input_size, spec.output_size)
        )
        states = (spec.num_pseudo_layers, B)
        self._h = TensorDescriptor(library, spec.dtype, (*states, spec.state_size))
        self._c = TensorDescriptor(library, spec.dtype, (*states, spec.num_units)) if spec.has_cell_state else None
        if spec.untuned_algo is Algorithm.PERSIST_DYNAMIC:
            load_nvrtc()
            library.cudnnBuildRNNDynamic(handle, self._rnn, B)
        workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        mode = cudnnForwardMode_t.TRAINING if training else cudnnForwardMode_t.INFERENCE
        library.cudnnGetRNNTempSpaceSizes(handle, self._rnn, mode, self._x, workspace, reserve)
        self.params_nbytes = weight_space_nbytes(handle, self._rnn)
        self.workspace_nbytes = workspace.value
        self.reserve_nbytes = reserve.value if training else 0
        self._bind(library, mode)

    def _bind(self, library: Library, mode: cudnnForwardMode_t) -> None:
        """Give the calls everything that does not change; what they are called with is a handle, and addresses."""
        sizes = {"workSpaceSize": self.workspace_nbytes, "reserveSpaceSize": self.reserve_nbytes}
        same = {"rnnDesc": self._rnn, "devSeqLengths": None, "weightSpaceSize": self.params_nbytes, **sizes}
        data, states = {"xDesc": self._x, "yDesc": self._y}, {"hDesc": self._h, "cDesc": self._c}
        self.call_forward = library.cudnnRNNForward.bind(fwdMode=mode, **same, **data, **states)
        """(handle, x, y, hx, hy, cx, cy, params, workspace, reserve)"""
        if self.training:
            self.call_backward_data = library.cudnnRNNBackwardData_v8.bind(**same, **data, **states)
            """(handle, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, workspace, reserve)"""
            self.call_backward_weights = library.cudnnRNNBackwardWeights_v8.bind(
                addGrad=cudnnWgradMode_t.ADD, hDesc=self._h, **same, **data
            )
            """(handle, x, hx, y, d_params, workspace, reserve); cuDNN documents only ADD for this call."""

    def _at(self, *arrays: Any) -> list[int | None]:
        return [None if array is None else self.device.address(array) for array in arrays]

    def forward(
        self,
        handle: Handle,
        params: Any,
        x: Any,
        hx: Any | None,
        cx: Any | None,
        y: Any,
        hy: Any | None,
        cy: Any | None,
        workspace: Any | None,
        reserve: Any | None,
    ) -> None:
        self.call_forward(handle.pointer, *self._at(x, y, hx, hy, cx, cy, params, workspace, reserve))

    def backward_data(
        self,
        handle: Handle,
        params: Any,
        y: Any,
        dy: Any,
        hx: Any | None,
        dhy: Any,
        dhx: Any,
        cx: Any | None,
        dcy: Any | None,
        dcx: Any | None,
        dx: Any,
        workspace: Any | None,
        reserve: Any,
    ) -> None:
        self.call_backward_data(
            handle.pointer, *self._at(y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, workspace, reserve)
        )

    def backward_weights(
        self, handle: Handle, x: Any, hx: Any | None, y: Any, d_params: Any, workspace: Any | None, reserve: Any
    ) -> None:
        """Add the params gradient to `d_params`."""
        self.call_backward_weights(handle.pointer, *self._at(x, hx, y, d_params, workspace, reserve))
