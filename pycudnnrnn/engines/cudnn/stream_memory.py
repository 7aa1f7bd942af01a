"""Memory that is used on one stream after another, and goes back to the pool when the last one is done with it.

State: what could not be given back yet.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any, Final

from pycudnnrnn.engines.cudnn.device import CudaDevice, same_stream
from pycudnnrnn.engines.cudnn.owned import keep
from pycudnnrnn.errors import PycudnnrnnError

_LEFT: Final[collections.deque[StreamMemory]] = collections.deque()
"""Memory whose owner is gone, but not the work on it: no stream could be made to wait for that. The next owner that is
made tries again."""


class StreamMemory:
    """The memory of one owner, used by one stream after another: each waits for the one before.

    CuPy gives a freed block to whoever next asks for one on the stream that it was taken on, its home, whatever other
    streams still do there. So the first stream waits for home, and once the owner is gone home waits for the last one.

    While the caller captures a stream, nothing waits: when a graph of his runs, and on what, is known to him alone.
    """

    def __init__(self, device: CudaDevice, owner: object, *memory: Any) -> None:
        """Begin with memory that was taken on the current stream; it stays as long as its owner."""
        with contextlib.suppress(IndexError):  # another thread was here
            for _ in range(len(_LEFT)):
                _LEFT.popleft().end(by_host=True)
        self._device, self._memory = device, memory
        self._home = self._last = device.stream()
        keep(owner, self, StreamMemory.end)

    def on(self, stream: Any) -> None:
        """Let a stream, on which the memory is used next, wait for the one before."""
        if stream is not self._last and not self._device.captured(stream):
            self._device.wait(stream, self._last)
            self._last = stream

    def end(self, *, by_host: bool = False) -> None:
        """Let home wait for the last stream, or leave the memory taken: anything may be going on where this is called.

        With `by_host` that is known, and the host may wait as well.
        """
        device, home, last = self._device, self._home, self._last
        if same_stream(home, last):
            return
        try:
            with device.active():
                if (by_host or device.orders(home, last)) and not (device.captured(home) or device.captured(last)):
                    device.wait(home, last)
                    return
        except (PycudnnrnnError, RuntimeError):  # CuPy's errors are RuntimeErrors
            pass
        _LEFT.append(self)
