"""Memory of our own on several streams: who waits for whom at the start, in between, and when its owner is gone."""

import gc
import os

import cupy
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn import owned, stream_memory
from pycudnnrnn.engines.cudnn.device import PER_THREAD, CudaDevice
from pycudnnrnn.errors import EngineError
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.host_device import Stream
from tests.stand_in.problem import on_device

PLAIN, DROPS = ops.CudnnGRU(1, 3, 4).spec, ops.CudnnGRU(2, 3, 4, dropout=0.5).spec


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch):
    monkeypatch.setattr(owned._Leaving, "begun", owned._Leaving.begun)
    yield
    gc.collect()
    stream_memory._LEFT.clear()


class Owners:
    """What owns memory, by name: each makes it on the current stream, and has a use of it and an end."""

    def __init__(self, shim):
        self.launches, self.device = shim.launches, shim.device
        self.problem = make_problem(ops.from_spec(PLAIN), 3, 2, None, seed=1)
        self.arrays = on_device(self.device, self.problem)

    def plan(self):
        plan = self.problem.op.prepare(3, 2, device="cuda:0")
        outputs = [self.device.empty(shape, np.dtype("f4")) for shape in ((3, 2, 3), (1, 2, 3))]

        def use():
            plan.forward(self.arrays["params"], self.arrays["x"], None, None, *outputs, None)

        return plan, use

    def graph(self):
        graph = self.problem.op.prepare(3, 2, device="cuda:0").capture(self.arrays["params"])
        return graph, graph.replay

    def dropout(self):
        op = ops.from_spec(DROPS)
        arrays = on_device(self.device, make_problem(op, 3, 2, None, seed=1))
        op.dropout_state("cuda:0")

        def use():
            op.forward(arrays["x"], None, arrays["params"])

        return op, use

    def new(self, name):
        """Make one; return it in a list that alone refers to it, and its use."""
        self.device.current = Stream()
        owner = list(getattr(self, name)())
        self.device.waits.clear()
        return owner

    def use_on(self, stream, owner):
        self.device.current = stream
        owner[1]()


@pytest.fixture
def owners(shim):
    return Owners(shim)


NAMES = pytest.mark.parametrize("name", ["plan", "graph", "dropout"])


@pytest.mark.parametrize("name", ["graph", "dropout"])
def test_memory_is_used_by_one_stream_after_another_and_given_back_after_the_last(owners, name, monkeypatch):
    device, owner, launches = owners.device, owners.new(name), owners.launches
    home, first, second = device.current, Stream(), Stream()
    before, at, wait = len(launches), [], device.wait
    monkeypatch.setattr(device, "wait", lambda *streams: at.append(len(launches)) or wait(*streams))
    owners.use_on(first, owner)
    assert at == [before], "it waits before it launches"
    owners.use_on(first, owner)
    assert device.waits == [(first, home)], "earlier work there may still use the memory"
    owners.use_on(second, owner)
    assert device.waits == [(first, home), (second, first)]
    owner.clear()
    gc.collect()
    assert device.waits == [(first, home), (second, first), (home, second)]


def test_a_plan_waits_for_nothing_in_the_callers_capture(owners):
    owner, stream = owners.new("plan"), Stream()
    owners.device.streams[stream.ptr] = stream
    with owners.device.recording(stream) as recorded:
        owners.use_on(stream, owner)
    assert len(recorded) == 1
    assert not owners.device.waits


@pytest.mark.parametrize("which", ["home", "last"])
@NAMES
def test_memory_stays_while_one_of_its_streams_is_captured_and_goes_back_later(owners, name, which):
    device, owner = owners.device, owners.new(name)
    home, last = device.current, Stream()
    owners.use_on(last, owner)
    captured = home if which == "home" else last
    gc.collect()  # handles of others end by a call, which no capture takes
    captured.capturing = []
    device.waits.clear()
    owner.clear()
    gc.collect()
    assert not device.waits
    (left,) = stream_memory._LEFT
    assert any(isinstance(memory, cupy.ndarray) for memory in left._memory)
    del left
    owners.new("plan")
    assert len(stream_memory._LEFT) == 1, "it is captured still"
    captured.capturing = None
    device.waits.clear()
    device.current = Stream()
    owners.plan()
    assert device.waits == [(home, last)]
    assert not stream_memory._LEFT


@NAMES
def test_nothing_waits_for_an_owner_that_ends_on_a_lost_device_in_a_fork_or_at_exit(owners, name):
    device = owners.device
    ends = [owners.new(name) for _ in range(3)]
    for owner in ends:
        owners.use_on(Stream(), owner)
    device.waits.clear()
    child = os.fork()
    if not child:
        ends.clear()
        gc.collect()
        os._exit(len(device.waits) + len(stream_memory._LEFT))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    owned._Leaving.begun = True
    ends.pop().clear()
    gc.collect()
    assert not device.waits
    owned._Leaving.begun = False
    device.broken["isCapturing"] = 700
    ends.pop().clear()  # the one that finds out
    gc.collect()
    assert owned._Leaving.begun
    device.asked.clear()
    ends.clear()
    gc.collect()
    assert (device.waits, device.asked) == ([], [])


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 2}, {"sequence_lengths": [3, 0]}], ids=str)
def test_a_backwards_own_memory_is_given_back_after_who_reads_it(owners, options):
    """`retain` copies the reserve on the backward's stream; a recomputed gradient is summed there."""
    device, op = owners.device, owners.problem.op
    first, second, third = Stream(), Stream(), Stream()
    device.current = first
    fwd = op.forward(owners.arrays["x"], None, owners.arrays["params"], **options)
    device.current, copied_after, copy = second, [], device.copy
    device.copy = lambda array: copied_after.append(list(device.waits)) or copy(array)
    fwd.backward_data(owners.arrays["dy"], retain=True)
    assert copied_after or "checkpoint_every" in options
    assert all((second, first) in waits for waits in copied_after)
    device.current = third
    device.waits.clear()
    fwd.backward_weights()
    assert device.waits == [(third, first), (third, second), (first, third), (second, third)]


# --- the device itself, with CuPy's streams and events played ---------------------------------------------------------


def test_streams_wait_by_an_event_and_one_for_itself_not_at_all(cuda):
    device, one, other = CudaDevice(0), cuda.stream(0x5000), cuda.stream(0x6000)
    device.wait(one, cuda.stream(0x5000))
    assert not cuda.order
    device.wait(one, other)
    assert cuda.order == [("record", other), ("wait", one)]


def test_a_threads_default_stream_is_refused_because_no_other_thread_could_wait_for_it(cuda):
    cuda.current = cuda.stream(PER_THREAD)
    for ask in (CudaDevice(0).stream, lambda: CudaDevice(0).stream_at(PER_THREAD)):  # CuPy's, and another library's
        with pytest.raises(EngineError, match="per-thread default stream"):
            ask()
