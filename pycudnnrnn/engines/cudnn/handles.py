"""cuDNN handles: one per thread and device, returned when the thread ends. In a forked child they raise an error.

State: the pool, under one lock. cuDNN is thread-safe as long as no two threads use one handle at a time.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from pycudnnrnn import _locks
from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines.cudnn.owned import Owned
from pycudnnrnn.errors import EngineError


class Handle(Owned, kind=""):
    """A cuDNN handle on the device that is current when it is made.

    Raises:
        CudnnError: cuDNN finds no GPU it can use, or no memory on it.
    """

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self.pointer = self._pointer
        self._set_stream = library.cudnnSetStream.bind("streamId", handle=self)
        self.stream: Any = None

    def use(self, stream: Any) -> None:
        """Launch on a stream from now on. cuDNN is called only if the stream is another object than before.

        The stream object is kept, because CUDA may give the address of a destroyed stream to a new one.
        """
        if stream is not self.stream:
            self.stream = None  # unknown, if the call fails
            self._set_stream(stream.ptr)
            self.stream = stream


class _Lease:
    """A thread's hold on a handle. It is collected when the thread ends, which returns the handle to the pool.

    In a thread that Python did not start, such as XLA's own, that is the end of each callback. The next callback takes
    the handle that was returned last.
    """

    def __init__(self, handle: Handle) -> None:
        self.handle = handle


class HandlePool:
    """The handles of one device.

    Raises:
        EngineError: the process is a fork of one that had this pool, where CUDA does not work.
    """

    forks = 0
    """How many forks lie between this process and the first one. Each call compares it: `os.getpid()` would take
    longer."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = _locks.lock()
        self._free: list[Handle] = []
        self._leases = threading.local()
        self._watched: dict[Handle, weakref.ref[_Lease]] = {}
        self._forks = self.forks

    def check_process(self) -> None:
        """Refuse to work in a forked child."""
        if self.forks != self._forks:
            raise EngineError(
                "cuDNN was used before this process was forked, and CUDA does not survive a fork: "
                "start processes with multiprocessing's 'spawn' method"
            )

    def on(self, stream: Any) -> Handle:
        """Return this thread's handle, set to a stream."""
        self.check_process()
        try:
            lease: _Lease = self._leases.lease
        except AttributeError:
            free = self._free
            with self._lock:
                handle = free.pop() if free else Handle(self._library)
            lease = self._leases.lease = _Lease(handle)
            # `append` is atomic and needs no lock: a finaliser may run while the lock is held. It does not keep the
            # pool alive.
            self._watched[handle] = weakref.ref(lease, lambda _: free.append(handle))
        lease.handle.use(stream)
        return lease.handle


def _forked() -> None:
    HandlePool.forks += 1


if hasattr(os, "register_at_fork"):  # other systems have no fork
    os.register_at_fork(after_in_child=_forked)
