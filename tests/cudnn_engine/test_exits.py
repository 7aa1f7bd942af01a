"""However the interpreter ends with handles, plans and reserves alive: exit code as asked, nothing on stderr."""

import pytest

from tests.helpers.exits import check_ends

IMPORTS = """
import atexit, contextlib, gc, os, sys, threading
from pathlib import Path
from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import DeviceLostError
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.host_device import HostGraph, host_allocator
from tests.stand_in.problem import on_device
from tests.stand_in.shim import Shim
"""

PLAY = """
HostGraph.__del__ = lambda self, write=os.write: write(2, b"destroyed")
played = Shim(Path(PATH))
engine, device = played.engine_and_device()
allocator, running = host_allocator(device), use_engine(engine)
allocator.__enter__(), running.__enter__()
op = ops.CudnnLSTM(2, 3, 4, dropout=0.5, dtype="float64")
problem = make_problem(op, 3, 2, None, 0)
arrays = on_device(device, problem)


def forward(lengths=None):
    with use_engine(engine):
        return op.forward(arrays["x"], None, None, arrays["params"], sequence_lengths=lengths)


"""

GRAPH = "graph = op.prepare(3, 2, device='cuda:0').capture(arrays['params'])\n"
SHAPES = {
    "a plan at module level": "plan = op.prepare(3, 2, is_training=True, device='cuda:0')",
    "a graph": GRAPH,
    "a graph on a device that is lost": (
        f"{GRAPH}device.broken[''] = 700\nwith contextlib.suppress(DeviceLostError):\n    graph.replay()"
    ),
    "in a cycle": "cycle = [forward()]; cycle.append(cycle); del cycle; gc.disable()",
    "made and freed by a daemon thread": (
        "ready = threading.Event()\n"
        "def churn():\n    while True:\n        forward(); ready.set()\n"
        "threading.Thread(target=churn, daemon=True).start(); ready.wait()"
    ),
    "a handle of a thread that has ended": "thread = threading.Thread(target=forward); thread.start(); thread.join()",
    "a backward in an exit handler": "fwd = forward(); atexit.register(lambda: fwd.backward(arrays['dy']))",
}


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interpreter_ends_quietly_with_handles_alive(shim_path, shape):
    check_ends(f"PATH = {str(shim_path)!r}\n{IMPORTS}", f"{PLAY}{SHAPES[shape]}", "-W", "error")
