"""A device whose memory is host memory, in CuPy arrays: everything the engine asks of a device, without a GPU."""

import contextlib
import ctypes
import gc
import itertools

import cupy
import numpy as np

from pycudnnrnn.engines.cudnn.device import CudaDevice, Watch, in_order
from pycudnnrnn.errors import CaptureError, CudnnError

GUARD = 64
GUARD_BYTE = 0xA5
ALIGNMENT = 256


class HostMemory:
    """Owns guarded host memory: GUARD bytes on each side that nothing may touch."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.raw = np.full(nbytes + 2 * GUARD + ALIGNMENT, GUARD_BYTE, np.uint8)
        start = self.raw.ctypes.data + GUARD
        self.address = start + -start % ALIGNMENT

    def intact(self):
        first = self.address - self.raw.ctypes.data
        return bool((self.raw[:first] == GUARD_BYTE).all() and (self.raw[first + self.nbytes :] == GUARD_BYTE).all())


class Stream:
    """A stream: an address, and the work recorded so far while it is captured."""

    _addresses = itertools.count(0x5000, 0x100)

    def __init__(self, address=None):
        self.ptr = next(self._addresses) if address is None else address
        self.capturing = None

    def synchronize(self):
        """Return: what was put on it is done."""


class NotCapturableError(RuntimeError):
    """Something was done during a capture that CUDA forbids there."""


class HostGraph:
    """What was recorded; it runs on whatever stream is current when it is launched."""

    def __init__(self, device, recorded):
        self._device, self._recorded = device, recorded

    def launch(self):
        self._device._cuda("graphLaunch")
        for work in self._recorded:
            work()


class HostDevice(CudaDevice):
    """A device over host memory.

    `fail_at` makes the Nth allocation from now fail. `broken` maps what is asked of CUDA ("" for all of it) to
    the error that it fails with; `asked` lists what was asked since. `here` is the number of the current device: while
    it is another, nothing can be done on this one.
    """

    index = 0
    gpu = "host memory"
    xp = cupy

    def __init__(self):
        self.current = Stream()
        self.here = self.index
        self.waits = []
        self.synchronized = []
        self.allocations = []
        self.fail_at = None
        self.shim = None
        self.streams = {}
        self.others = {}
        self.times = {}
        self.timings = 0
        self.copies = 0
        self.broken = {}
        self.asked = []
        self.watch = Watch("cuda:0", lambda: self._cuda("memGetInfo"))

    def timed(self, work):
        """Run, and say that it took what `times` has, or has next, for (algorithm, math type); by default 1000."""
        self._not_in_capture("timing")
        before = len(self.shim.ran)
        work()
        self.timings += 1
        ((algo, math_type),) = {(algo, math_type) for _, algo, math_type in self.shim.ran[before:]}
        time = self.times.get((algo, math_type), 1000.0)
        return time if isinstance(time, float) else next(time)

    def _cuda(self, what):
        if not self.broken:
            return
        self.asked.append(what)
        code = self.broken.get(what, self.broken.get("", 0))
        if code:
            raise cupy.cuda.runtime.CUDARuntimeError(code)

    def active(self):
        try:
            self._cuda("getDevice")
        except RuntimeError as error:
            self.watch.look_at(error)
            raise
        return self.watch if self.here == self.index else self._made_current()

    @contextlib.contextmanager
    def _made_current(self):
        with self.watch, self.where(self.index):
            yield

    @contextlib.contextmanager
    def where(self, index):
        """Make a device current in the block, by its number."""
        before, self.here = self.here, index
        try:
            yield
        finally:
            self.here = before

    def check_here(self, what):
        assert self.here == self.index, f"{what}, while device {self.here} is current"

    def stream(self):
        return self.current

    def stream_at(self, address):
        return self.others.setdefault(address, Stream(address))

    @contextlib.contextmanager
    def using(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, stream):
        self.synchronized.append(stream)

    def wait(self, waiting, awaited):
        self._not_in_capture("waiting for a stream")
        if waiting.ptr != awaited.ptr:
            self.waits.append((waiting, awaited))

    def _not_in_capture(self, what):
        self.check_here(what)
        self._cuda(what)
        if self.current.capturing is not None:
            raise NotCapturableError(what)

    def _do(self, work):
        """Do what a stream would be given, or record it while the stream is captured."""
        self.check_here("work")
        if self.current.capturing is None:
            work()
        else:
            self.current.capturing.append(work)

    def capture(self, work):
        before, stream = self.current, Stream()
        self.streams[stream.ptr] = stream
        with in_order(self, stream, [before]):
            self.current = stream
            try:
                work()
                with self.recording(stream) as recorded:
                    try:
                        self._cuda("beginCapture")
                        work()
                    except (CudnnError, cupy.cuda.runtime.CUDARuntimeError) as error:
                        self.watch.look_at(error)
                        raise CaptureError(f"this call cannot be captured: {error}") from error
            finally:
                self.current = before
        return HostGraph(self, recorded)

    @contextlib.contextmanager
    def recording(self, stream):
        """Capture a stream in the block, and give what is recorded.

        Python collects nothing meanwhile: what tests before have left may end by a call that no capture takes.
        """
        collects = gc.isenabled()
        gc.disable()
        stream.capturing = recorded = []
        try:
            yield recorded
        finally:
            stream.capturing = None
            if collects:
                gc.enable()

    def allocate(self, nbytes):
        self._not_in_capture("an allocation")
        if self.fail_at is not None:
            self.fail_at -= 1
            if self.fail_at < 0:
                raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0)
        memory = HostMemory(nbytes)
        self.allocations.append(memory)
        return cupy.cuda.MemoryPointer(
            cupy.cuda.UnownedMemory(memory.address, max(nbytes, 1), memory, device_id=self.index), 0
        )

    def empty(self, shape, dtype):
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        return cupy.ndarray(shape, dtype, memptr=self.allocate(nbytes))

    def zeros(self, shape, dtype):
        array = self.empty(shape, dtype)
        host(array)[...] = 0
        return array

    def copy(self, array):
        self.refuse_capture(self.stream(), "copying an array")
        return self.from_host(host(array))

    def zero_at(self, address, nbytes, stream):
        self._cuda("memset")
        self._do(lambda: ctypes.memset(address, 0, nbytes))

    def read_at(self, address, nbytes, stream):
        self.synchronized.append(stream)
        return np.frombuffer(ctypes.string_at(address, nbytes), np.uint8)

    def captured(self, stream):
        try:
            self._cuda("isCapturing")
        except RuntimeError as error:
            self.watch.look_at(error)
            return True
        return stream.capturing is not None

    def take(self, array, indices, axis):
        return self.from_host(np.take(host(array), host(indices), axis=axis))

    def copy_bytes(self, target, values):
        assert target.nbytes == values.nbytes
        assert target.flags.c_contiguous
        assert values.flags.c_contiguous
        self._cuda("copy")
        self._do(lambda: np.copyto(host(target), host(values)))

    @staticmethod
    def copy_into(target, values):
        host(target)[...] = host(values)

    @staticmethod
    def add_into(target, values):
        host(target)[...] += host(values).astype(target.dtype)

    def to_host(self, array):
        self._not_in_capture("a copy to the host")
        self.copies += 1
        return host(array).copy()

    def from_host(self, array):
        copy = self.empty(array.shape, array.dtype)
        host(copy)[...] = array
        return copy


def imported(tensor, kind=cupy.ndarray):
    """A CuPy array over a torch tensor, as CuPy imports one: in a memory object of its own, begun by its first element.

    So CuPy's own `may_share_memory` says that two views of one storage share nothing, unless they begin alike.
    """
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr(), max(tensor.nbytes, 1), tensor, device_id=0)
    dtype = str(tensor.dtype).removeprefix("torch.")
    strides = [n * tensor.element_size() for n in tensor.stride()]
    return kind(tuple(tensor.shape), dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


def host(array):
    """A NumPy view of a CuPy array over host memory; a NumPy array itself."""
    if isinstance(array, np.ndarray):
        return array
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
