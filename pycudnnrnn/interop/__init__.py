"""The RNN inside another framework, with gradients: `interop.torch` has modules, `interop.jax` a function.

Importing this loads neither framework. Each module loads its framework at first use, and raises
`MissingDependencyError` if that is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pycudnnrnn.interop import jax, torch

__all__ = ["jax", "torch"]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
