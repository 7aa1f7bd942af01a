"""One long run that mixes what a server does: `python -m tests.reliability.load --forwards 1000000`.

Threads share one op and its params: eager calls of changing T and B with ragged lengths, streams that carry their
state, gradients, saves and restores while others compute, and calls that are cancelled half-way by an exception thrown
into their thread. One result in 500 is compared with the step-by-step reference, each stream with one long call, each
restored buffer with what was saved. Prints one line of JSON; exits with 1 if anything differed or memory grew. A run of
a million or more is kept in load.json, for `docs/reliability.md`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import datetime as dt
import gc
import json
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pycudnnrnn import CudnnLSTM, Saver, ops
from pycudnnrnn._atomic import write_atomically
from pycudnnrnn.testing import reference
from pycudnnrnn.testing.strategies import make_problem
from tests.reliability.report import write_document

RESULTS = Path(__file__).with_name("load.json")
KEPT_FROM = 1_000_000
"""Fewer forwards are a try."""

SAMPLE = 500
TOLERANCE = 1e-10
GROWTH_MAX_NBYTES = 8 << 20
"""What the allocator's own arenas may take after the first tenth of a run."""

OP = ops.CudnnLSTM(2, 6, 5, dtype="float64", direction="bidirectional")
STREAM = ops.CudnnLSTM(2, 6, 5, dtype="float64")
PARAMS = make_problem(OP, 1, 1, None, seed=0).params
STREAM_PARAMS = make_problem(STREAM, 1, 1, None, seed=1).params


class Cancelled(BaseException):
    """Thrown into a thread that computes."""


class Load:
    """What is shared: the counts, and what was found wrong."""

    def __init__(self, forwards: int) -> None:
        self.left = forwards
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.lock = threading.Lock()

    def take(self, number: int) -> bool:
        with self.lock:
            self.left -= number
            return self.left >= 0

    def count(self, **numbers: int) -> None:
        with self.lock:
            self.counts.update(numbers)

    def check(self, what: str, ours: np.ndarray, theirs: np.ndarray, tolerance: float = TOLERANCE) -> None:
        self.count(checked=1)
        if not np.allclose(ours, theirs, rtol=0, atol=tolerance):
            self.wrong.append(what)


def eager(load: Load, rng: random.Random) -> int:
    T, B = rng.randint(1, 6), rng.randint(1, 4)
    lengths = [rng.choice([0, 1, T, rng.randint(0, T)]) for _ in range(B)] if rng.random() < 0.5 else None
    problem = make_problem(OP, T, B, lengths, rng.getrandbits(32))
    output, _, _ = OP(problem.x, problem.hx, problem.cx, PARAMS, is_training=False, sequence_lengths=lengths)
    if rng.randrange(SAMPLE) == 0:
        states = problem.x, problem.hx, problem.cx, problem.full_lengths
        load.check("an eager call", output, reference.forward(OP.spec, *OP.params_to_canonical(PARAMS), *states)[0])
    return 1


def stream(load: Load, rng: random.Random) -> int:
    x = np.random.default_rng(rng.getrandbits(32)).normal(size=(50, 1, 5))
    h = c = None
    steps = []
    for t in range(50):
        y, h, c = STREAM(x[t : t + 1], h, c, STREAM_PARAMS, is_training=False)
        steps.append(y)
    whole, last_h, last_c = STREAM(x, None, None, STREAM_PARAMS, is_training=False)
    load.check(
        "a stream", np.concatenate([*steps, h, c], axis=None), np.concatenate([whole, last_h, last_c], axis=None)
    )
    return 51


def gradients(load: Load, rng: random.Random) -> int:
    problem = make_problem(OP, rng.randint(1, 6), rng.randint(1, 4), None, rng.getrandbits(32))
    fwd = OP.forward(problem.x, problem.hx, problem.cx, PARAMS)
    first = fwd.backward(*problem.upstream(), retain=True)
    second = fwd.backward(*problem.upstream())
    load.check("a retained backward", first.params, second.params, 0)
    return 1


def save(load: Load, rng: random.Random) -> int:
    layer = CudnnLSTM(1, rng.randint(1, 6), dtype="float64", seed=rng.getrandbits(16))
    layer.build((None, None, 3))
    kept = layer.params.copy()
    with tempfile.TemporaryDirectory() as folder:
        saver = Saver({"layer": layer})
        path = saver.save(Path(folder) / "model.safetensors")
        layer.params[:] = 0
        saver.restore(path)
    load.check("a restored layer", layer.params, kept, 0)
    return 0


def cancelled(load: Load, rng: random.Random) -> int:
    """Throw an exception into a thread that computes; what it computes with must be as before, and so the next call."""
    problem = make_problem(OP, 40, 4, None, rng.getrandbits(32))
    before = {name: getattr(problem, name).copy() for name in ("x", "hx", "cx")}
    params = PARAMS.copy()
    outcome = []

    def work() -> None:
        with contextlib.suppress(Cancelled):
            while True:
                OP(problem.x, problem.hx, problem.cx, params)
                outcome.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(rng.random() * 0.003)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Cancelled))
    thread.join()
    load.count(cancelled_calls=1)
    load.check("params of a cancelled call", params, PARAMS, 0)
    for name, array in before.items():
        load.check(f"{name} of a cancelled call", getattr(problem, name), array, 0)
    again = OP(problem.x, problem.hx, problem.cx, params, is_training=False)
    fresh = OP(problem.x, problem.hx, problem.cx, PARAMS, is_training=False)
    load.check("the call after a cancelled one", again[0], fresh[0], 0)
    return len(outcome) + 2


JOBS: tuple[tuple[Callable[[Load, random.Random], int], int], ...] = (
    (eager, 900), (stream, 40), (gradients, 50), (save, 3), (cancelled, 2),
)  # fmt: skip


def work(load: Load, seed: int) -> None:
    rng = random.Random(seed)
    jobs, weights = zip(*JOBS, strict=True)
    while True:
        job = rng.choices(jobs, weights)[0]
        done = job(load, rng)
        load.count(**{job.__name__: 1, "forwards": done})
        if not load.take(done):
            return


def resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(forwards: int, threads: int = 4) -> dict[str, object]:
    """Run the load, and say what was counted, what was wrong, and how much memory grew after the first tenth."""
    started = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    memory = []
    for part in (forwards // 10, forwards - forwards // 10):
        load = Load(part)
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work, load, 1000 * len(memory) + i) for i in range(threads)]:
                done.result()
        gc.collect()
        memory.append(resident_nbytes())
        counts.update(load.counts)
        wrong += load.wrong
    return {
        **counts, "threads": threads, "seconds": round(time.monotonic() - started, 1), "wrong": wrong,
        "resident_bytes_after_a_tenth": memory[0], "growth_bytes": memory[1] - memory[0],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forwards", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=4)
    asked = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )
    found: dict[str, object] = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(), "commit": commit.stdout.strip(),
        "command": f"python -m tests.reliability.load --forwards {asked.forwards} --threads {asked.threads}",
        **run(asked.forwards, asked.threads),
    }  # fmt: skip
    print(json.dumps(found))  # noqa: T201  a program that reports
    if asked.forwards >= KEPT_FROM:
        write_atomically(RESULTS, (json.dumps(found, indent=1) + "\n").encode())
        write_document()
    if found["wrong"] or int(str(found["growth_bytes"])) > GROWTH_MAX_NBYTES:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
