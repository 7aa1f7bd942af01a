"""CUDA errors that no later call gets past: they become `DeviceLostError` where they come. Nothing is remembered.

After one of them native objects are left as they are (`owned`). Only a new process gets the device again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
    """Around work on one device: raise `DeviceLostError` for an error after which the device cannot be used.

    `ask` makes a call that CUDA fails once the device is lost: cuDNN's statuses alone do not report it.

    Raises:
        DeviceLostError: from the call that fails so.
    """

    def __init__(self, device: str, ask: Callable[[], object]) -> None:
        self._device, self._ask = device, ask

    def look_at(self, error: BaseException) -> None:
        """Raise if an error means that the device is lost, or comes from cuDNN and CUDA reports it when asked."""
        cuda = self._answer() if isinstance(error, CudnnError) else error
        code = getattr(cuda, "status", None)  # CuPy's CUDARuntimeError and CUDADriverError have it
        if code in STICKY:
            if isinstance(error.__context__, DeviceLostError):
                raise error.__context__  # it came first; this one is of leaving the device
            function = error.function if isinstance(error, CudnnError) else _function(error)
            leave_everything()
            detail = str(cuda).partition(": ")[2]
            raise DeviceLostError(self._device, code, STICKY[code], function, detail) from error

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
