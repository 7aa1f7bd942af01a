"""A million descriptors of each type: none stays alive, and the process does not grow."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from pycudnnrnn._libcudnn import cudnnRNNDataLayout_t
from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES, Owned, live
from pycudnnrnn.spec import DType, RNNSpec

CYCLES = 1_000_000
WARM_UP = 20_000
PAGE = 4096
GROWTH_MAX_NBYTES = 2**20

SPEC = RNNSpec("lstm", 2, 8, 4, cell_clip=1.0)


class Dropout(Owned, kind="DropoutDescriptor"):
    """One that nothing is set in: that needs a handle, and so a GPU."""


MAKERS = {
    "RNN": lambda lib: RNNDescriptor(lib, SPEC),
    "RNNData": lambda lib: RNNDataDescriptor(
        lib, DType.FLOAT32, 5, 3, 4, lengths=(5, 3, 2), layout=cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED
    ),
    "Tensor": lambda lib: TensorDescriptor(lib, DType.FLOAT32, (2, 3, 4)),
    "Filter": lambda lib: FilterDescriptor(lib, DType.FLOAT32, (2, 3, 4)),
    "Dropout": Dropout,
}


pytestmark = pytest.mark.long


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.parametrize("name", MAKERS)
def test_a_million_cycles_leave_nothing(lib, name):
    make, before = MAKERS[name], live()
    for _ in range(WARM_UP):
        make(lib)
    gc.collect()
    resident = resident_nbytes()
    for cycle in range(CYCLES):
        owner = make(lib)
        if cycle % 2:
            owner.close()
    del owner
    gc.collect()
    growth = resident_nbytes() - resident
    assert not live() - before, "what earlier tests left may go meanwhile, and nothing may come"
    assert RELEASE_FAILURES == []
    assert growth <= GROWTH_MAX_NBYTES
