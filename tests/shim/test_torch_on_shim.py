"""torch's modules on the cuDNN engine, on the stand-in over CPU tensors: what a training step asks of it."""

import types

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.interop import _torch_ops
from pycudnnrnn.interop import torch as ours
from pycudnnrnn.spec import RNNSpec
from tests.shim import shim
from tests.shim.host_device import HostDevice


class _AnyNumpy(type):
    def __instancecheck__(cls, array):
        return isinstance(array, np.ndarray)


class NumpyDevice(HostDevice):
    """A device of NumPy's arrays, over the memory of CPU tensors; they never take the short way."""

    xp = types.SimpleNamespace(
        __name__="numpy", ndarray=_AnyNumpy("ndarray", (), {}), empty=np.empty, zeros=np.zeros,
        may_share_memory=np.may_share_memory,
    )  # fmt: skip

    def empty(self, shape, dtype):
        memory = self.allocate(int(np.prod(shape)) * dtype.itemsize)
        first = memory.ptr - memory.mem._owner.raw.ctypes.data
        nbytes = memory.mem._owner.nbytes
        return memory.mem._owner.raw[first : first + nbytes].view(dtype).reshape(shape)

    @staticmethod
    def address(array):
        return array.ctypes.data


@pytest.fixture
def played(shim_path):
    played = shim.Shim(shim_path)
    engine, _ = played.engine_and_device(NumpyDevice())
    engine.device = "cpu"
    with use_engine(engine):
        yield played


def step(module, x, lengths):
    """A training step; its result and the gradient of every weight."""
    module.zero_grad()
    data = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=True)
    output, _ = module(data)
    y = output if lengths is None else output.data
    (y * torch.arange(1, y.numel() + 1).view(y.shape)).sum().backward()
    return y.detach().clone(), module.params.grad.clone()


BATCHES = ([5, 4, 1], [5, 2, 2], [5, 5, 3], [5, 4, 1], [5, 5, 5], None, [5, 1, 1])


@pytest.mark.parametrize("kind", [ours.LSTM, ours.GRU])
def test_a_step_with_new_lengths_asks_and_makes_nothing(played, monkeypatch, kind):
    made, init = [], owned.Owned.__init__
    monkeypatch.setattr(owned.Owned, "__init__", lambda self, *a: made.append(type(self).__name__) or init(self, *a))
    torch.manual_seed(3)
    module, x = kind(4, 6, 2, bidirectional=True, dtype=torch.float64), torch.randn(5, 3, 4, dtype=torch.float64)
    for lengths in ([5, 3, 3], None):
        step(module, x, lengths)
    played.calls.clear()
    made.clear()
    found = [step(module, x, lengths) for lengths in BATCHES]
    assert {name for name, *_ in played.calls} == {*shim.PASSES}
    assert made == []
    assert not played.complaints
    with use_engine(NumpyEngine()):
        expected = [step(module, x, lengths) for lengths in BATCHES]
    for (y, gradient), (right_y, right_gradient) in zip(found, expected, strict=True):
        assert torch.equal(y, right_y)
        torch.testing.assert_close(gradient, right_gradient, rtol=1e-12, atol=1e-12)


def test_a_packed_reserve_holds_any_lengths_and_no_memory_is_taken_to_learn_its_size(played):
    spec = RNNSpec("lstm", 1, 3, 4, dtype="float64")
    before = len(played._device.allocations)
    sizes = [_torch_ops._cudnn_reserve_nbytes(spec, 5, 3, True, ragged, "cpu") for ragged in (False, True)]
    assert sizes[1] > sizes[0], "on the stand-in ragged lengths take more"
    layouts = 1  # the buffer that a layout query wants
    assert len(played._device.allocations) - before <= layouts
