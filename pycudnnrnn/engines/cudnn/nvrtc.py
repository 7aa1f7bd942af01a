"""NVRTC, which cuDNN compiles the persistent kernels of its dynamic algorithm with."""

from __future__ import annotations

import contextlib
import functools


@functools.cache
def load_nvrtc() -> None:
    """Load NVRTC and its builtins into this process, where they are found.

    NVRTC opens its builtins by name alone. The library of CUDA 13.0's wheel has no path to look in: a process that has
    not loaded them fails with "failed to open libnvrtc-builtins". What is not found here cuDNN looks for itself.
    """
    try:
        from cuda import pathfinder  # noqa: PLC0415  comes with CuPy 14
    except ImportError:
        return
    with contextlib.suppress(RuntimeError):
        pathfinder.load_nvidia_dynamic_lib("nvrtc")  # loads the builtins beside it
