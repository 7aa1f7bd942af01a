"""CUDA errors after which the device is unusable in this process: the call that gets one raises `DeviceLostError`.

After such an error native objects are no longer destroyed (`owned`). Later calls fail by themselves: nothing is
recorded. Only a new process can use the device again.
"""

from __future__ import annotations

import traceback
from typing import Final

from pycudnnrnn.engines.cudnn.owned import leave_everything
from pycudnnrnn.errors import CudnnError, DeviceLostError

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
"""These errors by number. The driver's CUDA_ERROR_... have the same numbers.

Source: cudaError in driver_types.h (CUDA 13.5): those after which "the process must be terminated and relaunched", and
214, 220 and 709, which leave memory that cannot be trusted, or no context.
"""


def lost(device: str, error: BaseException, cuda: BaseException | None) -> DeviceLostError | None:
    """Return the error to raise instead of `error` if CUDA's error `cuda` means that the device is lost.

    Native objects are no longer destroyed then.
    """
    code = getattr(cuda, "status", None)  # CuPy's CUDARuntimeError and CUDADriverError have it
    if code not in STICKY:
        return None
    if isinstance(error.__context__, DeviceLostError):
        return error.__context__  # the first error; this one came from leaving the device
    function = error.function if isinstance(error, CudnnError) else _function(error)
    leave_everything()
    return DeviceLostError(device, code, STICKY[code], function, str(cuda).partition(": ")[2])


def _function(error: BaseException) -> str:
    """Name the function that CuPy's error came from."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next((name for name in reversed(names) if not name.endswith("check_status")), "CuPy")
