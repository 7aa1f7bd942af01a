"""A device that an error has taken away: what happened is kept, and every later call is refused with it.

State: a watch for each device, and whether native objects are left as they are (`owned`). Nothing undoes a loss: only
a new process gets the device again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pycudnnrnn import _locks
from pycudnnrnn.engines.cudnn.owned import leave_everything
from pycudnnrnn.errors import CudnnError, DeviceLostError

if TYPE_CHECKING:
    from types import TracebackType

STICKY: Final[dict[int, str]] = {
    214: "cudaErrorECCUncorrectable",
    220: "cudaErrorNvlinkUncorrectable",
    226: "cudaErrorContained",
    700: "cudaErrorIllegalAddress",
    702: "cudaErrorLaunchTimeout",
    709: "cudaErrorContextIsDestroyed",
    710: "cudaErrorAssert",
    714: "cudaErrorHardwareStackError",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    717: "cudaErrorInvalidAddressSpace",
    718: "cudaErrorInvalidPc",
    719: "cudaErrorLaunchFailure",
    721: "cudaErrorTensorMemoryLeak",
    810: "cudaErrorMpsClientTerminated",
    911: "cudaErrorExternalDevice",
}
"""CUDA errors that no later call gets past, by number; the driver's CUDA_ERROR_... have the same numbers.

Source: cudaError in driver_types.h (CUDA 13.5): those after which "the process must be terminated and relaunched", and
214, 220 and 709, which leave memory that cannot be trusted, or no context.
"""


class Watch:
    """Around work on one device: tell an error that takes the device away from any other, and remember it.

    `ask` makes a call that CUDA fails once the device is lost: cuDNN's statuses alone do not say so.

    Raises:
        DeviceLostError: from the call that fails so, and from `refuse_lost` ever after.
    """

    def __init__(self, device: str, ask: Callable[[], object]) -> None:
        self._device, self._ask = device, ask
        self._lock = _locks.rlock()  # a finaliser may look at an error, too, while it is held
        self._first: tuple[str, int, str, str, str] | None = None

    @property
    def lost(self) -> bool:
        return self._first is not None

    def refuse_lost(self) -> None:
        """Refuse to work on a device that is lost; calls nothing."""
        if self._first is not None:
            raise DeviceLostError(*self._first)

    def look_at(self, error: BaseException) -> None:
        """Raise if an error says that the device is lost, or comes from cuDNN and CUDA says so when asked."""
        cuda = self._answer() if isinstance(error, CudnnError) else error
        code = getattr(cuda, "status", None)  # CuPy's CUDARuntimeError and CUDADriverError have it
        if code not in STICKY:
            return
        with self._lock:
            if self._first is None:
                function = error.function if isinstance(error, CudnnError) else _function(error)
                self._first = (self._device, code, STICKY[code], function, str(cuda).partition(": ")[2])
        leave_everything()
        raise DeviceLostError(*self._first) from error

    def _answer(self) -> BaseException | None:
        try:
            self._ask()
        except RuntimeError as error:
            return error
        return None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.look_at(error)


def _function(error: BaseException) -> str:
    """Name the function that CuPy's error came from."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next((name for name in reversed(names) if not name.endswith("check_status")), "CuPy")
