"""The exceptions of the package. All of them are `PycudnnrnnError`; most are also a built-in exception.

The classes differ where a caller would react differently. To catch one:

Example:
    >>> from pycudnnrnn import CudnnLSTM
    >>> from pycudnnrnn.errors import ArgumentError
    >>> try:
    ...     CudnnLSTM(num_layers=1, num_units=0)
    ... except ArgumentError as error:  # also a ValueError
    ...     print(error)
    Invalid num_units: 0, expecting an integer from 1 to 2147483647
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CaptureError",
    "CheckpointError",
    "ConvertError",
    "CudnnError",
    "DeviceLostError",
    "EngineError",
    "LayoutError",
    "MissingDependencyError",
    "PycudnnrnnError",
    "StateError",
    "cudnn_hint",
    "install_text",
    "version_text",
]
__dir__ = __all__.copy

_TEXT_MAX: Final = 2000
"""Most characters of an error message. The values that it quotes may be a megabyte."""


def _cut(text: str) -> str:
    """Leave out the middle of a long text: a message names the argument first and the remedy last."""
    half = (_TEXT_MAX - 3) // 2
    return text if len(text) <= _TEXT_MAX else f"{text[:half]}...{text[-half:]}"


def version_text(version: int) -> str:
    """Return a version number of cuDNN as text.

    Args:
        version: the number, as `lib.version` has it.

    Example:
        >>> from pycudnnrnn.errors import version_text
        >>> version_text(8907), version_text(92800)
        ('8.9.7', '9.28.0')
    """
    major = version // 10000 if version >= 90000 else version // 1000
    rest = version - major * (10000 if version >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def install_text(packages: str, extra: str) -> str:
    """Return how to install packages, alone or with the whole extra that contains them. Errors use it.

    Args:
        packages: the names for pip, separated by spaces.
        extra: the extra of this package that contains them.

    Example:
        >>> from pycudnnrnn.errors import install_text
        >>> install_text("h5py", "convert").partition(",")[0]
        'pip install h5py'
    """
    return (
        f"pip install {packages}, or, for the whole extra pycudnnrnn[{extra}], in a checkout: pip install '.[{extra}]'"
    )


class PycudnnrnnError(Exception):
    """Base of all errors that this package raises on purpose. The middle of a very long text is left out."""

    def __str__(self) -> str:
        return _cut(super().__str__())


class ArgumentError(PycudnnrnnError, ValueError):
    """An argument has a value that cannot be used. The text begins with "Invalid <argument>", as TensorFlow's does.

    Attributes:
        argument: name of the argument.
        expected: the values that it takes.
        got: the value that came, or a short text about it.
        aspect: the part of the value that is wrong ("shape", "dtype" ...), or "".
        text: the message of TF 1.x, which is shown instead of ours, or None.
    """

    def __init__(self, argument: str, expected: str, got: Any, aspect: str = "", *, text: str | None = None) -> None:
        super().__init__(argument, expected, got, aspect)
        self.argument = argument
        self.expected = expected
        self.got = got
        self.aspect = aspect
        self.text = text

    def __str__(self) -> str:
        if self.text is not None:
            return _cut(self.text)
        what = f"{self.argument} {self.aspect}" if self.aspect else self.argument
        return _cut(f"Invalid {what}: {self.got}, expecting {self.expected}")


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type; also a `TypeError`."""


class CheckpointError(PycudnnrnnError):
    """A checkpoint cannot be restored: the file is damaged, unsafe, or belongs to something else.

    Attributes:
        path: the file.
        reason: the kind of problem, one of the words in `checkpoint.REASONS`.
        detail: a sentence that describes it.
    """

    def __init__(self, path: Any, reason: str, detail: str) -> None:
        super().__init__(path, reason, detail)
        self.path = path
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return _cut(f"{self.path}: {self.reason}: {self.detail}")


class StateError(PycudnnrnnError, RuntimeError, ValueError):
    """A call came at the wrong time: a backward without a reserve, a layer that is not built, a closed native object.

    It is also a `ValueError`, because TF raises one for a layer that is not built.
    """


class CaptureError(StateError):
    """A call cannot be captured or replayed as a CUDA graph. No array of the caller has changed."""


class LayoutError(PycudnnrnnError, ValueError):
    """A parameter layout is impossible, or two layouts that must be equal differ."""


class ConvertError(PycudnnrnnError, ValueError):
    """Weights cannot be converted.

    Attributes:
        framework: the framework that they come from or go to.
        what: the array or the argument that is the problem.
        why: the reason.
        choices: the keywords of each RNN among the arrays, such as {"prefix": "encoder."}, if the caller has to choose
            one. Otherwise empty.
    """

    def __init__(self, framework: str, what: str, why: str, choices: tuple[dict[str, Any], ...] = ()) -> None:
        super().__init__(framework, what, why, choices)
        self.framework = framework
        self.what = what
        self.why = why
        self.choices = choices

    def __str__(self) -> str:
        return _cut(f"{self.framework}: {self.what}: {self.why}")


class EngineError(PycudnnrnnError, RuntimeError):
    """No engine can run the call: there is no such device, or libcudnn is missing, unsupported or unusable.

    Attributes:
        reason: the message without the list of places.
        attempts: each place that was searched for libcudnn, with its result. It is empty for other causes.
    """

    def __init__(self, reason: str, attempts: tuple[str, ...] = ()) -> None:
        super().__init__(reason, attempts)
        self.reason = reason
        self.attempts = attempts

    def __str__(self) -> str:
        lines = ["Places looked at:", *(f"  - {attempt}" for attempt in self.attempts)] if self.attempts else []
        return "\n".join(map(_cut, [self.reason, *lines]))


class DeviceLostError(EngineError):
    """A CUDA error has made the device unusable for this process. Restart the process.

    Attributes:
        device: the device, such as "cuda:0".
        code: number of the first error.
        error: CUDA's name of the first error, such as "cudaErrorIllegalAddress".
        function: the call that reported it, which is not necessarily the cause.
        detail: CUDA's description.
    """

    def __init__(self, device: str, code: int, error: str, function: str, detail: str = "") -> None:
        super().__init__(
            f"{device} is lost to this process: {function} reported {error} ({code})"
            + (f": {detail}" if detail else "")
            + "\nNo call can succeed there any more: restart the process. What went wrong may be any earlier work on "
            "the device, of any library: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which"
        )
        self.args = (device, code, error, function, detail)
        self.device = device
        self.code = code
        self.error = error
        self.function = function
        self.detail = detail


class CudnnError(EngineError):
    """A cuDNN call returned a status other than success.

    Attributes:
        function: C name of the function.
        code: the status as a number, in the numbering of `version`.
        status: name of the status.
        family: kind of the status, the same for cuDNN 8 and 9: NOT_INITIALIZED, BAD_PARAM, NOT_SUPPORTED,
            INTERNAL_ERROR, EXECUTION_FAILED ..., or UNKNOWN.
        version: cuDNN's version number, such as 92800.
        detail: cuDNN's own text of the last error, or "".
        hint: what usually helps, or "".
    """

    def __init__(
        self, function: str, code: int, status: str, family: str, version: int, detail: str = "", hint: str = ""
    ) -> None:
        super().__init__(
            f"{function} returned {status} ({code}) from cuDNN {version_text(version)}"
            + (f": {detail}" if detail else "")
            + (f"\nHint: {hint}" if hint else "")
        )
        self.args = (function, code, status, family, version, detail, hint)
        self.function = function
        self.code = code
        self.status = status
        self.family = family
        self.version = version
        self.detail = detail
        self.hint = hint


_MIXED: Final = "libraries of several cuDNN versions are mixed: reinstall cuDNN, and look at LD_LIBRARY_PATH"
_MEMORY: Final = "memory is exhausted: a smaller batch, or fewer arrays kept alive, needs less"

_HINTS: Final[dict[int, str]] = {
    1001: "no GPU can be used, its driver is missing or too old, or its memory is full: see nvidia-smi",
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
    """Return what usually helps with a status of cuDNN, or "" if that is not known.

    Args:
        status: the code, in the numbering of cuDNN 9.

    Example:
        >>> from pycudnnrnn.errors import cudnn_hint
        >>> cudnn_hint(3005)
        'the driver is older than this cuDNN needs'
    """
    return _HINTS.get(status) or _HINTS.get(status // 1000 * 1000, "")


class MissingDependencyError(PycudnnrnnError, ImportError):
    """An optional dependency is not installed. The text contains the command that installs it.

    Attributes:
        package: the package that is missing.
        extra: the extra of this package that contains it.
        purpose: the feature that needs it.
        install: its name for pip.
    """

    def __init__(self, package: str, extra: str, purpose: str, install: str | None = None) -> None:
        super().__init__(package, extra, purpose, install)
        self.package = package
        self.extra = extra
        self.purpose = purpose
        self.install = install or package

    def __str__(self) -> str:
        how = install_text(self.install, self.extra)
        return _cut(f"{self.purpose} needs {self.package}, which is not installed: {how}")
