"""What the GPU's half of libcudnn answers, computed by the NumPy engine: handles, sizes, the three passes.

The real library answers for the layout of the params, which needs no GPU, unless a test has an engine with another
layout. The legacy pair of cuDNN 8 is not in the library that the shim is linked against: its answers are computed, and
tests/layout_query asks a real 8.9.7.
"""

import ctypes
import functools
import itertools
import struct
import threading
from typing import ClassVar

import numpy as np

from pycudnnrnn import libcudnn
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.cudnn import descriptors
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm
from tests.stand_in import native

LAYOUTS = libcudnn.cudnnRNNDataLayout_t
STATES_NBYTES = 64
WORKSPACE_FILL = 0xCD


class Answers:
    """The functions that need a GPU, under their C names.

    `version` is what the library says of itself; `engine` computes, in the layout that it has, and `layouts` maps an
    algorithm to an engine with another layout; `refused` maps (function, algorithm) to a status. `launches` lists
    (pass, handle, stream, thread), `ran` the (pass, algorithm, math type) and `described` the (layout, lengths) of what
    was launched. Handles are known to all shims, since an older one's may be destroyed at any time.
    """

    handles: ClassVar[dict] = {}
    _addresses = itertools.count(0x1000, 16)

    def __init__(self, engine, version):
        self.engine, self.version = engine or NumpyEngine(), version
        self.layouts, self.refused = {}, {}
        self.launches, self.ran, self.described = [], [], []
        self._reserves, self._dropouts, self._built, self._laid_out = {}, {}, {}, {}
        self._tokens = itertools.count(1)

    # --- handles, streams, versions

    def cudnnGetVersion(self):
        return self.version

    def cudnnCreate(self, out):
        address = next(self._addresses)
        self.handles[address] = None
        native.write(out, "<Q", address)

    def cudnnDestroy(self, handle):
        del self.handles[handle]

    def cudnnSetStream(self, handle, stream):
        self._handle(handle)
        self.handles[handle] = stream

    def _handle(self, handle):
        if handle not in self.handles:
            raise native.Refused(native.NULL_POINTER, f"no handle {handle:#x}")

    # --- dropout: the states are (position, seed)

    def cudnnDropoutGetStatesSize(self, handle, size):
        self._handle(handle)
        native.write(size, "<Q", STATES_NBYTES)

    def cudnnSetDropoutDescriptor(self, desc, handle, bits, states, nbytes, seed):
        self._handle(handle)
        self._dropouts[desc] = (native.as_double(bits), states)
        if states and native.as_double(bits):  # at a rate of 0 nothing says that states are written
            if nbytes != STATES_NBYTES:
                raise native.Refused(native.BAD_SIZE, "states size")
            native.write(states, "<QQ", 0, seed)

    def cudnnRestoreDropoutDescriptor(self, desc, handle, bits, states, nbytes, _seed):
        self._handle(handle)
        if nbytes != STATES_NBYTES or not states:
            raise native.Refused(native.BAD_SIZE, "states size")
        self._dropouts[desc] = (native.as_double(bits), states)

    # --- sizes and layout

    def _spec(self, rnn):
        settings = native.rnn(self.library, rnn)
        if not settings["dropoutDesc"]:
            raise native.Refused(native.NULL_POINTER, "whether a dropout descriptor may be NULL is not known")
        return native.spec_of(settings, self._dropouts[settings["dropoutDesc"]][0]), settings

    def cudnnBuildRNNDynamic(self, handle, rnn, batch):
        self._handle(handle)
        self._built[rnn] = batch

    def _asked_of_cudnn(self, name, spec, *arguments):
        """Hand a layout call to the real library, which needs no GPU for it, unless a test has another layout."""
        engine = self.layouts.get(str(spec.algo), self.engine)
        if type(engine).layout is not NumpyEngine.layout:
            return False
        status = self.real[name](*map(ctypes.c_uint64, arguments))
        if status:
            raise native.Refused(status, "the real library refused it")
        return True

    def cudnnGetRNNWeightSpaceSize(self, handle, rnn, size):
        self._handle(handle)
        spec, _ = self._spec(rnn)
        if self._asked_of_cudnn("cudnnGetRNNWeightSpaceSize", spec, handle, rnn, size):
            return
        native.write(size, "<Q", self._params_nbytes(spec))

    def _params_nbytes(self, spec):
        return self._layout(spec).size * spec.dtype.itemsize

    def _layout(self, spec):
        key = self.layouts.get(str(spec.algo), self.engine), spec
        if key not in self._laid_out:
            self._laid_out[key] = key[0].layout(_plain(spec))
        return self._laid_out[key]

    def cudnnGetRNNTempSpaceSizes(self, handle, rnn, mode, x_desc, workspace, reserve):
        self._handle(handle)
        spec, _ = self._spec(rnn)
        self._refuse("cudnnGetRNNTempSpaceSizes", spec)
        data = native.data(self.library, x_desc)
        workspace_nbytes, reserve_nbytes = _scratch(spec, data, mode)
        native.write(workspace, "<Q", workspace_nbytes)
        native.write(reserve, "<Q", reserve_nbytes)

    def cudnnGetRNNWeightParams(self, handle, rnn, pseudo_layer, nbytes, base, id_, m_desc, m_addr, b_desc, b_addr):
        self._handle(handle)
        spec, _ = self._spec(rnn)
        if nbytes != self._params_nbytes(spec):
            raise native.Refused(native.BAD_SIZE, "weight space size")
        arguments = handle, rnn, pseudo_layer, nbytes, base, id_, m_desc, m_addr, b_desc, b_addr
        if self._asked_of_cudnn("cudnnGetRNNWeightParams", spec, *arguments):
            return
        for kind, desc, out in (("weight", m_desc, m_addr), ("bias", b_desc, b_addr)):
            region = self._region(spec, pseudo_layer, id_, kind)
            native.write(out, "<Q", base + int(region.offset * spec.dtype.itemsize) if region and region.size else 0)
            if region and region.size:
                rows, columns = region.shape if kind == "weight" else (*region.shape, 1)
                self._set_tensor(desc, spec.dtype, (1, rows, columns))

    def _legacy(self, kind, handle, rnn, pseudo_layer, x_desc, w_desc, base, id_, desc, out):
        self._handle(handle)
        spec, _ = self._spec(rnn)
        x, w = native.tensor(self.library, x_desc), native.filter_(self.library, w_desc)
        params_nbytes = w["dimA"][0] * spec.dtype.itemsize
        if x["dimA"][1] != spec.input_size or params_nbytes != self._params_nbytes(spec):
            raise native.Refused(native.BAD_SIZE, "x or w descriptor")
        region = self._region(spec, pseudo_layer, id_, kind)
        native.write(out, "<Q", base + int(region.offset * spec.dtype.itemsize) if region and region.size else 0)
        if region and region.size:
            dims = (ctypes.c_int * 3)(1, *(region.shape if kind == "weight" else (*region.shape, 1)))
            pointer = ctypes.cast(desc, libcudnn.cudnnFilterDescriptor_t)
            data_type = descriptors.DATA_TYPES[spec.dtype]
            self.library.cudnnSetFilterNdDescriptor(pointer, data_type, 0, 3, dims)

    cudnnGetRNNLinLayerMatrixParams = functools.partialmethod(_legacy, "weight")
    cudnnGetRNNLinLayerBiasParams = functools.partialmethod(_legacy, "bias")

    def _region(self, spec, pseudo_layer, id_, kind):
        key = pseudo_layer, id_, kind
        return next((region for region in self._layout(spec).regions if region.key == key), None)

    def _set_tensor(self, desc, dtype, dims):
        strides = [dims[1] * dims[2], dims[2], 1]
        pointer = ctypes.cast(desc, libcudnn.cudnnTensorDescriptor_t)
        self.library.cudnnSetTensorNdDescriptor(pointer, descriptors.DATA_TYPES[dtype], 3, list(dims), strides)

    # --- the three passes

    def _problem(self, handle, rnn, x_desc, y_desc, h_desc, *c_descs):
        """Read what the descriptors say of a pass, and hold them against each other."""
        self._handle(handle)
        spec, settings = self._spec(rnn)
        x, y = native.data(self.library, x_desc), native.data(self.library, y_desc)
        widths = x["vectorSize"], y["vectorSize"]
        if widths != (spec.input_size, spec.output_size):
            raise native.Refused(native.BAD_VALUE, f"vector sizes {widths}")
        if x | {"vectorSize": widths[1]} != y:
            raise native.Refused(native.BAD_VALUE, "x and y descriptors differ")
        T, B, lengths = x["maxSeqLength"], x["batchSize"], x["seqLengthArray"]
        if spec.algo == "persist_dynamic" and self._built.get(rnn) != B:
            raise native.Refused(native.BAD_VALUE, f"built for a batch of {self._built.get(rnn)}")
        packed = x["layout"] is LAYOUTS.SEQ_MAJOR_PACKED
        if bool(settings["auxFlags"]) is packed or any(x["paddingFill"]):
            reason = "whether packed data may have padded I/O is not known" if packed else "padded I/O is off"
            raise native.Refused(native.BAD_VALUE, f"{reason}, or its fill is not zero")
        states = [(h_desc, spec.state_size), *((c, spec.num_units) for c in c_descs if spec.has_cell_state)]
        for desc, width in states:
            if not desc:
                raise native.Refused(native.NULL_POINTER, "a state descriptor is NULL")
            tensor = native.tensor(self.library, desc)
            if tensor["dimA"] != (spec.num_pseudo_layers, B, width) or tensor["dataType"] != x["dataType"]:
                raise native.Refused(native.BAD_VALUE, f"state descriptor {tensor}")
        time_major = x["layout"] is not LAYOUTS.BATCH_MAJOR_UNPACKED
        ragged = set(lengths) != {T}
        if (ragged or packed) and spec.algo != "standard":
            raise native.Refused(native.NOT_SUPPORTED, "ragged lengths, or packed data")
        self.described.append((x["layout"].name, tuple(lengths)))
        return spec, settings, Schedule(T, B, tuple(lengths) if ragged else None, time_major), x

    def _memory(self, spec, x):
        """Return what gives the arrays at addresses: data as `_Data`, states as they are."""
        B, dtype = x["batchSize"], spec.dtype.numpy

        def aligned(address):
            if address % 16:
                raise native.Refused(native.NOT_SUPPORTED, "whether arrays may begin anywhere is not known")

        def data(address, width):
            aligned(address)
            return _Data(address, width, x, dtype)

        def states(address, width):
            aligned(address)
            return native.view(address, (spec.num_pseudo_layers, B, width), dtype)

        return data, states

    def _check_scratch(self, spec, x, mode, workspace_nbytes, workspace, reserve_nbytes, reserve):
        needed_workspace, needed_reserve = _scratch(spec, x, mode)
        if workspace_nbytes < needed_workspace or not workspace:
            raise native.Refused(native.BAD_SIZE, "workspace")
        native.view(workspace, (workspace_nbytes,), np.uint8)[:] = WORKSPACE_FILL
        if mode and (reserve_nbytes < needed_reserve or not reserve or reserve % 16):
            raise native.Refused(native.BAD_SIZE, "reserve")

    def _store(self, reserve, nbytes, content, stage):
        token = next(self._tokens)
        self._reserves[token] = content
        space = native.view(reserve, (nbytes,), np.uint8)
        space[:] = np.arange(nbytes) % 251
        space[:16].view("<u8")[:] = token, stage

    def _recall(self, reserve, stage):
        token, at = native.view(reserve, (16,), np.uint8).view("<u8")
        if int(token) not in self._reserves or int(at) != stage:
            raise native.Refused(native.EXECUTION_FAILED, f"reserve holds stage {at}, expecting {stage}")
        return self._reserves[int(token)].copy()

    def _refuse(self, function, spec):
        if (function, str(spec.algo)) in self.refused:
            raise native.Refused(self.refused[function, str(spec.algo)], f"{function} with {spec.algo}")

    def _launched(self, handle, name, spec):
        self.ran.append((name, str(spec.algo), str(spec.math_type)))
        self.launches.append((name, handle, self.handles[handle], threading.get_ident()))

    def cudnnRNNForward(
        self, handle, rnn, mode, _dev, x_desc, x, y_desc, y, h_desc, hx, hy, c_desc, cx, cy,
        params_nbytes, params, workspace_nbytes, workspace, reserve_nbytes, reserve,
    ):  # fmt: skip
        spec, settings, schedule, x_data = self._problem(handle, rnn, x_desc, y_desc, h_desc, c_desc)
        self._refuse("cudnnRNNForward", spec)
        if schedule.lengths is not None and not any(schedule.lengths):
            raise native.Refused(native.EXECUTION_FAILED, "every length is zero")
        if params_nbytes != self._params_nbytes(spec):
            raise native.Refused(native.BAD_SIZE, "params")
        self._check_scratch(spec, x_data, mode, workspace_nbytes, workspace, reserve_nbytes, reserve)
        data, states = self._memory(spec, x_data)
        dropout = None
        if mode and spec.dropout and spec.num_layers > 1:
            address = self._dropouts[settings["dropoutDesc"]][1]
            position, seed = struct.unpack("<QQ", ctypes.string_at(address, 16))
            dropout = NumpyDropout(DropoutState("numpy", seed, position))
            native.write(address, "<Q", position + 1)
        batch = CallConfig(_plain(spec, dropout=spec.dropout), schedule, bool(mode), dropout)
        out_y, out_h, out_c, ours = self.engine.calls(batch).forward(schedule, {
            "params": native.view(params, (params_nbytes // spec.dtype.itemsize,), spec.dtype.numpy).copy(),
            "x": data(x, spec.input_size).read(),
            "hx": states(hx, spec.state_size).copy() if hx else None,
            "cx": states(cx, spec.num_units).copy() if cx else None,
        }, ())  # fmt: skip
        data(y, spec.output_size).write(out_y)
        if hy:
            states(hy, spec.state_size)[...] = out_h
        if cy and spec.has_cell_state:
            states(cy, spec.num_units)[...] = out_c
        if mode:
            checks = {
                "y": data(y, spec.output_size).tobytes(), "x": data(x, spec.input_size).tobytes(),
                "params": ctypes.string_at(params, params_nbytes),
                "hx": states(hx, spec.state_size).tobytes() if hx else None,
                "cx": states(cx, spec.num_units).tobytes() if cx else None,
            }  # fmt: skip
            self._store(reserve, reserve_nbytes, _Content(ours, checks), 1)
        self._launched(handle, "forward", spec)

    def cudnnRNNBackwardData_v8(
        self, handle, rnn, _dev, y_desc, y, dy, x_desc, dx, h_desc, hx, dhy, dhx, c_desc, cx, dcy, dcx,
        params_nbytes, params, workspace_nbytes, workspace, reserve_nbytes, reserve,
    ):  # fmt: skip
        spec, _, schedule, x_data = self._problem(handle, rnn, x_desc, y_desc, h_desc, c_desc)
        self._refuse("cudnnRNNBackwardData_v8", spec)
        if spec.algo == "persist_static_small_h" and spec.num_units > (256 if spec.mode.startswith("rnn") else 128):
            raise native.Refused(native.NOT_SUPPORTED, "PyTorch trains no more units with it")
        if schedule.lengths is not None and 0 in schedule.lengths:
            raise native.Refused(native.EXECUTION_FAILED, "a length is zero")
        self._check_scratch(spec, x_data, 1, workspace_nbytes, workspace, reserve_nbytes, reserve)
        content = self._recall(reserve, 1)
        data, states = self._memory(spec, x_data)
        content.same("y", data(y, spec.output_size).tobytes())
        content.same("params", ctypes.string_at(params, params_nbytes))
        content.same("hx", states(hx, spec.state_size).tobytes() if hx else None)
        content.same("cx", states(cx, spec.num_units).tobytes() if cx and spec.has_cell_state else content.checks["cx"])
        if not dhy or (spec.has_cell_state and not dcy):
            raise native.Refused(native.NULL_POINTER, "whether dhy and dcy may be NULL is not known")
        out = content.reserve.backward_data(
            data(dy, spec.output_size).read(),
            states(dhy, spec.state_size).copy(),
            states(dcy, spec.num_units).copy() if spec.has_cell_state else None,
        )
        data(dx, spec.input_size).write(out[0], padding=False)  # cuDNN may leave what is behind a sequence's end
        if dhx:
            states(dhx, spec.state_size)[...] = out[1]
        if dcx and spec.has_cell_state:
            states(dcx, spec.num_units)[...] = out[2]
        self._store(reserve, reserve_nbytes, content, 2)
        self._launched(handle, "backward_data", spec)

    def cudnnRNNBackwardWeights_v8(
        self, handle, rnn, add, _dev, x_desc, x, h_desc, hx, y_desc, y,
        params_nbytes, d_params, workspace_nbytes, workspace, reserve_nbytes, reserve,
    ):  # fmt: skip
        spec, _, _, x_data = self._problem(handle, rnn, x_desc, y_desc, h_desc)
        if params_nbytes != self._params_nbytes(spec):
            raise native.Refused(native.BAD_SIZE, "params")
        self._check_scratch(spec, x_data, 1, workspace_nbytes, workspace, reserve_nbytes, reserve)
        content = self._recall(reserve, 2)
        data, states = self._memory(spec, x_data)
        content.same("x", data(x, spec.input_size).tobytes())
        content.same("y", data(y, spec.output_size).tobytes())
        content.same("hx", states(hx, spec.state_size).tobytes() if hx else None)
        out = native.view(d_params, (params_nbytes // spec.dtype.itemsize,), spec.dtype.numpy)
        content.reserve.backward_weights(out, accumulate=add == libcudnn.cudnnWgradMode_t.ADD)
        self._launched(handle, "backward_weights", spec)


class _Data:
    """An array over time and batch in memory, in the layout that a descriptor says; padded to who computes."""

    def __init__(self, address, width, described, dtype):
        T, B, lengths = described["maxSeqLength"], described["batchSize"], np.array(described["seqLengthArray"])
        self.packed, self.shape = described["layout"] is LAYOUTS.SEQ_MAJOR_PACKED, (T, B, width)
        self.valid = np.arange(T)[:, None] < lengths  # in order, these are the packed rows: lengths never rise
        if described["layout"] is LAYOUTS.BATCH_MAJOR_UNPACKED:
            self.valid, self.shape = self.valid.T, (B, T, width)
        self.memory = native.view(address, (lengths.sum(), width) if self.packed else self.shape, dtype)
        self.tobytes = self.memory.tobytes

    def read(self):
        if not self.packed:
            return self.memory.copy()
        padded = np.full(self.shape, np.nan, self.memory.dtype)
        padded[self.valid] = self.memory
        return padded

    def write(self, padded, *, padding=True):
        if self.packed:
            self.memory[...] = padded[self.valid]
        else:
            self.memory[...] = padded if padding else np.where(self.valid[..., None], padded, self.memory)


class _Content:
    """A reserve's content: what the NumPy engine keeps, and the arrays that cuDNN would read again."""

    def __init__(self, reserve, checks):
        self.reserve, self.checks = reserve, checks

    def copy(self):
        return _Content(self.reserve.copy(), self.checks)

    def same(self, name, memory):
        if self.checks[name] != memory:
            raise native.Refused(native.EXECUTION_FAILED, f"{name} is not what the forward had")


def _plain(spec, dropout=0.0):
    """The spec that decides the layout."""
    return spec.replace(seed=0, dropout=dropout)


def _scratch(spec, data, mode):
    """Sizes that depend on everything they may depend on, so that a stale one is seen; in inference too."""
    T, lengths = data["maxSeqLength"], data["seqLengthArray"]
    cells = T * data["batchSize"] * spec.num_pseudo_layers * spec.num_units
    more = 96 * (set(lengths) != {T}) + 160 * (data["layout"] is LAYOUTS.SEQ_MAJOR_PACKED)
    more += 32 * list(Algorithm).index(spec.algo)
    return 512 + 2 * cells + sum(lengths) + more, 64 + 4 * cells + mode + more
