"""libcudnn's C interface as data: its enumerations, the kinds of parameters, and the prototype table.

The names are those of the headers. Tests compare every value and every prototype with the headers of 8.9.7, 9.0.0 and
the newest release. `_libcudnn` calls the functions of this table.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import check_int, check_real, shorten
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "CEnum",
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
]

# --- Enumerations


class CEnum(IntEnum):
    """An enumeration whose C type has the name of the class, and whose C constants start with `prefix`."""

    prefix: str

    def __init_subclass__(cls, prefix: str = "") -> None:
        super().__init_subclass__()
        cls.prefix = prefix

    @property
    def c_name(self) -> str:
        """The C constant: CUDNN_LSTM, CUDNN_RNN_ALGO_STANDARD ..."""
        return self.prefix + self.name


# cudnn_graph.h, 9.28


class cudnnDataType_t(CEnum, prefix="CUDNN_DATA_"):
    """Element types; only those that an RNN can have."""

    FLOAT = 0
    DOUBLE = 1
    HALF = 2
    BFLOAT16 = 9


class cudnnMathType_t(CEnum, prefix="CUDNN_"):
    DEFAULT_MATH = 0
    TENSOR_OP_MATH = 1
    TENSOR_OP_MATH_ALLOW_CONVERSION = 2
    FMA_MATH = 3


class cudnnNanPropagation_t(CEnum, prefix="CUDNN_"):
    """The treatment of NaN by the clip functions before 9.0."""

    NOT_PROPAGATE_NAN = 0
    PROPAGATE_NAN = 1


class cudnnTensorFormat_t(CEnum, prefix="CUDNN_TENSOR_"):
    NCHW = 0
    NHWC = 1
    NCHW_VECT_C = 2


# cudnn_adv.h, 9.28


class cudnnRNNAlgo_t(CEnum, prefix="CUDNN_RNN_ALGO_"):
    STANDARD = 0
    PERSIST_STATIC = 1
    PERSIST_DYNAMIC = 2
    PERSIST_STATIC_SMALL_H = 3


class cudnnForwardMode_t(CEnum, prefix="CUDNN_FWD_MODE_"):
    INFERENCE = 0
    TRAINING = 1


class cudnnRNNMode_t(CEnum, prefix="CUDNN_"):
    RNN_RELU = 0
    RNN_TANH = 1
    LSTM = 2
    GRU = 3


class cudnnRNNBiasMode_t(CEnum, prefix="CUDNN_RNN_"):
    NO_BIAS = 0
    SINGLE_INP_BIAS = 1
    DOUBLE_BIAS = 2
    SINGLE_REC_BIAS = 3


class cudnnDirectionMode_t(CEnum, prefix="CUDNN_"):
    UNIDIRECTIONAL = 0
    BIDIRECTIONAL = 1


class cudnnRNNInputMode_t(CEnum, prefix="CUDNN_"):
    LINEAR_INPUT = 0
    SKIP_INPUT = 1


class cudnnRNNClipMode_t(CEnum, prefix="CUDNN_RNN_CLIP_"):
    NONE = 0
    MINMAX = 1


class cudnnRNNDataLayout_t(CEnum, prefix="CUDNN_RNN_DATA_LAYOUT_"):
    SEQ_MAJOR_UNPACKED = 0
    SEQ_MAJOR_PACKED = 1
    BATCH_MAJOR_UNPACKED = 2


class cudnnRNNPaddingMode_t(CEnum, prefix="CUDNN_RNN_PADDED_IO_"):
    """Bit 0 of auxFlags: whether unpacked layouts are read and written. Two macros in C."""

    DISABLED = 0
    ENABLED = 1


class cudnnWgradMode_t(CEnum, prefix="CUDNN_WGRAD_MODE_"):
    ADD = 0
    SET = 1


class cudnnStatus_t(CEnum, prefix="CUDNN_STATUS_"):
    """Status codes from 9.0 on; a code's thousands are its family. Source: cudnn_graph.h."""

    SUCCESS = 0

    NOT_INITIALIZED = 1001
    SUBLIBRARY_VERSION_MISMATCH = 1002
    SERIALIZATION_VERSION_MISMATCH = 1003
    DEPRECATED = 1004
    LICENSE_ERROR = 1005
    RUNTIME_IN_PROGRESS = 1006
    RUNTIME_FP_OVERFLOW = 1007
    SUBLIBRARY_LOADING_FAILED = 1008

    BAD_PARAM = 2000
    INVALID_VALUE = 2001
    BAD_PARAM_NULL_POINTER = 2002
    BAD_PARAM_MISALIGNED_POINTER = 2003
    BAD_PARAM_NOT_FINALIZED = 2004
    BAD_PARAM_OUT_OF_BOUND = 2005
    BAD_PARAM_SIZE_INSUFFICIENT = 2006
    BAD_PARAM_STREAM_MISMATCH = 2007
    BAD_PARAM_SHAPE_MISMATCH = 2008
    BAD_PARAM_DUPLICATED_ENTRIES = 2009
    BAD_PARAM_ATTRIBUTE_TYPE = 2010
    BAD_PARAM_CUDA_GRAPH_MISMATCH = 2011
    BAD_PARAM_DESCRIPTOR_TYPE = 2012

    NOT_SUPPORTED = 3000
    NOT_SUPPORTED_GRAPH_PATTERN = 3001
    NOT_SUPPORTED_SHAPE = 3002
    NOT_SUPPORTED_DATA_TYPE = 3003
    NOT_SUPPORTED_LAYOUT = 3004
    NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER = 3005
    NOT_SUPPORTED_INCOMPATIBLE_CUDART = 3006
    NOT_SUPPORTED_ARCH_MISMATCH = 3007
    NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING = 3008
    NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE = 3009
    NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT = 3010
    NOT_SUPPORTED_PADDING = 3011
    NOT_SUPPORTED_BAD_LAUNCH_PARAM = 3012
    NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API = 3013
    NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE = 3014

    INTERNAL_ERROR = 4000
    INTERNAL_ERROR_COMPILATION_FAILED = 4001
    INTERNAL_ERROR_UNEXPECTED_VALUE = 4002
    INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003
    INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
    INTERNAL_ERROR_BAD_LAUNCH_PARAM = 4005
    INTERNAL_ERROR_TEXTURE_CREATION_FAILED = 4006

    EXECUTION_FAILED = 5000
    EXECUTION_FAILED_CUDA_DRIVER = 5001
    EXECUTION_FAILED_CUBLAS = 5002
    EXECUTION_FAILED_CUDART = 5003
    EXECUTION_FAILED_CURAND = 5004


class cudnnStatus8_t(CEnum, prefix="CUDNN_STATUS_"):
    """Status codes up to 8.x, where `cudnnStatus_t` had another numbering. Source: cudnn_ops_infer.h, 8.9.7."""

    SUCCESS = 0
    NOT_INITIALIZED = 1
    ALLOC_FAILED = 2
    BAD_PARAM = 3
    INTERNAL_ERROR = 4
    INVALID_VALUE = 5
    ARCH_MISMATCH = 6
    MAPPING_ERROR = 7
    EXECUTION_FAILED = 8
    NOT_SUPPORTED = 9
    LICENSE_ERROR = 10
    RUNTIME_PREREQUISITE_MISSING = 11
    RUNTIME_IN_PROGRESS = 12
    RUNTIME_FP_OVERFLOW = 13
    VERSION_MISMATCH = 14


_RENAMED: Final = {
    "ALLOC_FAILED": "INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "ARCH_MISMATCH": "NOT_SUPPORTED_ARCH_MISMATCH",
    "MAPPING_ERROR": "INTERNAL_ERROR_TEXTURE_CREATION_FAILED",
    "RUNTIME_PREREQUISITE_MISSING": "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
    "VERSION_MISMATCH": "SUBLIBRARY_VERSION_MISMATCH",
}
FROM_8: Final = {old: cudnnStatus_t[_RENAMED.get(old.name, old.name)] for old in cudnnStatus8_t if old}
"""The status codes of 8.x in 9.x's numbering. Source: the aliases of cudnnStatus_t (cudnn_graph.h, 9.28)."""


def read_status(version: int, code: int) -> tuple[str, str, int]:
    """Return the name of a status, the name of its family, and its code in the numbering of 9.x (0 if it has none).

    The name of the family is the same in all versions. From 2000 on, codes with the same thousands are a family; a
    smaller code has its own.
    """
    enum = cudnnStatus_t if version >= 90000 else cudnnStatus8_t
    status = enum(code) if code in enum._value2member_map_ else None
    modern = code if version >= 90000 else FROM_8.get(cudnnStatus8_t(code), 0) if status else 0
    family = cudnnStatus_t._value2member_map_.get(modern if modern < 2000 else modern // 1000 * 1000)
    return status.c_name if status else f"unrecognised ({code})", family.name if family else "UNKNOWN", modern


# --- Opaque pointers. Each has its own ctypes type, so that one cannot be passed in place of another


class cudaStream_t(ctypes.c_void_p):
    """A CUDA stream, as its address; 0 is the legacy default stream. Source: driver_types.h."""


def _opaque(struct: str, pointer: str) -> Any:  # Any: ctypes makes pointer types at run time
    kind: Any = ctypes.POINTER(type(struct, (ctypes.Structure,), {}))
    kind.__name__ = pointer
    kind.__doc__ = f"""A `{pointer}`, as in C: NULL until the matching create function writes it.

    Example:
        >>> from pycudnnrnn import libcudnn
        >>> bool(libcudnn.{pointer}())  # NULL
        False
    """
    return kind


cudnnHandle_t: Any = _opaque("cudnnContext", "cudnnHandle_t")
cudnnTensorDescriptor_t: Any = _opaque("cudnnTensorStruct", "cudnnTensorDescriptor_t")
cudnnFilterDescriptor_t: Any = _opaque("cudnnFilterStruct", "cudnnFilterDescriptor_t")
cudnnDropoutDescriptor_t: Any = _opaque("cudnnDropoutStruct", "cudnnDropoutDescriptor_t")
cudnnRNNDescriptor_t: Any = _opaque("cudnnRNNStruct", "cudnnRNNDescriptor_t")
cudnnRNNDataDescriptor_t: Any = _opaque("cudnnRNNDataStruct", "cudnnRNNDataDescriptor_t")

# --- Kinds of parameters, with their checks. ctypes alone takes 2**32 + 16 for 16, True for 1, None for any pointer,
# --- and a host array for a device address.


@dataclass(frozen=True)
class Parameter:
    """A kind of parameter: its C type as the header spells it, and the matching ctypes type."""

    c: str
    ctype: Any

    def convert(self, name: str, value: Any, /) -> Any:
        """Return the value to pass to ctypes, or raise an error that names the argument."""
        raise NotImplementedError


@dataclass(frozen=True)
class Integer(Parameter):
    """An integer by value, in the range of its C type."""

    low: int
    high: int

    def convert(self, name: str, value: Any, /) -> Any:
        return self.ctype(check_int(name, value, self.low, self.high))


@dataclass(frozen=True)
class Real(Parameter):
    """A real number by value. A number that the C type cannot hold raises an error, and does not become infinity."""

    high: float

    def convert(self, name: str, value: Any, /) -> Any:
        number = check_real(name, value)
        if math.isfinite(number) and abs(number) > self.high:
            raise ArgumentError(name, f"a number from {-self.high} to {self.high}", number)
        return self.ctype(number)


@dataclass(frozen=True)
class Enumerated(Parameter):
    """A member of one enumeration, or its plain value. A member of another one raises an error."""

    enum: type[CEnum]

    def convert(self, name: str, value: Any, /) -> Any:
        if isinstance(value, Enum) and not isinstance(value, self.enum):
            raise ArgumentTypeError(name, f"a {self.c}", shorten(value))
        number = check_int(name, value, -(2**31), 2**31 - 1)
        if number not in self.enum._value2member_map_:
            raise ArgumentError(name, f"a {self.c}: {', '.join(f'{m.value} {m.name}' for m in self.enum)}", number)
        return self.ctype(number)


@dataclass(frozen=True)
class Opaque(Parameter):
    """A pointer of one opaque type, or its owner."""

    null: bool = False

    def convert(self, name: str, value: Any, /) -> Any:
        if value is None and self.null:
            return None
        value = getattr(value, "_as_parameter_", value)
        if type(value) is not self.ctype:
            raise ArgumentTypeError(name, f"a {self.c}", shorten(value))
        if not value:
            raise ArgumentError(name, f"a {self.c} that was created", "NULL")
        return value


@dataclass(frozen=True)
class Address(Parameter):
    """A device address as a number. Host arrays, strings and bytes raise an error, and so does 0 unless `null`."""

    null: bool = False

    def convert(self, name: str, value: Any, /) -> Any:
        if type(value) is self.ctype:
            value = value.value or 0
        if value is None and self.null:
            return None
        return self.ctype(check_int(name, value, 0 if self.null else 1, 2**64 - 1))


@dataclass(frozen=True)
class Reference(Parameter):
    """A pointer to where the function writes a value of the kind `of`: a ctypes object, its `byref` or `pointer`."""

    of: Parameter | None = None

    def convert(self, name: str, value: Any, /) -> Any:
        expected = f"a reference to a {self.ctype._type_.__name__}"
        if value is None or (isinstance(value, (self.ctype, ctypes.Array)) and not value):
            raise ArgumentError(name, expected, "NULL or nothing")
        try:
            return self.ctype.from_param(value)
        except TypeError:
            raise ArgumentTypeError(name, expected, shorten(value)) from None


@dataclass(frozen=True)
class HostValue(Parameter):
    """A pointer to one value in host memory. Another argument decides its type; 8 bytes are enough for each."""

    def convert(self, name: str, value: Any, /) -> Any:
        if value is None:
            return None
        if isinstance(value, ctypes.Array) and ctypes.sizeof(value) >= ctypes.sizeof(ctypes.c_double):
            return value
        raise ArgumentTypeError(name, "a ctypes array of 8 bytes or more", shorten(value))


@dataclass(frozen=True)
class Array(Parameter):
    """An array with at least as many elements as the argument named by `count`.

    An input is a ctypes array, or a sequence or integer array whose elements are checked. An output is a ctypes array.
    """

    count: str
    output: bool = False

    def convert(self, name: str, value: Any, /) -> Any:
        item = self.ctype._type_
        if isinstance(value, ctypes.Array) and value._type_ is item:
            return value
        if self.output:
            raise ArgumentTypeError(name, f"a ctypes array of {item.__name__}", shorten(value))
        numbers = _int32_values(name, value)
        return (item * len(numbers)).from_buffer_copy(numbers)


def _int32_values(name: str, value: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Turn a sequence or a one-dimensional integer array in host memory into int32, each element checked."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise ArgumentTypeError(name, "a sequence or one-dimensional array of integers on the host", shorten(value))
    numbers = [check_int(f"{name}[{i}]", number, -(2**31), 2**31 - 1) for i, number in enumerate(value)]
    return np.array(numbers, np.int32)


int32_t: Final = Integer("int", ctypes.c_int, -(2**31), 2**31 - 1)
uint32_t: Final = Integer("unsigned", ctypes.c_uint, 0, 2**32 - 1)
size_t: Final = Integer("size_t", ctypes.c_size_t, 0, 2**64 - 1)
unsigned_long_long: Final = Integer("unsigned long long", ctypes.c_ulonglong, 0, 2**64 - 1)
float_: Final = Real("float", ctypes.c_float, float(np.finfo(np.float32).max))
double: Final = Real("double", ctypes.c_double, math.inf)
stream: Final = Address("cudaStream_t", cudaStream_t, null=True)
device_in: Final = Address("const void *", ctypes.c_void_p)
device_out: Final = Address("void *", ctypes.c_void_p)
device_lengths: Final = Address("const int *", ctypes.c_void_p, null=True)
"""devSeqLengths. The header says array, but it is device memory; from 8.9.1 on it is ignored, and NULL is right."""
address_out: Final = Reference("void **", ctypes.POINTER(ctypes.c_void_p))
host_value: Final = HostValue("void *", ctypes.c_void_p)


def _parameter(kind: Any) -> Any:
    """Return a kind of parameter. A class of enumerations or opaque pointers becomes a parameter by value."""
    if isinstance(kind, Parameter):
        return kind
    return Enumerated(kind.__name__, ctypes.c_int, kind) if issubclass(kind, CEnum) else Opaque(kind.__name__, kind)


def out(kind: Any) -> Reference:
    """Return the kind of a pointer through which the function writes a value of this kind."""
    parameter = _parameter(kind)
    return Reference(f"{parameter.c} *", ctypes.POINTER(parameter.ctype), parameter)


def null(kind: Any) -> Any:
    """Return the same kind with None allowed, for NULL."""
    return replace(_parameter(kind), null=True)


def ints(count: str) -> Array:
    return Array("const int *", ctypes.POINTER(ctypes.c_int), count)


def ints_out(count: str) -> Array:
    return Array("int *", ctypes.POINTER(ctypes.c_int), count, output=True)


def text_out(count: str) -> Array:
    return Array("char *", ctypes.POINTER(ctypes.c_char), count, output=True)


# --- The prototype table: every C function that the package may call, in the order of the headers

RESULTS: Final[dict[str, Any]] = {"cudnnStatus_t": ctypes.c_int, "size_t": ctypes.c_size_t, "void": None}
"""The result types of the functions: as the header spells them, and the matching ctypes types."""

NEVER: Final = 2**31


@dataclass(frozen=True)
class Prototype:
    """A C function: its name, its parameters in order, its result, and the versions [since, until) that have it."""

    name: str
    result: str
    parameters: dict[str, Parameter]
    since: int
    until: int

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check the arguments and return the values to pass to ctypes.

        Raises:
            ArgumentError, ArgumentTypeError: an argument that the prototype does not allow, or an array that is shorter
                than its count argument. The error names the argument.
        """
        parameters = self.parameters
        converted = {name: parameters[name].convert(name, value) for name, value in arguments.items()}
        for name, value in converted.items():
            parameter = parameters[name]
            if isinstance(parameter, Array):
                needed, got = converted[parameter.count].value, len(value)
                if got < needed:
                    raise ArgumentError(name, f"at least {parameter.count}={needed} elements", got, "length")
        return converted


def _c(
    name: str, result: str = "cudnnStatus_t", /, *, since: int = 0, until: int = NEVER, **parameters: Any
) -> Prototype:
    """Make an entry of the table. Without `since` and `until`, all versions from 8.9.7 on have the function."""
    return Prototype(name, result, {key: _parameter(kind) for key, kind in parameters.items()}, since, until)


# Several parameters a line, so that a signature can be compared with the header's at a glance.
# fmt: off
_TABLE = (
    # cudnn_graph.h (8.x: cudnn_ops_infer.h)
    _c("cudnnGetVersion", "size_t"),
    _c("cudnnGetCudartVersion", "size_t"),
    _c("cudnnGetLastErrorString", "void", since=90000, message=text_out("max_size"), max_size=size_t),
    _c("cudnnCreate", handle=out(cudnnHandle_t)),
    _c("cudnnDestroy", handle=cudnnHandle_t),
    _c("cudnnSetStream", handle=cudnnHandle_t, streamId=stream),
    _c("cudnnGraphVersionCheck", since=90000),

    # cudnn_ops.h (8.x: cudnn_ops_infer.h, cudnn_ops_train.h)
    _c("cudnnCreateTensorDescriptor", tensorDesc=out(cudnnTensorDescriptor_t)),
    _c("cudnnSetTensorNdDescriptor",
       tensorDesc=cudnnTensorDescriptor_t, dataType=cudnnDataType_t, nbDims=int32_t, dimA=ints("nbDims"),
       strideA=ints("nbDims")),
    _c("cudnnGetTensorNdDescriptor",
       tensorDesc=cudnnTensorDescriptor_t, nbDimsRequested=int32_t, dataType=out(cudnnDataType_t),
       nbDims=out(int32_t), dimA=ints_out("nbDimsRequested"), strideA=ints_out("nbDimsRequested")),
    _c("cudnnDestroyTensorDescriptor", tensorDesc=cudnnTensorDescriptor_t),
    _c("cudnnCreateFilterDescriptor", filterDesc=out(cudnnFilterDescriptor_t)),
    _c("cudnnSetFilterNdDescriptor",
       filterDesc=cudnnFilterDescriptor_t, dataType=cudnnDataType_t, format=cudnnTensorFormat_t, nbDims=int32_t,
       filterDimA=ints("nbDims")),
    _c("cudnnGetFilterNdDescriptor",
       filterDesc=cudnnFilterDescriptor_t, nbDimsRequested=int32_t, dataType=out(cudnnDataType_t),
       format=out(cudnnTensorFormat_t), nbDims=out(int32_t), filterDimA=ints_out("nbDimsRequested")),
    _c("cudnnDestroyFilterDescriptor", filterDesc=cudnnFilterDescriptor_t),
    _c("cudnnCreateDropoutDescriptor", dropoutDesc=out(cudnnDropoutDescriptor_t)),
    _c("cudnnDestroyDropoutDescriptor", dropoutDesc=cudnnDropoutDescriptor_t),
    _c("cudnnDropoutGetStatesSize", handle=cudnnHandle_t, sizeInBytes=out(size_t)),
    _c("cudnnSetDropoutDescriptor",
       dropoutDesc=cudnnDropoutDescriptor_t, handle=cudnnHandle_t, dropout=float_, states=null(device_out),
       stateSizeInBytes=size_t, seed=unsigned_long_long),
    _c("cudnnRestoreDropoutDescriptor",
       dropoutDesc=cudnnDropoutDescriptor_t, handle=cudnnHandle_t, dropout=float_, states=device_out,
       stateSizeInBytes=size_t, seed=unsigned_long_long),
    _c("cudnnGetDropoutDescriptor",
       dropoutDesc=cudnnDropoutDescriptor_t, handle=cudnnHandle_t, dropout=out(float_), states=address_out,
       seed=out(unsigned_long_long)),
    _c("cudnnOpsVersionCheck", since=90000),
    _c("cudnnOpsInferVersionCheck", until=90000),
    _c("cudnnOpsTrainVersionCheck", until=90000),

    # cudnn_adv.h (8.x: cudnn_adv_infer.h, cudnn_adv_train.h)
    _c("cudnnCreateRNNDescriptor", rnnDesc=out(cudnnRNNDescriptor_t)),
    _c("cudnnDestroyRNNDescriptor", rnnDesc=cudnnRNNDescriptor_t),
    _c("cudnnSetRNNDescriptor_v8",
       rnnDesc=cudnnRNNDescriptor_t, algo=cudnnRNNAlgo_t, cellMode=cudnnRNNMode_t, biasMode=cudnnRNNBiasMode_t,
       dirMode=cudnnDirectionMode_t, inputMode=cudnnRNNInputMode_t, dataType=cudnnDataType_t,
       mathPrec=cudnnDataType_t, mathType=cudnnMathType_t, inputSize=int32_t, hiddenSize=int32_t, projSize=int32_t,
       numLayers=int32_t, dropoutDesc=null(cudnnDropoutDescriptor_t), auxFlags=uint32_t),
    _c("cudnnGetRNNDescriptor_v8",
       rnnDesc=cudnnRNNDescriptor_t, algo=out(cudnnRNNAlgo_t), cellMode=out(cudnnRNNMode_t),
       biasMode=out(cudnnRNNBiasMode_t), dirMode=out(cudnnDirectionMode_t), inputMode=out(cudnnRNNInputMode_t),
       dataType=out(cudnnDataType_t), mathPrec=out(cudnnDataType_t), mathType=out(cudnnMathType_t),
       inputSize=out(int32_t), hiddenSize=out(int32_t), projSize=out(int32_t), numLayers=out(int32_t),
       dropoutDesc=out(cudnnDropoutDescriptor_t), auxFlags=out(uint32_t)),
    _c("cudnnRNNSetClip_v8",
       rnnDesc=cudnnRNNDescriptor_t, clipMode=cudnnRNNClipMode_t, clipNanOpt=cudnnNanPropagation_t, lclip=double,
       rclip=double),
    _c("cudnnRNNSetClip_v9", since=90000,
       rnnDesc=cudnnRNNDescriptor_t, clipMode=cudnnRNNClipMode_t, lclip=double, rclip=double),
    _c("cudnnRNNGetClip_v8",
       rnnDesc=cudnnRNNDescriptor_t, clipMode=out(cudnnRNNClipMode_t), clipNanOpt=out(cudnnNanPropagation_t),
       lclip=out(double), rclip=out(double)),
    _c("cudnnRNNGetClip_v9", since=90000,
       rnnDesc=cudnnRNNDescriptor_t, clipMode=out(cudnnRNNClipMode_t), lclip=out(double), rclip=out(double)),
    _c("cudnnBuildRNNDynamic", handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, miniBatch=int32_t),
    _c("cudnnGetRNNTempSpaceSizes",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, fwdMode=cudnnForwardMode_t,
       xDesc=cudnnRNNDataDescriptor_t, workSpaceSize=out(size_t), reserveSpaceSize=out(size_t)),
    _c("cudnnGetRNNWeightSpaceSize",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, weightSpaceSize=out(size_t)),
    _c("cudnnGetRNNLinLayerMatrixParams", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, pseudoLayer=int32_t, xDesc=cudnnTensorDescriptor_t,
       wDesc=cudnnFilterDescriptor_t, w=device_in, linLayerID=int32_t, linLayerMatDesc=cudnnFilterDescriptor_t,
       linLayerMat=address_out),
    _c("cudnnGetRNNLinLayerBiasParams", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, pseudoLayer=int32_t, xDesc=cudnnTensorDescriptor_t,
       wDesc=cudnnFilterDescriptor_t, w=device_in, linLayerID=int32_t, linLayerBiasDesc=cudnnFilterDescriptor_t,
       linLayerBias=address_out),
    _c("cudnnGetRNNWeightParams",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, pseudoLayer=int32_t, weightSpaceSize=size_t,
       weightSpace=device_in, linLayerID=int32_t, mDesc=cudnnTensorDescriptor_t, mAddr=address_out,
       bDesc=cudnnTensorDescriptor_t, bAddr=address_out),
    _c("cudnnCreateRNNDataDescriptor", rnnDataDesc=out(cudnnRNNDataDescriptor_t)),
    _c("cudnnDestroyRNNDataDescriptor", rnnDataDesc=cudnnRNNDataDescriptor_t),
    _c("cudnnSetRNNDataDescriptor",
       rnnDataDesc=cudnnRNNDataDescriptor_t, dataType=cudnnDataType_t, layout=cudnnRNNDataLayout_t,
       maxSeqLength=int32_t, batchSize=int32_t, vectorSize=int32_t, seqLengthArray=ints("batchSize"),
       paddingFill=host_value),
    _c("cudnnGetRNNDataDescriptor",
       rnnDataDesc=cudnnRNNDataDescriptor_t, dataType=out(cudnnDataType_t), layout=out(cudnnRNNDataLayout_t),
       maxSeqLength=out(int32_t), batchSize=out(int32_t), vectorSize=out(int32_t), arrayLengthRequested=int32_t,
       seqLengthArray=ints_out("arrayLengthRequested"), paddingFill=host_value),
    _c("cudnnRNNForward",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, fwdMode=cudnnForwardMode_t, devSeqLengths=device_lengths,
       xDesc=cudnnRNNDataDescriptor_t, x=device_in, yDesc=cudnnRNNDataDescriptor_t, y=device_out,
       hDesc=cudnnTensorDescriptor_t, hx=null(device_in), hy=null(device_out),
       cDesc=null(cudnnTensorDescriptor_t), cx=null(device_in), cy=null(device_out),
       weightSpaceSize=size_t, weightSpace=device_in, workSpaceSize=size_t, workSpace=null(device_out),
       reserveSpaceSize=size_t, reserveSpace=null(device_out)),
    _c("cudnnAdvVersionCheck", since=90000),
    _c("cudnnAdvInferVersionCheck", until=90000),
    _c("cudnnAdvTrainVersionCheck", until=90000),
    _c("cudnnRNNBackwardData_v8",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, devSeqLengths=device_lengths,
       yDesc=cudnnRNNDataDescriptor_t, y=device_in, dy=device_in, xDesc=cudnnRNNDataDescriptor_t, dx=device_out,
       hDesc=cudnnTensorDescriptor_t, hx=null(device_in), dhy=null(device_in), dhx=null(device_out),
       cDesc=null(cudnnTensorDescriptor_t), cx=null(device_in), dcy=null(device_in), dcx=null(device_out),
       weightSpaceSize=size_t, weightSpace=device_in, workSpaceSize=size_t, workSpace=null(device_out),
       reserveSpaceSize=size_t, reserveSpace=device_out),
    _c("cudnnRNNBackwardWeights_v8",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, addGrad=cudnnWgradMode_t, devSeqLengths=device_lengths,
       xDesc=cudnnRNNDataDescriptor_t, x=device_in, hDesc=cudnnTensorDescriptor_t, hx=null(device_in),
       yDesc=cudnnRNNDataDescriptor_t, y=device_in, weightSpaceSize=size_t, dweightSpace=device_out,
       workSpaceSize=size_t, workSpace=null(device_out), reserveSpaceSize=size_t, reserveSpace=device_out),
)
# fmt: on

PROTOTYPES: Final[dict[str, Prototype]] = {prototype.name: prototype for prototype in _TABLE}
"""Every function of the table, by its C name."""
