"""What a native call says: the descriptors it names, read by our own getters, and the memory at its addresses."""

import ctypes
import struct

import numpy as np

from pycudnnrnn import RNNSpec, libcudnn
from pycudnnrnn.engines.cudnn import descriptors
from pycudnnrnn.spec import Algorithm, Direction, InputMode, MathType, RNNMode

NULL_POINTER, BAD_SIZE, BAD_VALUE, EXECUTION_FAILED, INTERNAL = 2002, 2006, 2000, 5000, 4000
NOT_SUPPORTED = 3000


class Refused(Exception):  # noqa: N818  a status, not an error of ours
    """A status for the caller, with what is wrong."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class _Borrowed:
    """Somebody else's descriptor, for our own getters."""

    def __init__(self, library, kind, address):
        self.library = library
        self._as_parameter_ = ctypes.cast(address, kind)


def rnn(library, address):
    return descriptors.RNNDescriptor.read(_Borrowed(library, libcudnn.cudnnRNNDescriptor_t, address))


def data(library, address):
    return descriptors.RNNDataDescriptor.read(_Borrowed(library, libcudnn.cudnnRNNDataDescriptor_t, address))


def tensor(library, address):
    return descriptors.TensorDescriptor.read(_Borrowed(library, libcudnn.cudnnTensorDescriptor_t, address))


def filter_(library, address):
    return descriptors.FilterDescriptor.read(_Borrowed(library, libcudnn.cudnnFilterDescriptor_t, address))


_BIAS_MODES = {native: ours for ours, native in descriptors.BIAS_MODES.items()}
_DATA_TYPES = {native: ours for ours, native in descriptors.DATA_TYPES.items()}


def spec_of(found, dropout):
    """The spec that an RNN descriptor stands for."""
    clipped = found["clipMode"] is libcudnn.cudnnRNNClipMode_t.MINMAX
    return RNNSpec(
        RNNMode[found["cellMode"].name], found["numLayers"], found["hiddenSize"], found["inputSize"],
        InputMode[found["inputMode"].name], Direction[found["dirMode"].name], _DATA_TYPES[found["dataType"]],
        dropout=dropout, num_proj=None if found["projSize"] == found["hiddenSize"] else found["projSize"],
        bias_mode=_BIAS_MODES[found["biasMode"]], cell_clip=(found["lclip"], found["rclip"]) if clipped else None,
        algo=Algorithm[found["algo"].name], math_type=MathType[found["mathType"].name.replace("_MATH", "")],
        compute_dtype=_DATA_TYPES[found["mathPrec"]],
    )  # fmt: skip


def view(address, shape, dtype):
    """Memory as an array."""
    if not address:
        raise Refused(NULL_POINTER, "NULL")
    count = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address)).view(dtype).reshape(shape)


def write(address, form, *values):
    ctypes.memmove(address, struct.pack(form, *values), struct.calcsize(form))


def as_double(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]
