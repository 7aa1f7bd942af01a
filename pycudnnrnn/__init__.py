"""The cuDNN RNN for everyone who is not inside a big framework.

Importing this package loads NumPy and nothing else: no GPU library, no framework, no libcudnn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pycudnnrnn import _libcudnn as libcudnn
    from pycudnnrnn import convert, errors, layout, ops, spec, testing
    from pycudnnrnn.layout import ParamLayout, Region
    from pycudnnrnn.spec import RNNSpec

__version__ = "0.1.0"

_MODULES = {
    "convert": "convert",
    "errors": "errors",
    "layout": "layout",
    "libcudnn": "_libcudnn",
    "ops": "ops",
    "spec": "spec",
    "testing": "testing",
}
_NAMES = {
    "ParamLayout": "layout",
    "RNNSpec": "spec",
    "Region": "layout",
}

__all__ = ["ParamLayout", "RNNSpec", "Region", "convert", "errors", "layout", "libcudnn", "ops", "spec", "testing"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
