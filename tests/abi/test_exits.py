"""However the interpreter ends, with descriptors alive: exit code as asked, nothing on stderr, nothing destroyed late.

Each shape ends ENDS times: one child imports everything and forks, and each fork ends as an interpreter does. Then many
descriptors are made and freed, a million at night. Both are in `make test-long`.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES, live
from pycudnnrnn.spec import DType, RNNSpec
from tests.helpers.examples import PROFILE
from tests.helpers.exits import ENDS, FORKS

CHILD = """
import atexit, gc, os, sys, threading
from pycudnnrnn import libcudnn
from pycudnnrnn.engines.cudnn.descriptors import RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.spec import RNNSpec

lib = libcudnn.load()
SPEC = RNNSpec("lstm", 2, 8, 4, cell_clip=1.0)


def make():
    data = RNNDataDescriptor(lib, "float32", 5, 2, 4)
    return RNNDescriptor(lib, SPEC), data, TensorDescriptor(lib, "float32", [1, 2, 3])

"""

SHAPES = {
    "at module level": "alive = make()",
    "in a cycle": "alive = list(make()); alive.append(alive); del alive; gc.disable()",
    "in a thread-local": "local = threading.local(); local.alive = make()",
    "in another thread's frame": (
        "ready = threading.Event()\n"
        "def hold():\n    alive = make(); ready.set(); threading.Event().wait()\n"
        "threading.Thread(target=hold, daemon=True).start(); ready.wait()"
    ),
    "made and freed by a daemon thread": (
        "ready = threading.Event()\n"
        "def churn():\n    while True:\n        make(); ready.set()\n"
        "threading.Thread(target=churn, daemon=True).start(); ready.wait()"
    ),
    "made while the interpreter looks for finalizers": (
        "import weakref\n"
        "alive = []\n"
        "class Other:\n    index = 0\n    atexit = property(lambda _: alive.extend(make()))\n"
        "weakref.finalize(Other, print).atexit = False; weakref.finalize._registry[Other()] = Other()"
    ),
    "used and closed by an exit handler": (
        "alive = make(); atexit.register(lambda: [(owner.read(), owner.close()) for owner in alive])"
    ),
    "sys.exit with a code": "alive = make(); sys.exit(3)",
}


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interpreter_ends_quietly(child, shape):
    expected = 3 if shape == "sys.exit with a code" else 0
    result = child(f"COUNT, EXPECTED = {ENDS}, {expected}\n{CHILD}{FORKS}{SHAPES[shape]}\n")
    assert (result.stdout, result.stderr, result.returncode) == ("all ended\n", "", 0)


def test_an_uncaught_error_shows_its_own_traceback_only(child):
    result = child(f"COUNT, EXPECTED = 1, 1\n{CHILD}{FORKS}alive = make()\nraise KeyError('mine')\n")
    assert result.stdout == "all ended\n"
    assert result.stderr.endswith("KeyError: 'mine'\n")
    assert result.stderr.count("Traceback") == 1


def test_nothing_is_destroyed_at_exit(child):
    """The process gives everything back; destroying what the driver has already torn down is what crashes."""
    code = """
    import atexit, sys
    late = []
    atexit.register(late.clear)  # the first to be registered is the last to run
    from pycudnnrnn import libcudnn
    from pycudnnrnn._libcudnn import Function
    from pycudnnrnn.engines.cudnn.descriptors import TensorDescriptor
    lib = libcudnn.load()
    call = Function.__call__
    Function.__call__ = lambda self, *a: (sys.stderr.write(self.prototype.name + "\\n"), call(self, *a))[1]
    alive = TensorDescriptor(lib, "float32", [1, 2, 3])
    cycle = [TensorDescriptor(lib, "float32", [1, 2, 3])]
    cycle.append(cycle)
    late.append(TensorDescriptor(lib, "float32", [1, 2, 3]))
    """
    result = child(code)
    assert result.stderr.count("cudnnCreateTensorDescriptor") == 3
    assert "cudnnDestroy" not in result.stderr


CYCLES = 1_000_000 if PROFILE == "nightly" else 50_000


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        lambda lib: RNNDescriptor(lib, RNNSpec("lstm", 2, 8, 4, cell_clip=1.0)),
        lambda lib: RNNDataDescriptor(lib, DType.FLOAT32, 5, 3, 4, lengths=(5, 3, 2)),
        lambda lib: TensorDescriptor(lib, DType.FLOAT32, (2, 3, 4)),
        lambda lib: FilterDescriptor(lib, DType.FLOAT32, (2, 3, 4)),
    ],
)
def test_many_cycles_leave_nothing(lib, make):
    before, resident = live(), 0
    for cycle in range(20_000 + CYCLES):
        if cycle == 20_000:
            gc.collect()
            resident = resident_nbytes()
        owner = make(lib)
        if cycle % 2:
            owner.close()
    del owner
    gc.collect()
    assert resident_nbytes() - resident <= 2**20, "a leak of 21 bytes a cycle is seen, and at night of one"
    assert not live() - before, "what earlier tests left may go meanwhile, and nothing may come"
    assert RELEASE_FAILURES == []
