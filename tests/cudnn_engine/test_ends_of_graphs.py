"""A graph ends with its owner, by a CUDA call; on a lost device, in a fork and at exit it does not end at all."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.problem import on_device

ROOT = Path(__file__).parents[2]
DESTROY = "graphExecDestroy"


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch):
    monkeypatch.setattr(owned._Leaving, "begun", owned._Leaving.begun)
    gc.collect()  # what tests before have left is not counted here
    yield
    gc.collect()


@pytest.fixture
def capture(play):
    """Give a device that lists what is asked of it, and a function that captures a training step on it."""
    _, _, device = play()
    device.broken["nothing that is ever asked"] = 700
    op = ops.CudnnGRU(1, 3, 4)
    params = on_device(device, make_problem(op, 3, 2, None, seed=5))["params"]
    return device, lambda: op.prepare(3, 2, is_training=True, device="cuda:0").capture(params)


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_a_graph_is_destroyed_once_when_its_owner_goes(capture, in_a_cycle):
    device, make = capture
    before, graph = owned.live()["CudnnGraph"], [make()]
    if in_a_cycle:
        graph.append(graph)
    graph[0].replay()
    assert owned.live()["CudnnGraph"] == before + 1
    del graph
    gc.collect()
    assert device.asked.count(DESTROY) == 1
    assert owned.live()["CudnnGraph"] == before


@pytest.mark.parametrize("how", ["lost", "alive"])
def test_an_interpreter_that_ends_destroys_no_graph(shim_path, how):
    program = f"""
import os
from pathlib import Path
from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import DeviceLostError
from tests.stand_in.host_device import HostGraph, host_allocator
from tests.stand_in.shim import Shim
HostGraph.__del__ = lambda self, write=os.write: write(2, b"destroyed")
engine, device = Shim(Path({str(shim_path)!r})).engine_and_device()
allocator, running = host_allocator(device), use_engine(engine)
allocator.__enter__(), running.__enter__()
op = ops.CudnnGRU(1, 3, 4)
graph = op.prepare(3, 2, device="cuda:0").capture(device.from_host(op.init_params()))
if {how == "lost"}:
    device.broken[""] = 700
    try:
        graph.replay()
    except DeviceLostError:
        print("lost")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("lost\n" if how == "lost" else "")
