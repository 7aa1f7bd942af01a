"""Time the host's share of the cuDNN path, without a GPU: `python -m benchmarks.host_cost`.

The library is the tests' stand-in for cuDNN, whose calls do no work. Memory is host memory, taken from a ring of blocks
like that of a pool. So the times are those of this package and of CuPy's array objects. The library's own call takes
nanoseconds. Rows that need a GPU are not run.

Calls are timed in turn, in blocks of the same call, so that a slow moment of the machine affects all of them. The first
call of a block, which comes after other calls, is reported separately. Times are in microseconds.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.passes import FORWARD
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in import shim
from tests.stand_in.host_device import HostDevice, host_allocator

from . import host_jax, host_torch
from .environment import command_line, environment, now
from .results_files import FOLDER, Record, place, record, write

ROUNDS = 2000
BLOCK = 50
IMPORTS = 15
SETS = 128
"""Sets of buffers, and of lengths, that the calls take in turn."""

NEEDS_A_GPU = "needs a GPU"


class RingDevice(HostDevice):
    """A host device whose empty arrays come from a ring of blocks, about as fast as a memory pool."""

    def __init__(self) -> None:
        super().__init__()
        self._rings: dict[int, Iterator[Any]] = {}
        self.pooled = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if not self.pooled:
            return super().empty(shape, dtype)
        nbytes = dtype.itemsize
        for size in shape:
            nbytes *= size
        ring = self._rings.get(nbytes)
        if ring is None:
            ring = self._rings[nbytes] = itertools.cycle([self.allocate(nbytes) for _ in range(64)])
        return cupy.ndarray(shape, dtype, memptr=next(ring))


class Times(NamedTuple):
    """Times of a call after the same call, and of one after other calls, whose code and data fill the caches."""

    repeated: Sequence[float] = ()
    first: Sequence[float] = ()


NO_TIMES = Times()


def row(name: str, bound: str, problem: str, which: str, times: Times = NO_TIMES, **more: Any) -> Record:
    """Return a row. Its key `goal` names the goal that it measures; `extras` has the rest."""
    reason = more.pop("reason", None)
    stated = {"goal": name if more.pop("whole", True) else None, "unit": more.pop("unit", "us")}
    found = record(
        suite="host_cost", group="binding", problem=problem, competitor="ours", which=which,
        status="not_run" if reason else "ok", reason=reason, times_us=times.repeated, **stated,
    )  # fmt: skip
    if times.first:
        found["first_us"] = round(float(np.median(times.first)), 3)
    return found | {"value": more.pop("value", found["median_us"]), "extras": {"row": name, "goal": bound, **more}}


def measured(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Times]:
    """Time each call `rounds` times, in blocks, and subtract the time of reading the clock."""
    for call in calls.values():
        for _ in range(rounds // 10):
            call()
    taken: dict[str, list[list[float]]] = {name: [] for name in calls}
    clock = time.perf_counter_ns
    nothing = float(np.median([-(clock() - clock()) / 1000 for _ in range(ROUNDS)]))
    count = min(BLOCK, rounds)
    for _ in range(-(-rounds // count)):
        for name, call in calls.items():
            block = []
            for _ in range(count):
                start = clock()
                call()
                block.append((clock() - start) / 1000 - nothing)
            taken[name].append(block)
    return {
        name: Times([t for _, *rest in blocks for t in rest], [first for first, *_ in blocks])
        for name, blocks in taken.items()
    }


def imports(code: str) -> Times:
    """Return the wall times of a new interpreter that runs `code`, minus those of one that runs nothing."""

    def run(program: str) -> float:
        start = time.perf_counter_ns()
        subprocess.run([sys.executable, "-c", program], check=True)
        return (time.perf_counter_ns() - start) / 1000

    run(code)
    return Times([run(code) - run("pass") for _ in range(IMPORTS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    options = parser.parse_args()
    described = environment(command_line(), library="the tests' stand-in, whose calls do no work")
    described["versions"] |= {"numpy": np.__version__, "cupy": cupy.__version__}
    path = shim.build(Path(tempfile.mkdtemp()))
    played = shim.Shim(path)
    device = RingDevice()
    engine, _ = played.engine_and_device(device)
    with use_engine(engine), host_allocator(device):
        rows = list(_run(path, played, engine, device))
    described["finished"] = now()
    out = place(options.out, described, "host")
    write(out, described, rows)
    for found in rows:
        stated = found["reason"] or f"{found['value']} {found['unit']}"
        print(f"{found['extras']['row']} {found['pass']}: {stated}")
    print(f"written to {out}")


def _run(path: Path, played: Any, engine: Any, device: RingDevice) -> Iterator[Record]:
    op = ops.CudnnLSTM(1, 128, 128)
    shape = "LSTM T=1 B=1 I=H=128"
    problem = make_problem(op, 1, 1, None, seed=0)
    x, hx, cx, params = map(device.from_host, (problem.x, problem.hx, problem.cx, problem.params))
    plan, other_plan = (op.prepare(1, 1, device="cuda:0") for _ in range(2))  # each for its own arrays
    other = ops.CudnnLSTM(1, 128, 128, seed=1)  # compiled apart, so that nobody else's lengths come in between
    lengths = np.arange(128) % 20 + 1
    batch = make_problem(op, 20, 128, lengths.tolist(), seed=0)
    data = device.from_host(batch.x)

    def outputs() -> list[Any]:
        return [device.from_host(a) for a in (problem.x, problem.hx, problem.cx)]

    sets = itertools.cycle([outputs() for _ in range(SETS)])
    rng = np.random.default_rng(0)
    batches = itertools.cycle([rng.integers(1, 21, 128) for _ in range(SETS)])

    def eager() -> Any:
        return op.forward(x, hx, cx, params, is_training=False)

    def ragged() -> Any:
        return op.forward(data, None, None, params, is_training=False, sequence_lengths=lengths)

    def new_lengths() -> Any:
        return other.forward(data, None, None, params, is_training=False, sequence_lengths=next(batches))

    graph = plan.capture(params)
    graph._native._graph.launch = lambda: None  # noqa: SLF001
    y, hy, cy = outputs()
    device.pooled = True
    hot = _hot_path(played, device, {"prepared": lambda: plan.forward(params, x, hx, cx, y, hy, cy), "eager": eager,
                                     "eager, ragged": ragged, "eager, new lengths": new_lengths})  # fmt: skip
    dll = ctypes.CDLL(str(path))
    dll.shim_set_hook.argtypes = [ctypes.c_void_p]
    dll.shim_set_hook(ctypes.cast(dll.shim_idle, ctypes.c_void_p))
    passes = engine.runtime.compiled.values()[0]
    handle = engine.runtime.handles.on(device.stream())
    descriptors = passes.data(handle, Schedule(1, 1)).pointers
    workspace, *at = (
        device.address(a) for a in (device.empty((1 << 20,), np.dtype("u1")), params, x, hx, cx, y, hy, cy)
    )
    times = measured(
        {
            "foreign": lambda: passes.calls[FORWARD](handle.pointer, *descriptors, workspace, *at, None),
            "fixed": lambda: plan.forward(params, x, hx, cx, y, hy, cy),
            "changing": lambda: other_plan.forward(params, x, hx, cx, *next(sets)),
            "eager": eager,
            "replay": graph.replay,
            "ragged": ragged,
            "new_lengths": new_lengths,
        },
        ROUNDS,
    )
    foreign = round(float(np.median(times["foreign"].repeated)), 3)
    yield row("B1", "no bound", shape, "prepared forward, other pointers each time", times["changing"],
        foreign_call_us=foreign, sets=SETS)  # fmt: skip
    yield row("B2", "no bound", shape, "prepared forward, the same pointers", times["fixed"], foreign_call_us=foreign)
    yield row("B3", "no bound", shape, "eager forward", times["eager"], foreign_call_us=foreign,
        memory="a ring of blocks in a pool's place")  # fmt: skip
    yield row("B4", "<= 1.0", shape, "eager forward over torch's",
        reason=f"{NEEDS_A_GPU}: torch's cuDNN path runs nowhere else")  # fmt: skip
    yield row("B5", "<= 3 us", shape, "graph replay", reason=f"{NEEDS_A_GPU}: cudaGraphLaunch, and CuPy's call of it")
    yield row("B5", "<= 3 us", shape, "graph replay, this package's share", times["replay"], whole=False,
        excludes="CuPy's Graph.launch and cudaGraphLaunch")  # fmt: skip
    ragged_shape = "LSTM T=20 B=128 I=H=128, ragged"
    for what, times_of in (("new lengths each time", "new_lengths"), ("the same lengths", "ragged")):
        yield row("B6", "no bound", ragged_shape, f"eager forward, {what}", times[times_of], sets=SETS)
    for what, counts in hot.items():
        yield row("B7", "0 / 0", shape, f"queries and synchronisations, {what}", value=sum(counts.values()),
            unit="calls", counts=counts)  # fmt: skip
    binding = imports("import pycudnnrnn; from pycudnnrnn import ops, libcudnn")
    yield row("B8", "<= 300 ms", "import", "import pycudnnrnn, ops and libcudnn", binding,
        value=round(float(np.median(binding.repeated)) / 1000, 1), unit="ms",
        numpy_ms=round(float(np.median(imports("import numpy").repeated)) / 1000, 1))  # fmt: skip
    for what, which, taken in host_jax.measured(measured, ROUNDS):
        yield row("JAX", "<= 60 us; 64 MiB <= 1 ms", which, what, taken, whole=False)
    for what, which, bound, taken in host_torch.measured(measured, path, ROUNDS):
        yield row("torch", bound, which, what, taken, whole=False,
            memory="torch's CPU tensors in the place of CUDA's")  # fmt: skip


def _hot_path(played: Any, device: RingDevice, calls: dict[str, Callable[[], Any]]) -> dict[str, dict[str, int]]:
    """Count the queries, synchronisations and allocations of repeated calls; setting the stream does not count."""
    usual = {*shim.PASSES, "cudnnSetStream"}
    found = {}
    for name, call in calls.items():
        call()
        played.calls.clear()
        copies, allocations = device.copies, len(device.allocations)
        for _ in range(10):
            call()
        asked = collections.Counter(function for function, *_ in played.calls if function not in usual)
        found[name] = {
            "queries_and_descriptors": sum(asked.values()),
            "synchronisations": device.copies - copies,
            "allocations_outside_the_pool": len(device.allocations) - allocations,
        }
    return found


if __name__ == "__main__":
    main()
