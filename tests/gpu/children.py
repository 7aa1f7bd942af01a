"""Work in a process of its own: what may take the device with it, or never come back, leaves the suite standing.

`python -m tests.gpu.children NAME ARGUMENT...` runs the function of that name in here, which prints a line of JSON as
soon as it knows something.
"""

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import asked
from tests.gpu.machine import ON_SHIM

ROOT = Path(__file__).parents[2]


def child(function, *arguments, timeout_s=120):
    """Run a function below; return the lines that came, the exit code (None: it had to be ended), and its stderr."""
    command = [sys.executable, "-m", "tests.gpu.children", function.__name__, *arguments]
    # On the stand-in there is no device to hang, and the machine may be busy.
    out, err, code = started(command, None if ON_SHIM else timeout_s)
    return list(lines_of(out)), code, err


def once_on_the_shim(wanted):
    """Skip a test on the stand-in, where one child of each kind shows that its code runs, unless it is the one."""
    if ON_SHIM and not wanted:
        pytest.skip("on the stand-in one child process of each kind is enough")


def started(command, timeout_s, environment=None):
    """Run a program; return what it wrote to stdout and to stderr, and its exit code, None if it had to be ended.

    It is in the session of this process: who ends this one with all that it has started ends that one, too.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=timeout_s, check=False)
        out, err, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        out, err, code = late.stdout or b"", late.stderr or b"", None
    return out.decode(errors="replace"), err.decode(errors="replace"), code


def reached_cudnn(lines, code, err):
    """Whether a child came as far as cuDNN, whatever that made of it: an error of ours is no answer."""
    return bool(lines) or code != 1 or "CudnnError" in err


def without_cupys(err):
    """What a process wrote, without CuPy's own complaints of objects that it cannot free on a lost device.

    Python writes each as a block: "Exception ignored in", lines of a traceback, and the error.
    """
    kept, block = [], []
    for line in err.splitlines():
        if line.startswith("Exception ignored"):
            block = [line]
        elif not block:
            kept.append(line)
        elif line.startswith((" ", "Traceback")):
            block.append(line)
        else:
            kept += [] if re.match(r"cupy\S*\.CUDA(Runtime|Driver)Error: ", line) else [*block, line]
            block = []
    return "\n".join(kept + block)


def lines_of(out):
    """What was said; other libraries may have written between it, and the last line may be half of one."""
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def say(**facts):
    print(json.dumps(facts), flush=True)  # noqa: T201  read by `child`


def break_device(cuda, *, told):
    """Write where no memory is; with `told` wait until CuPy says so, as a caller's own code would."""
    if cuda.on_shim:
        cuda.device.broken[""] = 700
        return
    cupy = cuda.device.xp
    source = 'extern "C" __global__ void write() { *(volatile int*)0x10 = 1; }'
    cupy.RawKernel(source, "write")((1,), (1,), ())
    if not told:
        time.sleep(0.5)
        return
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        say(cupy=str(error))


def lost(cuda, how):
    """Lose the device, then make every call."""
    from pycudnnrnn.errors import DeviceLostError
    from tests.helpers.every_call import EveryCall

    model, handle = EveryCall(cuda.device), cuda.engine.runtime.handles.on(cuda.device.stream())
    break_device(cuda, told=how == "told")
    for name, call in [("the first of all", model.forward), *model.calls.items()]:
        started = time.perf_counter()
        try:
            call()
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            took = 1000 * (time.perf_counter() - started)
            code = error.code if isinstance(error, DeviceLostError) else None
            say(call=name, error=type(error).__name__, code=code, text=str(error), ms=took)
        else:
            say(call=name, error=None)
    handle.close()
    model.drop()
    gc.collect()
    say(ended=True)


def by_cudnn_alone(cuda, problem, put, *, training=True):
    """Call cuDNN on a problem as the engine never does; yield the results of each pass as soon as it ran."""
    from pycudnnrnn.engines.cudnn import native_calls as native
    from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, GRADIENTS, RESULTS, CallConfig
    from pycudnnrnn.schedule import Schedule

    device, (T, B, _) = cuda.device, problem.x.shape
    handle = cuda.engine.runtime.handles.on(device.stream())
    schedule = Schedule(T, B, None if problem.lengths is None else tuple(problem.lengths))
    native.check_sizes = lambda _: None  # cuDNN is asked what it makes of what the engine refuses
    passes = native.NativeCalls(handle, device, CallConfig(problem.spec, schedule, training), None)
    given = {name: put(getattr(problem, name)) for name in ("x", "hx", "cx", "dy", "dhy", "dcy")}
    likes = {"y": "dy", "hy": "hx", "cy": "cx", "dx": "x", "dhx": "hx", "dcx": "cx"}
    given |= {name: put(np.full_like(getattr(problem, like), 7)) for name, like in likes.items()}
    given |= {"params": cuda.put(problem.params)}
    for name in ("workspace", "reserve"):
        nbytes = getattr(passes, f"{name}_nbytes")
        given[name] = cuda.put(np.zeros(nbytes, np.uint8)) if nbytes else None
    if not problem.spec.has_cell_state:
        given |= dict.fromkeys(("cx", "cy", "dcy", "dcx"))
    for which, names in [(FORWARD, RESULTS), (BACKWARD_DATA, GRADIENTS)][: 1 + training]:
        at = device.addresses(*map(given.get, ("workspace", *which.names)))
        passes.calls[which](handle.pointer, *passes.data(handle, schedule).pointers, *at)  # bare: nothing is filled
        yield {name: cuda.get(given[name]) for name in names if given[name] is not None}


def zero_length(cuda, mode):
    """Give cuDNN a batch with an empty sequence."""
    from pycudnnrnn import ops
    from pycudnnrnn.testing.strategies import make_problem

    p = make_problem(ops.CudnnLSTM(1, 12, 7), 6, 4, [6, 0, 4, 1], seed=5)
    passes = by_cudnn_alone(cuda, p, cuda.put, training=mode == "training")

    def same(*pairs):
        return [bool(np.array_equal(found[:, 1], given[:, 1])) for found, given in pairs]

    found = next(passes)
    through = same((found["hy"], p.hx), (found["cy"], p.cx))
    say(forward="ran", output_is_zero=not found["y"][:, 1].any(), states_pass_through=through)
    for found in passes:
        say(backward="ran", gradients_pass_through=same((found["dhx"], p.dhy), (found["dcx"], p.dcy)))


def unaligned(cuda, dtype):
    """Give cuDNN data that begin one element behind an aligned address; what faults loses this process its device."""
    from pycudnnrnn import ops
    from pycudnnrnn.testing.strategies import make_problem

    for inputs, units in ((17, 24), (64, 64)):
        p = make_problem(ops.CudnnLSTM(1, units, inputs, dtype=dtype), 6, 4, None, seed=5)
        passes = zip(by_cudnn_alone(cuda, p, cuda.put), by_cudnn_alone(cuda, p, cuda.put_behind), strict=True)
        for aligned, behind in passes:
            say(sizes=[inputs, units], differences=asked.largest_differences(aligned, behind))


def fill(cuda):
    """See what cuDNN leaves behind the ends of ragged sequences where dx was 7."""
    from pycudnnrnn import ops
    from pycudnnrnn.testing.strategies import make_problem

    p = make_problem(ops.CudnnGRU(1, 12, 7), 6, 4, list(asked.RAGGED), seed=5)
    for found in by_cudnn_alone(cuda, p, cuda.put):
        for name in {"y", "dx"} & found.keys():
            behind = [found[name][n:, b].ravel() for b, n in enumerate(asked.RAGGED)]
            say(result=name, behind=sorted(set(np.concatenate(behind).tolist()))[:8])


def small_h(cuda, kind):
    """Give cuDNN training by its algorithm for small H, with units around those that PyTorch trains."""
    from pycudnnrnn.errors import CudnnError
    from pycudnnrnn.testing.goldens import KINDS
    from pycudnnrnn.testing.strategies import make_problem

    for units in (128, 160, 192, 256, 384):
        p = make_problem(KINDS[kind](1, units, units, algo="persist_static_small_h"), 6, 4, None, seed=5)
        row = {"units": units, "passes": []}
        try:
            for found in by_cudnn_alone(cuda, p, cuda.put):
                row["passes"].append("forward" if "y" in found else "backward")
        except CudnnError as error:
            row["refused"] = f"{error.function}: {error.status}"
        say(**row)


KINDS_AND_SIZES = [
    {},
    *({"num_units": n} for n in (64, 96, 256, 384, 512, 1024, 2048)),
    *({"num_layers": n} for n in (2, 4)),
    {"direction": "bidirectional"},
    *({"B": n} for n in (1, 8, 16, 96, 256)),
    *({"num_units": h, "B": b} for h in (32, 256, 1024) for b in (1, 128)),
    {"input_size": 40},
    {"lengths": True},
]
"""What is changed, one or two at a time, in 1 layer of 128 units on 128 inputs, T=8, B=64, every sequence as long."""


def accepted(cuda, algo):
    """Prepare each kind and size of training, and run it where cuDNN says that it can."""
    from pycudnnrnn.errors import ArgumentError, CudnnError
    from pycudnnrnn.testing.goldens import KINDS

    small = {"num_units": 8, "B": 4} if cuda.on_shim else {}
    changes = KINDS_AND_SIZES[:1] + KINDS_AND_SIZES[-1:] if cuda.on_shim else KINDS_AND_SIZES
    kinds, dtypes = ("lstm", "gru"), ("float16", "bfloat16", "float32", "float64")
    if algo == "persist_dynamic":  # cuDNN compiles each of its plans for seconds
        changes, kinds, dtypes = changes[::5], kinds[:1], dtypes[::2]
    for changed in changes:
        for dtype in dtypes:
            for kind in kinds + (("rnn_tanh",) if changed == {} else ()):
                given = {"num_layers": 1, "num_units": 128, "direction": "unidirectional", "B": 64} | small | changed
                B, ragged, units = given.pop("B"), given.pop("lengths", False), given["num_units"]
                inputs = given.pop("input_size", units)
                row = {"kind": kind, "dtype": dtype, "I": inputs, "B": B, "ragged": ragged, **given}
                row |= {"sizes": "", "run": ""}
                try:
                    op = KINDS[kind](input_size=inputs, dtype=dtype, algo=algo, **given)
                    lengths = [8 - i % 7 for i in range(B)] if ragged else None
                    plan = op.prepare(8, B, is_training=True, sequence_lengths=lengths, device="cuda")
                    row["sizes"] = "SUCCESS"
                    step_of_zeros(cuda, op, plan, 8, B)
                    row["run"] = "SUCCESS"
                except (CudnnError, ArgumentError) as error:
                    text = f"{error.function}: {error.status}" if isinstance(error, CudnnError) else "refused by us"
                    row["run" if row["sizes"] else "sizes"] = text
                say(**row)


def step_of_zeros(cuda, op, plan, T, B):
    """Train one step on nothing: whether cuDNN runs it, and no more; numbers have tests of their own."""
    device, spec = cuda.device, op.spec

    def zeros(*shape):
        return device.zeros(shape, spec.dtype.numpy)

    def states():
        h = zeros(spec.num_pseudo_layers, B, spec.state_size)
        return h, zeros(spec.num_pseudo_layers, B, spec.num_units) if spec.has_cell_state else None

    params, x, y, dy, dx = (
        zeros(op.params_size("cuda")), zeros(T, B, spec.input_size), *(zeros(T, B, spec.output_size) for _ in range(2)),
        zeros(T, B, spec.input_size),
    )  # fmt: skip
    (hx, cx), (hy, cy), (dhy, dcy), (dhx, dcx) = (states() for _ in range(4))
    reserve = device.zeros((plan.reserve_nbytes,), np.dtype(np.uint8))
    plan.forward(params, x, hx, cx, y, hy, cy, reserve)
    plan.backward_data(params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve)
    plan.backward_weights(x, hx, y, zeros(params.size), reserve)
    device.synchronize(device.stream())


def jax_process(cuda, how):
    """Train a few steps by JAX with half of the card its own, or leave while it works."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
    import jax

    from pycudnnrnn import ops
    from pycudnnrnn.interop.jax import rnn

    units, T, B, steps = (4, 3, 2, 2) if cuda.on_shim else (256, 100, 64, 200)
    op = ops.CudnnLSTM(2, units, units)
    params, x = jax.numpy.asarray(op.init_params(seed=1)), jax.numpy.ones((T, B, units), "float32")

    def step(p, _):
        return p - 1e-4 * jax.grad(lambda p: (rnn(p, x, spec=op)[0] ** 2).sum())(p), None

    trained, _ = jax.jit(lambda p: jax.lax.scan(step, p, None, length=steps))(params)
    if how == "in flight":
        say(begun=True)
        return
    say(finite=bool(jax.numpy.isfinite(trained).all()))


def left_in_flight(said, code, err):
    """What is to be mended where a process that leaves while XLA works does not end well; nothing if it does."""
    if said and code == 0:
        return ""
    ended = "did not end" if code is None else f"ended with exit code {code}"
    return (
        f"a process that leaves the interpreter while XLA runs our work {ended}: "
        "interop.jax needs an exit hook that waits for XLA once, and runs before JAX's own. "
        f"It said {said}, and on stderr: {err[-800:]}"
    )


if __name__ == "__main__":
    from tests.gpu.machine import machine

    with machine() as found:
        globals()[sys.argv[1]](found, *sys.argv[2:])
