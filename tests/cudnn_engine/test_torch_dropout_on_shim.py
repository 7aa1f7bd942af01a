"""Dropout of torch's modules on the stand-in: whose random states, and which masks."""

import contextlib
import contextvars
import gc
import threading

import pytest
import torch

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor
from pycudnnrnn.engines.cudnn.runtime import STREAMS_MAX
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from tests.stand_in.torch_on_cpu import equal, make, on_numpy, playing, step


@pytest.fixture
def played(shim_path, monkeypatch):
    yield from playing(shim_path, monkeypatch)


class AwaitedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self):
        self.awaited, self._lock = threading.Event(), threading.Lock()

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            self.awaited.set()
            self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_masks_are_the_seeds_whatever_ran_before(played):
    module, x = make(dropout=0.5)
    for seed in (1, 1, 2, 1):
        torch.manual_seed(seed)
        found = step(module, x)
        torch.manual_seed(seed)
        equal(found, on_numpy(module, x))


def test_a_backward_has_the_masks_of_its_forward_after_another_one(played):
    module, x = make(dropout=0.5)
    found = []
    for engine in (contextlib.nullcontext(), use_engine(NumpyEngine())):
        with engine:
            torch.manual_seed(4)
            first, _second = module(x)[0].square().sum(), module(x)
            found.append(torch.autograd.grad(first, module.params))
    equal(*found)


def test_streams_have_states_of_their_own(played):
    module, x = make(dropout=0.5)
    states = {}
    for stream in (0x100, 0x200, 0x100):
        played.stream = stream
        step(module, x)
        (_, (_, _, _, address, *_), _) = [c for c in played.calls if c[0] == "cudnnSetDropoutDescriptor"][-1]
        assert states.setdefault(stream, address) == address
    assert len(set(states.values())) == 2
    assert len(played.device.allocations) - 1 == 2, "one for each, beside the layout's"


def test_states_of_many_streams_do_not_pile_up(played):
    module, x = make(dropout=0.5)
    gc.collect()
    before = owned.live()["DropoutDescriptor"]
    for stream in range(0x1000, 0x1000 + 0x100 * 3 * STREAMS_MAX, 0x100):
        played.stream = stream
        step(module, x)
    gc.collect()
    assert owned.live()["DropoutDescriptor"] - before <= STREAMS_MAX + 1, "and one for sizes"


def test_a_forward_on_the_same_stream_comes_after_the_seed_and_its_forward(played, monkeypatch):
    """Another thread begins when the states have been seeded, and before they have been used."""
    module, x = make(dropout=0.5)
    torch.manual_seed(8)
    expected = on_numpy(module, x)[0]
    seed, threads, found = DropoutDescriptor.seed, [], []

    def interrupted(self, *arguments):
        seed(self, *arguments)
        if not threads:
            context = contextvars.copy_context()
            threads.append(threading.Thread(target=context.run, args=[lambda: found.append(module(x)[0].detach())]))
            threads[0].start()
            while threads[0].is_alive() and not lock.awaited.is_set():
                lock.awaited.wait(0.01)

    with torch.no_grad():
        module(x)
    (dropout,) = played.native.runtime._own_states.values()
    dropout.lock = lock = AwaitedLock()
    monkeypatch.setattr(DropoutDescriptor, "seed", interrupted)
    torch.manual_seed(8)
    y = module(x)[0].detach()
    threads[0].join()
    assert torch.equal(y, expected)
    assert not torch.equal(found[0], expected)


def test_a_backward_waits_while_the_descriptor_is_seeded(played):
    module, x = make(dropout=0.5)
    torch.manual_seed(8)
    expected = on_numpy(module, x)[-1]
    module.zero_grad()
    torch.manual_seed(8)
    y, _ = module(x)
    (dropout,) = played.native.runtime._own_states.values()
    dropout.lock = lock = AwaitedLock()
    weights = torch.arange(1, y.numel() + 1).view(y.shape)
    thread = threading.Thread(target=contextvars.copy_context().run, args=[(y * weights).sum().backward])
    with lock:
        thread.start()
        while thread.is_alive() and not lock.awaited.is_set():
            lock.awaited.wait(0.01)
        assert module.params.grad is None
    thread.join()
    torch.testing.assert_close(module.params.grad, expected, rtol=1e-12, atol=1e-12)


def test_another_share_is_another_descriptor(played):
    module, x = make(dropout=0.5)
    for share in (0.5, 0.25, 0.5):
        module.dropout = share
        torch.manual_seed(1)
        found = step(module, x)
        torch.manual_seed(1)
        equal(found, on_numpy(module, x))
