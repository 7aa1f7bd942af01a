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

if TYPE_CHECKING:  # the names below, as type checkers read them: one imported as itself is public
    from pycudnnrnn import cells as cells
    from pycudnnrnn import checkpoint as checkpoint
    from pycudnnrnn import convert as convert
    from pycudnnrnn import distributed as distributed
    from pycudnnrnn import errors as errors
    from pycudnnrnn import interop as interop
    from pycudnnrnn import layers as layers
    from pycudnnrnn import layout as layout
    from pycudnnrnn import libcudnn as libcudnn
    from pycudnnrnn import ops as ops
    from pycudnnrnn import plot as plot
    from pycudnnrnn import saveable as saveable
    from pycudnnrnn import spec as spec
    from pycudnnrnn import testing as testing
    from pycudnnrnn._pad import pad as pad
    from pycudnnrnn.cells import CudnnCompatibleGRUCell as CudnnCompatibleGRUCell
    from pycudnnrnn.cells import CudnnCompatibleLSTMCell as CudnnCompatibleLSTMCell
    from pycudnnrnn.checkpoint import Saver as Saver
    from pycudnnrnn.layers import CudnnGRU as CudnnGRU
    from pycudnnrnn.layers import CudnnLSTM as CudnnLSTM
    from pycudnnrnn.layers import CudnnRNNRelu as CudnnRNNRelu
    from pycudnnrnn.layers import CudnnRNNTanh as CudnnRNNTanh
    from pycudnnrnn.layout import ParamLayout as ParamLayout
    from pycudnnrnn.layout import Region as Region
    from pycudnnrnn.saveable import CudnnGRUSaveable as CudnnGRUSaveable
    from pycudnnrnn.saveable import CudnnLSTMSaveable as CudnnLSTMSaveable
    from pycudnnrnn.saveable import CudnnParamsFormatConverterGRU as CudnnParamsFormatConverterGRU
    from pycudnnrnn.saveable import CudnnParamsFormatConverterLSTM as CudnnParamsFormatConverterLSTM
    from pycudnnrnn.saveable import CudnnParamsFormatConverterRelu as CudnnParamsFormatConverterRelu
    from pycudnnrnn.saveable import CudnnParamsFormatConverterTanh as CudnnParamsFormatConverterTanh
    from pycudnnrnn.saveable import CudnnRNNReluSaveable as CudnnRNNReluSaveable
    from pycudnnrnn.saveable import CudnnRNNTanhSaveable as CudnnRNNTanhSaveable
    from pycudnnrnn.saveable import RNNParamsSaveable as RNNParamsSaveable
    from pycudnnrnn.spec import RNNSpec as RNNSpec

__version__ = "0.1.0"

_CLASSES = {
    "cells": "CudnnCompatibleGRUCell CudnnCompatibleLSTMCell",
    "checkpoint": "Saver",
    "layers": "CudnnGRU CudnnLSTM CudnnRNNRelu CudnnRNNTanh",
    "layout": "ParamLayout Region",
    "saveable": "CudnnGRUSaveable CudnnLSTMSaveable CudnnParamsFormatConverterGRU CudnnParamsFormatConverterLSTM "
    "CudnnParamsFormatConverterRelu CudnnParamsFormatConverterTanh CudnnRNNReluSaveable CudnnRNNTanhSaveable "
    "RNNParamsSaveable",
    "spec": "RNNSpec",
}
_NAMES = {"pad": "_pad"} | {name: module for module, names in _CLASSES.items() for name in names.split()}
_MODULES = ["convert", "distributed", "errors", "interop", "libcudnn", "ops", "plot", "testing", *_CLASSES]


def __dir__() -> list[str]:
    return [*_NAMES, *_MODULES]


if not TYPE_CHECKING:  # type checkers would take any name for an attribute
    # Everything public except `plot`, which needs an extra: `import *` has to work without it.
    __all__ = [name for name in __dir__() if name != "plot"]

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _NAMES:
            return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
        from pycudnnrnn._checks import not_here  # noqa: PLC0415  it imports NumPy

        raise not_here(__name__, name)
