"""The prototype table: every C function that the package may call, in the order of the headers.

An entry reads as the C declaration does: parameter names and types are the header's. `since` is the first version that
has the function and `until` the first that has not; without them it is in every version from 8.9.7 to 9.28. Tests
compare each entry with the headers of 8.9.7, 9.0.0 and the newest release.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

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
    cudnnStatus_t,
    cudnnTensorFormat_t,
    cudnnWgradMode_t,
)
from pycudnnrnn._libcudnn.types import (
    OPAQUE,
    Enumerated,
    Kind,
    Opaque,
    address_out,
    cudaStream_t,
    cudnnDropoutDescriptor_t,
    cudnnFilterDescriptor_t,
    cudnnHandle_t,
    cudnnRNNDataDescriptor_t,
    cudnnRNNDescriptor_t,
    cudnnTensorDescriptor_t,
    device_in,
    device_lengths,
    device_out,
    double,
    float_,
    host_value,
    int32_t,
    ints,
    ints_out,
    null,
    out,
    size_t,
    stream,
    text_out,
    uint32_t,
    unsigned_long_long,
)

RESULTS: Final[dict[str, Any]] = {
    "cudnnStatus_t": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "const char *": ctypes.c_char_p,
    "void": None,
}
"""What a function may return: the header's spelling, and ctypes'."""

NEVER: Final = 2**31


@dataclass(frozen=True)
class Prototype:
    """A C function: its name, its parameters in order, its result, and the versions [since, until) that have it."""

    name: str
    result: str
    parameters: dict[str, Kind]
    since: int
    until: int


def _c(
    name: str, result: str = "cudnnStatus_t", /, *, since: int = 0, until: int = NEVER, **parameters: Any
) -> Prototype:
    kinds: dict[str, Kind] = {}
    for parameter, kind in parameters.items():
        if isinstance(kind, type) and issubclass(kind, CEnum):
            kinds[parameter] = Enumerated(kind.__name__, kind)
        elif kind in OPAQUE:
            kinds[parameter] = Opaque(kind.__name__, kind)
        else:
            kinds[parameter] = kind  # pyright: ignore[reportArgumentType]  # narrowed by what it is not
    return Prototype(name, result, kinds, since, until)


# One line a parameter would be six screens, and a signature could not be compared with the header's at a glance.
# fmt: off
_TABLE = (
    # cudnn_graph.h (8.x: cudnn_ops_infer.h)
    _c("cudnnGetVersion", "size_t"),
    _c("cudnnGetMaxDeviceVersion", "size_t"),
    _c("cudnnGetCudartVersion", "size_t"),
    _c("cudnnGetErrorString", "const char *", status=Enumerated("cudnnStatus_t", cudnnStatus_t, known=False)),
    _c("cudnnGetLastErrorString", "void", since=90000, message=text_out("max_size"), max_size=size_t),
    _c("cudnnCreate", handle=out(cudnnHandle_t)),
    _c("cudnnDestroy", handle=cudnnHandle_t),
    _c("cudnnSetStream", handle=cudnnHandle_t, streamId=stream),
    _c("cudnnGetStream", handle=cudnnHandle_t, streamId=out(cudaStream_t)),
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
    _c("cudnnSetRNNDescriptor_v6", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, hiddenSize=int32_t, numLayers=int32_t,
       dropoutDesc=cudnnDropoutDescriptor_t, inputMode=cudnnRNNInputMode_t, direction=cudnnDirectionMode_t,
       cellMode=cudnnRNNMode_t, algo=cudnnRNNAlgo_t, mathPrec=cudnnDataType_t),
    _c("cudnnGetRNNDescriptor_v6", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, hiddenSize=out(int32_t), numLayers=out(int32_t),
       dropoutDesc=out(cudnnDropoutDescriptor_t), inputMode=out(cudnnRNNInputMode_t),
       direction=out(cudnnDirectionMode_t), cellMode=out(cudnnRNNMode_t), algo=out(cudnnRNNAlgo_t),
       mathPrec=out(cudnnDataType_t)),
    _c("cudnnSetRNNMatrixMathType", until=90000, rnnDesc=cudnnRNNDescriptor_t, mType=cudnnMathType_t),
    _c("cudnnGetRNNMatrixMathType", until=90000, rnnDesc=cudnnRNNDescriptor_t, mType=out(cudnnMathType_t)),
    _c("cudnnSetRNNBiasMode", until=90000, rnnDesc=cudnnRNNDescriptor_t, biasMode=cudnnRNNBiasMode_t),
    _c("cudnnGetRNNBiasMode", until=90000, rnnDesc=cudnnRNNDescriptor_t, biasMode=out(cudnnRNNBiasMode_t)),
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
    _c("cudnnSetRNNProjectionLayers", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, recProjSize=int32_t, outProjSize=int32_t),
    _c("cudnnGetRNNProjectionLayers", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, recProjSize=out(int32_t), outProjSize=out(int32_t)),
    _c("cudnnBuildRNNDynamic", handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, miniBatch=int32_t),
    _c("cudnnGetRNNTempSpaceSizes",
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, fwdMode=cudnnForwardMode_t,
       xDesc=cudnnRNNDataDescriptor_t, workSpaceSize=out(size_t), reserveSpaceSize=out(size_t)),
    _c("cudnnGetRNNParamsSize", until=90000,
       handle=cudnnHandle_t, rnnDesc=cudnnRNNDescriptor_t, xDesc=cudnnTensorDescriptor_t, sizeInBytes=out(size_t),
       dataType=cudnnDataType_t),
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
    _c("cudnnSetRNNPaddingMode", until=90000, rnnDesc=cudnnRNNDescriptor_t, paddingMode=uint32_t),
    _c("cudnnGetRNNPaddingMode", until=90000, rnnDesc=cudnnRNNDescriptor_t, paddingMode=out(uint32_t)),
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
