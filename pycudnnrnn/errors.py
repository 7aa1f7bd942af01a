"""The exceptions of the package: one root, and a class only where a caller would react differently."""

from __future__ import annotations

from typing import Any, Final

from pycudnnrnn._text import cut

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CaptureError",
    "CheckpointError",
    "ClosedError",
    "ConvertError",
    "CudnnError",
    "DeviceLostError",
    "EngineError",
    "ForkError",
    "LayoutError",
    "LibraryError",
    "LibraryNotFoundError",
    "LibraryUnusableError",
    "MissingDependencyError",
    "NodeError",
    "NotBuiltError",
    "PycudnnrnnError",
    "StateError",
    "TFArgumentError",
    "TFArgumentTypeError",
    "TorchArgumentError",
    "VersionError",
    "cudnn_hint",
    "install_text",
    "version_text",
]
__dir__ = __all__.copy


def version_text(version: int) -> str:
    """Write cuDNN's version number as text: 8907 is 8.9.7, 92800 is 9.28.0."""
    major = version // 10000 if version >= 90000 else version // 1000
    rest = version - major * (10000 if version >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def install_text(packages: str, extra: str) -> str:
    """Say how to install packages by themselves, and with all else of the extra that they are in, from a checkout."""
    return (
        f"pip install {packages}, or, for the whole extra pycudnnrnn[{extra}], in a checkout: pip install '.[{extra}]'"
    )


class PycudnnrnnError(Exception):
    """Root of every error that this package raises on purpose. Of a text that is too long, the middle is left out."""

    def __str__(self) -> str:
        return cut(self._text())

    def _text(self) -> str:
        return super().__str__()


class ArgumentError(PycudnnrnnError, ValueError):
    """An argument has a value that cannot be used.

    `argument` names it, `expected` and `got` say what was wanted and what came. `aspect` narrows it ("shape",
    "dtype" ...). The text starts with "Invalid <argument>", as TensorFlow's does.
    """

    def __init__(self, argument: str, expected: str, got: Any, aspect: str = "") -> None:
        super().__init__(argument, expected, got, aspect)
        self.argument = argument
        self.expected = expected
        self.got = got
        self.aspect = aspect

    def _text(self) -> str:
        what = f"{self.argument} {self.aspect}" if self.aspect else self.argument
        return f"Invalid {what}: {self.got}, expecting {self.expected}"


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type; also a `TypeError`."""


class TFArgumentError(ArgumentError):
    """An argument error in the words of TF 1.x, for callers that read them."""

    def __init__(self, argument: str, expected: str, got: Any, text: str) -> None:
        super().__init__(argument, expected, got)
        self.args = (argument, expected, got, text)
        self.text = text

    def _text(self) -> str:
        return self.text


class TFArgumentTypeError(TFArgumentError, TypeError):
    """The same, and also a `TypeError`."""


class TorchArgumentError(ArgumentError, RuntimeError):
    """An argument error of a torch module: also a `RuntimeError`, which is what torch raises for most of them."""


class CheckpointError(PycudnnrnnError):
    """A checkpoint cannot be restored: the file is damaged, hostile, or of something else.

    `path` is the file, `reason` one of the words in `checkpoint.REASONS`, `detail` a sentence.
    """

    def __init__(self, path: Any, reason: str, detail: str) -> None:
        super().__init__(path, reason, detail)
        self.path = path
        self.reason = reason
        self.detail = detail

    def _text(self) -> str:
        return f"{self.path}: {self.reason}: {self.detail}"


class StateError(PycudnnrnnError, RuntimeError):
    """A call came at the wrong moment: a backward without a reserve, or a second one on a reserve already used up."""


class NotBuiltError(StateError, ValueError):
    """A layer was asked for what exists once it is built. A `ValueError` because TF raises one."""


class NodeError(PycudnnrnnError, AttributeError):
    """A layer has no call, or several that differ, where a property needs exactly one. TF raises `AttributeError`."""


class CaptureError(StateError):
    """A CUDA graph cannot hold what was asked for, or not at this moment; nothing was launched."""


class LayoutError(PycudnnrnnError, ValueError):
    """A parameter layout is impossible, or two layouts that had to be equal are not."""


class ConvertError(PycudnnrnnError, ValueError):
    """Weights cannot be converted: from or to which framework, what it is about, and why."""

    def __init__(self, framework: str, what: str, why: str) -> None:
        super().__init__(framework, what, why)
        self.framework = framework
        self.what = what
        self.why = why

    def _text(self) -> str:
        return f"{self.framework}: {self.what}: {self.why}"


class EngineError(PycudnnrnnError, RuntimeError):
    """No engine can run what was asked for on the device that was named."""


class ClosedError(StateError):
    """A native object was used after it, or something that it is built on, had been closed."""


class ForkError(EngineError):
    """A native engine was used in a process forked from one that had used it: CUDA does not survive a fork."""


class DeviceLostError(EngineError):
    """A CUDA error took the device from this process: nothing more can run on it until the process is restarted.

    `device` is "cuda:0", `error` CUDA's name of what happened first ("cudaErrorIllegalAddress"), `code` its number,
    `detail` CUDA's words. `function` is the call that reported it, which need not be the one that caused it.
    """

    def __init__(self, device: str, code: int, error: str, function: str, detail: str = "") -> None:
        super().__init__(device, code, error, function, detail)
        self.device = device
        self.code = code
        self.error = error
        self.function = function
        self.detail = detail

    def _text(self) -> str:
        return (
            f"{self.device} is lost to this process: {self.function} reported {self.error} ({self.code})"
            + (f": {self.detail}" if self.detail else "")
            + "\nNo call can succeed there any more: restart the process. What went wrong may be any earlier work on "
            "the device, of any library: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which"
        )


class LibraryError(EngineError):
    """No libcudnn can be used. `attempts` lists each place looked at, and why nothing came of it."""

    def __init__(self, reason: str, attempts: tuple[str, ...] = ()) -> None:
        super().__init__(reason, attempts)
        self.reason = reason
        self.attempts = attempts

    def __str__(self) -> str:
        return "\n".join(map(cut, self._text().split("\n")))  # as many places as were looked at

    def _text(self) -> str:
        if not self.attempts:
            return self.reason
        return "\n".join([self.reason, "Places looked at:", *(f"  - {attempt}" for attempt in self.attempts)])


class LibraryNotFoundError(LibraryError):
    """There is no libcudnn in any of the places looked at."""


class LibraryUnusableError(LibraryError):
    """A libcudnn was found, and cannot be used: damaged, incomplete, not to be trusted, or mixed with another."""


class VersionError(LibraryError):
    """This libcudnn has a version that cannot be used, or lacks a function that other versions have."""


class CudnnError(EngineError):
    """A cuDNN call returned a status other than success.

    `code` is the number that came, in the numbering of `version`, and `status` its name. `family` is the same for both
    numberings: NOT_INITIALIZED, BAD_PARAM, NOT_SUPPORTED, INTERNAL_ERROR, EXECUTION_FAILED ..., or UNKNOWN. `detail` is
    cuDNN's own last error text and may be empty; `hint` says what usually helps, and may be empty too.
    """

    def __init__(
        self, function: str, code: int, status: str, family: str, version: int, detail: str = "", hint: str = ""
    ) -> None:
        super().__init__(function, code, status, family, version, detail, hint)
        self.function = function
        self.code = code
        self.status = status
        self.family = family
        self.version = version
        self.detail = detail
        self.hint = hint

    def _text(self) -> str:
        text = f"{self.function} returned {self.status} ({self.code}) from cuDNN {version_text(self.version)}"
        return text + (f": {self.detail}" if self.detail else "") + (f"\nHint: {self.hint}" if self.hint else "")


_NO_DEVICE: Final = "no GPU can be used, its driver is missing or too old, or its memory is full: see nvidia-smi"
_MIXED: Final = "libraries of several cuDNN versions are mixed: reinstall cuDNN, and look at LD_LIBRARY_PATH"
_MEMORY: Final = "memory is exhausted: a smaller batch, or fewer arrays kept alive, needs less"

_HINTS: Final[dict[int, str]] = {
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


def cudnn_hint(status: int) -> str:
    """Return what usually helps with a status code of 9.x, or with its family; nothing where that is not known."""
    return _HINTS.get(status) or _HINTS.get(status // 1000 * 1000, "")


class MissingDependencyError(PycudnnrnnError, ImportError):
    """An optional dependency is not installed; the text says how to install it, by itself or with its extra.

    `install` is what pip calls it, where that is not `package`.
    """

    def __init__(self, package: str, extra: str, purpose: str, install: str | None = None) -> None:
        super().__init__(package, extra, purpose, install)
        self.package = package
        self.extra = extra
        self.purpose = purpose
        self.install = install or package

    def _text(self) -> str:
        how = install_text(self.install, self.extra)
        return f"{self.purpose} needs {self.package}, which is not installed: {how}"
