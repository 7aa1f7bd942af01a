"""The GPU that tests and tools run on; or the shim, which checks their own code and says nothing of a GPU."""

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.environment import commit
from pycudnnrnn.engines import use_engine

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes three quarters of the card

ON_SHIM = os.environ.get("PYCUDNNRNN_GPU_ON_SHIM") == "1"
REQUIRED = os.environ.get("PYCUDNNRNN_REQUIRE_GPU") == "1"


class Cuda:
    """A device and its engine, and the way to and from it."""

    def __init__(self, engine, device):
        self.engine, self.device, self.on_shim = engine, device, ON_SHIM

    def put(self, array):
        return self.device.from_host(np.ascontiguousarray(array))

    def put_behind(self, array):
        """The same, beginning one element behind an address that is aligned."""
        array = np.ascontiguousarray(array)
        return self.put(np.concatenate([array.reshape(-1)[:1], array.reshape(-1)]))[1:].reshape(array.shape)

    def get(self, array):
        return self.device.to_host(array)

    def copy_into(self, target, values):
        self.device.copy_into(target, values)


@contextlib.contextmanager
def machine(engine=None):
    """Give the device for a `with` block; on the shim `engine` computes, the NumPy engine if None."""
    if not ON_SHIM:
        from pycudnnrnn.engines import engine_for
        from pycudnnrnn.engines.cudnn.device import CudaDevice

        cuda = Cuda(engine_for("cuda"), CudaDevice())
        if os.environ.get("PYCUDNNRNN_GPU_POOL") == "none":  # under a sanitizer
            cuda.device.xp.cuda.set_allocator(None)
        yield cuda
        return
    from tests.stand_in.host_cupy import use_host_cupy
    from tests.stand_in.host_device import host_allocator
    from tests.stand_in.shim import Shim, build

    with tempfile.TemporaryDirectory() as folder:
        engine, device = Shim(build(Path(folder)), engine).engine_and_device()
        use_host_cupy(device)
        with host_allocator(device), use_engine(engine):
            yield Cuda(engine, device)


def environment(cuda):
    """What a results file says of the machine; nothing where there is no GPU."""
    head = {"commit": commit() or "unknown", "on_shim": ON_SHIM}
    if ON_SHIM or cuda is None:
        return head
    xp, library = cuda.device.xp, cuda.engine.library
    properties = xp.cuda.runtime.getDeviceProperties(cuda.device.index)
    return head | {
        "gpu": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "driver": xp.cuda.runtime.driverGetVersion(),
        "cuda_runtime": xp.cuda.runtime.runtimeGetVersion(),
        "cudnn": library.version,
        "cudnn_path_found_via": library.found_via,
        "cupy": importlib.metadata.version(xp.__name__) if xp.__name__ != "cupy" else xp.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
    }
