"""Lengths are no part of what is prepared: for new ones nothing is asked and nothing made."""

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.problem import run_on
from tests.stand_in.shim import PASSES

LSTM = ops.CudnnLSTM(2, 3, 4, direction="bidirectional")
BATCHES = ([4, 2, 1], [1, 4, 3], [3, 3, 2], [4, 4, 4], [2, 1, 1])


def queries(shim):
    """What was asked of the library beside the passes themselves."""
    return [name for name, *_ in shim.calls if name not in PASSES]


def check(device, problem, **keywords):
    results = run_on(device, problem, **keywords)
    assert [name for name, array in problem.results().items() if not np.array_equal(results[name], array)] == []


def test_new_lengths_ask_and_make_nothing(shim, device):
    problems = [make_problem(LSTM, 4, 3, lengths, seed=i) for i, lengths in enumerate(BATCHES)]
    for _ in range(2):
        before = owned.live()
        shim.calls.clear()
        shim.described.clear()
        for problem in problems:
            for time_major in (True, False):
                check(device, problem, time_major=time_major)
    assert (queries(shim), owned.live()) == ([], before)
    assert [lengths for _, lengths in shim.described[::6]] == [*map(tuple, BATCHES)]


def test_another_size_makes_what_depends_on_sizes_and_asks_only_for_the_memory_that_it_takes(shim, device):
    op = ops.CudnnLSTM(2, 5, 4, num_proj=3)
    check(device, make_problem(op, 4, 3, None, seed=0))
    for T, B in ((5, 3), (4, 2)):
        before = owned.live()
        shim.calls.clear()
        check(device, make_problem(op, T, B, None, seed=1))
        assert owned.live() - before == {"RNNDataDescriptor": 2, "TensorDescriptor": 2}
        assert queries(shim) == ["cudnnGetRNNTempSpaceSizes"]
