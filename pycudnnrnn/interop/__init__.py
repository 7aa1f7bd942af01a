"""The RNN in another framework's terms, a module for each: `torch` has modules, `jax` a function, both with gradients.

Importing this loads neither framework. A module is loaded when it is first asked for, and says then what it misses.
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
