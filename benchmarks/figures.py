"""What a problem costs, and what a machine can do: operations, bytes, a measured peak, and what bounds a row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from pycudnnrnn.layout import canonical_shapes

from .data import numpy_name, spec_of
from .problems import Problem

SHARE: Final = 0.25
"""A row whose arithmetic and memory explain less of its time than this is bound by something else."""

HOST_SHARE: Final = 0.8
"""A GPU whose host needs this share of a call's time waits for it."""


def flops(problem: Problem, which: str) -> int:
    """Return the multiplications and additions of the matrix products; a training step has three times a forward's."""
    p, state = problem, problem.P or problem.U
    inputs = [0 if p.input == "skip" else p.I, *[p.D * state] * (p.L - 1)]
    a_step = sum(p.D * (p.gates * p.U * (width + state) + (p.P or 0) * p.U) for width in inputs)
    steps = sum(p.drawn_lengths or [p.T] * p.B)
    return 2 * steps * a_step * (3 if which == "step" else 1)


def nbytes(problem: Problem, which: str, dtype: str) -> int:
    """Return the bytes that have to be read or written at least once: weights, inputs, outputs and their gradients."""
    weights = sum(math.prod(shape) for *_, shape in canonical_shapes(spec_of(problem, dtype)))
    steps = sum(problem.drawn_lengths or [problem.T] * problem.B)
    x, y = steps * problem.I, steps * problem.D * (problem.P or problem.U)
    item = {"float16": 2, "bfloat16": 2, "float64": 8}.get(dtype, 4)
    return item * (weights + x + y) * (3 if which == "step" else 1)


def peak(dtype: str, device: str) -> dict[str, float]:
    """Measure the machine: GFLOP/s of a product of matrices, and GB/s of a pass over more memory than caches hold."""
    return _peak_cuda(dtype) if device == "cuda" else _peak_cpu(dtype)


def _peak_cpu(dtype: str) -> dict[str, float]:
    element = np.dtype(numpy_name(dtype))  # what NumPy has no BLAS for would take minutes
    if dtype not in ("float32", "float64"):
        return {}
    a, large, vector = (np.ones(shape, element) for shape in ((1024, 1024), (4096, 4096), 4096))
    out = np.empty_like(a)
    product, one_pass = _fastest(lambda: np.matmul(a, a, out=out)), _fastest(lambda: large @ vector)
    return {"gflops": 2 * 1024**3 / product / 1e9, "gbytes_per_s": large.nbytes / one_pass / 1e9}


def _peak_cuda(dtype: str) -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    a, large = (torch.ones(n, n, dtype=getattr(torch, numpy_name(dtype)), device="cuda") for n in (4096, 8192))
    target = torch.empty_like(large)

    def waited(call: Callable[[], Any]) -> Callable[[], None]:
        return lambda: (call(), torch.cuda.synchronize())[1]

    product, copy = _fastest(waited(lambda: a @ a)), _fastest(waited(lambda: target.copy_(large)))
    return {"gflops": 2 * 4096**3 / product / 1e9, "gbytes_per_s": 2 * large.nbytes / copy / 1e9}


def _fastest(call: Callable[[], Any], seconds: float = 0.3) -> float:
    """Return the lowest time of a call: a peak is what is reached when nothing disturbs."""
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def of_row(row: Mapping[str, Any], problem: Problem, machine: Mapping[str, float]) -> dict[str, Any]:
    """Return the figures of a row that was timed; those that need the machine's peak only where it was measured."""
    us, which = row["median_us"], row["pass"]
    work, moved = flops(problem, which), nbytes(problem, which, row["dtype"])
    found = {"flops": work, "least_nbytes": moved, "gflops": work / us / 1e3, "gbytes_per_s": moved / us / 1e3}
    if machine:
        arithmetic, memory = found["gflops"] / machine["gflops"], found["gbytes_per_s"] / machine["gbytes_per_s"]
        found |= {"share_of_peak": arithmetic, "share_of_bandwidth": memory}
        found["bound"] = bound(arithmetic, memory, us, row.get("host_us"))
    return found


def bound(arithmetic: float, memory: float, us: float, host_us: float | None) -> str:
    """Name what bounds a call: "host", "memory", "arithmetic", or on a GPU "latency", its chain of short kernels.

    `arithmetic` and `memory` are shares of the machine's peaks. `host_us` is None on a CPU, where what neither of them
    explains is the host.
    """
    if host_us is not None and host_us >= HOST_SHARE * us:
        return "host"
    if max(arithmetic, memory) < SHARE:
        return "host" if host_us is None else "latency"
    return "memory" if memory > arithmetic else "arithmetic"
