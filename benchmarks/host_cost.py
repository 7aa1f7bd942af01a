"""Time the host's share of the cuDNN path, without a GPU: `python -m benchmarks.host_cost`.

The library is the tests' stand-in for cuDNN, whose calls do no work. Memory is host memory, taken from a ring of blocks
like that of a pool. So the times are those of this package and of CuPy's array objects.

Calls are timed in turn, in blocks of the same call, so that a slow moment of the machine affects all of them. The first
call of a block, which comes after other calls, is reported separately. Times are in microseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing import make_problem
from tests.stand_in import shim, torch_on_cpu
from tests.stand_in.host_device import HostDevice, host_allocator

from . import torch_rules
from .environment import environment, now
from .results_files import FOLDER, Record, place, record, write
from .timing import Sample, summary

BLOCKS = 40
BLOCK = 50
IMPORTS = 15
SETS = 128
"""Sets of buffers, and of lengths, that the calls take in turn."""

Calls = dict[str, Callable[[], Any]]


class RingDevice(HostDevice):
    """A host device whose empty arrays come from a ring of blocks, about as fast as a memory pool."""

    def __init__(self) -> None:
        super().__init__()
        self._rings: dict[int, Iterator[Any]] = {}
        self.pooled = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if not self.pooled:
            return super().empty(shape, dtype)
        nbytes = dtype.itemsize * math.prod(shape)
        if nbytes not in self._rings:
            self._rings[nbytes] = itertools.cycle([self.allocate(nbytes) for _ in range(64)])
        return cupy.ndarray(shape, dtype, memptr=next(self._rings[nbytes]))


Times = tuple[list[float], list[float]]
"""Times of a call after the same call, and of one after other calls, whose code and data fill the caches."""


def row(goal: str | None, problem: str, what: str, times: Times, **more: Any) -> Record:
    """Return a row; `goal` is the goal that it measures."""
    repeated, first = times
    figures = summary([Sample(repeated)]) | ({"first_us": float(np.median(first))} if first else {})
    return record(
        suite="host_cost", group="binding", problem=problem, competitor="ours", which=what, dtype="float32", threads=1,
        status="ok", goal=goal, unit="us", **figures, value=figures["median_us"],
    ) | more  # fmt: skip


def measured(calls: Calls) -> dict[str, Times]:
    """Time each call in blocks, and subtract the time of reading the clock."""
    for call in calls.values():
        for _ in range(4 * BLOCK):
            call()
    taken: dict[str, Times] = {name: ([], []) for name in calls}
    clock = time.perf_counter_ns
    nothing = float(np.median([-(clock() - clock()) / 1000 for _ in range(1000)]))
    for _ in range(BLOCKS):
        for name, call in calls.items():
            block = []
            for _ in range(BLOCK):
                start = clock()
                call()
                block.append((clock() - start) / 1000 - nothing)
            taken[name][0].extend(block[1:])
            taken[name][1].append(block[0])
    return taken


def imports(code: str) -> float:
    """Return the median milliseconds of a new interpreter that runs `code`, minus those of one that runs nothing."""

    def run(program: str) -> float:
        start = time.perf_counter_ns()
        subprocess.run([sys.executable, "-c", program], check=True)
        return (time.perf_counter_ns() - start) / 1e6

    run(code)
    return round(float(np.median([run(code) - run("pass") for _ in range(IMPORTS)])), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    options = parser.parse_args()
    described = environment(library="the tests' stand-in, whose calls do no work")
    described["versions"] |= {"numpy": np.__version__, "cupy": cupy.__version__}
    path = shim.build(Path(tempfile.mkdtemp()))
    rows = [*_ours(path), *_torchs(path)]
    binding = imports("import pycudnnrnn; from pycudnnrnn import ops, libcudnn")
    rows.append(
        row("B8", "import", "import pycudnnrnn, ops and libcudnn", ([1e3 * binding], []), value=binding, unit="ms")
    )
    described["finished"] = now()
    out = place(options.out, described, "host")
    write(out, described, rows)
    for found in rows:
        print(f"{found['pass']}: {found['value']} {found['unit']}")
    print(f"written to {out}")


def _ours(path: Path) -> Iterator[Record]:
    """Time ops and plans on CuPy arrays over host memory."""
    device, played = RingDevice(), shim.Shim(path)
    engine, _ = played.engine_and_device(device)
    with use_engine(engine), host_allocator(device):
        op, other = (ops.CudnnLSTM(1, 128, 128, seed=seed) for seed in (0, 1))  # each with its own lengths
        problem = make_problem(op, 1, 1, None, seed=0)
        lengths = np.arange(128) % 20 + 1
        data = device.from_host(make_problem(op, 20, 128, lengths.tolist(), seed=0).x)
        plan, other_plan = (op.prepare(1, 1, device="cuda:0") for _ in range(2))  # each for its own arrays
        x, hx, cx, params = map(device.from_host, (problem.x, problem.hx, problem.cx, problem.params))

        def outputs() -> list[Any]:
            return [device.from_host(a) for a in (problem.x, problem.hx, problem.cx)]

        def ragged(op: Any, lengths: Any) -> Any:
            return op.forward(data, None, None, params, is_training=False, sequence_lengths=lengths)

        own, sets = outputs(), itertools.cycle([outputs() for _ in range(SETS)])
        batches = itertools.cycle([np.random.default_rng(n).integers(1, 21, 128) for n in range(SETS)])
        graph = plan.capture(params)
        graph._native._graph.launch = lambda: None  # noqa: SLF001  CuPy's call and cudaGraphLaunch do not count
        one, many = "LSTM T=1 B=1 I=H=128", "LSTM T=20 B=128 I=H=128, ragged"
        inputs = params, x, hx, cx
        calls: dict[str, tuple[str | None, str, Callable[[], Any]]] = {
            "prepared forward, other pointers each time": ("B1", one, lambda: other_plan.forward(*inputs, *next(sets))),
            "prepared forward, the same pointers": ("B2", one, lambda: plan.forward(*inputs, *own)),
            "eager forward": ("B3", one, lambda: op.forward(x, hx, cx, params, is_training=False)),
            "graph replay, this package's share": (None, one, graph.replay),
            "eager forward, new lengths each time": ("B6", many, lambda: ragged(other, next(batches))),
            "eager forward, the same lengths": ("B6", many, lambda: ragged(op, lengths)),
        }  # fmt: skip
        device.pooled = True
        times = _idle(path, {what: call for what, (_, _, call) in calls.items()})
        yield from (row(goal, problem, what, times[what]) for what, (goal, problem, _) in calls.items())


def _torchs(path: Path) -> Iterator[Record]:
    """Time our torch modules: CPU tensors take the place of CUDA tensors."""
    import torch

    from pycudnnrnn.interop.torch import LSTM

    torch.set_num_threads(1)
    played = shim.Shim(path)
    engine, _ = played.engine_and_device()
    engine.device = "cpu"
    played.stream, played.gpu, played.generator = 0x7000, torch_rules.H200, torch_on_cpu.Generator()
    with use_engine(engine), torch_on_cpu.as_cuda(played):
        module, x = LSTM(64, 64), torch.zeros(20, 16, 64)
        upstream = torch.ones(20, 16, 64)

        def inference() -> Any:
            with torch.no_grad():
                return module(x)

        calls: Calls = {
            "torch: inference": inference,
            "torch: forward": lambda: module(x),
            "torch: forward and backward": lambda: module(x)[0].backward(upstream),
        }
        for what, times in _idle(path, calls).items():
            yield row(None, "LSTM T=20 B=16 I=H=64", what, times)


def _idle(path: Path, calls: Calls) -> dict[str, Times]:
    """Time calls over a library whose calls return at once, after one of each over one that checks them."""
    for call in calls.values():
        call()
    dll = ctypes.CDLL(str(path))
    dll.shim_set_hook.argtypes = [ctypes.c_void_p]
    dll.shim_set_hook(ctypes.cast(dll.shim_idle, ctypes.c_void_p))
    return measured(calls)


if __name__ == "__main__":
    main()
