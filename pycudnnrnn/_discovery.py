"""The search for libcudnn: which file is used, and which places were searched.

A step is a function that takes a `Context` and returns a candidate, or the reason why it has none. The first candidate
is opened. If it cannot be used, that is an error and no other is tried, so the choice never depends on which of two
libraries is damaged. The working directory, PATH and LD_LIBRARY_PATH are not searched, and only absolute, resolved
paths are passed to the dynamic loader.

The names and folders are those of Linux (x86-64 and ARM) or of Windows. Source for Windows: the wheel
nvidia-cudnn-cu13 9.28.0.42 for win_amd64, and the folders that NVIDIA's installer makes. There is no cuDNN for macOS.

cuda-pathfinder is not a step, because it loads cuBLASLt first and fails without it. libcudnn opens without cuBLASLt.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ArgumentTypeError, EngineError, install_text, version_text

ENVIRONMENT_VARIABLE: Final = "PYCUDNNRNN_LIBRARY"

OLDEST: Final = 8907
"""Oldest version accepted: 8.9.7, the oldest whose headers the prototype table is compared with."""

NEXT_MAJOR: Final = 100000
"""First version refused: 10.0 may change any prototype, as 9.0 did."""

SUBLIBRARIES: Final[dict[int, dict[str, str]]] = {
    9: {"graph": "cudnnGraphVersionCheck", "ops": "cudnnOpsVersionCheck", "adv": "cudnnAdvVersionCheck"},
    8: {
        "ops_infer": "cudnnOpsInferVersionCheck",
        "ops_train": "cudnnOpsTrainVersionCheck",
        "adv_infer": "cudnnAdvInferVersionCheck",
        "adv_train": "cudnnAdvTrainVersionCheck",
    },
}
"""By major version: the sub-libraries that an RNN needs, in the order of their dependencies (source: ELF headers), and
for each the function that compares its version with the versions of its dependencies."""

WHEELS: Final = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu11")

SYSTEM_FOLDERS: Final = (
    f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/cuda/lib64",
)
"""Where Linux distributions and NVIDIA's own packages put libcudnn."""


class NotFoundError(EngineError):
    """No place that was searched has a libcudnn. `pycudnnrnn check` then reports its checks of cuDNN as not run."""


@dataclass(frozen=True)
class Context:
    """The inputs of the search."""

    path: str | os.PathLike[str] | None = None
    allow_system: bool = False
    loaded: tuple[Path, ...] = ()
    """The libraries that this package has loaded, in that order."""


@dataclass(frozen=True)
class Candidate:
    """A file that one step found; `via` names the step."""

    path: Path
    via: str


@dataclass(frozen=True)
class Opened:
    """A libcudnn that was opened, and how it was found. `parts` are the sub-libraries that were loaded with it."""

    dll: ctypes.CDLL
    version: int
    path: Path
    via: str
    parts: tuple[Path, ...]


Step = Callable[[Context], "Candidate | str"]


def library_name(major: int, part: str = "") -> str:
    """Return the name of a sub-library on this system, and without `part` of the library that is linked against."""
    part = part and f"_{part}"
    return f"cudnn{part}64_{major}.dll" if sys.platform == "win32" else f"libcudnn{part}.so.{major}"


def library_names() -> tuple[str, ...]:
    """Return the names under which libcudnn is searched, the newest first."""
    return tuple(library_name(major) for major in SUBLIBRARIES)


def loaded_files(names: Iterable[str]) -> list[Path]:
    """List the files of these names that are loaded in this process. On Linux a name may have a version after it."""
    if sys.platform == "win32":
        kernel, paths = ctypes.WinDLL("kernel32"), []
        kernel.GetModuleHandleW.argtypes, kernel.GetModuleHandleW.restype = (ctypes.c_wchar_p,), ctypes.c_void_p
        kernel.GetModuleFileNameW.argtypes = ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32
        for module in filter(None, map(kernel.GetModuleHandleW, names)):
            path = ctypes.create_unicode_buffer(32768)  # the longest path that Windows has
            kernel.GetModuleFileNameW(module, path, len(path))
            paths.append(Path(path.value))
        return paths
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    mapped = dict.fromkeys(Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/"))
    return [path for name in names for path in mapped if is_named(path, name)]


def is_named(path: Path, name: str) -> bool:
    """Whether a file has this name, with a version after it or without."""
    return re.fullmatch(re.escape(name) + r"(\.\d+)*", path.name) is not None


def explicit(context: Context) -> Candidate | str:
    """Take the path from the caller or the environment. A wrong path is an error; the search does not continue."""
    value, via = context.path, "argument"
    if value is None:
        value, via = os.environ.get(ENVIRONMENT_VARIABLE) or None, ENVIRONMENT_VARIABLE
    if value is None:
        return f"{ENVIRONMENT_VARIABLE}: not set"
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentTypeError("path", "a path to a libcudnn file", shorten(value))
    path = Path(value)
    if not path.is_absolute():
        raise EngineError(f"{via} must be an absolute path to a libcudnn file, got {str(path)!r}")
    if not _is_file(path):
        raise NotFoundError(f"{via} names no file: {str(path)!r}")
    return Candidate(path, via)


def already_loaded(context: Context) -> Candidate | str:
    """Take the libcudnn that this package or another one has already loaded, if its major version is supported.

    If there are several, take the one that this package loaded first.
    """
    loaded = loaded_files(library_names())
    loaded = [path for path in context.loaded if path in loaded] or loaded
    return Candidate(loaded[0], "already loaded") if loaded else "already loaded: no libcudnn in this process"


def wheel(_context: Context) -> Candidate | str:
    """Take the file that an installed NVIDIA wheel lists. Only the site folders of this interpreter are searched."""
    folders = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    for name in WHEELS:
        for distribution in importlib.metadata.distributions(name=name, path=folders):
            for file in distribution.files or ():
                path = Path(str(distribution.locate_file(file)))
                if path.name in library_names() and _is_file(path):
                    return Candidate(path, f"wheel {name}")
    return f"wheel: none of {', '.join(WHEELS)} in {', '.join(folders)} has {' or '.join(library_names())}"


def conda(_context: Context) -> Candidate | str:
    """Search the conda environment that this interpreter belongs to."""
    if not Path(sys.prefix, "conda-meta").is_dir():
        return f"conda: {sys.prefix} is not a conda environment"
    return _below("conda", Path(sys.prefix, "Library") if sys.platform == "win32" else Path(sys.prefix))


def variable(name: str) -> Step:
    """Return the step that searches the folder in an environment variable, which must be absolute."""

    def step(_context: Context) -> Candidate | str:
        root = os.environ.get(name)
        if not root:
            return f"{name}: not set"
        if not Path(root).is_absolute():
            return f"{name}: not an absolute path: {root!r}"
        return _below(name, Path(root))

    return step


def system(context: Context) -> Candidate | str:
    """Search the system's library folders, if the caller allowed it."""
    if not context.allow_system:
        return "system: not looked at; pycudnnrnn.libcudnn.load(allow_system=True) allows it"
    if sys.platform == "win32":
        return _below("system", Path(os.environ.get("PROGRAMFILES", "C:/Program Files"), "NVIDIA", "CUDNN"), "*/")
    return _in_folders("system", [Path(folder) for folder in SYSTEM_FOLDERS])


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  Path.is_file raises an error for a name that no file can have


def _below(via: str, root: Path, inner: str = "") -> Candidate | str:
    """Search the folders that a toolkit or a conda environment has below its root, those of newer versions first.

    CUDA calls ARM servers sbsa. On Windows, NVIDIA's installer adds a folder for the version of CUDA, and CUDA 13 one
    for the processor.
    """
    target = "sbsa" if platform.machine() == "aarch64" else platform.machine()
    on_linux, on_windows = ("lib", "lib64", f"targets/{target}-linux/lib"), ("bin/", "bin/*/", "bin/*/*/")
    patterns = on_windows if sys.platform == "win32" else on_linux
    folders = [folder for pattern in patterns for folder in sorted(root.glob(inner + pattern), reverse=True)]
    return _in_folders(via, folders or [root])


def _in_folders(via: str, folders: list[Path]) -> Candidate | str:
    for name in library_names():
        for folder in folders:
            if _is_file(folder / name):
                return Candidate(folder / name, via)
    return f"{via}: no {' or '.join(library_names())} in {', '.join(repr(str(folder)) for folder in folders)}"


STEPS: Final = explicit, already_loaded, wheel, conda, variable("CUDNN_PATH"), variable("CUDA_PATH"), system


def find(context: Context) -> tuple[Candidate, tuple[str, ...]]:
    """Return the first candidate, and what the steps before it reported.

    Raises:
        NotFoundError: no step has a candidate.
        EngineError: an explicit path is not absolute.
    """
    if sys.platform == "darwin":
        raise NotFoundError("There is no cuDNN for macOS. Models run on NumPy arrays there, on the CPU.")
    attempts: list[str] = []
    for step in STEPS:
        candidate = step(context)
        if isinstance(candidate, Candidate):
            return candidate, tuple(attempts)
        attempts.append(candidate)
    raise NotFoundError(f"No libcudnn was found: {install_text('nvidia-cudnn-cu13', 'cuda13')}", tuple(attempts))


def open_library(candidate: Candidate, attempts: tuple[str, ...] = ()) -> Opened:
    """Open a candidate with its sub-libraries, and check that they belong together.

    Raises:
        EngineError: damaged, incomplete, mixed with another libcudnn of this process, or of an unsupported version.
    """
    attempts = (*attempts, f"{candidate.via}: {candidate.path}")
    try:
        return _open(candidate)
    except EngineError as error:
        raise EngineError(f"{candidate.path} cannot be used: {error.reason}", attempts) from error.__cause__


def _open(candidate: Candidate) -> Opened:
    path = candidate.path.resolve()
    major = next((major for major in SUBLIBRARIES if is_named(path, library_name(major))), 0)
    if not major:
        raise EngineError(f"its name is not {' or '.join(library_names())}; {_supported()}")
    parts = tuple(_sublibrary(path.parent, library_name(major, part)) for part in SUBLIBRARIES[major])
    _check_alone(path, parts, major)
    # The sub-libraries look for each other by bare name, in LD_LIBRARY_PATH first, unless they are loaded already.
    if sys.platform == "win32":
        os.add_dll_directory(str(path.parent))  # for those that cuDNN opens later
    for part in parts:
        _dlopen(part)
    dll = _dlopen(path)
    version = _checked_version(dll, major)
    for check in SUBLIBRARIES[major].values():
        code = _call(dll, check, ctypes.c_int)
        if code:
            raise EngineError(f"{check} returned {code}: its sub-libraries do not belong together")
    return Opened(dll, version, path, candidate.via, parts)


def _sublibrary(folder: Path, name: str) -> Path:
    try:
        return (folder / name).resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        raise EngineError(f"{name} is not in the same folder") from None


def _check_alone(path: Path, parts: tuple[Path, ...], major: int) -> None:
    """Raise an error for a second libcudnn of one major version: its parts would use those of the first."""
    folders = {file.parent for file in (path, *parts)}
    for other in loaded_files(library_name(major, part) for part in ("", *SUBLIBRARIES[major])):
        if other.parent not in folders:
            raise EngineError(f"{other} is already loaded in this process, and two of them would mix")


def _dlopen(file: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        hint = " (cuDNN needs zlib: install the system package zlib1g or zlib)" if "libz.so" in str(error) else ""
        raise EngineError(f"the dynamic loader refused it: {error}{hint}") from error


def _checked_version(dll: ctypes.CDLL, major: int) -> int:
    version: int = _call(dll, "cudnnGetVersion", ctypes.c_size_t)
    if not OLDEST <= version < NEXT_MAJOR:
        raise EngineError(f"it reports version {version}; {_supported()}")
    if version_text(version).partition(".")[0] != str(major):
        raise EngineError(f"it reports version {version_text(version)}, but its file name has major version {major}")
    return version


def _supported() -> str:
    return f"supported are {version_text(OLDEST)} to any 9.x"


def _call(dll: ctypes.CDLL, name: str, restype: Any) -> Any:
    try:
        function = dll[name]
    except AttributeError:
        raise EngineError(f"it does not export {name}: this libcudnn is not complete") from None
    function.argtypes = ()
    function.restype = restype
    return function()
