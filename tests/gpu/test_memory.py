"""Device memory that comes back, and calls that run out of it at each place."""

import contextlib
import dataclasses
import gc
import itertools

from pycudnnrnn.engines.cudnn.owned import live
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import ARRAYS, differ, lstm, problem_of, relaid, run, run_numpy, worst


def used_nbytes(cuda):
    """What the pool of this process has given out, to the byte; on the shim, the number of allocations."""
    cuda.engine.runtime.made.calls.clear()
    cuda.engine.runtime.made.rnns.clear()
    gc.collect()
    if cuda.on_shim:
        cuda.device.allocations.clear()
        from tests.stand_in.host_device import HostMemory

        return HostMemory.live
    cuda.device.xp.cuda.runtime.deviceSynchronize()
    return cuda.device.xp.get_default_memory_pool().used_bytes()


def cycle(cuda, number):
    """Make a model, run it forward and backward, and let go of it."""
    kind = ("lstm", "gru", "rnn_tanh", "rnn_relu")[number % 4]
    layers = 1 + number % 2
    dropout = 0.5 if layers == 2 and number % 3 == 0 else 0.0
    op = KINDS[kind](layers, 8 + number % 7, 5, dropout=dropout, seed=number % 5)
    run(cuda, make_problem(op, 3 + number % 4, 2 + number % 3, None, seed=number % 11))


def test_models_that_are_gone_leave_no_device_memory(cuda):
    """A first round through all kinds is for what is made once, and stays."""
    count = 24 if cuda.on_shim else 4 * 3 * 5 * 7
    for number in range(count):
        cycle(cuda, number)
    before = used_nbytes(cuda), live()
    for number in range(count):
        cycle(cuda, number)
    assert (used_nbytes(cuda), live()) == before


@contextlib.contextmanager
def failing(cuda, nth):
    """Let the Nth allocation from now fail."""
    if cuda.on_shim:
        cuda.device.fail_at = nth
        try:
            yield
        finally:
            cuda.device.fail_at = None
        return
    cupy, before = cuda.device.xp, itertools.count()

    def allocate(nbytes):
        if next(before) >= nth:
            raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0)
        return cupy.get_default_memory_pool().malloc(nbytes)

    with cupy.cuda.using_allocator(allocate):
        yield


def test_each_allocation_that_fails_is_a_memory_error_that_changes_nothing(cuda, answer):
    """As on the stand-in, on a device."""
    problem = problem_of(lstm(), [6, 2, 0, 1])
    put = {name: cuda.put(getattr(relaid(problem), name)) for name in (*ARRAYS, "params")}
    before = {name: cuda.get(array).copy() for name, array in put.items()}
    for nth in range(300):
        try:
            with failing(cuda, nth):
                dataclasses.replace(problem, **put).results()
        except MemoryError:
            assert differ({name: cuda.get(array) for name, array in put.items()}, before) == []
        else:
            break
    answer("allocations of a call that failed one by one", nth)
    assert 8 <= nth < 299, "then it gets enough"
    assert worst(run(cuda, problem), run_numpy(problem), problem)[0] <= 1
