"""How many threads compiled code uses: as many as NumPy's BLAS, so that one number is set for both."""

from __future__ import annotations

import os

import numpy as np  # noqa: F401  loads the library that is looked for
import threadpoolctl

_BLAS = sorted(
    threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers,
    key=lambda library: "numpy" not in library.filepath,
)


def number() -> int:
    """Return NumPy's number of BLAS threads; of the processors that this process may use, where that is unknown.

    OMP_NUM_THREADS, the process's affinity and `threadpoolctl.threadpool_limits` decide.
    """
    return int(_BLAS[0].num_threads) if _BLAS else len(os.sched_getaffinity(0))
