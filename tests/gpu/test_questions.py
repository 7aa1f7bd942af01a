"""What only a GPU can answer, asked once and recorded by name; and memory, streams and threads on a real device."""

import time

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import cudnnWgradMode_t
from pycudnnrnn.engines.cudnn import native_calls
from pycudnnrnn.errors import CudnnError
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import run
from tests.gpu.prepared import LSTM, Prepared, another_stream, in_threads


def step_otherwise(cuda, b, changed, null=()):
    """Run the three passes of a plan's own native calls with other arguments than the engine gives them."""
    plan, native = b.plan._native, b.plan._native._native
    handle = cuda.engine.runtime.handles.on(cuda.device.stream())
    for which in native.passes:
        call = native_calls._bound(cuda.engine.library, which, native._fixed | {"rnnDesc": native._rnn} | changed)
        at = cuda.device.addresses(*(None if name in null else getattr(b, name) for name in which.names))
        call(handle.pointer, *plan._data.pointers, plan._workspace_at, *at)
    return b.results(cuda)


@pytest.mark.apart
def test_set_mode_of_the_weight_gradient(cuda, answer):
    """SET is used nowhere until it is known to equal zero-fill and ADD."""
    expected = step_of(cuda, Prepared(cuda))
    try:
        found = step_otherwise(cuda, Prepared(cuda), {"addGrad": cudnnWgradMode_t.SET})
    except CudnnError as error:
        answer("SET mode", f"refused: {error.status}")
        return
    answer("SET mode", {"equal to ADD on zeros": bool(np.array_equal(found["d_params"], expected["d_params"]))})


@pytest.mark.apart
def test_null_gradients_of_final_states(cuda, answer):
    """NULL dhy and dcy are never passed until they are known to stand for zeros."""
    b = Prepared(cuda)
    b.dhy, b.dcy = (cuda.put(np.zeros_like(b.problem.hx)) for _ in range(2))
    expected = step_of(cuda, b)
    try:
        found = step_otherwise(cuda, Prepared(cuda), {}, null=("dhy", "dcy"))
    except CudnnError as error:
        answer("NULL dhy and dcy", f"refused: {error.status}")
        return
    same = {name: bool(np.array_equal(found[name], expected[name])) for name in ("dx", "dhx", "dcx")}
    answer("NULL dhy and dcy", {"equal to zeros": same})


def test_lengths_on_the_device_are_not_needed(cuda, answer):
    """NULL in their place, which is what the engine passes, gives what passing them gives."""
    lengths = [6, 2, 4, 1]
    expected, given = step_of(cuda, Prepared(cuda, lengths=lengths)), cuda.put(np.array(lengths, np.int32))
    try:
        found = step_otherwise(cuda, Prepared(cuda, lengths=lengths), {"devSeqLengths": cuda.device.address(given)})
    except CudnnError as error:
        answer("devSeqLengths", f"refused where given: {error.status}")
        return
    same = {name: bool(np.array_equal(found[name], expected[name])) for name in ("y", "hy", "cy")}
    answer("devSeqLengths", {"NULL equals given": same})
    assert all(same.values())


def step_of(cuda, b):
    b.step()
    return b.results(cuda)


def test_what_it_costs_to_seed_dropouts_states(cuda, answer):
    """Microseconds, medians, until a call comes back to the host and until the device is done with it."""
    device, runtime = cuda.device, cuda.engine.runtime
    states = device.zeros((cuda.engine.dropout_states_nbytes(),), np.dtype(np.uint8))
    handle = runtime.handles.on(device.stream())
    at = runtime.dropout_at(handle, device.address(states), 0.5)
    host, done = [], []
    for _ in range(20):
        device.synchronize(device.stream())
        began = time.perf_counter()
        at.start(handle, 1)
        host.append(time.perf_counter() - began)
        device.synchronize(device.stream())
        done.append(time.perf_counter() - began)
    took = {name: round(1e6 * sorted(found)[10], 1) for name, found in (("host", host), ("done", done))}
    answer("seeding dropout", took | {"bytes": states.nbytes})


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
    b.step()
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
