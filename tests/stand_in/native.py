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


def _reader(kind, descriptor):
    return lambda library, address: descriptor.read(_Borrowed(library, kind, address))


rnn = _reader(libcudnn.cudnnRNNDescriptor_t, descriptors.RNNDescriptor)
data = _reader(libcudnn.cudnnRNNDataDescriptor_t, descriptors.RNNDataDescriptor)
tensor = _reader(libcudnn.cudnnTensorDescriptor_t, descriptors.TensorDescriptor)
filter_ = _reader(libcudnn.cudnnFilterDescriptor_t, descriptors.FilterDescriptor)


_BIAS_MODES = {native: ours for ours, native in descriptors.BIAS_MODES.items()}
_DATA_TYPES = {native: ours for ours, native in descriptors.DATA_TYPES.items()}


def spec_of(settings, dropout):
    """The spec that an RNN descriptor stands for."""
    clipped = settings["clipMode"] is libcudnn.cudnnRNNClipMode_t.MINMAX
    return RNNSpec(
        RNNMode[settings["cellMode"].name], settings["numLayers"], settings["hiddenSize"], settings["inputSize"],
        InputMode[settings["inputMode"].name], Direction[settings["dirMode"].name], _DATA_TYPES[settings["dataType"]],
        dropout=dropout, num_proj=None if settings["projSize"] == settings["hiddenSize"] else settings["projSize"],
        bias_mode=_BIAS_MODES[settings["biasMode"]],
        cell_clip=(settings["lclip"], settings["rclip"]) if clipped else None,
        algo=Algorithm[settings["algo"].name], math_type=MathType[settings["mathType"].name.replace("_MATH", "")],
        compute_dtype=_DATA_TYPES[settings["mathPrec"]],
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
