"""The CPU engine: cuDNN's semantics in NumPy, written to be fast."""

from __future__ import annotations

from pycudnnrnn.engines.numpy_engine.engine import NumpyEngine

__all__ = ["NumpyEngine"]
