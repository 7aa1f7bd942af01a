"""torch on the stand-in: CPU tensors are CUDA tensors to it, and the NumPy engine says what comes out."""

import contextlib
import types

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.interop import _torch_cudnn
from pycudnnrnn.interop import torch as ours
from tests.stand_in import shim
from tests.stand_in.host_device import HostDevice

STREAM = 0x7000


class _AnyNumpy(type):
    def __instancecheck__(cls, array):
        return isinstance(array, np.ndarray)


class NumpyDevice(HostDevice):
    """A device of NumPy's arrays, over the memory of CPU tensors; nothing here is CuPy's.

    `here` is the current device, and `entered` counts how often another one was made current.
    """

    active, _made_current = CudaDevice.active, CudaDevice._made_current

    def __init__(self):
        super().__init__()
        self.here, self.entered, self.capturing = self.index, 0, False
        cuda = types.SimpleNamespace(Device=self._device, runtime=types.SimpleNamespace(getDevice=lambda: self.here))
        self.xp = types.SimpleNamespace(
            __name__="numpy", ndarray=_AnyNumpy("ndarray", (), {}), empty=np.empty, zeros=np.zeros, cuda=cuda,
        )  # fmt: skip

    @contextlib.contextmanager
    def _device(self, index):
        before, self.here = self.here, index
        self.entered += 1
        yield
        self.here = before

    def empty(self, shape, dtype):
        memory = self.allocate(int(np.prod(shape)) * dtype.itemsize)
        first = memory.ptr - memory.mem._owner.raw.ctypes.data
        nbytes = memory.mem._owner.nbytes
        return memory.mem._owner.raw[first : first + nbytes].view(dtype).reshape(shape)

    @staticmethod
    def address(array):
        return array.ctypes.data


def playing(shim_path, monkeypatch):
    """Give the stand-in, which CPU tensors are CUDA tensors to; `stream` is torch's current one."""
    played = shim.Shim(shim_path)
    played.native, played.device = engine, _ = played.engine_and_device(NumpyDevice())
    engine.device, played.stream = "cpu", STREAM
    monkeypatch.setattr(_torch_cudnn, "_stream", lambda device: played.stream)
    with use_engine(engine):
        yield played
    assert not played.complaints


def step(module, x, lengths=None, hx=None):
    """A training step; its results and the gradient of every weight."""
    module.zero_grad()
    data = x if lengths is None else pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=False)
    output, final = module(data, hx)
    y = output if lengths is None else output.data
    (y * torch.arange(1, y.numel() + 1).view(y.shape)).sum().backward()
    final = final if isinstance(final, tuple) else (final,)
    return [y.detach().clone(), *(state.detach().clone() for state in final), module.params.grad.clone()]


def on_numpy(*arguments, **keywords):
    """The same step on the NumPy engine, which the stand-in computes with."""
    with use_engine(NumpyEngine()):
        return step(*arguments, **keywords)


def equal(found, expected):
    assert len(found) == len(expected)
    for ours_, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-12, atol=1e-12)


def make(kind=ours.LSTM, **options):
    torch.manual_seed(3)
    return kind(4, 6, 2, **{"bidirectional": True, "dtype": torch.float64} | options), torch.randn(
        5, 3, 4, dtype=torch.float64
    )
