"""cuDNN's C functions for RNNs, as Python callables under their C names. Public as `pycudnnrnn.libcudnn`.

`load` finds and loads the library. Each C function is an attribute of the result, with the arguments of the C function
in their order. Each argument is checked before the call. A status other than success raises `CudnnError`.

Example:
    >>> import ctypes
    >>> from pycudnnrnn import libcudnn
    >>> lib = libcudnn.load()
    >>> lib.version >= 80000, lib.cudnnGetVersion() == lib.version
    (True, True)
    >>> descriptor = libcudnn.cudnnRNNDescriptor_t()
    >>> lib.cudnnCreateRNNDescriptor(ctypes.byref(descriptor))  # 0 is success
    0
    >>> lib.cudnnDestroyRNNDescriptor(descriptor)
    0

`PROTOTYPES` lists the functions with their parameters, and `Library` lists their names. Use `Function.bind` for calls
that are made often. The C interface is data, in `_libcudnn_abi`.

State: the libraries loaded so far, by path, under one lock. A library is never unloaded.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pycudnnrnn import _discovery, _libcudnn_abi, _locks
from pycudnnrnn._libcudnn_abi import *  # noqa: F403  its enumerations and pointer types are this module's, too
from pycudnnrnn._libcudnn_abi import PROTOTYPES, RESULTS, Address, Enumerated, Opaque, Prototype, Reference, read_status
from pycudnnrnn.errors import ArgumentTypeError, CudnnError, EngineError, cudnn_hint, version_text

if TYPE_CHECKING:
    import os
    from pathlib import Path

__all__ = ["PROTOTYPES", "Bound", "Function", "Library", "load", "version_text"]
__all__ += _libcudnn_abi.__all__
__dir__ = __all__.copy

LAST_ERROR_SIZE: Final = 1024


class Function:
    """A C function of one library, called as in C: `lib.cudnnGetVersion()`. Attributes of `Library` are of this class.

    Attributes:
        prototype: its C name, its parameters by name, its result, and the versions that have it.
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
        """Whether this library has the function."""
        return self._foreign is not None

    @property
    def argtypes(self) -> tuple[Any, ...]:
        """The ctypes types of the arguments. Converted arguments pass through them unchanged."""
        return tuple(parameter.ctype for parameter in self.prototype.parameters.values())

    @property
    def restype(self) -> Any:
        """The ctypes type of the result."""
        return RESULTS[self.prototype.result]

    def __repr__(self) -> str:
        parameters = ", ".join(f"{parameter.c} {name}" for name, parameter in self.prototype.parameters.items())
        return f"<{self.prototype.result} {self.prototype.name}({parameters})>"

    def __reduce__(self) -> Any:
        expected = "its name: a function belongs to the library that this process loaded"
        raise ArgumentTypeError("object to pickle", expected, "Function")

    def __call__(self, *arguments: Any) -> Any:
        """Call the C function.

        Args:
            *arguments: the arguments of the C function, in its order: numbers, members of the enumerations here,
                pointers of the types here (or objects that own them), device addresses as integers, and ctypes
                objects or `ctypes.byref` of them where the function writes.

        Returns:
            The result of the C function; 0 for a status of success.

        Raises:
            ArgumentError, ArgumentTypeError: an argument that the prototype does not allow. Nothing was called.
            StateError: the owner of an argument was closed. Nothing was called.
            EngineError: this library does not have the function.
            CudnnError: the function returned a status other than success.
        """
        self._check_there()
        prototype = self.prototype
        converted = prototype.convert(self._named([*prototype.parameters], arguments))
        result = self._foreign(*converted.values())
        if result and prototype.result == "cudnnStatus_t":
            raise self._library.status_error(prototype.name, result)
        return result

    def read(self, *inputs: Any, **shared: Any) -> dict[str, Any]:
        """Call a function that writes values through pointers, and return these values.

        Args:
            *inputs: the arguments that the function reads, in order.
            **shared: arrays that the function writes into, by the names of its parameters.

        Returns:
            A dict of the values written, by the names of the parameters: enumeration members, numbers or addresses.

        Example:
            >>> import ctypes
            >>> from pycudnnrnn import libcudnn
            >>> lib = libcudnn.load()
            >>> tensor = libcudnn.cudnnTensorDescriptor_t()
            >>> lib.cudnnCreateTensorDescriptor(ctypes.byref(tensor))
            0
            >>> kind, sizes = libcudnn.cudnnDataType_t.FLOAT, (ctypes.c_int * 3)()
            >>> lib.cudnnSetTensorNdDescriptor(tensor, kind, 3, [4, 2, 1], [2, 1, 1])
            0
            >>> get, strides = lib.cudnnGetTensorNdDescriptor, (ctypes.c_int * 3)()
            >>> get.read(tensor, 3, dimA=sizes, strideA=strides)
            {'dataType': <cudnnDataType_t.FLOAT: 0>, 'nbDims': 3}
            >>> list(sizes)
            [4, 2, 1]
            >>> lib.cudnnDestroyTensorDescriptor(tensor)
            0
        """
        parameters = self.prototype.parameters
        written = {name: parameter for name, parameter in parameters.items() if isinstance(parameter, Reference)}
        read = [name for name in parameters if name not in {*written, *shared}]
        converted = {name: parameter.ctype._type_() for name, parameter in written.items()} | self._named(read, inputs)
        converted = dict.fromkeys(parameters) | converted | shared  # an unknown name is one argument too many
        self(*converted.values())
        return {name: _value(converted[name], parameter.of) for name, parameter in written.items()}

    def bind(self, *left: str, **values: Any) -> Bound:
        """Convert and check all arguments except some pointers once, for calls that are made often.

        Args:
            *left: names of the parameters to leave open, which must be pointers, in the order of the later calls.
            **values: all other arguments, by the names of the parameters.

        Returns:
            A `Bound`: call it with the pointers that were left open.

        Raises:
            ArgumentTypeError: arguments that are missing or unknown, or an open one that is not a pointer.
            ArgumentError: an argument that the prototype does not allow.
            EngineError: this library does not have the function.
        """
        self._check_there()
        prototype, parameters = self.prototype, self.prototype.parameters
        pointers = {name for name, kind in parameters.items() if isinstance(kind, (Opaque, Address))}
        if sorted((*left, *values)) != sorted(parameters) or not pointers.issuperset(left):
            wrong = sorted({*left, *values} ^ {*parameters} or {*left} - pointers)
            expected = "each parameter once, and only pointers left open"
            raise ArgumentTypeError(f"arguments of {prototype.name}", expected, f"wrong or missing {wrong}")

        fixed = prototype.convert(values)
        places = [*fixed, *left]
        in_order = operator.itemgetter(*map(places.index, parameters)) if len(parameters) > 1 else tuple
        needed = [i for i, name in enumerate(left) if not getattr(parameters[name], "null", False)]
        pick = operator.itemgetter(*needed * 2) if needed else tuple  # doubled, since one item would not give a tuple
        constant, foreign, count = tuple(fixed.values()), self._foreign, len(left)

        def call(*pointers: Any) -> None:
            try:
                plain = len(pointers) == count and all(pick(pointers))
                status = foreign(*in_order(constant + pointers)) if plain else 0
            except (ctypes.ArgumentError, ValueError):  # NumPy's integer, or an array in place of its address
                plain = False
            if not plain:  # this raises our own error, which names the argument, or converts what ctypes does not
                checked = tuple(prototype.convert(self._named(left, pointers)).values())
                status = foreign(*in_order(constant + checked))
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
        raise EngineError(f"{prototype.name} {reason}; {self._library.path} is {version_text(version)}")


def _value(written: Any, kind: Any) -> Any:
    if isinstance(kind, Enumerated):
        return kind.enum(written.value)
    return written.value if hasattr(written, "value") else ctypes.cast(written, ctypes.c_void_p).value


Bound = Callable[..., None]
"""The callable that `Function.bind` returns: call it with the pointers that were left open.

Only ctypes checks these pointers, which is faster. A pointer of another opaque type still raises an error. Take
addresses from arrays that were checked. The caller has to keep the objects of the other arguments alive.

Raises:
    ArgumentTypeError: an argument that is not a pointer.
    ArgumentError: NULL for a pointer that must not be NULL. Nothing was called.
    CudnnError: the function returned a status other than success.
"""


class Library:
    """A loaded libcudnn, which `load` returns. Its C functions are attributes of class `Function`.

    The functions, which `dir(lib)` lists, too:

    - library: cudnnGetVersion, cudnnGetCudartVersion, cudnnGetLastErrorString, cudnnCreate, cudnnDestroy,
      cudnnSetStream
    - RNN descriptor: cudnnCreateRNNDescriptor, cudnnSetRNNDescriptor_v8, cudnnGetRNNDescriptor_v8,
      cudnnRNNSetClip_v8, cudnnRNNSetClip_v9, cudnnRNNGetClip_v8, cudnnRNNGetClip_v9, cudnnBuildRNNDynamic,
      cudnnDestroyRNNDescriptor
    - RNN data descriptor: cudnnCreateRNNDataDescriptor, cudnnSetRNNDataDescriptor, cudnnGetRNNDataDescriptor,
      cudnnDestroyRNNDataDescriptor
    - dropout descriptor: cudnnCreateDropoutDescriptor, cudnnDropoutGetStatesSize, cudnnSetDropoutDescriptor,
      cudnnRestoreDropoutDescriptor, cudnnGetDropoutDescriptor, cudnnDestroyDropoutDescriptor
    - tensor descriptor: cudnnCreateTensorDescriptor, cudnnSetTensorNdDescriptor, cudnnGetTensorNdDescriptor,
      cudnnDestroyTensorDescriptor
    - sizes and layout: cudnnGetRNNTempSpaceSizes, cudnnGetRNNWeightSpaceSize, cudnnGetRNNWeightParams
    - run: cudnnRNNForward, cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8
    - version checks: cudnnGraphVersionCheck, cudnnOpsVersionCheck, cudnnAdvVersionCheck
    - only in cuDNN 8: cudnnGetRNNLinLayerMatrixParams, cudnnGetRNNLinLayerBiasParams, cudnnOpsInferVersionCheck,
      cudnnOpsTrainVersionCheck, cudnnAdvInferVersionCheck, cudnnAdvTrainVersionCheck
    - filter descriptor, for the two LinLayer functions: cudnnCreateFilterDescriptor, cudnnSetFilterNdDescriptor,
      cudnnGetFilterNdDescriptor, cudnnDestroyFilterDescriptor

    A function that this version does not have raises `EngineError` when it is called.

    Attributes:
        version: cuDNN's version number: 8907 is 8.9.7, 92800 is 9.28.0.
        path: the file.
        found_via: the step of the search that found it.
        parts: the files of the sub-libraries that were loaded with it.
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
        of_this_version = prototype.since <= self.version < prototype.until
        function = Function(self, prototype, getattr(self.__dll, name, None) if of_this_version else None)
        self.__dict__[name] = function
        return function

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *PROTOTYPES})

    def __repr__(self) -> str:
        return f"<libcudnn {version_text(self.version)} at {self.path}, found via {self.found_via}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "its path, for libcudnn.load(path) elsewhere", "Library")

    def status_error(self, function: str, code: int) -> CudnnError:
        """Return the exception for a status that a function has just returned in this thread.

        Args:
            function: C name of the function.
            code: the status, as a number.
        """
        buffer = ctypes.create_string_buffer(LAST_ERROR_SIZE)
        if self.cudnnGetLastErrorString.is_there:  # first, since this thread's next call overwrites the text
            self.cudnnGetLastErrorString(buffer, LAST_ERROR_SIZE)
        detail = buffer.value.decode("utf-8", errors="replace").strip()
        status, family, modern = read_status(self.version, code)
        return CudnnError(function, code, status, family, self.version, detail, cudnn_hint(modern))


_libraries: dict[Path, Library] = {}
_lock = _locks.lock()


def load(path: str | os.PathLike[str] | None = None, *, allow_system: bool = False) -> Library:
    """Load libcudnn, or return it if it is already loaded.

    Args:
        path: the file to load. None: search in this order: the environment variable PYCUDNNRNN_LIBRARY, this process,
            NVIDIA's wheels, the conda environment, the folders in CUDNN_PATH and CUDA_PATH. Default: None.
        allow_system: True also searches the system's library folders, last. Default: False.

    Returns:
        The library, as a `Library`.

    Raises:
        EngineError: no library was found, and `attempts` lists the places that were searched; or the library that was
            found is damaged, incomplete, older than 8.9.7, or newer than 9.x.

    Example:
        >>> from pycudnnrnn import libcudnn
        >>> lib = libcudnn.load()
        >>> lib.cudnnGetVersion() == lib.version
        True
        >>> lib.cudnnCreate
        <cudnnStatus_t cudnnCreate(cudnnHandle_t * handle)>
    """
    with _lock:
        candidate, attempts = _discovery.find(_discovery.Context(path, allow_system, tuple(_libraries)))
        key = candidate.path.resolve()
        if key not in _libraries:
            _libraries[key] = Library(_discovery.open_library(candidate, attempts))
        return _libraries[key]
