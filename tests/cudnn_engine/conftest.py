"""CUDA calls on the shim."""

import contextlib
import sys
import types

import cupy
import pytest

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import algorithms
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES
from tests.stand_in import host_device
from tests.stand_in.shim import Shim


@pytest.fixture
def play(shim_path, monkeypatch):
    """Give a function that makes a shim and runs CUDA calls on it until the test ends."""
    entered, shims = contextlib.ExitStack(), []
    monkeypatch.setattr(algorithms, "WAKE_S", 0)  # nothing sleeps here

    def start(**options):
        shims.append(played := Shim(shim_path, **options))
        engine, device = played.engine_and_device()
        entered.enter_context(use_engine(engine))
        entered.enter_context(host_device.host_allocator(device))
        return played

    with entered:
        yield start
    for played in shims:
        assert not played.complaints
        assert all(memory.intact() for memory in played.device.allocations), "bytes outside an array were written"
    assert not RELEASE_FAILURES


@pytest.fixture
def shim(play):
    return play()


@pytest.fixture
def device(shim):
    return shim.device


@pytest.fixture
def played(shim_path, monkeypatch):
    """Torch on the stand-in."""
    from tests.stand_in.torch_on_cpu import playing

    yield from playing(shim_path, monkeypatch)


@pytest.fixture
def cuda(monkeypatch):
    """In CuPy's place: what a `CudaDevice` asks of it, on a machine with two GPUs.

    `code` is what CUDA fails with, `order` lists the events and waits, and `current` is the current stream.
    """
    played = types.SimpleNamespace(code=0, order=[], current=cupy.cuda.Stream.null)
    real = cupy.cuda.runtime.CUDARuntimeError

    def function(result=None):
        def call(*_):
            if played.code:
                raise real(played.code)
            return result

        return call

    @contextlib.contextmanager
    def current_device(_index):
        function()()
        yield
        function()()

    class Event:
        def __init__(self, disable_timing):
            assert disable_timing

        def record(self, stream):
            played.order.append(("record", stream))

    class Stream:
        is_capturing = staticmethod(function(False))
        __enter__ = __exit__ = synchronize = begin_capture = lambda self, *_: None

        def __init__(self, ptr=0, non_blocking=True):
            self.ptr = ptr

        def end_capture(self):
            played.order.append("end of capture")
            function()()

        def wait_event(self, _event):
            played.order.append(("wait", self))

    runtime = types.SimpleNamespace(
        CUDARuntimeError=real, streamCaptureModeThreadLocal=1, getDevice=function(0), getDeviceCount=function(2),
        memGetInfo=function((1, 2)),
    )  # fmt: skip
    namespace = types.SimpleNamespace(
        runtime=runtime, Event=Event, Stream=Stream, Device=current_device,
        get_current_stream=lambda: played.current,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=namespace, ndarray=cupy.ndarray))
    played.stream = Stream
    return played
