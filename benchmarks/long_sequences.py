"""Time and peak memory of training on long sequences, recomputing or not: `python -m benchmarks.long_sequences`.

The NumPy engine and torch on the CPU, each keeping all states, or the states of every K-th step (torch with
`torch.utils.checkpoint`). Each measurement runs in a separate process. Memory is the peak resident memory of a step
minus the resident memory before it, when the arguments are already there. `section` and `figure` make the part of the
page.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import importlib.metadata
import json
import math
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .environment import command_line, environment, now
from .results_files import FOLDER, Record, place, record, write

SUITE = "long_sequences"
COMPETITORS = ("numpy", "torch_cpu")
TITLES = {"numpy": "ours", "torch_cpu": "torch"}

B, I, H = 4, 64, 64
TIMES = (1_000, 10_000, 100_000)
WARM_UP = 64
MIB = 1 << 20


def every_choices(T: int) -> list[int | None]:
    """None, the square root of T, and ten times that."""
    return [None, math.isqrt(T), 10 * math.isqrt(T)]


def ours(T: int, every: int | None) -> tuple[Callable[[int], Any], int]:
    """Return a step over the first so many time steps, and the bytes that `op.memory` estimates."""
    from pycudnnrnn import ops

    op = ops.CudnnLSTM(1, H, I)
    x, dy, params = *_data(T), op.init_params(seed=1)

    def step(steps: int) -> Any:
        return op.forward(x[:steps], None, None, params, checkpoint_every=every).backward(dy[:steps])

    return step, op.memory(T, B, True, every).total_nbytes


def torchs(T: int, every: int | None) -> tuple[Callable[[int], Any], None]:
    """Return the same for torch, which has no estimate."""
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module = torch.nn.LSTM(I, H)
    x, dy = map(torch.from_numpy, _data(T))

    def step(steps: int) -> Any:
        module.zero_grad(set_to_none=True)
        data = x[:steps].detach().requires_grad_()
        if every is None:
            module(data)[0].backward(dy[:steps])
            return data.grad
        states = tuple(torch.zeros(1, B, H) for _ in range(2))
        outputs = []
        for part in data.split(every):
            output, states = checkpoint(module, part, states, use_reentrant=False)
            outputs.append(output)
        torch.autograd.backward(outputs, list(dy[:steps].split(every)))
        return data.grad

    return step, None


PREPARE = {"numpy": ours, "torch_cpu": torchs}


def _data(T: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return tuple((rng.normal(size=(T, B, n)) * H**-0.5).astype(np.float32) for n in (I, H))


def measure(competitor: str, T: int, every: int | None, rounds: int) -> Record:
    """Return the times of some steps in microseconds, and the peak of the first."""
    step, estimate = PREPARE[competitor](T, every)
    step(WARM_UP)
    ctypes.CDLL(None).malloc_trim(0)  # what glibc holds for reuse would hide what a step takes
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here: proc(5)
    taken = []
    peak = 0
    for _ in range(rounds):
        start = time.perf_counter_ns()
        step(T)
        taken.append((time.perf_counter_ns() - start) / 1000)
        peak = peak or _status("VmHWM") - before
    return {"times": taken, "peak_bytes": peak, "process_bytes": peak + before, "estimated_bytes": estimate}


def _status(name: str) -> int:
    """Return one of this process's memory figures in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def run(times: Sequence[int], rounds: int, threads: int, keep: Callable[[list[Record]], None]) -> list[Record]:
    """Measure everything, in random order; a failed row has its reason. `keep` gets all rows after each of them."""
    jobs = [(c, T, every) for c in COMPETITORS for T in times for every in every_choices(T)]
    found: dict[Any, Record] = {}
    flags = {name: str(threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    for competitor, T, every in random.sample(jobs, len(jobs)):
        few = max(1, min(rounds, 100_000 // T))
        worker = ["--worker", competitor, str(T), str(every), str(few)]
        command = [sys.executable, "-m", "benchmarks.long_sequences", *worker]
        done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True, check=False)
        reason, found_by = None, {"peak_bytes": None, "process_bytes": None, "estimated_bytes": None}
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        else:
            found_by = json.loads(done.stdout)
        row = record(
            suite=SUITE, group="long", problem=f"lstm {T}/{B}/{I}/{H}/1", competitor=competitor, which="step",
            threads=threads, status="failed" if reason else "ok", reason=reason, times_us=found_by.pop("times", ()),
            T=T, checkpoint_every=every, **found_by,
        )  # fmt: skip
        found[competitor, T, every] = row
        print(
            f"{row['problem']} {competitor} K={every}: {_seconds(row)} s, {_mib(row['peak_bytes'])} MiB",
            file=sys.stderr,
        )
        keep([found[job] for job in jobs if job in found])
    return [found[job] for job in jobs]


def section(rows: Sequence[Record]) -> str:
    """Return the part of the page, in Markdown; its picture is the one of `figure`."""
    rows = [row for row in rows if row["suite"] == SUITE]
    if not rows:
        return "## Long sequences\n\nNot measured.\n"
    headings = ["T", "K", *(f"{TITLES[c]}, {unit}" for unit in ("s", "MiB") for c in COMPETITORS), "`op.memory`, MiB"]
    lines = [headings, ["---"] * len(headings)]
    for T, every in dict.fromkeys((row["T"], row["checkpoint_every"]) for row in rows):
        own = {row["competitor"]: row for row in rows if (row["T"], row["checkpoint_every"]) == (T, every)}
        cells = [f"{T:,}", "all kept" if every is None else f"{every:,}"]
        cells += [_seconds(own.get(competitor)) for competitor in COMPETITORS]
        cells += [_mib(own.get(competitor, {}).get("peak_bytes")) for competitor in COMPETITORS]
        lines.append([*cells, _mib(own.get("numpy", {}).get("estimated_bytes"))])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    failed = [
        f"- {TITLES[row['competitor']]}, T = {row['T']:,}, K = {row['checkpoint_every'] or 'all'}: {row['reason']}"
        for row in rows
        if row["status"] != "ok"
    ]
    threads = rows[0]["threads"]
    text = (
        f"Time and memory of one training step of an LSTM: float32, {B} sequences, {I} inputs, {H} units, {threads} "
        f"thread{'' if threads == 1 else 's'}. With `checkpoint_every=K`, only every K-th state is kept, and the "
        "backward pass recomputes the rest. torch does the same with `torch.utils.checkpoint`. MiB is the peak memory "
        "that the step adds; `op.memory` is our estimate of it."
    )
    picture = "![time and memory against T](performance/long-sequences.svg)"
    parts = [
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False),
        picture,
        table,
        *(["Failed:\n\n" + "\n".join(failed)] if failed else []),
        *_process(rows),
    ]
    return "\n\n".join(["## Long sequences", *parts]) + "\n"


def _process(rows: Sequence[Record]) -> list[str]:
    """Return a sentence about the smallest process that trained the longest sequence."""
    longest = max(row["T"] for row in rows)
    ours = [row for row in rows if (row["competitor"], row["status"], row["T"]) == ("numpy", "ok", longest)]
    if not ours:
        return []
    least = min(ours, key=lambda row: int(row["process_bytes"]))
    kept = "all states kept" if least["checkpoint_every"] is None else f"K = {least['checkpoint_every']:,}"
    most = f"{_mib(least['process_bytes'])} MiB, data and libraries included"
    return [f"At T = {longest:,} with {kept}, our whole process used at most {most}."]


def figure(rows: Sequence[Record]) -> Any:
    """Draw time and peak memory against T, one line per competitor and rule for K."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasSVG(drawn)
    rows = [row for row in rows if row["suite"] == SUITE and row["status"] == "ok"]
    rules = ("all kept", "K = sqrt(T)", "K = 10 sqrt(T)")
    for axes, key, scale, label in zip(
        drawn.subplots(1, 2), ("median_us", "peak_bytes"), (1e6, MIB), ("time, s", "peak memory, MiB"), strict=True
    ):
        for competitor, colour in zip(COMPETITORS, ("#4477aa", "#ee6677"), strict=True):
            for nth, (rule, style) in enumerate(zip(rules, ("o-", "s--", "^:"), strict=True)):
                points = sorted(
                    (row["T"], row[key] / scale)
                    for row in rows
                    if row["competitor"] == competitor and every_choices(row["T"])[nth] == row["checkpoint_every"]
                )
                if points:
                    label_of = f"{TITLES[competitor]}, {rule}"
                    axes.plot(*zip(*points, strict=True), style, color=colour, label=label_of, markersize=4)
        axes.set(xscale="log", yscale="log", xlabel="T", ylabel=label)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)
    return drawn


def _seconds(row: Record | None) -> str:
    if row is None:
        return "not run"
    return row["status"] if row["status"] != "ok" else f"{row['median_us'] / 1e6:.3g}"


def _mib(nbytes: int | None) -> str:
    if nbytes is None:
        return "-"
    return f"{nbytes / MIB:,.0f}" if nbytes >= 100 * MIB else f"{nbytes / MIB:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, nargs="+", default=list(TIMES), metavar="T")
    parser.add_argument("--threads", type=int, default=1, help="more do not help at this size")
    parser.add_argument("--rounds", type=int, default=3, help="steps timed, fewer where a step is long")
    parser.add_argument("--out", type=Path, default=FOLDER, help="results file, or a folder for it")
    parser.add_argument("--worker", nargs=4, metavar=("COMPETITOR", "T", "K", "ROUNDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        competitor, T, every, rounds = options.worker
        print(json.dumps(measure(competitor, int(T), None if every == "None" else int(every), int(rounds))))
        return
    described = environment(command_line())
    for name in ("numpy", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # its rows say that it is not here
            described["versions"][name] = importlib.metadata.version(name)
    out = place(options.out, described, "long")
    rows = run(options.times, options.rounds, options.threads, functools.partial(write, out, described))
    described["finished"] = now()
    write(out, described, rows)
    print(section(rows))
    print(f"written to {out}")


if __name__ == "__main__":
    main()
