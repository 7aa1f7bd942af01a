"""The native objects of calls: those of an RNN, those of a size of batch, and calls bound to addresses."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pycudnnrnn._libcudnn import Library, cudnnForwardMode_t, cudnnRNNDataLayout_t, cudnnWgradMode_t
from pycudnnrnn.engines.cudnn.descriptors import (
    DropoutDescriptor,
    RNNDataDescriptor,
    RNNDescriptor,
    TensorDescriptor,
    check_sizes,
)
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.layout_query import weight_space_nbytes
from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, PASSES, Arrays, CallConfig, Name, Pass, Slot, slots
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, RNNSpec

_C_NAMES: Final = {"params": "weightSpace", "d_params": "dweightSpace", "reserve": "reserveSpace"}

Around = Callable[[Handle], contextlib.AbstractContextManager[Any]]
"""A context for the launch of a pass with a handle, which prepares dropout's random states."""


class NativeRNN:
    """RNN descriptors of one configuration, with one dropout descriptor, and the size of params.

    `forward` and `backward` are the descriptors of the two algorithms, which may be one. Threads share them and only
    read them.

    Source: cudnnBuildRNNDynamic, cudnnGetRNNWeightSpaceSize (cudnn_adv.h, 9.28).
    """

    def __init__(self, handle: Handle, config: CallConfig, dropout: DropoutDescriptor | None) -> None:
        library, spec, schedule = handle.library, config.spec, config.schedule
        dropout = dropout or DropoutDescriptor.of_none(handle)
        algo = spec.untuned_algo
        backward_algo = config.backward_algo or algo
        self.descriptors = {
            each: RNNDescriptor(library, spec, dropout, algo=each, padded_io=not schedule.packed)
            for each in dict.fromkeys((algo, backward_algo))
        }
        dynamic = self.descriptors.get(Algorithm.PERSIST_DYNAMIC)
        if dynamic is not None:
            load_nvrtc()
            library.cudnnBuildRNNDynamic(handle, dynamic, schedule.B)
        self.forward, self.backward = self.descriptors[algo], self.descriptors[backward_algo]
        self.params_nbytes = weight_space_nbytes(handle, self.forward)

    @staticmethod
    def key(config: CallConfig) -> tuple[object, ...]:
        """Return what a configuration's objects depend on. The dynamic algorithm is compiled for a batch size."""
        dynamic = Algorithm.PERSIST_DYNAMIC in (config.spec.algo, config.backward_algo)
        schedule = config.schedule
        return config.spec, config.backward_algo, schedule.packed, schedule.B if dynamic else None


@functools.cache
def load_nvrtc() -> None:
    """Load NVRTC and its builtins, if found: cuDNN compiles the dynamic algorithm's kernels with them.

    NVRTC opens its builtins by file name only, and the library in CUDA 13.0's wheel has no path to search. Unless they
    are loaded already, it fails with "failed to open libnvrtc-builtins". Libraries not found here are left to cuDNN's
    own search.
    """
    try:
        from cuda import pathfinder  # noqa: PLC0415  comes with CuPy 14
    except ImportError:
        return
    with contextlib.suppress(RuntimeError):
        pathfinder.load_nvidia_dynamic_lib("nvrtc")  # also loads the builtins


class NativeCalls:
    """The native calls for one (spec, T, B, training), for equal or ragged lengths, padded or packed.

    They allocate nothing.

    Ragged lengths may differ in each call: they are set in two data descriptors, a pair for each handle. Workspace and
    reserve suffice for any lengths. Everything else is shared by threads and only read.

    Source: cudnnGetRNNTempSpaceSizes, cudnnRNNForward, cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8
    (cudnn_adv.h, 9.28).
    """

    def __init__(self, handle: Handle, device: CudaDevice, config: CallConfig, rnn: NativeRNN) -> None:
        """Prepare the calls for batches of this size and any lengths. `rnn` is that of the configuration.

        Raises:
            ArgumentError: see `check_sizes`.
        """
        check_sizes(config)
        spec, schedule, training = config.spec, config.schedule, config.training
        self._library = library = handle.library
        self.device, self.spec, self.training = device, spec, training
        self.ragged = schedule.is_ragged
        self.batch = dataclasses.replace(schedule, lengths=None)
        self._rnn = rnn
        self._equal = DataDescriptors(library, spec, self.batch)
        self._ragged_data: dict[Handle, DataDescriptors] = {}
        mode = cudnnForwardMode_t.TRAINING if training else cudnnForwardMode_t.INFERENCE
        self.workspace_nbytes, self.reserve_nbytes = self._ask_sizes(handle, mode)
        self.slots = dict(slots(spec, self.batch, rnn.params_nbytes // spec.dtype.itemsize))
        for name, nbytes in (("workspace", self.workspace_nbytes), ("reserve", self.reserve_nbytes)):
            self.slots[name] = Slot((nbytes,) if nbytes else None, BYTES)
        self.passes = PASSES if training else (FORWARD,)
        hx, cx = self.slots["hx"].shape, self.slots["cx"].shape
        h = TensorDescriptor(library, spec.dtype, hx or ())
        c = None if cx is None else h if cx == hx else TensorDescriptor(library, spec.dtype, cx)
        self._fixed = fixed = {  # must live as long as the calls
            "fwdMode": mode, "devSeqLengths": None, "hDesc": h, "cDesc": c,
            "addGrad": cudnnWgradMode_t.ADD,  # cuDNN documents only ADD
            "weightSpaceSize": rnn.params_nbytes, "workSpaceSize": self.workspace_nbytes,
            "reserveSpaceSize": self.reserve_nbytes,
        }  # fmt: skip
        self.calls: dict[Pass, Any] = {}
        """A function for each pass. Its arguments: the handle, the descriptors of x and y, the workspace, the addresses
        of the pass's arrays."""
        for which in self.passes:
            function = getattr(library, which.function)
            values = fixed | {"rnnDesc": rnn.forward if which is FORWARD else rnn.backward}
            values = {name: value for name, value in values.items() if name in function.prototype.parameters}
            left = (_C_NAMES.get(name, name) for name in which.names)
            self.calls[which] = function.bind("handle", "xDesc", "yDesc", "workSpace", *left, **values)

    def _ask_sizes(self, handle: Handle, mode: cudnnForwardMode_t) -> tuple[int, int]:
        """Return the sizes of a workspace and a reserve that suffice for any lengths.

        cuDNN does not document how sizes depend on lengths. They are largest with the most steps: so ask with equal
        lengths and, if lengths may be ragged, with the longest ragged ones. Ask for the forward's and the backward's
        algorithm, since they share the memory.
        """
        asked = [self._equal]
        if self.ragged:
            asked.append(self.data_descriptors(self.batch.longest_ragged()))
        ask = self._library.cudnnGetRNNTempSpaceSizes.read
        sizes = [ask(handle, rnn, mode, data.x) for rnn in self._rnn.descriptors.values() for data in asked]
        workspace, reserve = (max(each[name] for each in sizes) for name in ("workSpaceSize", "reserveSpaceSize"))
        return workspace, reserve if self.training else 0

    def data(self, handle: Handle, schedule: Schedule) -> DataDescriptors:
        """Return data descriptors set to a batch's lengths, valid until the next call of `data` with this handle.

        The descriptors belong to the handle, which one thread uses at a time, and not to the Python thread: in XLA's
        own threads, what belongs to a Python thread is lost after each callback.
        """
        lengths = schedule.lengths
        if lengths is None:
            return self._equal
        data = self._ragged_data.get(handle)
        if data is None:
            data = self._ragged_data[handle] = self.data_descriptors(schedule)
        elif data.schedule is not schedule:
            before = None if data.schedule is None else data.schedule.lengths
            if before is not lengths and before != lengths:
                data.set_lengths(schedule.lengths_int32)
            data.schedule = schedule
        return data

    def data_descriptors(self, schedule: Schedule) -> DataDescriptors:
        """Return data descriptors that no other batch changes, because it is unknown when a CUDA graph reads them."""
        return self._equal if schedule.lengths is None else DataDescriptors(self._library, self.spec, schedule)

    def new(self, *names: Name, zeros: bool = False) -> Arrays:
        """Allocate arrays, by name, except those that do not exist in these calls or have no bytes."""
        make = self.device.zeros if zeros else self.device.empty
        slots = self.slots
        return {name: make(s.shape, s.dtype) for name in names if (s := slots[name]).shape is not None}

    def run(
        self, which: Pass, data: DataDescriptors, workspace: int | None, at: Sequence[int | None], handle: Handle,
        around: Around | None = None, *, accumulate: bool = True,
    ) -> None:  # fmt: skip
        """Launch a pass on the handle's stream, with the addresses of its arrays in the order of its names.

        `accumulate`: add the gradient of params to the values that are there. Default: True.
        """
        if which is not FORWARD:
            self._clear(which, handle, at, accumulate=accumulate)
        if around is None:
            self.calls[which](handle.pointer, *data.pointers, workspace, *at)
            return
        with around(handle):
            self.calls[which](handle.pointer, *data.pointers, workspace, *at)

    def _clear(self, which: Pass, handle: Handle, at: Sequence[int | None], *, accumulate: bool) -> None:
        """Before a backward: zero dx if it has padding, and d_params unless the gradient is to be added to it.

        cuDNN documents the padding fill for y only. Weight gradients are in its ADD mode.
        """
        data = which is BACKWARD_DATA
        if (data and (not self.ragged or self.batch.packed)) or (not data and accumulate):
            return
        name = "dx" if data else "d_params"
        address = at[which.names.index(name)]
        if address is not None:
            self.device.zero_at(address, self.slots[name].nbytes, handle.stream.ptr)

    def run_on(self, which: Pass, data: DataDescriptors, arrays: Arrays, handle: Handle, *, accumulate: bool) -> None:
        """Launch a pass on its arrays, and on the workspace in `arrays`."""
        workspace, *at = self.device.addresses(*map(arrays.get, ("workspace", *which.names)))
        self.run(which, data, workspace, at, handle, accumulate=accumulate)

    def step(self, **arrays: Any) -> Arrays:
        """Return these arrays and the others that the passes need: zeros, a workspace and a reserve."""
        names = {name for which in self.passes for name in which.names} - {"reserve"} - arrays.keys()
        return arrays | self.new(*names, zeros=True) | self.new("workspace", "reserve")

    def run_all(self, handle: Handle, data: DataDescriptors, arrays: Arrays) -> None:
        """Launch all passes on the handle's stream, which must be the current one. This neither allocates nor waits."""
        for which in self.passes:
            self.run_on(which, data, arrays, handle, accumulate=False)


class DataDescriptors:
    """The descriptors of x and y, and the batch whose lengths they have."""

    def __init__(self, library: Library, spec: RNNSpec, schedule: Schedule) -> None:
        layouts = cudnnRNNDataLayout_t
        layout = layouts.SEQ_MAJOR_UNPACKED if schedule.time_major else layouts.BATCH_MAJOR_UNPACKED
        layout = layouts.SEQ_MAJOR_PACKED if schedule.packed else layout
        T, B = schedule.T, schedule.B
        self.x, self._y = (
            RNNDataDescriptor(library, spec.dtype, T, B, width, lengths=schedule.lengths_int32, layout=layout)
            for width in (spec.input_size, spec.output_size)
        )
        self.pointers = self.x.pointer, self._y.pointer
        self.schedule: Schedule | None = schedule

    def set_lengths(self, lengths: npt.NDArray[np.int32]) -> None:
        self.schedule = None  # unknown if a setter fails
        self.x.set_lengths(lengths)
        self._y.set_lengths(lengths)
