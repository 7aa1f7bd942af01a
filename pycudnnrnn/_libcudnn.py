"""libcudnn itself: one Python callable for each C function, under its C name. Public as `pycudnnrnn.libcudnn`.

As in C::

    lib = libcudnn.load()
    descriptor = libcudnn.cudnnRNNDescriptor_t()
    lib.cudnnCreateRNNDescriptor(ctypes.byref(descriptor))

`load` finds a library once; each C function is an attribute of it, bound at first use. Arguments are those of the C
function, in its order. Each is checked for its kind and range before the call (`Function`), and a status other than
success raises `CudnnError` after it. What is called often has everything converted once that does not change
(`Bound`). There is no other way to the library through this module; what the C interface looks like is data, in
`_libcudnn_abi`.

State: the libraries loaded so far, by path, under one lock; a library is never unloaded.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pycudnnrnn import _discovery, _libcudnn_abi, _locks
from pycudnnrnn._libcudnn_abi import *  # noqa: F403  its enumerations and pointer types are this module's, too
from pycudnnrnn._libcudnn_abi import PROTOTYPES, RESULTS, Address, Enumerated, Opaque, Prototype, Reference, read_status
from pycudnnrnn.errors import ArgumentTypeError, CudnnError, VersionError, cudnn_hint, version_text

if TYPE_CHECKING:
    import os
    from pathlib import Path

__all__ = ["PROTOTYPES", "Bound", "Function", "Library", "load", "version_text"]
__all__ += _libcudnn_abi.__all__
__dir__ = __all__.copy

LAST_ERROR_SIZE: Final = 1024


class Function:
    """A C function of one library: called as in C, with checked arguments and a checked status.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that the prototype does not allow; nothing was called.
        ClosedError: an argument whose owner was closed; nothing was called.
        VersionError: this library has no such function.
        CudnnError: the function returned a status other than success.
    """

    __slots__ = ("_foreign", "_library", "prototype")

    def __init__(self, library: Library, prototype: Prototype, foreign: Any) -> None:
        self.prototype = prototype
        self._library = library
        self._foreign = foreign
        if foreign is not None:
            foreign.argtypes = self.argtypes
            foreign.restype = self.restype

    @property
    def is_there(self) -> bool:
        """Whether this library has it."""
        return self._foreign is not None

    @property
    def argtypes(self) -> tuple[Any, ...]:
        """Ctypes' own types: what `Prototype.convert` gives passes through them as it is."""
        return tuple(parameter.ctype for parameter in self.prototype.parameters.values())

    @property
    def restype(self) -> Any:
        return RESULTS[self.prototype.result]

    def __repr__(self) -> str:
        parameters = ", ".join(f"{parameter.c} {name}" for name, parameter in self.prototype.parameters.items())
        return f"<{self.prototype.result} {self.prototype.name}({parameters})>"

    def __call__(self, *arguments: Any) -> Any:
        self._check_there()
        prototype = self.prototype
        converted = prototype.convert(self._named([*prototype.parameters], arguments))
        result = self._foreign(*converted.values())
        if result and prototype.result == "cudnnStatus_t":
            raise self._library.status_error(prototype.name, result)
        return result

    def read(self, *given: Any, **shared: Any) -> dict[str, Any]:
        """Call a getter with what it reads, in order, and return what it writes, by name: members, numbers, addresses.

        `shared` are arrays of the caller's, by name.
        """
        made, left = {}, iter(given)
        for name, parameter in self.prototype.parameters.items():
            writes = isinstance(parameter, Reference)
            made[name] = shared[name] if name in shared else parameter.ctype._type_() if writes else next(left)
        self(*made.values())
        written = {n: p for n, p in self.prototype.parameters.items() if isinstance(p, Reference)}
        return {name: _value(made[name], parameter.of) for name, parameter in written.items()}

    def bind(self, *left: str, **given: Any) -> Bound:
        """Give all arguments but some pointers once; see `Bound`. `left` names those, in their order."""
        self._check_there()
        prototype, parameters = self.prototype, self.prototype.parameters
        pointers = {name for name, kind in parameters.items() if isinstance(kind, (Opaque, Address))}
        if sorted((*left, *given)) != sorted(parameters) or not pointers.issuperset(left):
            raise ArgumentTypeError(f"arguments of {prototype.name}", "all but pointers, by name", sorted(given))

        fixed = prototype.convert(given)
        places = [*fixed, *left]
        in_order = operator.itemgetter(*map(places.index, parameters))
        needed = [i for i, name in enumerate(left) if not getattr(parameters[name], "null", False)]
        pick = operator.itemgetter(*needed * 2) if needed else tuple  # twice, because of one it would give no tuple
        values, foreign, count = tuple(fixed.values()), self._foreign, len(left)

        def refuse(pointers: tuple[Any, ...]) -> None:
            prototype.convert(self._named(left, pointers))  # names the argument, in our own error

        def call(*pointers: Any) -> None:
            if len(pointers) != count or not all(pick(pointers)):
                refuse(pointers)
            try:
                status = foreign(*in_order(values + pointers))
            except ctypes.ArgumentError:
                refuse(pointers)
                raise
            if status:
                raise self._library.status_error(prototype.name, status)

        return call

    def _named(self, names: Sequence[str], arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) != len(names):  # ctypes itself lets too many through
            expected = f"{len(names)}: ({', '.join(names)})"
            raise ArgumentTypeError(f"arguments of {self.prototype.name}", expected, len(arguments))
        return dict(zip(names, arguments, strict=True))

    def _check_there(self) -> None:
        if self._foreign is not None:
            return
        prototype, version = self.prototype, self._library.version
        if version < prototype.since:
            reason = f"needs cuDNN {version_text(prototype.since)} or newer"
        elif version >= prototype.until:
            reason = f"was removed in cuDNN {version_text(prototype.until)}"
        else:
            reason = "is missing from this library, although its version should have it"
        raise VersionError(f"{prototype.name} {reason}; {self._library.path} is {version_text(version)}")


def _value(written: Any, kind: Any) -> Any:
    if isinstance(kind, Enumerated):
        return kind.enum(written.value)
    return written.value if hasattr(written, "value") else ctypes.cast(written, ctypes.c_void_p).value


Bound = Callable[..., None]
"""What `Function.bind` gives: call it with the pointers that were left open.

These go through ctypes' own types, which cost a fraction of our checks: a pointer of another opaque type is refused as
ever, and addresses are to come from arrays that were checked. What was given is kept alive by whoever gave it.

Raises:
    ArgumentTypeError: an argument that is no pointer.
    ArgumentError: NULL for a pointer that must not be; nothing was called.
    CudnnError: the function returned a status other than success.
"""


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
        status, family, modern = read_status(self.version, code)
        return CudnnError(function, code, status, family, self.version, detail, cudnn_hint(modern))

    def _last_error(self) -> str:
        if not self.cudnnGetLastErrorString.is_there:
            return ""
        buffer = ctypes.create_string_buffer(LAST_ERROR_SIZE)
        self.cudnnGetLastErrorString(buffer, LAST_ERROR_SIZE)
        return buffer.value.decode("utf-8", errors="replace").strip()


_libraries: dict[Path, Library] = {}
_lock = _locks.lock()


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
        candidate, attempts = _discovery.find(_discovery.Context(path, allow_system, tuple(_libraries)))
        key = candidate.path.resolve()
        if key not in _libraries:
            _libraries[key] = Library(_discovery.open_library(candidate, attempts))
        return _libraries[key]
