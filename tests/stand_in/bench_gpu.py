"""`benchmarks.gpu` over the stand-in: what it does with its options and files, without a GPU.

Every problem is cut to a size that NumPy computes at once, and keeps its name: what is timed here is worth nothing.
The processes that it starts import this module, as Python's `spawn` does with the main one, and so play along.
"""

import contextlib
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import hosts, runner
from benchmarks.adapters import ours_cuda
from benchmarks.timing import HostClock
from pycudnnrnn import engines
from tests.stand_in import shim
from tests.stand_in.host_device import host, host_allocator

PLAYING = contextlib.ExitStack()
LARGEST = {"B": 4, "T": 3, "I": 16, "U": 16, "P": 8}


def host_cuda(device):
    """What stands for `ours_cuda.Cuda` where memory is the host's."""

    class HostCuda(ours_cuda.Cuda):
        def put(self, array):
            return device.from_host(np.ascontiguousarray(array))

        def get(self, array):
            return host(array).copy()

        @staticmethod
        def copy(target, values):
            host(target)[...] = host(values)

        def clock(self):
            return HostClock()

        def flush(self):
            """Leave the caches as they are."""

        def facts(self):
            return {}

        def used_nbytes(self):
            return 0

    return HostCuda


def small(problem):
    """The problem in another size; what is equal stays equal, as a skip input needs it."""
    sizes = {name: getattr(problem, name) for name in LARGEST}
    return problem.replace(**{name: value and min(value, LARGEST[name]) for name, value in sizes.items()})


def play():
    """Put the stand-in where the benchmarks look for a GPU, until this process ends."""
    folder = PLAYING.enter_context(tempfile.TemporaryDirectory())
    engine, device = shim.Shim(shim.build(Path(folder))).engine_and_device()
    PLAYING.enter_context(host_allocator(device))
    PLAYING.enter_context(engines.use_engine(engine))
    ours_cuda.Cuda = host_cuda(device)
    runner.short = small
    prepare = hosts.Local._prepare
    hosts.Local._prepare = lambda self, row: prepare(self, row._replace(problem=small(row.problem)))


if __name__ in {"__main__", "__mp_main__"}:
    play()

if __name__ == "__main__":
    from benchmarks import gpu

    gpu.ANSWER_WITHIN_S = 3600.0  # a machine that is busy is no kernel that hangs
    gpu.main()
    PLAYING.close()
