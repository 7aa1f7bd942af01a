"""Where cuDNN's documents leave a way open: that what we pass it does not depend on it."""

import ctypes
import dataclasses
import threading

import numpy as np
import pytest

from pycudnnrnn._libcudnn import cudnnForwardMode_t
from pycudnnrnn.errors import ArgumentError, CudnnError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.testing.goldens import KINDS
from tests.gpu.numbers import DTYPES, LENGTHS, RAGGED, B, T, differ, lstm, problem_of, run, run_numpy, worst
from tests.gpu.prepared import LSTM, Prepared, run_all


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
    found, expected = null.results(cuda), zero.results(cuda)
    off = {name: float(np.abs(found[name] - expected[name]).max()) for name in found}
    answer(f"NULL states and zeros, {'ragged' if lengths else 'equal'}: differences", off)
    assert max(off.values()) <= 1e-9


@pytest.mark.parametrize("kind", KINDS)
@LENGTHS
def test_batch_major_data_is_near_the_numpy_engines(cuda, answer, kind, lengths):
    """Each sequence by itself would do; all at once have the layout that is asked for."""
    problem = problem_of(KINDS[kind](2, 24, 17, direction="bidirectional"), lengths)
    turn = lambda array: np.ascontiguousarray(array.swapaxes(0, 1))  # noqa: E731
    found = run(cuda, dataclasses.replace(problem, x=turn(problem.x), dy=turn(problem.dy)), time_major=False)
    found |= {name: turn(found[name]) for name in ("y", "dx")}
    ratio, errors = worst(found, run_numpy(problem), problem)
    answer(f"batch major {kind}, {'ragged' if lengths else 'equal'}", errors)
    assert ratio <= 1


@pytest.mark.parametrize("sizes", [(17, 24), (64, 64)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_data_may_begin_on_any_element(cuda, dtype, sizes):
    """They are copied: a kernel that reads vectors faults on such an address, which takes the device with it."""
    problem = problem_of(lstm(dtype, *sizes[::-1]))
    assert worst(run(cuda, problem, put=cuda.put_behind), run_numpy(problem), problem)[0] <= 1


def test_gradients_past_a_sequences_end_are_zero_in_the_callers_own_buffers(cuda):
    """A prepared call writes where the caller says; Prepared fills that with 77."""
    b = Prepared(cuda, lengths=RAGGED)
    b.forward()
    b.backward_data()
    for array in (b.y, b.dx):
        assert not any(cuda.get(array)[n:, i].any() for i, n in enumerate(RAGGED))


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_no_lengths_take_more_reserve_than_a_ragged_call_is_given(cuda, answer, packed):
    """What they change is not documented: a call is sized once, by equal lengths and by those hardly ragged."""
    ragged = tuple(sorted(RAGGED, reverse=True)) if packed else tuple(RAGGED)
    schedule, handle = Schedule(T, B, ragged, packed=packed), cuda.engine.runtime.handles.on(cuda.device.stream())
    passes = cuda.engine.runtime.native_calls(handle, CallConfig(lstm().spec, schedule, keep_reserve=True))
    found = {"given": passes.reserve_nbytes}
    for lengths in ((T,) * B, (T,) * (B - 1) + (T - 1,), ragged, (T,) + (1,) * (B - 1)):
        workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        data = passes.data_descriptors(dataclasses.replace(schedule, lengths=lengths))
        cuda.engine.library.cudnnGetRNNTempSpaceSizes(
            handle, passes._rnn.forward, cudnnForwardMode_t.TRAINING, data.x, workspace, reserve
        )
        found[str(lengths)] = reserve.value
    answer(f"reserve by lengths, {'packed' if packed else 'padded'}", found)
    assert max(found.values()) == found["given"]


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


@pytest.mark.apart
@pytest.mark.parametrize("units", [64, 128, 160, 256, 384])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_the_small_h_algorithm_refuses_training_when_it_is_prepared_and_not_in_backward(cuda, answer, kind, units):
    """PyTorch takes it for fewer units in training than in inference: a forward that runs may have no backward."""
    problem = problem_of(KINDS[kind](1, units, units, algo="persist_static_small_h"))
    try:
        problem.op.prepare(T, B, is_training=True, device="cuda")
    except (CudnnError, ArgumentError) as error:
        answer(f"small H {kind} U={units}", f"refused: {error}"[:150])
        return
    ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    answer(f"small H {kind} U={units}", ratio)
    assert ratio <= 1


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
