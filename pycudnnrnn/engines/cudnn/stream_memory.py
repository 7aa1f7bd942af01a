"""Memory that is used on one stream after another, and returned to CuPy's pool when the last one is done with it.

State: the memory that could not be returned yet.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any, Final

from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.owned import keep
from pycudnnrnn.errors import PycudnnrnnError

_LEFT: Final[collections.deque[StreamMemory]] = collections.deque()
"""Memory whose owner is gone while work on it may not be done: its home stream could not be made to wait for that work.
The next `StreamMemory` that is made tries again."""


class StreamMemory:
    """The memory of one owner, used by one stream after another: each waits for the one before.

    CuPy reuses a freed block on the stream where it was allocated, its home stream, even if other streams still use it.
    So the first stream to use the memory waits for the home stream. When the owner is gone, the home stream waits for
    the last one.

    While the caller captures a stream, nothing waits: only the caller knows when and on which stream the graph runs.
    """

    def __init__(self, device: CudaDevice, owner: object, *memory: Any) -> None:
        """Keep memory that was allocated on the current stream, as long as its owner lives."""
        with contextlib.suppress(IndexError):  # another thread emptied it
            for _ in range(len(_LEFT)):
                _LEFT.popleft().end()
        self._device, self._memory = device, memory
        self._home = self._last = device.stream()
        keep(owner, self, StreamMemory.end)

    def on(self, stream: Any) -> None:
        """Make the stream that uses the memory next wait for the one before."""
        if stream is not self._last and not self._device.captured(stream):
            self._device.wait(stream, self._last)
            self._last = stream

    def end(self) -> None:
        """Make the home stream wait for the last one. If that is impossible now, keep the memory for a later try."""
        device, home, last = self._device, self._home, self._last
        if home.ptr == last.ptr:
            return
        try:
            with device.active():
                if not (device.captured(home) or device.captured(last)):
                    device.wait(home, last)
                    return
        except (PycudnnrnnError, RuntimeError):  # CuPy's errors are RuntimeErrors
            pass
        _LEFT.append(self)
