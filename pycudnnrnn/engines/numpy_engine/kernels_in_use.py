"""Which cells run: those whose time loops numba compiles, where it is installed, and NumPy's where it is not."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pycudnnrnn._checks import one_of, shorten, warn
from pycudnnrnn.engines.numpy_engine import cells
from pycudnnrnn.errors import ArgumentError, EngineError, MissingDependencyError
from pycudnnrnn.spec import DType, RNNMode, RNNSpec

VARIABLE: Final = "PYCUDNNRNN_CPU_KERNELS"
"""The environment variable with one of KERNELS. It is read when a process first runs an RNN on the CPU that is not
small."""

KERNELS: Final = ("numba", "numpy")

COMPILED: Final = (DType.FLOAT32, DType.FLOAT64)
"""Compute dtypes of the compiled cells. With float16, NumPy's cells run."""

ROWS_MIN: Final = 32
ROWS_BY_STEPS_MIN: Final = 128
"""Batches with fewer packed rows (steps times sequences) run on NumPy's cells, and numba is not imported: those of one
sequence, since BLAS multiplies a vector by a matrix as fast as memory can be read, and others in a few steps."""


class KernelsInUse(NamedTuple):
    """The kernels that run, the reason, and the cells by mode."""

    kernels: str
    why: str
    cells: Mapping[RNNMode, Callable[[RNNSpec], cells.Cell]]


@functools.cache
def kernels_in_use() -> KernelsInUse:
    """Return the kernels of this process. They are chosen once, because a backward can only read its own kernels' tape.

    Raises:
        ArgumentError: VARIABLE is not one of KERNELS.
        MissingDependencyError: it asks for numba, which is not installed.
        EngineError: it asks for numba, which cannot be used.
    """
    asked = os.environ.get(VARIABLE) or None
    if asked not in (*KERNELS, None):
        raise ArgumentError(VARIABLE, one_of([*KERNELS]), shorten(asked))
    if asked == "numpy":
        return KernelsInUse("numpy", f"{VARIABLE}={asked}", cells.CELLS)
    if importlib.util.find_spec("numba") is None:
        if asked:
            raise MissingDependencyError("numba", "fast", f"{VARIABLE}={asked}")
        return KernelsInUse("numpy", "numba is not installed", cells.CELLS)
    try:
        import numba  # noqa: PLC0415  takes a while

        from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled  # noqa: PLC0415
    except Exception as error:  # any failure of numba: NumPy's cells still work
        why = f"numba cannot be used: {type(error).__name__}: {error}"
        if asked:
            raise EngineError(why) from error
        warn(f"the CPU runs without compiled kernels, for {why}", RuntimeWarning)
        return KernelsInUse("numpy", why, cells.CELLS)
    if numba.config.DISABLE_JIT:
        if asked:
            raise EngineError(f"{VARIABLE}={asked}, but numba does not compile: NUMBA_DISABLE_JIT is set")
        return KernelsInUse("numpy", "numba does not compile: NUMBA_DISABLE_JIT is set", cells.CELLS)
    return KernelsInUse("numba", f"{VARIABLE}={asked}" if asked else "numba is installed", compiled.CELLS)


def cell_of(spec: RNNSpec, rows: int, steps: int) -> cells.Cell:
    """Return the cell that runs a batch of so many packed rows in so many steps; it has constants and no state."""
    return _cell_of(spec, few=rows < ROWS_MIN and (rows == steps or rows * steps < ROWS_BY_STEPS_MIN))


@functools.lru_cache(maxsize=256)
def _cell_of(spec: RNNSpec, *, few: bool) -> cells.Cell:
    if few or spec.compute_dtype not in COMPILED:
        return cells.CELLS[spec.mode](spec)
    return kernels_in_use().cells[spec.mode](spec)
