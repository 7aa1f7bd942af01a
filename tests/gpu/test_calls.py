"""Prepared calls on a device: what their NULLs mean, what they write and add to, streams, threads, and their memory."""

import gc
import threading

import numpy as np
import pytest

from pycudnnrnn.engines.cudnn.owned import live
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import LENGTHS, RAGGED, differ, problem_of, run
from tests.gpu.prepared import LSTM, Prepared, another_stream, run_all


@LENGTHS
def test_null_states_are_zeros_in_all_three_calls(cuda, answer, lengths):
    """A sum over one step less may end in other last bits: no fault of ours."""
    null, zero = Prepared(cuda, lengths=lengths), Prepared(cuda, lengths=lengths)
    for name in ("hx", "cx"):
        setattr(null, name, None)
        setattr(zero, name, cuda.put(np.zeros_like(zero.problem.hx)))
    null.dhx = null.dcx = None
    for b in (null, zero):
        b.step()
    results, expected = null.results(cuda), zero.results(cuda)
    off = {name: float(np.abs(results[name] - expected[name]).max()) for name in results}
    answer(f"NULL states and zeros, {'ragged' if lengths else 'equal'}: differences", off)
    assert max(off.values()) <= 1e-9


@LENGTHS
def test_an_accumulated_gradient_is_what_was_there_and_the_new_one(cuda, answer, lengths):
    """ADD is the mode that is used; what comes on zeros, and on what was there, is the same gradient."""
    b = Prepared(cuda, LSTM, lengths)
    b.step()
    alone = cuda.get(b.d_params).copy()
    b.backward_weights(accumulate=True)
    error = float(np.abs(cuda.get(b.d_params) - 2 * alone).max())
    answer(f"ADD on another gradient, {'ragged' if lengths else 'equal'}: largest error", error)
    assert error <= 1e-12 * max(1.0, float(np.abs(alone).max()))


def test_two_streams_give_what_one_gives(cuda):
    problem = problem_of(LSTM, RAGGED)
    expected = run(cuda, problem)
    for _ in range(20):
        with another_stream(cuda):
            results = run(cuda, problem)
        assert differ(results, expected) == differ(run(cuda, problem), expected) == []


def test_threads_with_prepared_calls_of_their_own_share_descriptors(cuda):
    """Their plans are of one kind: cuDNN reads the same descriptors on several handles, streams and data at once."""
    count, rounds = (3, 2) if cuda.on_shim else (8, 100)
    alone, wrong = [Prepared(cuda, seed=n) for n in range(count)], []
    for b in alone:
        b.step()
    expected, together = [b.results(cuda) for b in alone], threading.Barrier(count, timeout=60)

    def work(n):
        b = Prepared(cuda, seed=n)
        for _ in range(rounds):
            for run_pass in (b.forward, b.backward_data, b.backward_weights):
                together.wait()
                run_pass()
            wrong.extend(differ(b.results(cuda), expected[n]))

    run_all(cuda, work, count)
    assert not wrong


def test_models_that_are_gone_leave_no_device_memory(cuda):
    """A first round through all kinds is for what is made once, and stays."""
    if cuda.on_shim:
        pytest.skip("the memory is the host's")

    def used():
        for kind in KINDS:
            for layers, dropout in ((1, 0.0), (2, 0.5)):
                run(cuda, make_problem(KINDS[kind](layers, 9, 5, dropout=dropout), 4, 3, None, seed=1))
        cuda.engine.runtime.natives.calls.clear()
        cuda.engine.runtime.natives.rnns.clear()
        gc.collect()
        cuda.device.xp.cuda.runtime.deviceSynchronize()
        return cuda.device.xp.get_default_memory_pool().used_bytes(), live()

    before = used()
    assert [used() for _ in range(20)] == [before] * 20
