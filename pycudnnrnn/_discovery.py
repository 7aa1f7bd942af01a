"""The search for libcudnn: which file is used, and which places were searched.

A step is a function that takes a `Context` and returns a candidate, or the reason why it has none. The first candidate
is opened. If it cannot be used, that is an error and no other is tried, so the choice never depends on which of two
libraries is damaged. The working directory, PATH and LD_LIBRARY_PATH are not searched, and only absolute, resolved
paths are passed to dlopen.

cuda-pathfinder is not a step, because it loads cuBLASLt first and fails without it. libcudnn opens without cuBLASLt.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ArgumentTypeError, EngineError, install_text, version_text

ENVIRONMENT_VARIABLE: Final = "PYCUDNNRNN_LIBRARY"

PATH_SHOWN: Final = 300
"""Most characters of a path in an error."""

OLDEST: Final = 8907
"""Oldest version accepted: 8.9.7, the oldest whose headers the prototype table is compared with."""

NEXT_MAJOR: Final = 100000
"""First version refused: 10.0 may change any prototype, as 9.0 did."""

SUBLIBRARIES: Final[dict[int, tuple[str, ...]]] = {
    9: ("graph", "ops", "adv"),
    8: ("ops_infer", "ops_train", "adv_infer", "adv_train"),
}
"""The sub-libraries that an RNN needs, by major version, in the order of their dependencies. Source: ELF headers."""

VERSION_CHECKS: Final[dict[int, tuple[str, ...]]] = {
    9: ("cudnnGraphVersionCheck", "cudnnOpsVersionCheck", "cudnnAdvVersionCheck"),
    8: (
        "cudnnOpsInferVersionCheck",
        "cudnnOpsTrainVersionCheck",
        "cudnnAdvInferVersionCheck",
        "cudnnAdvTrainVersionCheck",
    ),
}
"""Functions that compare a sub-library's version with the versions of its dependencies."""

PROBE: Final = "cudnnRNNForward"

WHEELS: Final = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu11")

SONAMES: Final = tuple(f"libcudnn.so.{major}" for major in SUBLIBRARIES)

SYSTEM_FOLDERS: Final = (
    f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/cuda/lib64",
)
"""Where distributions and NVIDIA's own packages put libcudnn."""


class NotFoundError(EngineError):
    """There is no libcudnn in any of the places that were searched: checks do not run then, rather than fail."""


@dataclass(frozen=True)
class Context:
    """The inputs of the search."""

    path: str | os.PathLike[str] | None = None
    allow_system: bool = False
    own: tuple[Path, ...] = ()
    """The libraries that this package has loaded, in that order."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


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


def loaded_files(pattern: str) -> list[Path]:
    """List the files mapped into this process whose name matches `pattern`, each once. Only Linux has such a list."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    paths = [Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")]
    return list(dict.fromkeys(path for path in paths if re.fullmatch(pattern, path.name)))


def explicit(context: Context) -> Candidate | str:
    """Take the path from the caller or the environment. A wrong path is an error; the search does not continue."""
    value, via = context.path, "argument"
    if value is None:
        value, via = context.environment.get(ENVIRONMENT_VARIABLE) or None, ENVIRONMENT_VARIABLE
    if value is None:
        return f"{ENVIRONMENT_VARIABLE}: not set"
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentTypeError("path", "a path to a libcudnn file", shorten(value))
    path = Path(value)
    if not path.is_absolute():
        raise EngineError(f"{via} must be an absolute path to a libcudnn file, got {shorten(str(path), PATH_SHOWN)}")
    if not _is_file(path):
        raise NotFoundError(f"{via} names no file: {shorten(str(path), PATH_SHOWN)}")
    return Candidate(path, via)


def already_loaded(context: Context) -> Candidate | str:
    """Take the libcudnn that this package or another one has already loaded, if its major version is supported.

    If there are several, take the one that this package loaded first.
    """
    found = [path for soname in SONAMES for path in loaded_files(re.escape(soname) + r"(\.\d+)*")]
    found = [path for path in context.own if path in found] or found
    return Candidate(found[0], "already loaded") if found else "already loaded: no libcudnn in this process"


def wheel(_context: Context) -> Candidate | str:
    """Take the file that an installed NVIDIA wheel lists. Only the site folders of this interpreter are searched."""
    folders = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    for name in WHEELS:
        for distribution in importlib.metadata.distributions(name=name, path=folders):
            for file in distribution.files or ():
                if file.name in SONAMES:
                    path = Path(str(distribution.locate_file(file)))
                    return (
                        Candidate(path, f"wheel {name}")
                        if _is_file(path)
                        else f"wheel: {name} lists {path}, which is gone"
                    )
    return f"wheel: none of {', '.join(WHEELS)} is installed in {', '.join(folders)}"


def conda(_context: Context) -> Candidate | str:
    """Search the conda environment that this interpreter belongs to."""
    if not Path(sys.prefix, "conda-meta").is_dir():
        return f"conda: {sys.prefix} is not a conda environment"
    return _in_folders("conda", [Path(sys.prefix, "lib")])


def cudnn_path(context: Context) -> Candidate | str:
    """Search the folder in CUDNN_PATH, which must be absolute."""
    root = context.environment.get("CUDNN_PATH")
    if not root:
        return "CUDNN_PATH: not set"
    if not Path(root).is_absolute():
        return f"CUDNN_PATH: not an absolute path: {shorten(root, PATH_SHOWN)}"
    return _in_folders("CUDNN_PATH", [Path(root, "lib"), Path(root, "lib64")])


def system(context: Context) -> Candidate | str:
    """Search the system's library folders, if the caller allowed it."""
    if not context.allow_system:
        return "system: not looked at; pycudnnrnn.libcudnn.load(allow_system=True) allows it"
    return _in_folders("system", [Path(folder) for folder in SYSTEM_FOLDERS])


def _is_file(path: Path) -> bool:
    """Return True for a file; False also for a path that is too long, forbidden or malformed."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _in_folders(via: str, folders: list[Path]) -> Candidate | str:
    for folder in folders:
        for soname in SONAMES:
            if _is_file(folder / soname):
                return Candidate(folder / soname, via)
    return f"{via}: no {' or '.join(SONAMES)} in {', '.join(shorten(str(f), PATH_SHOWN) for f in folders)}"


STEPS: Final[tuple[Step, ...]] = (explicit, already_loaded, wheel, conda, cudnn_path, system)


def find(context: Context) -> tuple[Candidate, tuple[str, ...]]:
    """Return the first candidate, and what the steps before it reported.

    Raises:
        NotFoundError: no step has a candidate.
        EngineError: an explicit path is not absolute.
    """
    attempts: list[str] = []
    for step in STEPS:
        found = step(context)
        if isinstance(found, Candidate):
            return found, tuple(attempts)
        attempts.append(found)
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
    match = re.search(r"\.so\.(\d+)", path.name)
    if match is None:
        raise EngineError("the file's name does not end in .so and a major version, as libcudnn.so.9 does")
    major = int(match[1])
    if major not in SUBLIBRARIES:
        raise EngineError(f"its major version is {major}; {_supported()}")
    parts = tuple(_sublibrary(path.parent, f"libcudnn_{part}.so.{major}") for part in SUBLIBRARIES[major])
    if len({part.parent for part in parts}) > 1:
        raise EngineError(f"its sub-libraries lie in several folders: {', '.join(map(str, parts))}")
    _check_alone(path, parts, major)
    # The sub-libraries look for each other by bare name, in LD_LIBRARY_PATH first, unless they are loaded already.
    for part in parts:
        _dlopen(part)
    dll = _dlopen(path)
    version = _checked_version(dll, major)
    for check in VERSION_CHECKS[major]:
        code = _call(dll, check, ctypes.c_int)
        if code:
            raise EngineError(f"{check} returned {code}: its sub-libraries do not belong together")
    _call(dll, PROBE, None, call=False)
    return Opened(dll, version, path, candidate.via, parts)


def _sublibrary(folder: Path, name: str) -> Path:
    try:
        return (folder / name).resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        raise EngineError(f"{name} is not beside it") from None


def _check_alone(path: Path, parts: tuple[Path, ...], major: int) -> None:
    """Raise an error for a second libcudnn of one major version: its parts would use those of the first."""
    own = {path, *parts}
    folder = parts[0].parent
    for other in loaded_files(rf"libcudnn(_\w+)?\.so\.{major}(\.\d+)*"):
        if other not in own and other.parent != folder:
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
        raise EngineError(f"it says that its version is {version}; {_supported()}")
    if version_text(version).partition(".")[0] != str(major):
        raise EngineError(f"it says that its version is {version_text(version)}, its name says {major}")
    return version


def _supported() -> str:
    return f"supported are {version_text(OLDEST)} to any 9.x"


def _call(dll: ctypes.CDLL, name: str, restype: Any, *, call: bool = True) -> Any:
    try:
        function = dll[name]
    except AttributeError:
        raise EngineError(f"it does not export {name}: this libcudnn is not complete") from None
    function.argtypes = ()
    function.restype = restype
    return function() if call else None
