"""CUDA calls on the shim."""

import pytest

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import algorithms
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES
from tests.stand_in import host_device, shim


@pytest.fixture
def play(shim_path, monkeypatch):
    """Give a function that makes a shim and runs CUDA calls on it until the test ends."""
    entered, devices = [], []
    monkeypatch.setattr(algorithms, "WAKE_S", 0)  # nothing sleeps here

    def start(**options):
        played = shim.Shim(shim_path, **options)
        engine, device = played.engine_and_device()
        for context in (use_engine(engine), host_device.host_allocator(device)):
            context.__enter__()
            entered.append(context)
        devices.append(device)
        return played, engine, device

    yield start
    for context in reversed(entered):
        context.__exit__(None, None, None)
    for device in devices:
        assert all(memory.intact() for memory in device.allocations), "bytes outside an array were written"
    assert not RELEASE_FAILURES
