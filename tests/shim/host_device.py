"""A device whose memory is host memory, in CuPy arrays: everything the engine asks of a device, without a GPU."""

import contextlib
import ctypes
import itertools

import cupy
import numpy as np

GUARD = 64
GUARD_BYTE = 0xA5
ALIGNMENT = 256


class HostMemory:
    """Owns guarded host memory: GUARD bytes on each side that nothing may touch."""

    live = 0

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.raw = np.full(nbytes + 2 * GUARD + ALIGNMENT, GUARD_BYTE, np.uint8)
        start = self.raw.ctypes.data + GUARD
        self.address = start + -start % ALIGNMENT
        HostMemory.live += 1

    def __del__(self):
        HostMemory.live -= 1

    def intact(self):
        first = self.address - self.raw.ctypes.data
        return bool((self.raw[:first] == GUARD_BYTE).all() and (self.raw[first + self.nbytes :] == GUARD_BYTE).all())


class Stream:
    """A named stream: an address, and what it was told to wait for."""

    _addresses = itertools.count(0x5000, 0x100)

    def __init__(self, address=None):
        self.ptr = next(self._addresses) if address is None else address


class HostDevice:
    """What `CudaDevice` is, over host memory. `fail_at` makes the Nth allocation from now fail."""

    index = 0
    xp = cupy

    def __init__(self):
        self.current = Stream()
        self.waits = []
        self.synchronized = []
        self.allocations = []
        self.fail_at = None

    def active(self):
        return contextlib.nullcontext()

    def stream(self):
        return self.current

    def stream_at(self, address):
        return Stream(address)

    @contextlib.contextmanager
    def using(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, stream):
        self.synchronized.append(stream)

    @staticmethod
    def stream_address(stream):
        return stream.ptr

    def wait(self, waiting, awaited):
        if waiting.ptr != awaited.ptr:
            self.waits.append((waiting, awaited))

    def allocate(self, nbytes):
        if self.fail_at is not None:
            self.fail_at -= 1
            if self.fail_at < 0:
                raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0)
        memory = HostMemory(nbytes)
        self.allocations.append(memory)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.address, max(nbytes, 1), memory, device_id=0), 0)

    def empty(self, shape, dtype):
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        return cupy.ndarray(shape, dtype, memptr=self.allocate(nbytes))

    def zeros(self, shape, dtype):
        array = self.empty(shape, dtype)
        host(array)[...] = 0
        return array

    @staticmethod
    def address(array):
        return int(array.data.ptr)

    def copy(self, array):
        return self.from_host(host(array))

    @staticmethod
    def fill_zero(array):
        host(array)[...] = 0

    def take(self, array, indices, axis):
        return self.from_host(np.take(host(array), indices, axis=axis))

    @staticmethod
    def put(target, indices, axis, values):
        host(target)[(slice(None),) * axis + (indices,)] = host(values)

    def gather(self, array, first, second):
        return self.from_host(host(array)[first, second])

    @staticmethod
    def copy_into(target, values):
        host(target)[...] = host(values)

    @staticmethod
    def add_into(target, values):
        host(target)[...] += host(values)
        return target

    @staticmethod
    def to_host(array):
        return host(array).copy()

    def from_host(self, array):
        made = self.empty(array.shape, array.dtype)
        host(made)[...] = array
        return made


def host(array):
    """A NumPy view of a CuPy array over host memory."""
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    memory = np.ctypeslib.as_array((ctypes.c_byte * _span(array)).from_address(array.data.ptr))
    return np.ndarray(array.shape, array.dtype, memory, strides=array.strides)


def _span(array):
    return sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize


@contextlib.contextmanager
def host_allocator(device):
    """Let CuPy itself allocate from the device, in the block."""
    cupy.cuda.set_allocator(device.allocate)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
