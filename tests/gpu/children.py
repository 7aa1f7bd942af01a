"""Work in a process of its own: what may take the device with it, or never come back, leaves the suite standing.

`python -m tests.gpu.children NAME ARGUMENT...` runs the function of that name in here, which prints a line of JSON as
soon as it knows something.
"""

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.gpu.machine import ON_SHIM

ROOT = Path(__file__).parents[2]


def child(function, *arguments):
    """Run a function below; return the lines that came, the exit code (None: it had to be ended), and its stderr."""
    command = [sys.executable, "-m", "tests.gpu.children", function.__name__, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    limit_s = None if ON_SHIM else 120  # on the stand-in there is no device to hang, and the machine may be busy
    try:  # in the session of this process: who ends this one with all that it has started ends that one, too
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=limit_s, check=False)
        out, err, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        out, err, code = late.stdout or b"", late.stderr or b"", None
    return list(lines_of(out.decode(errors="replace"))), code, err.decode(errors="replace")


def lines_of(out):
    """What was said; other libraries may have written between it, and the last line may be half of one."""
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            facts = json.loads(line)
            if isinstance(facts, dict):
                yield facts


def say(mend="", **facts):
    """Print a line that the parent reads; `mend` is what must be mended, if anything."""
    print(json.dumps(facts | ({"mend": mend} if mend else {}), default=str), flush=True)  # noqa: T201


def break_device(cuda, *, told):
    """Write where no memory is; with `told` wait until CuPy says so, as a caller's own code would."""
    if cuda.on_shim:
        cuda.device.broken[""] = 700
        return
    cupy = cuda.device.xp
    source = 'extern "C" __global__ void write() { *(volatile int*)0x10 = 1; }'
    cupy.RawKernel(source, "write")((1,), (1,), ())
    time.sleep(0.5)
    if told:
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
            cupy.cuda.runtime.deviceSynchronize()


def lost(cuda, how):
    """Lose the device, then make every call."""
    from pycudnnrnn.errors import DeviceLostError
    from tests.gpu.numbers import relaid
    from tests.helpers.every_call import EveryCall

    model, handle = EveryCall(cuda.device, relaid), cuda.engine.runtime.handles.on(cuda.device.stream())
    break_device(cuda, told=how == "told")
    for name, call in [("the first of all", model.forward), *model.calls.items()]:
        began, error = time.perf_counter(), None
        try:
            call()
        except Exception as caught:  # noqa: BLE001  whatever it is, it is the answer
            error = caught
        took = 1000 * (time.perf_counter() - began)
        code = error.code if isinstance(error, DeviceLostError) else None
        say(call=name, error=type(error).__name__, code=code, text=str(error), ms=took)
    handle.close()
    model.drop()
    gc.collect()
    say(ended=True)


def jax_process(_cuda, how):
    """Train a few steps by JAX with half of the card its own, or leave while it works."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
    import jax

    from pycudnnrnn import ops
    from pycudnnrnn.interop.jax import rnn

    units, T, B, steps = 256, 100, 64, 200
    op = ops.CudnnLSTM(2, units, units)
    params, x = jax.numpy.asarray(op.init_params(seed=1, device="cuda").get()), jax.numpy.ones((T, B, units), "float32")

    def step(p, _):
        return p - 1e-4 * jax.grad(lambda p: (rnn(p, x, spec=op)[0] ** 2).sum())(p), None

    trained, _ = jax.jit(lambda p: jax.lax.scan(step, p, None, length=steps))(params)
    if how == "in flight":
        say(begun=True)
        return
    say(finite=bool(jax.numpy.isfinite(trained).all()))


if __name__ == "__main__":
    from tests.gpu.machine import machine

    with machine() as device:
        globals()[sys.argv[1]](device, *sys.argv[2:])
