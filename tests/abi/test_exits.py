"""What descriptors leave: nothing while many are made and freed, and nothing destroyed when the interpreter ends.

tests/cudnn_engine/test_exits.py ends it in many ways. A million cycles run at night.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES, live
from pycudnnrnn.spec import DType, RNNSpec
from tests.helpers.examples import PROFILE

CHILD = """
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
raise KeyError("mine")
"""


def test_nothing_is_destroyed_at_exit_and_an_uncaught_error_shows_its_own_traceback_only(child):
    """The process gives everything back; destroying what the driver has already torn down is what crashes."""
    result = child(CHILD)
    assert result.stderr.count("cudnnCreateTensorDescriptor") == 3
    assert "cudnnDestroy" not in result.stderr
    assert result.stderr.endswith("KeyError: 'mine'\n")
    assert result.stderr.count("Traceback") == 1


CYCLES = 1_000_000 if PROFILE == "nightly" else 50_000
MAKERS = (
    lambda lib: RNNDescriptor(lib, RNNSpec("lstm", 2, 8, 4, cell_clip=1.0)),
    lambda lib: RNNDataDescriptor(lib, DType.FLOAT32, 5, 3, 4, lengths=(5, 3, 2)),
    lambda lib: TensorDescriptor(lib, DType.FLOAT32, (2, 3, 4)),
    lambda lib: FilterDescriptor(lib, DType.FLOAT32, (2, 3, 4)),
)


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.long
def test_many_cycles_leave_nothing(lib):
    before, resident = live(), 0
    for cycle in range(20_000 + CYCLES):
        if cycle == 20_000:
            gc.collect()
            resident = resident_nbytes()
        for make in MAKERS:
            owner = make(lib)
            if cycle % 2:
                owner.close()
    del owner
    gc.collect()
    assert resident_nbytes() - resident <= 2**20, "a leak of 21 bytes a cycle is seen, and at night of one"
    assert not live() - before, "what earlier tests left may go meanwhile, and nothing may come"
    assert RELEASE_FAILURES == []
