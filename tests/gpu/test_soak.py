"""Long runs: device memory that comes back, and calls that run out of it at each place."""

import contextlib
import gc
import itertools

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn.owned import live
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.drift import PAGE_NBYTES, SAMPLES, growth, leaks
from tests.gpu.numbers import run, run_numpy, worst


def used_nbytes(cuda):
    """Device memory in use: what the pool has given out, and, once it has given back what it can, what the driver has.

    On the shim both are the number of allocations.
    """
    cuda.engine.runtime.compiled.clear()
    gc.collect()
    if cuda.on_shim:
        cuda.device.allocations.clear()
        from tests.stand_in.host_device import HostMemory

        return HostMemory.live, HostMemory.live
    runtime, pool = cuda.device.xp.cuda.runtime, cuda.device.xp.get_default_memory_pool()
    runtime.deviceSynchronize()
    pool.free_all_blocks()
    free, total = runtime.memGetInfo()
    return pool.used_bytes(), total - free


def cycle(cuda, number):
    """Make a model, run it forward and backward, and let go of it."""
    kind = ("lstm", "gru", "rnn_tanh", "rnn_relu")[number % 4]
    layers = 1 + number % 2
    dropout = 0.5 if layers == 2 and number % 3 == 0 else 0.0
    op = KINDS[kind](layers, 8 + number % 7, 5, dropout=dropout, seed=number % 5)
    run(cuda, make_problem(op, 3 + number % 4, 2 + number % 3, None, seed=number % 11))


def test_ten_thousand_models_leave_no_device_memory(cuda, answer, measured):
    """What CUDA and cuDNN load at first use, and keep, is there after a round through all kinds."""
    kinds = 4 * 3 * 5 * 7
    warm, cycles, samples, page = (8, 24, 8, 0) if cuda.on_shim else (kinds, 10_000, SAMPLES, PAGE_NBYTES)
    for number in range(warm):
        cycle(cuda, number)
    (pool_before, _), natives, used = used_nbytes(cuda), live(), []
    for number in range(cycles):
        cycle(cuda, number)
        if number % (cycles // samples) == 0:
            used.append(used_nbytes(cuda)[1])
    drift, handles = used_nbytes(cuda)[0] - pool_before, cuda.engine.runtime.handles._count
    seen = {"cycles": cycles, "drift of the pool": drift, "growth of the last half": growth(used), "handles": handles}
    answer("device memory after 10,000 models, in bytes", seen | {"used": [n - used[0] for n in used]})
    assert drift == 0
    assert not leaks(used, page), used
    assert live()["RNNDescriptor"] <= natives["RNNDescriptor"]
    measured("models made and closed", cycles=cycles, bytes_drifted=drift)


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


def attempts(cuda, short, tries):
    """Run a problem ever less short of memory; each failure is a MemoryError that has changed nothing."""
    problem = make_problem(ops.CudnnLSTM(2, 24, 17, direction="bidirectional"), 7, 5, [7, 2, 0, 7, 1], seed=3)
    put = {name: cuda.put(getattr(problem, name)) for name in ("x", "hx", "cx", "params", "dy", "dhy", "dcy")}
    before = {name: cuda.get(array).copy() for name, array in put.items()}
    failed = 0
    for level in tries:
        try:
            with short(level):
                fwd = problem.op.forward(
                    put["x"], put["hx"], put["cx"], put["params"], sequence_lengths=problem.lengths
                )
                fwd.backward(put["dy"], put["dhy"], put["dcy"])
        except MemoryError:
            failed += 1
            assert all(np.array_equal(cuda.get(array), before[name]) for name, array in put.items())
        else:
            break
    else:
        pytest.fail("it never got enough")
    ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    assert ratio <= 1
    return failed


def test_each_allocation_that_fails_is_a_memory_error_that_changes_nothing(cuda, measured):
    """As on the stand-in, on a device."""
    failed = attempts(cuda, lambda nth: failing(cuda, nth), range(300))
    assert failed >= 8
    measured("allocations that fail", allocations_failed=failed)


def test_a_pool_that_is_too_small_is_a_memory_error_until_it_is_large_enough(cuda, answer, measured):
    if cuda.on_shim:
        pytest.skip("there is no pool; the test above makes each allocation fail")
    pool = cuda.device.xp.get_default_memory_pool()
    pool.free_all_blocks()

    @contextlib.contextmanager
    def limited(nbytes):
        pool.free_all_blocks()
        pool.set_limit(size=pool.used_bytes() + nbytes)
        try:
            yield
        finally:
            pool.set_limit(size=0)

    failed = attempts(cuda, limited, [int(512 * 1.3**n) for n in range(68)])  # to 27 GB, which a workspace may take
    answer("pool limits that were too small", failed)
    assert failed >= 3
    measured("allocations that fail", pool_limits_failed=failed)
