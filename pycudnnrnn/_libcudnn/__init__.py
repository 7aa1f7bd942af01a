"""libcudnn itself: one Python callable for each C function, under its C name. Public as `pycudnnrnn.libcudnn`.

As in C::

    lib = libcudnn.load()
    descriptor = libcudnn.cudnnRNNDescriptor_t()
    lib.cudnnCreateRNNDescriptor(ctypes.byref(descriptor))

Arguments are those of the C function, in its order. Each is checked for its kind and range before the call, and a
status other than success raises `CudnnError` after it. There is no other way to the library through this module.

State: the libraries loaded so far, by path, under one lock; a library is never unloaded.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, Final

from pycudnnrnn import _discovery
from pycudnnrnn._libcudnn.bound import Bound
from pycudnnrnn._libcudnn.enums import (
    CEnum,
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnForwardMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
    cudnnRNNPaddingMode_t,
    cudnnStatus8_t,
    cudnnStatus_t,
    cudnnTensorFormat_t,
    cudnnWgradMode_t,
)
from pycudnnrnn._libcudnn.prototypes import PROTOTYPES, RESULTS, Prototype
from pycudnnrnn._libcudnn.types import (
    Array,
    Kind,
    cudaStream_t,
    cudnnDropoutDescriptor_t,
    cudnnFilterDescriptor_t,
    cudnnHandle_t,
    cudnnRNNDataDescriptor_t,
    cudnnRNNDescriptor_t,
    cudnnTensorDescriptor_t,
)
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CudnnError, VersionError, version_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = [
    "PROTOTYPES",
    "Bound",
    "CEnum",
    "Function",
    "Library",
    "cudaStream_t",
    "cudnnDataType_t",
    "cudnnDirectionMode_t",
    "cudnnDropoutDescriptor_t",
    "cudnnFilterDescriptor_t",
    "cudnnForwardMode_t",
    "cudnnHandle_t",
    "cudnnMathType_t",
    "cudnnNanPropagation_t",
    "cudnnRNNAlgo_t",
    "cudnnRNNBiasMode_t",
    "cudnnRNNClipMode_t",
    "cudnnRNNDataDescriptor_t",
    "cudnnRNNDataLayout_t",
    "cudnnRNNDescriptor_t",
    "cudnnRNNInputMode_t",
    "cudnnRNNMode_t",
    "cudnnRNNPaddingMode_t",
    "cudnnStatus8_t",
    "cudnnStatus_t",
    "cudnnTensorDescriptor_t",
    "cudnnTensorFormat_t",
    "cudnnWgradMode_t",
    "load",
    "version_text",
]

FROM_8: Final[dict[cudnnStatus8_t, cudnnStatus_t]] = {
    cudnnStatus8_t.NOT_INITIALIZED: cudnnStatus_t.NOT_INITIALIZED,
    cudnnStatus8_t.ALLOC_FAILED: cudnnStatus_t.INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
    cudnnStatus8_t.BAD_PARAM: cudnnStatus_t.BAD_PARAM,
    cudnnStatus8_t.INTERNAL_ERROR: cudnnStatus_t.INTERNAL_ERROR,
    cudnnStatus8_t.INVALID_VALUE: cudnnStatus_t.INVALID_VALUE,
    cudnnStatus8_t.ARCH_MISMATCH: cudnnStatus_t.NOT_SUPPORTED_ARCH_MISMATCH,
    cudnnStatus8_t.MAPPING_ERROR: cudnnStatus_t.INTERNAL_ERROR_TEXTURE_CREATION_FAILED,
    cudnnStatus8_t.EXECUTION_FAILED: cudnnStatus_t.EXECUTION_FAILED,
    cudnnStatus8_t.NOT_SUPPORTED: cudnnStatus_t.NOT_SUPPORTED,
    cudnnStatus8_t.LICENSE_ERROR: cudnnStatus_t.LICENSE_ERROR,
    cudnnStatus8_t.RUNTIME_PREREQUISITE_MISSING: cudnnStatus_t.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
    cudnnStatus8_t.RUNTIME_IN_PROGRESS: cudnnStatus_t.RUNTIME_IN_PROGRESS,
    cudnnStatus8_t.RUNTIME_FP_OVERFLOW: cudnnStatus_t.RUNTIME_FP_OVERFLOW,
    cudnnStatus8_t.VERSION_MISMATCH: cudnnStatus_t.SUBLIBRARY_VERSION_MISMATCH,
}
"""The status codes of 8.x in 9.x's numbering. Source: the aliases of cudnnStatus_t (cudnn_graph.h, 9.28)."""

_NO_DEVICE: Final = "no GPU can be used, its driver is missing or too old, or its memory is full: see nvidia-smi"
_MIXED: Final = "libraries of several cuDNN versions are mixed: reinstall cuDNN, and look at LD_LIBRARY_PATH"
_MEMORY: Final = "memory is exhausted: a smaller batch, or fewer arrays kept alive, needs less"

HINTS: Final[dict[int, str]] = {
    1001: _NO_DEVICE,
    1002: _MIXED,
    1008: _MIXED,
    3000: "this GPU or version has no kernel for it: algorithm 'standard' supports the most",
    3005: "the driver is older than this cuDNN needs",
    3006: "another CUDA major version is installed than this cuDNN was built for",
    3007: "this cuDNN has no code for this GPU: older and newer GPUs need another version",
    3008: "a library that cuDNN loads when it runs is missing, NVRTC most often",
    3009: _MIXED,
    4003: _MEMORY,
    4004: _MEMORY,
    5000: "the error may come from an earlier asynchronous call: CUDA_LAUNCH_BLOCKING=1 shows which",
}
"""What usually helps, by 9.x status code or by its thousands."""

LAST_ERROR_SIZE: Final = 1024


class Function:
    """A C function of one library: called as in C, with checked arguments and a checked status.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that the prototype does not allow; nothing was called.
        ClosedError: an argument whose owner was closed; nothing was called.
        VersionError: this library has no such function.
        CudnnError: the function returned a status other than success.
    """

    __slots__ = ("_counted", "_foreign", "_library", "prototype")

    def __init__(self, library: Library, prototype: Prototype, foreign: Any) -> None:
        self.prototype = prototype
        self._library = library
        self._foreign = foreign
        names = list(prototype.parameters)
        self._counted = [
            (names.index(name), names.index(kind.count))
            for name, kind in prototype.parameters.items()
            if isinstance(kind, Array)
        ]
        if foreign is not None:
            foreign.argtypes = self.argtypes
            foreign.restype = self.restype

    @property
    def is_there(self) -> bool:
        """Whether this library has it."""
        return self._foreign is not None

    @property
    def argtypes(self) -> tuple[Kind, ...]:
        return tuple(self.prototype.parameters.values())

    @property
    def restype(self) -> Any:
        return RESULTS[self.prototype.result]

    def __repr__(self) -> str:
        parameters = ", ".join(f"{kind.c} {name}" for name, kind in self.prototype.parameters.items())
        return f"<{self.prototype.result} {self.prototype.name}({parameters})>"

    def __call__(self, *arguments: Any) -> Any:
        if self._foreign is None:
            raise self._missing()
        if len(arguments) != len(self.prototype.parameters):  # ctypes itself lets too many through
            names = ", ".join(self.prototype.parameters)
            raise ArgumentTypeError(
                f"arguments of {self.prototype.name}", f"{len(self.prototype.parameters)}: ({names})", len(arguments)
            )
        checked = self._with_arrays(arguments) if self._counted else arguments
        try:
            result = self._foreign(*checked)
        except ctypes.ArgumentError:
            self._converted(checked)  # names the argument, and raises our own error in place of ctypes'
            raise
        if result and self.prototype.result == "cudnnStatus_t":
            raise self._library.status_error(self.prototype.name, result)
        return result

    def bind(self, **given: Any) -> Bound:
        """Give all arguments but some pointers once; see `Bound`."""
        if self._foreign is None:
            raise self._missing()
        return Bound(self._library, self.prototype, self._foreign, given)

    def _converted(self, arguments: Sequence[Any]) -> list[Any]:
        named = zip(self.prototype.parameters.items(), arguments, strict=True)
        return [kind.convert(name, value) for (name, kind), value in named]

    def _with_arrays(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Turn sequences into arrays, and refuse one that is shorter than the library will believe it to be."""
        names, converted, checked = list(self.prototype.parameters), self._converted(arguments), list(arguments)
        for array, count in self._counted:
            checked[array] = converted[array]
            needed, got = converted[count].value, len(converted[array])
            if got < needed:
                raise ArgumentError(names[array], f"at least {names[count]}={needed} elements", got, "length")
        return checked

    def _missing(self) -> VersionError:
        prototype, version = self.prototype, self._library.version
        if version < prototype.since:
            reason = f"needs cuDNN {version_text(prototype.since)} or newer"
        elif version >= prototype.until:
            reason = f"was removed in cuDNN {version_text(prototype.until)}"
        else:
            reason = "is missing from this library, although its version should have it"
        return VersionError(f"{prototype.name} {reason}; {self._library.path} is {version_text(version)}")


class Library:
    """One loaded libcudnn. Its C functions are attributes, bound at first use.

    `version` is cuDNN's number (8907, 92800), `path` the file, `found_via` the step of the search that found it, and
    `parts` the sub-libraries that were loaded with it.
    """

    def __init__(self, opened: _discovery.Opened) -> None:
        self.version = opened.version
        self.path = str(opened.path)
        self.found_via = opened.via
        self.parts = tuple(map(str, opened.parts))
        self.__dll = opened.dll

    def __getattr__(self, name: str) -> Function:
        prototype = PROTOTYPES.get(name)
        if prototype is None:
            raise AttributeError(f"libcudnn has no function {name!r} that an RNN needs")
        foreign = None
        if prototype.since <= self.version < prototype.until:
            try:
                foreign = self.__dll[name]
            except AttributeError:
                foreign = None
        function = Function(self, prototype, foreign)
        self.__dict__[name] = function
        return function

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *PROTOTYPES])

    def __repr__(self) -> str:
        return f"<libcudnn {version_text(self.version)} at {self.path}, found via {self.found_via}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object", "something that can be pickled", repr(self))

    def status_error(self, function: str, code: int) -> CudnnError:
        """Make the exception for a status that `function` has just returned in this thread."""
        detail = self._last_error()  # first of all: the text is gone with the next call of this thread
        modern = code
        status = f"unrecognised ({code})"
        if self.version < 90000:
            if code in cudnnStatus8_t._value2member_map_:
                status = cudnnStatus8_t(code).c_name
                modern = FROM_8.get(cudnnStatus8_t(code), cudnnStatus_t.SUCCESS)
            else:
                modern = 0
        elif code in cudnnStatus_t._value2member_map_:
            status = cudnnStatus_t(code).c_name
        hint = HINTS.get(modern) or HINTS.get(modern // 1000 * 1000, "")
        return CudnnError(function, code, status, _family(modern), self.version, detail, hint)

    def _last_error(self) -> str:
        if self.version < PROTOTYPES["cudnnGetLastErrorString"].since:
            return ""
        buffer = ctypes.create_string_buffer(LAST_ERROR_SIZE)
        try:
            self.cudnnGetLastErrorString(buffer, LAST_ERROR_SIZE)
        except VersionError:
            return ""
        return buffer.value.decode("utf-8", errors="replace").strip()


def _family(code: int) -> str:
    """Name what a 9.x status code belongs to: itself below 2000, where codes are unrelated, else its thousands."""
    code = code if code < 2000 else code // 1000 * 1000
    known = code in cudnnStatus_t._value2member_map_ and code != cudnnStatus_t.SUCCESS
    return cudnnStatus_t(code).name if known else "UNKNOWN"


_libraries: dict[str, Library] = {}
_lock = threading.Lock()


def load(path: str | os.PathLike[str] | None = None, *, allow_system: bool = False) -> Library:
    """Load libcudnn, or return it if it is loaded already.

    Without `path` it is looked for, in this order: PYCUDNNRNN_LIBRARY, this process, NVIDIA's wheels, the conda
    environment, CUDNN_PATH and, with `allow_system`, the system's library folders.

    Raises:
        LibraryNotFoundError: there is none; the text lists each place looked at.
        LibraryUnusableError: the one that was found is damaged, incomplete, or not to be trusted.
        VersionError: it is older than 8.9.7, or newer than 9.x.
    """
    with _lock:
        candidate, attempts = _discovery.find(_discovery.Context(path, allow_system))
        key = str(candidate.path.resolve())
        if key not in _libraries:
            _libraries[key] = Library(_discovery.open_library(candidate, attempts))
        return _libraries[key]
