"""What only a GPU can answer, asked once and recorded by name; and memory, streams and threads on a real device."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import cudnnWgradMode_t
from pycudnnrnn.engines.cudnn import native as native_objects
from pycudnnrnn.errors import CudnnError
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import RAGGED, differ, problem_of, run
from tests.gpu.prepared import LSTM, Prepared, another_stream, run_all


def step_otherwise(cuda, b, changed, null):
    """Run the three passes of a plan's own native calls with other arguments than the engine gives them."""
    plan, native = b.plan._native, b.plan._native._native
    handle = cuda.engine.runtime.handles.on(cuda.device.stream())
    for which in native.passes:
        call = native_objects._with_fixed(
            cuda.engine.library, which, native._fixed | {"rnnDesc": native._rnn.forward} | changed
        )
        at = cuda.device.addresses(*(None if name in null else getattr(b, name) for name in which.names))
        call(handle.pointer, *plan._data.pointers, plan._workspace_at, *at)
    return b.results(cuda)


OTHERWISE = {
    "SET in place of ADD on zeros": ({"addGrad": cudnnWgradMode_t.SET}, (), ["d_params"]),
    "NULL in place of zeros as dhy and dcy": ({}, ("dhy", "dcy"), ["dx", "dhx", "dcx"]),
}
"""What is used nowhere until it is known to give what the engine's own way gives, and the results that it decides."""


@pytest.mark.apart
@pytest.mark.parametrize("way", OTHERWISE)
def test_what_another_way_to_ask_cudnn_gives(cuda, answer, way):
    changed, null, names = OTHERWISE[way]
    ours, theirs = Prepared(cuda), Prepared(cuda)
    for b in (ours, theirs):
        b.dhy, b.dcy = (cuda.put(np.zeros_like(b.problem.hx)) for _ in range(2))
    ours.step()
    expected = {name: array for name, array in ours.results(cuda).items() if name in names}
    try:
        found = {"differ": differ(step_otherwise(cuda, theirs, changed, null), expected)}
    except CudnnError as error:
        found = f"refused: {error.status}"
    answer(f"another way: {way}", found)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_padding_is_exactly_zero_and_nan_in_it_never_leaks(cuda, answer, dtype):
    problem = problem_of(ops.CudnnGRU(2, 12, 7, dtype=dtype, direction="bidirectional"), RAGGED)
    clean = run(cuda, problem)
    for b, length in enumerate(RAGGED):
        problem.x[length:, b], problem.dy[length:, b] = np.nan, np.nan
    leaks = differ(run(cuda, problem), clean)
    outside = {name: bool(all(not clean[name][n:, b].any() for b, n in enumerate(RAGGED))) for name in ("y", "dx")}
    answer(f"padding {dtype}", {"zero": outside, "NaN changes": leaks})
    assert (outside, leaks) == ({"y": True, "dx": True}, [])


def test_two_streams_give_what_one_gives(cuda):
    problem = problem_of(LSTM, RAGGED)
    expected = run(cuda, problem)
    for _ in range(20):
        with another_stream(cuda):
            found = run(cuda, problem)
        assert differ(found, expected) == differ(run(cuda, problem), expected) == []


def test_eight_threads_give_what_one_gives(cuda):
    count, rounds = (2, 10) if cuda.on_shim else (8, 300)
    problems = [make_problem(LSTM, 6, 4, RAGGED, seed=seed) for seed in range(count)]
    expected, wrong = [run(cuda, problem) for problem in problems], []

    def work(n):
        for _ in range(rounds):
            wrong.extend(differ(run(cuda, problems[n]), expected[n]))

    run_all(cuda, work, count)
    assert not wrong


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
