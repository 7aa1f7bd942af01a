"""CuPy's functions and operators over host memory, computed by NumPy: code written for CuPy arrays runs without a GPU.

What it shows is that the code's calls fit together and reach the engine with CuPy arrays. It says nothing of CuPy's
kernels, nor of a GPU.
"""

import time
import types

import cupy
import numpy as np

from tests.stand_in.host_device import host, imported

OPERATORS = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "matmul", "rmatmul", "neg",
    "eq", "lt", "gt", "le", "ge",
)  # fmt: skip
IN_PLACE = ("iadd", "isub", "imul", "itruediv")
NOT_NUMPYS = {"may_share_memory", "shares_memory"}
"""What CuPy answers by its memory objects, and NumPy by addresses."""

METHODS = ("sum", "max", "min", "mean", "argmax", "copy", "astype")


class _Where:
    """What CuPy's arrays have as `device`: a number, and what makes that device current in a `with` block."""

    def __init__(self, device):
        self.id, self._device = device.index, device

    def __enter__(self):
        self._block = self._device.where(self.id)
        self._block.__enter__()

    def __exit__(self, *error):
        self._block.__exit__(*error)


class HostArray(cupy.ndarray):
    """A CuPy array over host memory, whose arithmetic is NumPy's."""

    __module__ = "cupy"  # it is one to who asks what kind of array it is
    __hash__ = None
    __array_ufunc__ = None  # a NumPy scalar leaves arithmetic with it to the operators below

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, (list, cupy.ndarray, np.ndarray)) for part in parts):
            return self.lifted(host(self)[lower(key)])
        return super().__getitem__(key)

    @property
    def device(self):
        return _Where(self.device_)

    def __setitem__(self, key, value):
        self.device_.check_here("a write")
        host(self)[lower(key)] = lower(value)

    def __float__(self):
        return float(host(self))

    def get(self):
        self.device_.check_here("a read, which waits for the current stream of the current device")
        return host(self).copy()

    def lifted(self, result):
        return lift(result, self.device_)

    def __array_finalize__(self, parent):
        self.device_ = getattr(parent, "device_", None)


class Event:
    """A CUDA event: the host's time when it was recorded."""

    seconds = None

    def record(self):
        self.seconds = time.perf_counter()

    def synchronize(self):
        assert self.seconds is not None, "an event that was never recorded"


def elapsed_ms(start, end):
    """Return the milliseconds between two recorded events."""
    return (end.seconds - start.seconds) * 1000


def lower(value):
    """The NumPy view of an array, and of those in a tuple; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(lower, value))
    return host(value) if isinstance(value, cupy.ndarray) else value


def lift(value, device):
    """A CuPy array of a NumPy one."""
    value = np.asarray(value)
    array = device.empty(value.shape, value.dtype)
    host(array)[...] = value
    return array


def _operator(name):
    def operate(self, *others):
        return self.lifted(getattr(host(self), f"__{name}__")(*map(lower, others)))

    return operate


def _in_place(name):
    def operate(self, other):
        getattr(host(self), f"__{name}__")(lower(other))
        return self

    return operate


def _method(name):
    def call(self, *arguments, **keywords):
        return self.lifted(getattr(host(self), name)(*map(lower, arguments), **keywords))

    return call


for _names, _make in ((OPERATORS, _operator), (IN_PLACE, _in_place)):
    for _name in _names:
        setattr(HostArray, f"__{_name}__", _make(_name))
for _name in METHODS:
    setattr(HostArray, _name, _method(_name))


def use_host_cupy(device):
    """Let a `HostDevice`, and an engine on it, make these arrays; return the namespace that stands for CuPy."""
    namespace = types.ModuleType("cupy")
    namespace.ndarray = cupy.ndarray

    def function(name):
        def call(*arguments, **keywords):
            result = getattr(np, name)(*map(lower, arguments), **keywords)
            return lift(result, device) if isinstance(result, (np.ndarray, np.generic)) else result

        return call

    def attribute(name):
        if name in NOT_NUMPYS:
            raise AttributeError(name)
        return function(name) if callable(getattr(np, name)) else getattr(np, name)

    namespace.__getattr__ = attribute
    plain = type(device).allocate

    def empty(shape, dtype):
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        array = HostArray(shape, dtype, memptr=plain(device, nbytes))
        array.device_ = device
        return array

    def from_dlpack(tensor):
        array = imported(tensor, HostArray)
        array.device_ = device
        return array

    namespace.from_dlpack = from_dlpack
    namespace.asnumpy = lower
    namespace.cuda = types.SimpleNamespace(
        Event=Event, get_elapsed_time=elapsed_ms, get_current_stream=device.stream,
        Device=lambda index=None: device.where(device.here if index is None else index),
    )  # fmt: skip
    device.xp = namespace
    device.empty = empty
    for dtype in ("float16", "float32", "float64", "int32", "int64"):
        setattr(namespace, dtype, getattr(np, dtype))
    return namespace
