"""Time the host's share of a cuDNN call, without a GPU: `python -m benchmarks.host_cost`.

The library is the tests' shim with a callback that does nothing, so that what is measured is this package: checks,
plans, arguments, the foreign call. Memory is host memory. Figures are microseconds, median and lowest of many.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing.strategies import make_problem
from tests.shim import shim
from tests.shim.host_device import host_allocator


def measure(call: Callable[[], Any], times: int = 3000) -> dict[str, float]:
    for _ in range(100):
        call()
    taken = []
    for _ in range(times):
        start = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - start) / 1000)
    return {"median_us": round(statistics.median(taken), 2), "lowest_us": round(min(taken), 2)}


def main() -> None:
    path = shim.build(Path(tempfile.mkdtemp()))
    played = shim.Shim(path)
    engine, device = played.engine_and_device()
    op = ops.CudnnLSTM(1, 128, 128)
    problem = make_problem(op, 1, 1, None, seed=0)
    x, hx, cx, params = map(device.from_host, (problem.x, problem.hx, problem.cx, problem.params))
    with use_engine(engine), host_allocator(device):
        fwd = op.forward(x, hx, cx, params, is_training=False)
        y, hy, cy = fwd.output, fwd.output_h, fwd.output_c
        plan = op.prepare(1, 1, device="cuda:0")
        plan.forward(params, x, hx, cx, y, hy, cy)
        dll = ctypes.CDLL(str(path))
        dll.shim_set_hook.argtypes = [ctypes.c_void_p]
        dll.shim_set_hook(ctypes.cast(dll.shim_idle, ctypes.c_void_p))
        (native,) = engine._plans.values()  # noqa: SLF001
        handle = engine._handles.get()  # noqa: SLF001
        scratch = device.empty((native.workspace_nbytes,), y.dtype)
        results = {
            "foreign call alone": measure(lambda: native.forward(handle, params, x, hx, cx, y, hy, cy, scratch, None)),
            "prepared forward": measure(lambda: plan.forward(params, x, hx, cx, y, hy, cy)),
            "eager forward": measure(lambda: op.forward(x, hx, cx, params, is_training=False)),
        }
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
