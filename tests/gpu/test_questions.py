"""What only a GPU can answer, asked once and recorded by name; and memory, streams and threads on a real device."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import cudnnForwardMode_t, cudnnWgradMode_t
from pycudnnrnn.errors import CudnnError
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import run, run_numpy, worst
from tests.gpu.prepared import LSTM, Prepared, another_stream, in_threads


@pytest.mark.apart
def test_set_mode_of_the_weight_gradient(cuda, answer):
    """SET is used nowhere until it is known to equal zero-fill and ADD."""
    b = Prepared(cuda)
    b.forward()
    b.backward_data()
    b.backward_weights()
    added = cuda.get(b.d_params).copy()
    native, at = b.plan._native._native, cuda.device.address
    x_desc, y_desc = b.plan._native._data.pointers
    target = cuda.put(np.full_like(added, 77))
    handle = cuda.engine.runtime.handles.on(cuda.device.stream())
    try:
        cuda.engine.library.cudnnRNNBackwardWeights_v8(
            handle, native._rnn, cudnnWgradMode_t.SET, None, x_desc, at(b.x), native._fixed["hDesc"], at(b.hx), y_desc,
            at(b.y), native.params_nbytes, at(target), native.workspace_nbytes, b.plan._native._workspace_at,
            native.reserve_nbytes, at(b.reserve),
        )  # fmt: skip
    except CudnnError as error:
        answer("SET mode", f"refused: {error.status}")
        return
    answer("SET mode", {"equal to ADD on zeros": bool(np.array_equal(cuda.get(target), added))})


@pytest.mark.apart
def test_null_gradients_of_final_states(cuda, answer):
    """NULL dhy and dcy are never passed until they are known to stand for zeros."""
    zeros, null = Prepared(cuda), Prepared(cuda)
    zeros.dhy, zeros.dcy = cuda.put(np.zeros_like(zeros.problem.hx)), cuda.put(np.zeros_like(zeros.problem.cx))
    zeros.forward()
    zeros.backward_data()
    null.forward()
    native = null.plan._native
    at, library = cuda.device.address, cuda.engine.library
    call = native._native
    (x_desc, y_desc), h_desc, c_desc = native._data.pointers, call._fixed["hDesc"], call._fixed["cDesc"]
    handle = cuda.engine.runtime.handles.on(cuda.device.stream())
    try:
        library.cudnnRNNBackwardData_v8(
            handle, call._rnn, None, y_desc, at(null.y), at(null.dy), x_desc,
            at(null.dx), h_desc, at(null.hx), None, at(null.dhx), c_desc, at(null.cx), None, at(null.dcx),
            call.params_nbytes, at(null.params), call.workspace_nbytes, native._workspace_at, call.reserve_nbytes,
            at(null.reserve),
        )  # fmt: skip
    except CudnnError as error:
        answer("NULL dhy and dcy", f"refused: {error.status}")
        return
    same = {name: bool(np.array_equal(cuda.get(getattr(null, name)), cuda.get(getattr(zeros, name)))) for name in
            ("dx", "dhx", "dcx")}  # fmt: skip
    answer("NULL dhy and dcy", {"equal to zeros": same})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_padding_is_exactly_zero_and_nan_in_it_never_leaks(cuda, answer, dtype):
    op = ops.CudnnGRU(2, 12, 7, dtype=dtype, direction="bidirectional")
    lengths = [6, 2, 4, 1]
    problem = make_problem(op, 6, 4, lengths, seed=5)
    clean = run(cuda, problem)
    for b, length in enumerate(lengths):
        problem.x[length:, b], problem.dy[length:, b] = np.nan, np.nan
    dirty = run(cuda, problem)
    outside = {name: bool(all(not clean[name][n:, b].any() for b, n in enumerate(lengths))) for name in ("y", "dx")}
    answer(f"padding {dtype}", {"zero": outside, "NaN stays": all(np.isfinite(a).all() for a in dirty.values())})
    assert outside == {"y": True, "dx": True}
    assert all(np.array_equal(dirty[name], clean[name]) for name in clean)


@pytest.mark.parametrize("bound", [0.3, 0.25])
def test_the_precision_of_clip_bounds_in_float64(cuda, answer, bound):
    """A bound is a double. 0.25 is a float as well; 0.3 is not, and what cells are clipped to says which it was.

    A spec rounds its bounds to floats, so that nothing depends on the answer: here it is gone round.
    """
    op = ops.CudnnLSTM(1, 12, 7, dtype="float64", cell_clip=bound)
    b = Prepared(cuda, op)
    descriptor = b.plan._native._native._rnn
    descriptor._set_clip(-bound, bound)
    try:
        b.forward()
        largest = float(np.abs(cuda.get(b.cy)).max())
    finally:
        descriptor._set_clip(*op.spec.cell_clip)  # others run with it, too
    taken = {float(np.float32(bound)): "float"} | {bound: "double" if bound == 0.3 else "either"}
    answer(f"clip bounds of float64, {bound}", {"largest cy": largest, "taken as": taken.get(largest, "neither")})
    assert largest == pytest.approx(bound, rel=1e-7), "nothing was clipped"


def test_ragged_lengths_need_no_order(cuda):
    problem = make_problem(LSTM, 6, 4, [2, 6, 1, 4], seed=5)
    ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    assert ratio <= 1


def test_two_streams_give_what_one_gives(cuda):
    problem = make_problem(LSTM, 6, 4, [6, 2, 4, 1], seed=5)
    expected = run(cuda, problem)
    for _ in range(20):
        with another_stream(cuda):
            found = run(cuda, problem)
        again = run(cuda, problem)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
        assert all(np.array_equal(again[name], expected[name]) for name in expected)


def test_eight_threads_give_what_one_gives(cuda):
    assert not in_threads(cuda)


def test_nothing_outside_the_buffers_is_written(cuda):
    """Guard bytes around every output of a prepared call."""
    b = Prepared(cuda, lengths=[6, 2, 4, 1])
    guarded = {}
    for name in ("y", "hy", "cy", "dx", "dhx", "dcx", "d_params", "reserve"):
        array = getattr(b, name)
        whole = cuda.put(np.full(array.nbytes + 512, 0xA5, np.uint8))
        inside = whole[256 : 256 + array.nbytes].view(array.dtype).reshape(array.shape)
        setattr(b, name, inside)
        guarded[name] = whole
    b.forward()
    b.backward_data()
    b.backward_weights()
    for name, whole in guarded.items():
        raw = cuda.get(whole)
        assert (raw[:256] == 0xA5).all(), name
        assert (raw[-256:] == 0xA5).all(), name


@pytest.mark.apart
def test_an_element_count_just_under_the_32_bit_limit(cuda, answer):
    if cuda.on_shim:
        pytest.skip("8 GiB of host memory would show nothing")
    T, B, U = 65535, 128, 255
    op = ops.CudnnGRU(1, U, 1, dtype="float16")
    xp, params = cuda.device.xp, op.init_params(seed=1, device="cuda")
    x = xp.random.default_rng(0).standard_normal((T, B, 1), dtype=xp.float32).astype(xp.float16)
    output, _ = op(x, None, params, is_training=False)
    alone, _ = op(xp.ascontiguousarray(x[:, -1:]), None, params, is_training=False)
    error = float(abs(output[:, -1:].astype(xp.float32) - alone.astype(xp.float32)).max())
    answer("2**31 elements", {"elements": T * B * U, "last sequence differs by": error})
    assert error <= 5e-3


def test_lengths_on_the_device_are_not_needed(cuda, answer):
    """NULL in their place, which is what the engine passes, gives what passing them gives."""
    null, given = Prepared(cuda, lengths=[6, 2, 4, 1]), Prepared(cuda, lengths=[6, 2, 4, 1])
    null.forward()
    native, at, b = given.plan._native, cuda.device.address, given
    call, lengths = native._native, cuda.put(np.array([6, 2, 4, 1], np.int32))
    (x_desc, y_desc), h_desc, c_desc = native._data.pointers, call._fixed["hDesc"], call._fixed["cDesc"]
    handle, mode = cuda.engine.runtime.handles.on(cuda.device.stream()), cudnnForwardMode_t(call.training)
    try:
        cuda.engine.library.cudnnRNNForward(
            handle, call._rnn, mode, at(lengths), x_desc, at(b.x), y_desc,
            at(b.y), h_desc, at(b.hx), at(b.hy), c_desc, at(b.cx), at(b.cy), call.params_nbytes, at(b.params),
            call.workspace_nbytes, native._workspace_at, call.reserve_nbytes, at(b.reserve),
        )  # fmt: skip
    except CudnnError as error:
        answer("devSeqLengths", f"refused where given: {error.status}")
        return
    same = {name: bool(np.array_equal(cuda.get(getattr(null, name)), cuda.get(getattr(b, name)))) for name in
            ("y", "hy", "cy")}  # fmt: skip
    answer("devSeqLengths", {"NULL equals given": same})
    assert all(same.values())
