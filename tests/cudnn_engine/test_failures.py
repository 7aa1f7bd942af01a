"""What fails, fails cleanly: each status at each call, each allocation, each bad argument; the next call is right."""

import contextlib
import itertools

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import cudnnStatus_t
from pycudnnrnn.errors import ArgumentError, CudnnError, LayoutError, StateError
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.numpy_memory import until_it_works
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run, run_on

LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float32", direction="bidirectional")
DROPPING = ops.CudnnGRU(2, 3, 4, dtype="float32", dropout=0.5, seed=1)
STATUSES = [status for status in cudnnStatus_t if status is not cudnnStatus_t.SUCCESS]


def unchanged(arrays, problem):
    return all(np.array_equal(host(array), getattr(problem, name)) for name, array in arrays.items())


@pytest.mark.parametrize("op", [LSTM, DROPPING], ids=["plain", "dropout"])
def test_a_status_at_each_call_is_a_typed_error_and_the_next_call_is_right(play, op):
    """The status codes in turn, at the first and the last of each call; inputs and dropout are as they were."""
    first = play()
    run_on(first.device, make_problem(ops.from_spec(op.spec), 3, 2, [3, 1], seed=5))
    statuses = itertools.cycle(STATUSES)
    calls = {(name, nth) for name, times in first.counts.items() for nth in (1, times)}
    for name, nth in sorted(call for call in calls if call[0] not in {"cudnnGetVersion", "cudnnDestroy"}):
        shim = play()
        shim.fail[name, nth] = status = next(statuses)
        problem = make_problem(ops.from_spec(op.spec), 3, 2, [3, 1], seed=5)
        arrays = on_device(shim.device, problem)
        with pytest.raises(CudnnError, match=status.c_name) as caught:
            run(problem, arrays)
        assert (caught.value.function, caught.value.code) == (name, status)
        assert unchanged(arrays, problem)
        assert problem.op.dropout_state("cuda:0").position == (op is DROPPING and "Backward" in name)
        again = run(problem, arrays)
        assert all(np.isfinite(value).all() for value in again.values())
        if op is LSTM:
            assert all(np.array_equal(value, problem.results()[key]) for key, value in again.items())
    assert len(calls) > 2 * 6


@pytest.mark.parametrize(("T", "lengths"), [(4, None), (4, [3, 0, 2]), (6, None)], ids=["one call", "empty", "long"])
def test_each_allocation_failing_in_turn_is_a_memory_error_that_changes_nothing(shim, device, monkeypatch, T, lengths):
    """A forward has moved no dropout."""
    monkeypatch.setattr("pycudnnrnn.engines.cudnn.engine.CudnnEngine.steps_max", 4)
    op = ops.CudnnGRU(2, 3, 4, dtype="float64", dropout=0.5, seed=3)
    problem = make_problem(op, T, 3, lengths, seed=5)
    arrays = on_device(device, problem)
    out = device.from_host(np.full_like(problem.params, 7))
    start = op.dropout_state("cuda:0")
    expected = run(problem, arrays)
    after = op.dropout_state("cuda:0")
    op.set_dropout_state(start)
    shim.native.runtime.natives.calls.clear()

    @contextlib.contextmanager
    def failing(nth):
        device.fail_at = nth
        try:
            yield
        finally:
            device.fail_at = None

    def each_failing(call, state):
        def check():
            assert op.dropout_state("cuda:0") == state
            assert unchanged(arrays, problem)
            assert (host(out) == 7).all()

        result, failed = until_it_works(call, check, failing)
        assert failed >= 4
        return result

    upstream = arrays["dy"], arrays["dhy"]
    inputs = arrays["x"], arrays["hx"], arrays["params"]
    fwd = each_failing(lambda: op.forward(*inputs, sequence_lengths=lengths), start)
    gradients = each_failing(lambda: fwd.backward(*upstream, out=out, accumulate=True, retain=True), after)
    assert np.array_equal(host(gradients.input), expected["dx"])
    np.testing.assert_allclose(host(out), expected["dparams"] + 7, rtol=1e-12)
    if (T, lengths) == (4, None):  # one call; a backward in parts that has begun has used its reserve up
        gradients, failed = until_it_works(lambda: fwd.backward_data(*upstream), lambda: None, failing)
        assert np.array_equal(host(gradients.input), expected["dx"])
        assert failed == 3, "two gradients and the workspace"


@pytest.mark.parametrize("lengths", [None, [3, 0]], ids=["one call", "in parts"])
def test_a_backward_that_fails_once_it_has_begun_says_that_the_reserve_is_used_up(shim, device, lengths):
    problem = make_problem(LSTM, 3, 2, lengths, seed=5)
    arrays = on_device(device, problem)
    fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"], sequence_lengths=lengths)
    shim.fail["cudnnRNNBackwardData_v8", 1] = 5000
    with pytest.raises(CudnnError):
        fwd.backward_data(arrays["dy"])
    with pytest.raises(StateError, match="used up"):
        fwd.backward_data(arrays["dy"])
    with pytest.raises(StateError, match="before backward_data"):
        fwd.backward_weights()


def test_more_steps_in_both_directions_than_one_call_takes_are_refused(shim, device, monkeypatch):
    monkeypatch.setattr("pycudnnrnn.engines.cudnn.engine.CudnnEngine.steps_max", 2)
    op = ops.CudnnLSTM(2, 3, 4, direction="bidirectional", dropout=0.5)
    problem = make_problem(op, 3, 2, None, seed=0)
    arrays = on_device(device, problem)
    text = r"Invalid T: 3, expecting at most 2 steps in both directions here: use an op for each direction"
    with pytest.raises(ArgumentError, match=text):
        run(problem, arrays)
    assert not shim.counts["cudnnRNNForward"]
    assert op.dropout_state("cuda:0").position == 0


def test_a_buffer_laid_out_by_arithmetic_is_told_from_one_of_the_librarys_layout(play):
    shim = play(engine=ShuffledEngine(3))
    problem = make_problem(LSTM, 3, 2, None, seed=0)
    assert shim.native.layout(LSTM.spec).size != LSTM.params_size()
    with pytest.raises(LayoutError, match="move_params"):
        run(problem, on_device(shim.device, problem))


@pytest.mark.parametrize(
    ("of", "spoil", "text"),
    [
        (5, lambda r: {"shape": r.shape[::-1]}, "must have the shape"),
        (5, lambda r: {"shape": (0, 0)}, "reports none"),
        (5, lambda r: {"offset": r.offset + 0.5}, "no multiple of 4"),
        (5, lambda r: {"offset": -1}, "-4 bytes from the base"),
        (1, lambda r: {"shape": (3, 3)}, "must have no elements"),
    ],
)
def test_a_layout_that_cannot_be_is_an_error(play, of, spoil, text):
    shim = play(engine=ShuffledEngine(3))  # an engine with a layout of its own: otherwise the real library answers
    honest = shim._region

    def lie(spec, pseudo_layer, id_, kind):
        region = honest(spec, pseudo_layer, id_, kind)
        spoilt = (pseudo_layer, id_, kind) == (0, of, "weight")
        return region.__class__(**(vars(region) | spoil(region))) if spoilt else region

    shim._region = lie
    with pytest.raises(LayoutError, match=text):
        shim.native.layout(ops.CudnnLSTM(1, 3, 3, "skip_input", num_proj=2).spec)
