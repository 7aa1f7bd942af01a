"""What a native call says: the descriptors it names, read by our own getters, and the memory at its addresses."""

import ctypes
import struct

import numpy as np

from pycudnnrnn import RNNSpec, libcudnn
from pycudnnrnn.engines.cudnn import descriptors

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

    def _read_clip(self):
        return descriptors.RNNDescriptor._read_clip(self)


def rnn(library, address):
    return descriptors.RNNDescriptor.read(_Borrowed(library, libcudnn.cudnnRNNDescriptor_t, address))


def data(library, address):
    return descriptors.RNNDataDescriptor.read(_Borrowed(library, libcudnn.cudnnRNNDataDescriptor_t, address))


def tensor(library, address):
    return descriptors.TensorDescriptor.read(_Borrowed(library, libcudnn.cudnnTensorDescriptor_t, address))


def filter_(library, address):
    return descriptors.FilterDescriptor.read(_Borrowed(library, libcudnn.cudnnFilterDescriptor_t, address))


_OURS = {
    field: {native: ours for ours, native in table.items()}
    for field, table in {
        "mode": descriptors.MODES,
        "dtype": descriptors.DATA_TYPES,
        "compute_dtype": descriptors.DATA_TYPES,
        "bias_mode": descriptors.BIAS_MODES,
        "direction": descriptors.DIRECTIONS,
        "input_mode": descriptors.INPUT_MODES,
        "math_type": descriptors.MATH_TYPES,
        "algo": descriptors.ALGORITHMS,
    }.items()
}


def spec_of(settings, dropout):
    """The spec that an RNN descriptor's settings stand for."""
    ours = {field: table[getattr(settings, field)] for field, table in _OURS.items()}
    return RNNSpec(
        num_layers=settings.num_layers, num_units=settings.num_units, input_size=settings.input_size,
        dropout=dropout, num_proj=None if settings.proj_size == settings.num_units else settings.proj_size,
        cell_clip=settings.cell_clip, **ours,
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
