"""NumPy's own BLAS, by address, for compiled code; and its threads, which are ours while compiled code runs."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np  # noqa: F401  loads the library that is looked for
import threadpoolctl
from llvmlite import binding

from pycudnnrnn import _locks

NAMES = ("sgemm", "sgemv", "dgemm", "dgemv")


class Blas:
    """NumPy's OpenBLAS: its products under the names that `kernels` calls, and how many threads it may use.

    Raises:
        ImportError: NumPy has another BLAS, or one whose integers are not of 64 bits.
    """

    def __init__(self) -> None:
        found = threadpoolctl.ThreadpoolController().select(internal_api="openblas").lib_controllers
        for library in found:
            # Source: github.com/MacPython/openblas-libs, how the names in NumPy's wheels are made.
            functions: list[Any] = [getattr(library.dynlib, f"scipy_cblas_{name}64_", None) for name in NAMES]
            if all(functions):
                break
        else:
            raise ImportError("NumPy's BLAS is not the OpenBLAS of its wheels")
        for name, function in zip(NAMES, functions, strict=True):
            binding.add_symbol(f"pycudnnrnn_{name}", ctypes.cast(function, ctypes.c_void_p).value)
        self._library: Any = library
        self._lock, self._users, self._threads = _locks.lock(), 0, 1

    @contextlib.contextmanager
    def single(self) -> Iterator[int]:
        """Keep BLAS to one thread in the block, which has threads of its own; give the number that BLAS had."""
        with self._lock:
            if not self._users:
                self._threads = self._library.get_num_threads()
                if self._threads > 1:
                    self._library.set_num_threads(1)
            self._users += 1
        try:
            yield self._threads
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._threads > 1:
                    self._library.set_num_threads(self._threads)
