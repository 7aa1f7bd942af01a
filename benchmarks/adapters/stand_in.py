"""The host's share of the cuDNN path, without a GPU: the tests' stand-in, whose calls do no work while timed.

Memory is host memory, taken from a ring of blocks like that of a pool. So the times are those of this package, of
CuPy's array objects and of torch's tensors. Numbers are checked over the stand-in as the tests have it, which computes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine

from ..data import Data, spec_of
from ..problems import Problem
from . import Prepared, load, ours_cuda, torch_eager
from .numpy_engine import eager, versions

__all__ = ["prepare", "versions"]

PLAYING = contextlib.ExitStack()


@functools.cache
def _library() -> Path:
    return Path(load("tests.stand_in.shim").build(Path(tempfile.mkdtemp(prefix="stand-in-"))))


def _ring(device: Any, blocks: dict[int, Iterator[Any]], cupy: Any) -> Any:
    """Return a function for empty arrays, about as fast as that of a memory pool."""

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        nbytes = np.dtype(dtype).itemsize * math.prod(shape)
        if nbytes not in blocks:
            blocks[nbytes] = itertools.cycle([device.allocate(nbytes) for _ in range(64)])
        return cupy.ndarray(shape, dtype, memptr=next(blocks[nbytes]))

    return empty


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    cupy, host = load("cupy"), load("tests.stand_in.host_device")
    from tests.stand_in import shim, torch_on_cpu

    PLAYING.close()  # what the last row played
    played = shim.Shim(_library())
    if option == "torch":
        engine, _ = played.engine_and_device()
        engine.device = "cpu"
        played.stream, played.gpu, played.generator = 0x7000, ours_cuda.H200, torch_on_cpu.Generator()
        PLAYING.enter_context(use_engine(engine))
        PLAYING.enter_context(torch_on_cpu.as_cuda(played))
        prepared = torch_eager.prepare(problem, which, dtype, data, "cpu ours")
    else:
        device = host.HostDevice()
        engine, _ = played.engine_and_device(device)
        PLAYING.enter_context(use_engine(engine))
        PLAYING.enter_context(host.host_allocator(device))
        cuda = load("tests.stand_in.bench_gpu").host_cuda(device)()
        op = ops.from_spec(spec_of(problem, dtype))
        data = data.cast(op.dtype.numpy)
        make = eager if option == "eager" else functools.partial(ours_cuda.on_plan, option=option)
        prepared = make(problem, which, data, op, cuda)
    results = prepared.results()
    prepared.results = lambda: results
    if option != "torch":
        device.empty = _ring(device, {}, cupy)
    library = ctypes.CDLL(str(_library()))
    library.shim_set_hook.argtypes = [ctypes.c_void_p]
    library.shim_set_hook(ctypes.cast(library.shim_idle, ctypes.c_void_p))
    return prepared
