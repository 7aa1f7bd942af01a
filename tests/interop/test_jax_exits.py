"""The interpreter ends while XLA works on an RNN: quietly, and with the exit code that was asked for.

Each shape ends ten times, and a hundred at night. One child imports everything and forks, and each fork starts JAX and
ends as an interpreter does. A daemon thread that calls JAX is none of them: JAX itself aborts at the end of the
interpreter then, whatever it computes (observed, 0.10.2). JAX waits for what the main thread has asked for, and aborts
with work that another thread has left, which is why there is a handler of our own.
"""

import pytest

from tests.helpers.exits import check_ends

IMPORTS = """
import atexit, os, sys
import jax
import jax.numpy as jnp
from pycudnnrnn import ops
from pycudnnrnn.interop.jax import rnn
"""

WORK = """
op = ops.CudnnGRU(2, 32, 32)
params, x = jnp.asarray(op.init_params(seed=1)), jnp.ones((60, 32, 32), jnp.float32)
forward = jax.jit(lambda p: rnn(p, jnp.tanh(x * p[:32]), spec=op, platform=PLATFORM)[0])
gradient = jax.jit(jax.grad(lambda p: (forward(p) ** 2).sum()))
"""

SHAPES = {
    "gradients in flight": "works = [gradient(params) for _ in range(4)]; sys.exit(3)",
    "left by a thread that has ended": """
import threading
large, found = jnp.ones((500, 500)), []
atexit.register(lambda: found[0].is_ready() or os._exit(5))  # before the first call, so that it comes after the wait
slow = jax.jit(lambda m: jax.lax.fori_loop(0, 100, lambda _, n: jnp.tanh(n @ m), m)[0, :1]).lower(large).compile()
jax.block_until_ready(forward(params * slow(large)))  # compiled
thread = threading.Thread(target=lambda: found.append(forward(params * slow(large))))
thread.start()
thread.join()
""",
}


@pytest.mark.long
@pytest.mark.parametrize(("shape", "platform"), list(zip(SHAPES, ["cpu", "host"], strict=True)))
def test_the_interpreter_ends_quietly_with_work_in_flight(shape, platform):
    work = f"PLATFORM = {platform!r}\n{WORK}{SHAPES[shape]}"
    check_ends(IMPORTS, work, expected=3 if "sys.exit" in SHAPES[shape] else 0)
