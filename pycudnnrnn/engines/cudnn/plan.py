"""What one kind of call needs, made once: its descriptors and the sizes of its scratch memory."""

from __future__ import annotations

import ctypes
from typing import Any

from pycudnnrnn._libcudnn import cudnnForwardMode_t, cudnnRNNDataLayout_t, cudnnWgradMode_t
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.layout_query import weight_space_nbytes
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
        T, B, lengths = schedule.T, schedule.B, schedule.lengths
        layout = (
            cudnnRNNDataLayout_t.SEQ_MAJOR_UNPACKED
            if schedule.time_major
            else cudnnRNNDataLayout_t.BATCH_MAJOR_UNPACKED
        )
        self._library, self._device = library, device
        self.training = training
        self._rnn = RNNDescriptor(library, spec, dropout, algo=spec.untuned_algo)
        self._x, self._y = (
            RNNDataDescriptor(library, spec.dtype, T, B, width, lengths=lengths, layout=layout)
            for width in (spec.input_size, spec.output_size)
        )
        states = (spec.num_pseudo_layers, B)
        self._h = TensorDescriptor(library, spec.dtype, (*states, spec.state_size))
        self._c = TensorDescriptor(library, spec.dtype, (*states, spec.num_units)) if spec.has_cell_state else None
        if spec.untuned_algo is Algorithm.PERSIST_DYNAMIC:
            library.cudnnBuildRNNDynamic(handle, self._rnn, B)
        workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        mode = cudnnForwardMode_t.TRAINING if training else cudnnForwardMode_t.INFERENCE
        library.cudnnGetRNNTempSpaceSizes(handle, self._rnn, mode, self._x, workspace, reserve)
        self._mode = mode
        self.params_nbytes = weight_space_nbytes(handle, self._rnn)
        self.workspace_nbytes = workspace.value
        self.reserve_nbytes = reserve.value if training else 0

    def _at(self, array: Any | None) -> int | None:
        return None if array is None else self._device.address(array)

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
        at = self._at
        self._library.cudnnRNNForward(
            handle, self._rnn, self._mode, None, self._x, at(x), self._y, at(y),
            self._h, at(hx), at(hy), self._c, at(cx), at(cy),
            self.params_nbytes, at(params), self.workspace_nbytes, at(workspace), self.reserve_nbytes, at(reserve),
        )  # fmt: skip

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
        at = self._at
        self._library.cudnnRNNBackwardData_v8(
            handle, self._rnn, None, self._y, at(y), at(dy), self._x, at(dx),
            self._h, at(hx), at(dhy), at(dhx), self._c, at(cx), at(dcy), at(dcx),
            self.params_nbytes, at(params), self.workspace_nbytes, at(workspace), self.reserve_nbytes, at(reserve),
        )  # fmt: skip

    def backward_weights(
        self, handle: Handle, x: Any, hx: Any | None, y: Any, d_params: Any, workspace: Any | None, reserve: Any
    ) -> None:
        """Add the params gradient to `d_params`; cuDNN documents ADD alone for this call."""
        at = self._at
        self._library.cudnnRNNBackwardWeights_v8(
            handle, self._rnn, cudnnWgradMode_t.ADD, None, self._x, at(x), self._h, at(hx), self._y, at(y),
            self.params_nbytes, at(d_params), self.workspace_nbytes, at(workspace), self.reserve_nbytes, at(reserve),
        )  # fmt: skip
