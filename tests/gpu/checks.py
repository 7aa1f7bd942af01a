"""What the triage asks of the engine on a device: each check runs in a process of its own, and says what it saw."""

import collections
import json
import time

from tests.gpu import asked, children


def say(mend="", **facts):
    """Print a line that the triage reads; `mend` is what the facts ask for, if they do."""
    print(json.dumps(facts | ({"mend": mend} if mend else {}), default=str), flush=True)  # noqa: T201


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
        array = device.take(array, cuda.put(np.array([2, 0])), 1)
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


def first(cuda):
    """One forward and backward of two layers: before anything else works."""
    ratio = errors_of(cuda, "lstm", None)[1]
    say(mend="" if ratio <= 1 else "wrong numbers", share_of_what_is_allowed=ratio)


def types(cuda):
    """Each type, equal and ragged."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for lengths in (None, asked.RAGGED):
            ratio = errors_of(cuda, "gru", lengths, dtype=dtype, direction="bidirectional")[1]
            say(mend="" if ratio <= 1 else f"{dtype}: wrong numbers", dtype=dtype, lengths=lengths, ratio=ratio)


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


def padding(cuda):
    """What y and dx hold past a sequence's end, in memory that was NaN."""
    zero = asked.padding(cuda)
    say(mend="" if all(zero.values()) else "fill dx, or y, with zeros before a ragged call", zero=zero)


def null_states(cuda):
    """Whether NULL states are zeros in all three calls."""
    for lengths in (None, asked.RAGGED):
        off, same = asked.null_states(cuda, lengths)
        mend = "" if max(off.values()) <= 1e-5 else "pass zeros of our own for NULL states"
        say(mend=mend, lengths=lengths, off=off, to_the_bit=same)


def batch_major(cuda):
    """Whether [B, T, ...] gives the same numbers."""
    for lengths in (None, asked.RAGGED):
        found = asked.batch_major(cuda, lengths)
        say(mend="" if max(found.values()) <= 1e-5 else "time_major=False", lengths=lengths, differences=found)


def reserves(cuda):
    """Whether some lengths take more reserve than a ragged call is given."""
    found = asked.reserves(cuda)
    more = max(found.values()) > found["given"]
    say(mend="some lengths take more reserve: size it by them" if more else "", reserve_nbytes=found)


def clip(cuda):
    """Cells that are clipped in float64, to a bound that is a float and to one that is rounded to a float."""
    for bound in (0.3, 0.25):
        found, ratio = errors_of(cuda, "lstm", None, cell_clip=bound, dtype="float64", num_layers=1)
        mend = "" if ratio <= 1 else f"cell_clip={bound} in float64"
        say(mend, bound=bound, ratio=ratio, largest_cy=repr(float(abs(found["cy"]).max())))


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


def threads(cuda):
    """Eight threads with handles of their own, on the descriptors of one plan."""
    from tests.gpu.prepared import in_threads

    assert not in_threads(cuda)
    say(threads="equal")


PERSIST_WITHIN_S = 20
"""For one algorithm's process: persistent kernels wait for each other on the device, perhaps for ever."""


def persist():
    """One training step by each algorithm, in a process of its own, and how long cuDNN takes to make each ready."""
    for algo in asked.ALGORITHMS:
        lines, code, err = children.child(children.trained, algo, timeout_s=PERSIST_WITHIN_S)
        ended = {0: "", None: f"no end within {PERSIST_WITHIN_S} s"}.get(code, f"exit code {code}: {err[-400:]}")
        wrong = [line["dtype"] for line in lines if line.get("ratio", 0) > 1]
        mend = f"{algo}: {ended}" if ended else f"{algo}: wrong numbers in {', '.join(wrong)}" if wrong else ""
        if "nvrtc" in f"{lines} {err}".lower():
            mend = f"{algo}: NVRTC, see load_nvrtc in engines/cudnn/native_calls.py"
        say(mend, algo=algo, steps=lines, code=code)


def nccl(cuda):
    """Whether CuPy finds NCCL."""
    say(available=asked.nccl_of(cuda.device.xp).available)


def dropout(cuda):
    """What it costs to seed cuDNN's random states, and a forward that drops. Microseconds, medians."""
    import numpy as np

    from pycudnnrnn import ops

    device, runtime = cuda.device, cuda.engine.runtime
    states = device.zeros((cuda.engine.dropout_states_nbytes(),), np.dtype(np.uint8))
    handle = runtime.handles.on(device.stream())
    at = runtime.dropout_at(handle, device.address(states), 0.5)
    say(states_nbytes=states.nbytes, cudnnSetDropoutDescriptor=times_of(cuda, lambda: at.start(handle, 1)))
    T, B, units = (5, 2, 4) if cuda.on_shim else (100, 64, 512)
    x = device.zeros((T, B, units), np.dtype("f4"))
    for rate in (0.0, 0.5):
        op = ops.CudnnLSTM(2, units, units, dropout=rate)
        params = device.zeros((op.params_size("cuda"),), np.dtype("f4"))
        say(rate=rate, forward_of_an_op=times_of(cuda, lambda op=op, p=params: op.forward(x, None, None, p)))
    if cuda.on_shim:
        say(skipped="the torch module: CUDA tensors are torch's own")
        return
    import torch

    from pycudnnrnn.interop import torch as ours

    given = torch.zeros(T, B, units, device="cuda")
    for rate in (0.0, 0.5):
        module = ours.LSTM(units, units, 2, dropout=rate, device="cuda")
        torch.cuda.synchronize()
        say(rate=rate, forward_of_the_torch_module=times_of(cuda, lambda module=module: module(given), torch=torch))


def times_of(cuda, work, torch=None, rounds=20):
    """Median microseconds until a call comes back to the host, and until the device is done with it."""

    def wait():
        torch.cuda.synchronize() if torch is not None else cuda.device.synchronize(cuda.device.stream())

    work()
    wait()
    host, done = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        host.append(time.perf_counter() - started)
        wait()
        done.append(time.perf_counter() - started)
    return {name: round(1e6 * sorted(found)[rounds // 2], 1) for name, found in (("host", host), ("done", done))}


def lost():
    """What a process with a lost device leaves on stderr; last, for it takes the device from its own process."""
    lines, code, err = children.child(children.lost, "found")
    errors = sorted({str(line.get("error")) for line in lines if "call" in line})
    left = children.without_cupys(err)
    mend = "" if (errors, code, left) == (["DeviceLostError"], 0, "") else "a lost device is not reported as one"
    say(mend, code=code, errors=errors, stderr=err[-600:], without_cupys=left[-600:])
