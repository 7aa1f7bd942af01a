"""First contact with a GPU: `python -m tests.gpu.triage --out FILE.jsonl`, in three minutes.

Each check runs in a process of its own and says what it saw, a line of JSON each, and what has to be mended before a
long call is worth its time. The summary at the end has all of that. `python -m tests.gpu.triage NAME` runs one, here.
"""

import argparse
import collections
import contextlib
import importlib.metadata
import inspect
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path

from tests.gpu import asked, children, processes
from tests.gpu.machine import environment, machine
from tests.gpu.results_file import ResultsFile

ROOT = Path(__file__).parents[2]
CHECKS = {}
PACKAGES = (
    "numpy", "safetensors", "cupy-cuda13x", "cuda-pathfinder", "ml-dtypes", "torch", "triton", "jax", "jaxlib",
    "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-nccl-cu13", "pytest", "hypothesis", "click",
    "rich",
)  # fmt: skip


def check(function):
    """Take a function for a check; one that has a parameter is given the device."""
    CHECKS[function.__name__] = function
    return function


def say(mend="", **facts):
    """Print a line that `ask` reads; `mend` is what the facts ask for, if they do."""
    print(json.dumps(facts | ({"mend": mend} if mend else {}), default=str), flush=True)  # noqa: T201


@check
def tools():
    """What the machine has, and whether `tests` is ours: another package of that name in its site folder would win."""
    import tests

    folders = os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"])
    programs = ("git", "make", "timeout", "nvcc", "g++", "nvidia-smi", "compute-sanitizer")
    say(programs={name: shutil.which(name, path=folders) for name in programs})
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    missing = [name for name in ("pytest", "hypothesis", "click", "rich") if name not in versions]
    say(mend=f"{', '.join(missing)} missing: their tests cannot run" if missing else "", versions=versions)
    found = list(tests.__path__)
    say(mend="" if found[0] == str(ROOT / "tests") else "`tests` is another package", tests=found)


@check
def library(cuda):
    """Without torch: which libcudnn, whether it opens what it needs, and how long its first handle takes."""
    started = time.perf_counter()
    cuda.engine.runtime.handles.get()
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    wanted = ("libcudnn", "cublasLt", "nvrtc")
    say(
        library=str(cuda.engine.library),
        first_handle_s=round(time.perf_counter() - started, 2),
        loaded=sorted(path for path in loaded if any(name in path for name in wanted)),
    )


@check
def kernels(cuda):
    """CuPy's kernels for each type that the engine copies; each is compiled at its first use."""
    import numpy as np

    for dtype in ("float16", "bfloat16", "float32", "float64"):
        started = time.perf_counter()
        if dtype == "bfloat16":
            import ml_dtypes

            element = ml_dtypes.bfloat16
        else:
            element = np.dtype(dtype)
        device, ones = cuda.device, np.ones((4, 3, 2), element)
        array = device.zeros((4, 3, 2), np.dtype(element))
        device.add_into(array, cuda.put(ones))
        device.put(array, cuda.put(np.array([1, 2])), 1, device.take(array, cuda.put(np.array([2, 0])), 1))
        right = bool((cuda.get(device.copy(array[::2])).astype("f4") == 1).all())
        say(
            mend="" if right else f"CuPy's {dtype}", dtype=dtype, right=right, s=round(time.perf_counter() - started, 1)
        )


def errors_of(cuda, kind, lengths, **options):
    """The largest error of a call, as a share of what `numbers.worst` allows, with what came."""
    from pycudnnrnn.testing.goldens import KINDS
    from tests.gpu.numbers import run, run_numpy, worst

    op = KINDS[kind](**{"num_layers": 2, "num_units": 24, "input_size": 17} | options)
    problem = asked.problem_of(op, lengths)
    found = run(cuda, problem)
    return found, round(worst(found, run_numpy(problem), problem)[0], 3)


@check
def first(cuda):
    """One forward and backward of two layers: before anything else works."""
    ratio = errors_of(cuda, "lstm", None)[1]
    say(mend="" if ratio <= 1 else "wrong numbers", share_of_what_is_allowed=ratio)


@check
def types(cuda):
    """Each type, equal and ragged."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for lengths in (None, asked.RAGGED):
            ratio = errors_of(cuda, "gru", lengths, dtype=dtype, direction="bidirectional")[1]
            say(mend="" if ratio <= 1 else f"{dtype}: wrong numbers", dtype=dtype, lengths=lengths, ratio=ratio)


@check
def layouts(cuda):
    """The layout that cuDNN has beside the one by arithmetic."""
    from pycudnnrnn.errors import PycudnnrnnError
    from pycudnnrnn.layout import arithmetic_layout

    refused, different = collections.Counter(), []
    for spec in asked.GRID:
        try:
            different += [repr(spec)] if cuda.engine.layout(spec) != arithmetic_layout(spec) else []
        except PycudnnrnnError as error:
            refused[f"{type(error).__name__}: {error}"[:150]] += 1
    mend = f"{len(different)} layouts are not what arithmetic says" if different else ""
    say(mend, compared=len(asked.GRID), different=different[:5], refused=refused)


@check
def padding(cuda):
    """What y and dx hold past a sequence's end, in memory that was NaN."""
    zero = asked.padding(cuda)
    say(mend="" if all(zero.values()) else "fill dx, or y, with zeros before a ragged call", zero=zero)


@check
def null_states(cuda):
    """Whether NULL states are zeros in all three calls."""
    for lengths in (None, asked.RAGGED):
        off, same = asked.null_states(cuda, lengths)
        mend = "" if max(off.values()) <= 1e-5 else "pass zeros of our own for NULL states"
        say(mend=mend, lengths=lengths, off=off, to_the_bit=same)


@check
def batch_major(cuda):
    """Whether [B, T, ...] gives the same numbers."""
    for lengths in (None, asked.RAGGED):
        found = asked.batch_major(cuda, lengths)
        say(mend="" if max(found.values()) <= 1e-5 else "time_major=False", lengths=lengths, differences=found)


@check
def reserves(cuda):
    """Whether some lengths take more reserve than a ragged call is given."""
    found = asked.reserves(cuda)
    more = max(found.values()) > found["given"]
    say(mend="some lengths take more reserve: size it by them" if more else "", reserve_nbytes=found)


@check
def clip(cuda):
    """Cells that are clipped in float64, to a bound that is a float and to one that is rounded to a float."""
    for bound in (0.3, 0.25):
        found, ratio = errors_of(cuda, "lstm", None, cell_clip=bound, dtype="float64", num_layers=1)
        mend = "" if ratio <= 1 else f"cell_clip={bound} in float64"
        say(mend, bound=bound, ratio=ratio, largest_cy=repr(float(abs(found["cy"]).max())))


@check
def algorithms(cuda):
    """How long each takes to be prepared; the dynamic one compiles."""
    from pycudnnrnn import ops
    from pycudnnrnn.errors import PycudnnrnnError

    for algo in ("standard", "persist_static_small_h", "persist_static", "persist_dynamic"):
        for dtype in ("float16", "float32"):
            started = time.perf_counter()
            try:
                op = ops.CudnnLSTM(1, 128, 128, dtype=dtype, algo=algo)
                op.prepare(10, 8, is_training=True, device="cuda")
                text = "prepared"
            except PycudnnrnnError as error:
                text = f"{type(error).__name__}: {error}"[:200]
            mend = "NVRTC: see load_nvrtc in engines/cudnn/passes.py" if "nvrtc" in text.lower() else ""
            say(mend, algo=algo, dtype=dtype, s=round(time.perf_counter() - started, 2), what=text)


@check
def graph(cuda):
    """Capture and replay."""
    import numpy as np

    from tests.gpu.prepared import captured, eager, fill

    for lengths in (None, asked.RAGGED):
        problem = asked.problem_of(asked.lstm(), lengths)
        made = captured(cuda, problem)
        expected = eager(cuda, problem, made.params)
        fill(cuda, made, problem)
        different = set()
        for _ in range(20):
            made.replay()
            different |= {n for n, a in expected.items() if not np.array_equal(cuda.get(getattr(made, n)), a)}
        say(
            mend=f"replays differ: {sorted(different)}" if different else "",
            lengths=lengths,
            different=sorted(different),
        )


@check
def threads(cuda):
    """Eight threads with handles of their own, on the descriptors of one plan."""
    from tests.gpu.prepared import in_threads

    assert not in_threads(cuda)
    say(threads="equal")


@check
def torch_step(cuda):
    """A training step of our module beside torch's, and what each costs the host."""
    if cuda.on_shim:
        say(skipped="CUDA tensors are torch's own")
        return
    import torch

    from pycudnnrnn.interop import torch as ours

    torch.backends.cudnn.allow_tf32 = False
    theirs, mine = (library.LSTM(64, 128, 2).cuda() for library in (torch.nn, ours))
    mine.load_state_dict(theirs.state_dict())
    x, sums = torch.randn(50, 16, 64, device="cuda", requires_grad=True), {}
    torch.cuda.synchronize()  # the copies are on another stream than the steps
    for name, module in (("torch", theirs), ("ours", mine)):
        with torch.cuda.stream(torch.cuda.Stream()):
            y = module(x)[0]
            sums[name] = [float(y.double().sum()), float(torch.autograd.grad(y.sum(), [x])[0].double().sum())]
        torch.cuda.synchronize()
        times = []
        for _ in range(20):
            started = time.perf_counter()
            module(x)[0].sum().backward()
            times.append(time.perf_counter() - started)
            torch.cuda.synchronize()
        say(module=name, sums=sums[name], host_us_of_a_step=round(sorted(times)[10] * 1e6))
    off = asked.largest(sums["ours"], sums["torch"]) / max(1.0, *map(abs, sums["torch"]))
    say(mend="" if off <= 1e-4 else "the torch module's numbers", sums_differ_by=off)


@check
def nccl(cuda):
    """Whether CuPy finds NCCL."""
    say(available=asked.nccl_of(cuda.device.xp).available)


@check
def lost():
    """What a process with a lost device leaves on stderr; last, for it takes the device from its own process."""
    lines, code, err = children.child(children.lost, "found")
    errors = sorted({str(line.get("error")) for line in lines if "call" in line})
    left = children.without_cupys(err)
    mend = "" if (errors, code, left) == (["DeviceLostError"], 0, "") else "a lost device is not reported as one"
    say(mend, code=code, errors=errors, stderr=err[-600:], without_cupys=left[-600:])


def alone(function):
    """Run a check in this process."""
    if not inspect.signature(function).parameters:
        function()
        return
    with machine() as cuda:
        function(cuda)


def ask(name, limit_s):
    """Run one check in a process of its own; return its lines, and why it did not come to its end."""
    command = [sys.executable, "-m", "tests.gpu.triage", name]
    code, out, err = processes.run(command, limit_s, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    why = "" if code == 0 else f"no end within {limit_s:g} s: " if code is None else f"exit code {code}: "
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], why and why + err[-1500:]


def triage(file, names, limit_s, seconds=math.inf):
    """Ask every check, each for so long at most, until the seconds are over; return what is to be mended, by check."""
    to_mend, stop_at = {}, time.monotonic() + seconds
    for name in names:
        left = stop_at - time.monotonic()
        if left <= 0:
            to_mend[name] = ["not asked: no time was left"]
            continue
        file.add(begin=f"triage.py::{name}")
        started = time.perf_counter()
        lines, why = ask(name, min(limit_s, left))
        wrong = [line["mend"] for line in lines if "mend" in line] + ([why] if why else [])
        if wrong:
            to_mend[name] = wrong
        took = round(time.perf_counter() - started, 1)
        file.add(question=f"triage {name}", answer=lines)
        outcome = "failed" if wrong else "passed"
        file.add(end=f"triage.py::{name}", outcome=outcome, why="\n".join(wrong), measured=[], seconds=took)
        for line in lines:
            print(json.dumps({"check": name, **line}), flush=True)  # noqa: T201
        print(json.dumps({"check": name, "seconds": took, "mend": wrong}), flush=True)  # noqa: T201
    return to_mend


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *CHECKS], help="one runs in this process")
    parser.add_argument("--out", type=Path, help="results file")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each check")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all of them")
    given = parser.parse_args()
    if given.names and given.out is None:
        alone(CHECKS[given.names[0]])
        return
    processes.stoppable()
    file = ResultsFile(given.out)
    file.start("python -m tests.gpu.triage", environment(None))
    to_mend = triage(file, given.names or CHECKS, given.limit, given.seconds)
    with contextlib.suppress(Exception), machine() as cuda:  # after all checks: none of them needs it to be free
        file.start("python -m tests.gpu.triage", environment(cuda))
    print("\nmend before the long calls:" if to_mend else "\nnothing to mend")  # noqa: T201
    for name, wrong in to_mend.items():
        print("\n".join(f"- {name}: {text}" for text in wrong))  # noqa: T201
    sys.exit(bool(to_mend))


if __name__ == "__main__":
    main()
