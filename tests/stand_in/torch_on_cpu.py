"""torch on the stand-in: CPU tensors are CUDA tensors to it, and the NumPy engine says what comes out."""

import contextlib
import types
from unittest import mock

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from pycudnnrnn.engines import DropoutState, use_engine
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.interop import _torch_cudnn, _torch_ops
from pycudnnrnn.interop import torch as ours
from pycudnnrnn.interop._torch_rules import Gpu
from tests.stand_in import shim
from tests.stand_in.host_device import HostDevice

STREAM = 0x7000

H200 = Gpu(9, 0, 132)


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
            from_dlpack=np.from_dlpack,
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


class Generator:
    """What the default generator of a CUDA device is: a seed, and an offset that whatever draws there moves on."""

    def __init__(self):
        self.manual_seed(67280421310721)

    def manual_seed(self, seed):
        self._seed, self._offset = seed, 0

    def initial_seed(self):
        return self._seed

    def get_offset(self):
        return self._offset

    def set_offset(self, offset):
        assert offset % 4 == 0
        self._offset = offset


@contextlib.contextmanager
def as_cuda(played):
    """Let CPU tensors be CUDA tensors to our modules, on the `stream`, `gpu` and `generator` that `played` has."""
    replaced = {"_stream": lambda _: played.stream, "_gpu": lambda _: played.gpu, "_chains": {}}
    generators = {None: played.generator}  # a CPU tensor's device has no index
    with (
        mock.patch.multiple(_torch_cudnn, **replaced),
        mock.patch.object(torch.cuda, "default_generators", generators),
    ):
        yield


def playing(shim_path, monkeypatch):
    """Give the stand-in, which CPU tensors are CUDA tensors to.

    `stream` is torch's current one, `gpu` what it is, and `generator` the device's own, which `torch.manual_seed` sets.
    """
    played = shim.Shim(shim_path)
    engine, _ = played.engine_and_device(NumpyDevice())
    engine.device, played.stream, played.gpu = "cpu", STREAM, H200
    played.generator = Generator()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", played.generator.manual_seed)
    with use_engine(engine), as_cuda(played):
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
    return [y.detach().clone(), *(state.detach().clone() for state in final), flat_gradient(module)]


def flat_gradient(module):
    """Every gradient in one vector; a frozen weight has none."""
    return torch.cat([weight.grad.flatten() for weight in module.parameters() if weight.grad is not None])


class ChainedEngine(NumpyEngine):
    """The NumPy engine with the dropout of a chain of forwards, in place of a seed for each."""

    def __init__(self, chain):
        self._state = DropoutState(self.name, *chain)

    def dropout(self, spec, _):
        return super().dropout(spec, self._state)


def on_numpy(*arguments, run=step, chain=None):
    """The same step on the NumPy engine, which the stand-in computes with.

    `chain` is a seed of dropout, and how many forwards have carried its states on.
    """
    with use_engine(ChainedEngine(chain) if chain else NumpyEngine()):
        return run(*arguments)


def first_seed(number):
    """The seed that the first forward with dropout after `torch.manual_seed` draws."""
    torch.manual_seed(number)
    seed = int(torch.randint(_torch_ops.SEEDS, ()))
    torch.manual_seed(number)
    return seed


def equal(found, expected):
    assert len(found) == len(expected)
    for ours_, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-12, atol=1e-12)


def make(kind=ours.LSTM, **options):
    torch.manual_seed(3)
    return kind(4, 6, 2, **{"bidirectional": True, "dtype": torch.float64} | options), torch.randn(
        5, 3, 4, dtype=torch.float64
    )
