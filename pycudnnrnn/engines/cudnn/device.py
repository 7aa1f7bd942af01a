"""Device memory, streams and copies: the one place that imports CuPy.

The engine uses a device only through `CudaDevice`. Tests replace it by an object on host memory.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import needs
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import ArrayFunctions
from pycudnnrnn.engines.cudnn.owned import lost
from pycudnnrnn.errors import CaptureError, CudnnError, DeviceLostError, EngineError

BYTES: Final = np.dtype(np.uint8)
"""The dtype of scratch memory."""


PER_THREAD: Final = 2
"""The address that means the calling thread's default stream, which no other thread can wait for.

Source: cudaStreamPerThread (driver_types.h, CUDA 13.5).
"""

OTHERS_MAX: Final = 64
"""Streams of other libraries that are kept: torch has 32 for each priority."""


@contextlib.contextmanager
def finally_do(device: CudaDevice, work: Callable[[], object]) -> Iterator[None]:
    """Do `work` after the block, whether it failed or not, unless the device was lost there."""
    try:
        with device.watch:
            yield
    except DeviceLostError:
        raise
    except BaseException:
        work()
        raise
    work()


@contextlib.contextmanager
def in_order(device: CudaDevice, stream: Any, others: Sequence[Any]) -> Iterator[None]:
    """Order the block's work on a stream after the work on `others`, which then wait for it, even if it failed.

    Memory that the block used can then be reused on any of these streams.
    """

    def rejoin() -> None:
        for other in others:
            device.wait(other, stream)

    for other in others:
        device.wait(stream, other)
    with finally_do(device, rejoin):
        yield


class Watch(contextlib.AbstractContextManager[Any]):
    """A context for work on one device. It raises `DeviceLostError` for errors after which the device is unusable.

    `ask` makes a CUDA call that fails once the device is lost, because cuDNN's statuses do not report that.

    Raises:
        DeviceLostError: the device is lost.
    """

    def __init__(self, device: str, ask: Callable[[], object]) -> None:
        self._device, self._ask = device, ask

    def look_at(self, error: BaseException) -> None:
        """Raise `DeviceLostError` if an error means that the device is lost. For an error of cuDNN, ask CUDA."""
        cuda: BaseException | None = error
        if isinstance(error, CudnnError):
            try:
                cuda = self._ask()  # type: ignore[assignment]  # None
            except RuntimeError as answer:
                cuda = answer
        device_lost = lost(self._device, error, cuda)
        if device_lost is not None:
            raise device_lost from error

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.look_at(error)


class _Foreign:
    """A stream by its address, in the CUDA stream protocol (version 0), from which CuPy makes a stream object."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


class CudaDevice(ArrayFunctions):
    """One CUDA device, through CuPy. `xp` is the CuPy namespace; new arrays are contiguous and come from its pool.

    Raises:
        MissingDependencyError: CuPy is not installed.
        EngineError: CuPy finds no such device.
        DeviceLostError: CUDA has failed for good in this process.
    """

    address = staticmethod(operator.attrgetter("data.ptr"))

    def __init__(self, index: int | None = None) -> None:
        with needs("CuPy", "cuda13", "a CUDA device", "cupy-cuda13x"):
            import cupy  # noqa: PLC0415  optional, and slow to import
        self.xp: Any = cupy
        try:
            self.index = cupy.cuda.runtime.getDevice() if index is None else index
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            Watch("CUDA", self._ask).look_at(error)
            raise EngineError(f"CuPy finds no CUDA device: {error}") from error
        if self.index >= count:
            raise EngineError(f"device 'cuda:{self.index}' was asked for; CuPy finds {count}")
        self.watch = Watch(f"cuda:{self.index}", self._ask)
        self._others: Recent[Any] = Recent(OTHERS_MAX)

    def holds(self, array: Any) -> bool:
        return type(array) is self.xp.ndarray and array.data.device_id == self.index

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Make this the current device of a `with` block, and watch the block.

        Raises:
            DeviceLostError: the device is lost already, or is lost in the block.
        """
        try:
            here = self.xp.cuda.runtime.getDevice() == self.index
        except RuntimeError as error:
            self.watch.look_at(error)
            raise
        return self.watch if here else self._made_current()

    @contextlib.contextmanager
    def _made_current(self) -> Iterator[None]:
        # The inner watch sees errors of the block; the outer one, those of entering and leaving the device.
        with self.watch, self.xp.cuda.Device(self.index), self.watch:
            yield

    def _ask(self) -> None:
        """Make a CUDA call that does not wait, and that fails if the device is lost."""
        with self.xp.cuda.Device(self.index):
            self.xp.cuda.runtime.memGetInfo()

    def stream(self) -> Any:
        """Return the stream to launch work on: CuPy's current one on this device. Raises as `stream_at`."""
        stream = self.xp.cuda.get_current_stream()
        return stream if stream.ptr != PER_THREAD else self.stream_at(PER_THREAD)

    def stream_at(self, address: int) -> Any:
        """Return another library's stream, by its address: the same object each time.

        The address identifies it: torch never destroys its streams, and XLA's live as long as its client.

        Raises:
            EngineError: it is the thread's default stream, where one thread's work could not wait for another's.
        """
        if address == PER_THREAD:
            raise EngineError("the per-thread default stream is current: use a stream object, cupy.cuda.Stream()")
        streams = self.xp.cuda.Stream
        if not address:
            return streams.null
        return self._others.get(address) or self._others.keep(address, streams.from_external(_Foreign(address)))

    @staticmethod
    def using(stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Make this the current stream of a `with` block."""
        return stream  # type: ignore[no-any-return]  # CuPy's stream

    @staticmethod
    def synchronize(stream: Any) -> None:
        """Wait on the host for what is on a stream."""
        stream.synchronize()

    def wait(self, waiting: Any, awaited: Any) -> None:
        """Make one stream wait for the work launched on another so far."""
        if waiting.ptr != awaited.ptr:
            event = self.xp.cuda.Event(disable_timing=True)
            event.record(awaited)
            waiting.wait_event(event)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.xp.zeros(shape, dtype)

    def addresses(self, *arrays: Any | None) -> list[int | None]:
        """Return the addresses of arrays; None for None."""
        address = self.address
        return [None if array is None else address(array) for array in arrays]

    def copy(self, array: Any) -> Any:
        """Return a contiguous copy."""
        self.refuse_capture(self.stream(), "copying an array, which takes memory")
        return array.copy(order="C")

    def zero_at(self, address: int, nbytes: int, stream: int) -> None:
        """Zero memory on a stream, both given by address."""
        self.xp.cuda.runtime.memsetAsync(address, 0, nbytes, stream)

    def read_at(self, address: int, nbytes: int, stream: int) -> np.ndarray[Any, Any]:
        """Return a NumPy copy of memory, after the work on a stream, both given by address. Synchronises."""
        host, runtime = np.empty(nbytes, np.uint8), self.xp.cuda.runtime
        runtime.memcpyAsync(host.ctypes.data, address, nbytes, runtime.memcpyDeviceToHost, stream)
        runtime.streamSynchronize(stream)
        return host

    def take(self, array: Any, indices: Any, axis: int) -> Any:
        """Return a new array of the elements along `axis` at indices, which are on the device."""
        return self.xp.take(array, indices, axis=axis)

    @staticmethod
    def to_host(array: Any) -> np.ndarray[Any, Any]:
        """Return a NumPy copy. Synchronises."""
        return array.get()  # type: ignore[no-any-return]  # CuPy's array

    def from_host(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a copy on the device."""
        return self.xp.asarray(array)

    @property
    def gpu(self) -> str:
        """The GPU's name, as its driver gives it."""
        return str(self.xp.cuda.runtime.getDeviceProperties(self.index)["name"].decode())

    def timed(self, work: Callable[[], None]) -> float:
        """Return the microseconds that `work` takes on the current stream, measured by events. Waits for it."""
        start, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(self.xp.cuda.get_elapsed_time(start, end)) * 1000

    def captured(self, stream: Any) -> bool:
        """Return whether a stream is being captured. True also if CUDA cannot tell, because of another or a failed one.

        Raises:
            DeviceLostError: the device is lost.
        """
        try:
            return bool(stream.is_capturing())
        except RuntimeError as error:  # cudaErrorStreamCaptureImplicit, or a capture that has failed
            self.watch.look_at(error)
            return True

    def refuse_capture(self, stream: Any, what: str) -> None:
        """Raise if the stream is being captured. `what` names work that a CUDA graph cannot contain.

        Raises:
            CaptureError: see `captured`.
            DeviceLostError: the device is lost.
        """
        if self.captured(stream):
            raise CaptureError(f"{what}, while the stream is captured: op.prepare does it before, plan.capture for you")

    def capture(self, work: Callable[[], None]) -> Any:
        """Return a CUDA graph of what `work` launches on the current stream: a separate one during the capture.

        Before that, `work` runs once and is waited for, so that CUDA and cuDNN load what they load at first use.

        Raises:
            CaptureError: cuDNN or CUDA refused something during the capture.
            DeviceLostError: the device was lost during the capture.
        """
        failures = (CudnnError, self.xp.cuda.runtime.CUDARuntimeError)
        stream = self.xp.cuda.Stream(non_blocking=True)
        with in_order(self, stream, [self.stream()]), stream:
            work()
            stream.synchronize()
            stream.begin_capture(self.xp.cuda.runtime.streamCaptureModeThreadLocal)
            try:
                work()
            except BaseException as error:
                self.watch.look_at(error)
                with contextlib.suppress(self.xp.cuda.runtime.CUDARuntimeError):
                    stream.end_capture()  # otherwise the thread stays in the capture
                if isinstance(error, failures):
                    raise CaptureError(f"this call cannot be captured: {error}") from error
                raise
            try:
                return stream.end_capture()
            except failures as error:
                self.watch.look_at(error)
                raise CaptureError(f"this call cannot be captured: {error}") from error

    @staticmethod
    def copy_bytes(target: Any, values: Any) -> None:
        """Copy a contiguous array over another of the same size, on the current stream, without temporaries."""
        target.data.copy_from_device_async(values.data, values.nbytes)
