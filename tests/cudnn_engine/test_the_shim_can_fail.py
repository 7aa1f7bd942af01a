"""The shim's tests can fail: each pair of pointers swapped in turn, and each size made wrong, is noticed.

A fault is planted between the compiled passes and the library, in a forked child, since a wrong pointer may bring the
process down.
"""

import ctypes
import faulthandler
import itertools
import os

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import PROTOTYPES
from pycudnnrnn._libcudnn_abi import Address
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.problem import on_device, run

PASSES = ["cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"]


def pointers(name):
    """Positions of the device pointers, but for devSeqLengths, which is NULL."""
    parameters = list(PROTOTYPES[name].parameters.items())
    return [i for i, (key, kind) in enumerate(parameters) if isinstance(kind, Address) and key != "devSeqLengths"]


def sizes(name):
    return [i for i, key in enumerate(PROTOTYPES[name].parameters) if key.endswith("SpaceSize")]


def spoil(library, name, change):
    """Change the arguments of a function, where they go into C."""
    function = getattr(library, name)
    foreign = function._foreign
    function._foreign = lambda *arguments: foreign(*change(list(arguments)))


def swap(i, j):
    def change(arguments):
        arguments[i], arguments[j] = arguments[j], arguments[i]
        return arguments

    return change


def less(i):
    def change(arguments):
        arguments[i] = ctypes.c_size_t(arguments[i].value - 1)
        return arguments

    return change


FAULTS = {
    f"{name}: {parameters[i]} <-> {parameters[j]}": (name, swap(i, j))
    for name in PASSES
    for parameters in [list(PROTOTYPES[name].parameters)]
    for i, j in itertools.combinations(pointers(name), 2)
} | {
    f"{name}: {list(PROTOTYPES[name].parameters)[i]} one less": (name, less(i)) for name in PASSES for i in sizes(name)
}  # fmt: skip


def unnoticed(engine, device, problem, name, change):
    """Run forward and backward with a fault; True if every number is right and no byte beside an array was written."""
    arrays = on_device(device, problem)
    spoil(engine.library, name, change)
    found, expected = run(problem, arrays), problem.results()
    intact = all(memory.intact() for memory in device.allocations)
    return intact and all(np.array_equal(found[key], expected[key]) for key in expected)


QUICK = set(list(FAULTS)[::12])
"""Every twelfth is planted in each run, all of them in the long one."""


@pytest.mark.parametrize(
    "fault", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FAULTS]
)
def test_a_fault_between_passes_and_library_is_noticed(play, fault):
    name, change = FAULTS[fault]
    _, engine, device = play()
    problem = make_problem(ops.CudnnLSTM(2, 3, 5, num_proj=2, dtype="float64"), 4, 3, [4, 4, 3], seed=7)
    child = os.fork()
    if child == 0:
        code = 1
        faulthandler.disable()  # a crash is an answer here
        try:
            code = 0 if unnoticed(engine, device, problem, name, change) else 1
        finally:
            os._exit(code)  # an exception is a fault noticed
    status = os.waitpid(child, 0)[1]
    assert status != 0, "not noticed"


def test_there_is_a_fault_for_every_pair():
    assert [len(pointers(name)) for name in PASSES] == [9, 12, 6]
    assert [len(sizes(name)) for name in PASSES] == [3, 3, 3]
    assert len(FAULTS) == 36 + 66 + 15 + 9
