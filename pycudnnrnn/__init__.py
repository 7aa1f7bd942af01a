"""cuDNN's LSTM, GRU and plain RNNs from Python, without a framework: on a GPU with cuDNN, on a CPU with NumPy.

Start with a layer, which owns its weights:

Example:
    >>> import numpy as np
    >>> from pycudnnrnn import CudnnLSTM
    >>> layer = CudnnLSTM(num_layers=2, num_units=8, seed=0)
    >>> outputs, (h, c) = layer(np.ones((10, 4, 3), "float32"))  # 10 steps, 4 sequences
    >>> outputs.shape
    (10, 4, 8)

`layers` has these layers, and `ops` the same models as functions of a flat array of weights. `interop` has modules for
torch and a function for JAX. `convert` moves weights between frameworks, and `checkpoint` saves them.

Importing this package loads only NumPy: no GPU library, no framework and no libcudnn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pycudnnrnn import _libcudnn as libcudnn
    from pycudnnrnn import (
        cells,
        checkpoint,
        convert,
        distributed,
        errors,
        interop,
        layers,
        layout,
        ops,
        saveable,
        spec,
        testing,
    )
    from pycudnnrnn import plot as plot
    from pycudnnrnn._pad import pad
    from pycudnnrnn.cells import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
    from pycudnnrnn.checkpoint import Saver
    from pycudnnrnn.layers import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh
    from pycudnnrnn.layout import ParamLayout, Region
    from pycudnnrnn.saveable import (
        CudnnGRUSaveable,
        CudnnLSTMSaveable,
        CudnnParamsFormatConverterGRU,
        CudnnParamsFormatConverterLSTM,
        CudnnParamsFormatConverterRelu,
        CudnnParamsFormatConverterTanh,
        CudnnRNNReluSaveable,
        CudnnRNNTanhSaveable,
        RNNParamsSaveable,
    )
    from pycudnnrnn.spec import RNNSpec

__version__ = "0.1.0"

_CLASSES = {
    "_pad": "pad",
    "cells": "CudnnCompatibleGRUCell CudnnCompatibleLSTMCell",
    "checkpoint": "Saver",
    "layers": "CudnnGRU CudnnLSTM CudnnRNNRelu CudnnRNNTanh",
    "layout": "ParamLayout Region",
    "saveable": "CudnnGRUSaveable CudnnLSTMSaveable CudnnParamsFormatConverterGRU CudnnParamsFormatConverterLSTM "
    "CudnnParamsFormatConverterRelu CudnnParamsFormatConverterTanh CudnnRNNReluSaveable CudnnRNNTanhSaveable "
    "RNNParamsSaveable",
    "spec": "RNNSpec",
}
_NAMES = {name: module for module, names in _CLASSES.items() for name in names.split()}

# Everything public except `plot`, which needs an extra: `import *` has to work without it. `dir` has it.
__all__ = [
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnGRU",
    "CudnnGRUSaveable",
    "CudnnLSTM",
    "CudnnLSTMSaveable",
    "CudnnParamsFormatConverterGRU",
    "CudnnParamsFormatConverterLSTM",
    "CudnnParamsFormatConverterRelu",
    "CudnnParamsFormatConverterTanh",
    "CudnnRNNRelu",
    "CudnnRNNReluSaveable",
    "CudnnRNNTanh",
    "CudnnRNNTanhSaveable",
    "ParamLayout",
    "RNNParamsSaveable",
    "RNNSpec",
    "Region",
    "Saver",
    "cells",
    "checkpoint",
    "convert",
    "distributed",
    "errors",
    "interop",
    "layers",
    "layout",
    "libcudnn",
    "ops",
    "pad",
    "saveable",
    "spec",
    "testing",
]
_MODULES = [name for name in [*__all__, "plot"] if name.islower() and name not in _NAMES]


def __dir__() -> list[str]:
    return [*__all__, "plot"]


if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _NAMES:
            return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
        from pycudnnrnn._checks import not_here  # noqa: PLC0415  it imports NumPy

        raise not_here(__name__, name)
