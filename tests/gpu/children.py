"""Work in a process of its own: what may never come back leaves the suite standing.

`python -m tests.gpu.children NAME ARGUMENT...` runs the function of that name in here, which prints a line of JSON as
soon as it knows something.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 120


def child(function, *arguments):
    """Run a function below; return the lines that came, the exit code (None: it had to be ended), and its stderr."""
    command = [sys.executable, "-m", "tests.gpu.children", function.__name__, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    try:  # in the session of this process: who ends this one with all that it has started ends that one, too
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
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


def jax_process(how):
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
    globals()[sys.argv[1]](*sys.argv[2:])
