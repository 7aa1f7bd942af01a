"""The enumerations of libcudnn's C interface, under their C names.

A member's name is the C constant's without the prefix that its siblings share. Every value is compared with the
headers of the releases in `tests/abi/headers` and, by the compiler, with those of the newest release.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class CEnum(IntEnum):
    """An enumeration whose C type has the name of the class, and whose C constants start with `prefix`."""

    prefix: ClassVar[str]

    def __init_subclass__(cls, prefix: str = "") -> None:
        super().__init_subclass__()
        cls.prefix = prefix

    @property
    def c_name(self) -> str:
        """The C constant: CUDNN_LSTM, CUDNN_RNN_ALGO_STANDARD ..."""
        return self.prefix + self.name


class cudnnDataType_t(CEnum, prefix="CUDNN_DATA_"):
    """Element types; only those that an RNN can have. Source: cudnn_graph.h, 9.28."""

    FLOAT = 0
    DOUBLE = 1
    HALF = 2
    BFLOAT16 = 9


class cudnnMathType_t(CEnum, prefix="CUDNN_"):
    """Source: cudnn_graph.h, 9.28."""

    DEFAULT_MATH = 0
    TENSOR_OP_MATH = 1
    TENSOR_OP_MATH_ALLOW_CONVERSION = 2
    FMA_MATH = 3


class cudnnNanPropagation_t(CEnum, prefix="CUDNN_"):
    """What the clip calls before 9.0 do with NaN. Source: cudnn_graph.h, 9.28."""

    NOT_PROPAGATE_NAN = 0
    PROPAGATE_NAN = 1


class cudnnTensorFormat_t(CEnum, prefix="CUDNN_TENSOR_"):
    """Source: cudnn_graph.h, 9.28."""

    NCHW = 0
    NHWC = 1
    NCHW_VECT_C = 2


class cudnnRNNAlgo_t(CEnum, prefix="CUDNN_RNN_ALGO_"):
    """Source: cudnn_adv.h, 9.28."""

    STANDARD = 0
    PERSIST_STATIC = 1
    PERSIST_DYNAMIC = 2
    PERSIST_STATIC_SMALL_H = 3


class cudnnForwardMode_t(CEnum, prefix="CUDNN_FWD_MODE_"):
    """Source: cudnn_adv.h, 9.28."""

    INFERENCE = 0
    TRAINING = 1


class cudnnRNNMode_t(CEnum, prefix="CUDNN_"):
    """Source: cudnn_adv.h, 9.28."""

    RNN_RELU = 0
    RNN_TANH = 1
    LSTM = 2
    GRU = 3


class cudnnRNNBiasMode_t(CEnum, prefix="CUDNN_RNN_"):
    """Source: cudnn_adv.h, 9.28."""

    NO_BIAS = 0
    SINGLE_INP_BIAS = 1
    DOUBLE_BIAS = 2
    SINGLE_REC_BIAS = 3


class cudnnDirectionMode_t(CEnum, prefix="CUDNN_"):
    """Source: cudnn_adv.h, 9.28."""

    UNIDIRECTIONAL = 0
    BIDIRECTIONAL = 1


class cudnnRNNInputMode_t(CEnum, prefix="CUDNN_"):
    """Source: cudnn_adv.h, 9.28."""

    LINEAR_INPUT = 0
    SKIP_INPUT = 1


class cudnnRNNClipMode_t(CEnum, prefix="CUDNN_RNN_CLIP_"):
    """Source: cudnn_adv.h, 9.28."""

    NONE = 0
    MINMAX = 1


class cudnnRNNDataLayout_t(CEnum, prefix="CUDNN_RNN_DATA_LAYOUT_"):
    """Source: cudnn_adv.h, 9.28."""

    SEQ_MAJOR_UNPACKED = 0
    SEQ_MAJOR_PACKED = 1
    BATCH_MAJOR_UNPACKED = 2


class cudnnRNNPaddingMode_t(CEnum, prefix="CUDNN_RNN_PADDED_IO_"):
    """Bit 0 of auxFlags: whether unpacked layouts are read and written. Two macros in C. Source: cudnn_adv.h, 9.28."""

    DISABLED = 0
    ENABLED = 1


class cudnnWgradMode_t(CEnum, prefix="CUDNN_WGRAD_MODE_"):
    """Source: cudnn_adv.h, 9.28."""

    ADD = 0
    SET = 1


class cudnnStatus_t(CEnum, prefix="CUDNN_STATUS_"):
    """Status codes from 9.0 on; a code's thousands are its family. Source: cudnn_graph.h, 9.28."""

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
