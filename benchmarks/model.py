"""What a row can cost at best: its arithmetic, its bytes, and its steps, on one GPU.

A model, never a measurement; reports print it beside one. Units are in the names.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from .problems import Problem

MIB: Final = 2**20


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The rates that bound a GPU. `rates` are FLOP/s by type; bandwidths are bytes/s; times are seconds."""

    name: str
    rates: dict[str, float]
    bandwidth: float
    l2_bandwidth: float
    l2_nbytes: float
    on_chip_nbytes: float
    barrier: float
    boundary: float
    graph_step: float
    eager_step: float


H200: Final = Gpu(
    "NVIDIA H200",
    # 16-bit: read at 8192^3 on such a machine. TF32, float32: the datasheet's. float64: the datasheet's, tensor cores.
    rates={"float16": 790e12, "bfloat16": 790e12, "tf32": 495e12, "float32": 67e12, "float64": 67e12},
    bandwidth=4.3e12,  # a copy between two places of its memory, read on such a machine
    l2_bandwidth=5.5e12,  # microbenchmarks of the H100 PCIe
    l2_nbytes=44e6,  # of the datasheet's 50 MB, what the data of a step leave to a matrix
    on_chip_nbytes=132 * 328 * 1024,  # registers and shared memory of 132 multiprocessors
    barrier=1.2e-6,  # a barrier over the whole grid: a persistent kernel's step
    boundary=1.0e-6,  # the end of one kernel and the start of the one that waits for it
    graph_step=2.5e-6,  # least time of a step inside a graph
    eager_step=4.0e-6,  # least time of a step of two launches
)


@dataclasses.dataclass(frozen=True)
class Floor:
    """Least times of a pass in microseconds: by arithmetic or memory alone, and with what a step costs in each way.

    `persist_us` is None where the recurrent weights do not fit the registers and shared memory of the chip.
    """

    hard_us: float
    persist_us: float | None
    graph_us: float
    eager_us: float


def _layers(problem: Problem) -> list[int]:
    """The input width of each layer."""
    return [problem.I] + [problem.D * (problem.P or problem.H)] * (problem.L - 1)


def flops(problem: Problem) -> float:
    """Multiply-adds of one forward, times 2; backward-data and backward-weights have as many each.

    Pointwise work is not counted, as nobody counts it. Skip input has no input matrices in its first layer.
    """
    G, H, P = problem.gates, problem.H, problem.P or problem.H
    of_step = 0
    for layer, width in enumerate(_layers(problem)):
        of_input = 0 if layer == 0 and problem.input == "skip" else width
        of_step += 2 * G * H * (of_input + P) + (2 * H * P if problem.P else 0)
    return float(of_step * problem.D * problem.B * problem.T)


def flops_of(problem: Problem, which: str) -> float:
    """The same for a pass: a step is a forward and both backwards."""
    return flops(problem) * (3 if which == "step" else 1)


def recurrent_nbytes(problem: Problem, itemsize: int) -> int:
    """The recurrent matrix of one layer and direction."""
    return problem.gates * problem.H * (problem.P or problem.H) * itemsize


def least_nbytes(problem: Problem, itemsize: int) -> int:
    """Bytes of one forward in evaluation that have to move: x, the weights once, and y."""
    G, H, P = problem.gates, problem.H, problem.P or problem.H
    weights = 0
    for layer, width in enumerate(_layers(problem)):
        of_input = 0 if layer == 0 and problem.input == "skip" else width
        weights += problem.D * (G * H * (of_input + P) + 2 * G * H + (H * P if problem.P else 0))
    data = problem.T * problem.B * (problem.I + problem.D * P)
    return itemsize * (weights + data)


def floor(problem: Problem, dtype: str, gpu: Gpu = H200) -> Floor:
    """Return what a forward takes at least, if each layer's steps were one perfect kernel and directions overlapped."""
    itemsize = {"float16": 2, "bfloat16": 2, "float64": 8}.get(dtype, 4)
    rate = gpu.rates[dtype]
    work = flops(problem) / rate
    R = recurrent_nbytes(problem, itemsize)
    steps = problem.T + problem.L - 1  # layers follow each other one step apart
    of_step = 2 * R / itemsize * problem.B / rate
    from_memory = R / (gpu.l2_bandwidth if R <= gpu.l2_nbytes else gpu.bandwidth)
    kernel = max(of_step, from_memory) + gpu.boundary
    fits = R <= gpu.on_chip_nbytes
    return Floor(
        hard_us=1e6 * max(work, least_nbytes(problem, itemsize) / gpu.bandwidth),
        persist_us=1e6 * steps * max(gpu.barrier, of_step) if fits else None,
        graph_us=1e6 * steps * max(gpu.graph_step, kernel),
        eager_us=1e6 * steps * max(gpu.eager_step, kernel),
    )
