"""A libcudnn without a GPU: the real library's descriptors, and a callback that computes with the NumPy engine.

What it shows is call discipline: that sizes, descriptors, pointers, streams and statuses go where they belong, with
numbers to see it by. It says nothing of cuDNN's own numerics.
"""

import collections
import ctypes
import subprocess
import sysconfig
import threading
from pathlib import Path

from pycudnnrnn import _discovery, libcudnn
from tests.stand_in import native
from tests.stand_in.answers import Answers
from tests.stand_in.host_device import HostDevice

HERE = Path(__file__).parent
REAL = Path(sysconfig.get_path("platlib"), "nvidia", "cudnn", "lib")

HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)

PASSES = ("cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8")
CAPTURABLE = (*PASSES, "cudnnSetStream", "cudnnGetVersion")


def build(folder: Path) -> Path:
    """Compile the shim against the libcudnn of this environment."""
    target = folder / "libshim.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", target, HERE / "shim.c"]
    subprocess.run([*command, f"-L{REAL}", "-Wl,--no-as-needed", "-l:libcudnn.so.9", f"-Wl,-rpath,{REAL}"], check=True)
    return target


class Shim(Answers):
    """Plays the GPU's half of libcudnn: counts, records, fails and captures the calls that it answers.

    `calls` records (function, arguments, thread); `fail` maps (function, nth call) to a status; `complaints` says what
    was refused, and why. `native` is the engine on it, and `device` that one's. The library calls the shim made last.
    """

    current = None

    def __init__(self, path, engine=None, version=92800):
        super().__init__(engine, version)
        self.calls = []
        self.counts = collections.Counter()
        self.fail = {}
        self.complaints = []
        self.native = self.device = None
        self._lock = threading.RLock()  # Python may collect while it is held, and a handle ends by a call
        self.dll = dll = ctypes.CDLL(str(path))
        self.real = ctypes.CDLL(str(REAL / "libcudnn.so.9"))
        dll.shim_set_hook.argtypes = [HOOK]
        dll.shim_set_hook.restype = None
        dll.shim_set_hook(_hook)
        Shim.current = self
        self.library = libcudnn.Library(_discovery.Opened(dll, version, Path(path), "shim", ()))

    def engine_and_device(self, device=None):
        from pycudnnrnn.engines.cudnn.engine import CudnnEngine

        self.device = device or HostDevice()
        self.device.shim = self
        self.native = CudnnEngine(self.library, self.device)
        return self.native, self.device

    def _called(self, name, pointer, count):
        name = name.decode()
        arguments = [pointer[i] for i in range(count)]
        with self._lock:
            self.counts[name] += 1
            nth = self.counts[name]
            self.calls.append((name, arguments, threading.get_ident()))
        try:
            if (name, nth) in self.fail:
                return self.fail[name, nth]
            if name in PASSES and self._recorded(name, arguments):
                return 0
            if name not in CAPTURABLE and self.device is not None and self.device.current.capturing is not None:
                raise native.Refused(native.EXECUTION_FAILED, "called during a capture")  # noqa: TRY301
            return getattr(self, name)(*arguments) or 0
        except native.Refused as refused:
            self.complaints.append(f"{name}: {refused}")
            return refused.status
        except Exception as error:  # noqa: BLE001  nothing may pass through C
            self.complaints.append(f"{name}: {error!r}")
            return native.INTERNAL

    def _recorded(self, name, arguments):
        """Record a pass if its handle's stream is captured; a replay runs on the stream that is current then."""
        handle, device = arguments[0], self.device
        stream = device and device.streams.get(self.handles.get(handle))
        if not stream or stream.capturing is None:
            return False

        def run():
            before, self.handles[handle] = self.handles[handle], device.current.ptr
            try:
                getattr(self, name)(*arguments)
            finally:
                self.handles[handle] = before

        stream.capturing.append(run)
        return True


_hook = HOOK(lambda *call: Shim.current._called(*call))  # noqa: PLW0108  looked up at each call
