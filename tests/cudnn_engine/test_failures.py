"""What fails, fails cleanly: each status at each call, each allocation, each bad argument; the next call is right."""

import contextlib
import gc

import cupy
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import cudnnStatus_t
from pycudnnrnn.engines.cudnn.owned import live
from pycudnnrnn.errors import ArgumentError, CudnnError, LayoutError, StateError
from pycudnnrnn.testing import PermutedLayoutEngine
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.host_device import HostMemory, Stream, host
from tests.stand_in.problem import on_device, run

LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float32", direction="bidirectional")
DROPPING = ops.CudnnGRU(2, 3, 4, dtype="float32", dropout=0.5, seed=1)
STATUSES = [status for status in cudnnStatus_t if status is not cudnnStatus_t.SUCCESS]


def calls_of(play, problem):
    """Which call comes how often in one forward and backward."""
    played, _, device = play()
    run(problem, on_device(device, problem))
    return dict(played.counts)


@pytest.mark.parametrize("op", [LSTM, DROPPING], ids=["plain", "dropout"])
def test_each_status_at_each_call_is_a_typed_error_and_the_next_call_is_right(play, op):
    """R9: every status code at the first and the last of each call; inputs unchanged, nothing leaked."""
    problem = make_problem(ops.from_spec(op.spec), 3, 2, [3, 1], seed=5)
    injected = 0
    for name, times in calls_of(play, problem).items():
        if name in {"cudnnGetVersion", "cudnnDestroy"}:
            continue
        for nth in sorted({1, times}):
            for status in [STATUSES[(injected + k) % len(STATUSES)] for k in range(3)]:
                played, _, device = play()
                played.fail[name, nth] = int(status)
                fresh = ops.from_spec(op.spec)
                trial = make_problem(fresh, 3, 2, [3, 1], seed=5)
                arrays = on_device(device, trial)
                before = {key: host(array).copy() for key, array in arrays.items()}
                with pytest.raises(CudnnError) as caught:
                    run(trial, arrays)
                assert (caught.value.function, caught.value.code) == (name, status)
                assert status.c_name in str(caught.value)
                assert all(np.array_equal(host(arrays[key]), old) for key, old in before.items())
                injected += 1
            found = run(trial, arrays)
            assert all(np.isfinite(value).all() for value in found.values())
            if op is LSTM:
                assert all(np.array_equal(value, trial.results()[key]) for key, value in found.items())
    assert injected >= 3 * 8


@pytest.mark.parametrize("op", [LSTM, DROPPING], ids=["plain", "dropout"])
@pytest.mark.parametrize("lengths", [None, [3, 0]], ids=["whole", "in parts"])
def test_each_allocation_failing_in_turn_is_a_memory_error_that_changes_nothing(play, op, lengths):
    """Fail allocation N for every N until nothing fails any more."""
    _, _, device = play()
    fresh = ops.from_spec(op.spec)
    problem = make_problem(fresh, 3, 2, lengths, seed=5)
    arrays = on_device(device, problem)
    before = {key: host(array).copy() for key, array in arrays.items()}
    for nth in range(200):
        device.fail_at = nth
        try:
            run(problem, arrays)
        except MemoryError:
            assert all(np.array_equal(host(arrays[key]), old) for key, old in before.items())
        else:
            break
        finally:
            device.fail_at = None
    assert nth >= 8, "no more than a few allocations were made to fail"
    if op is LSTM:
        assert all(np.allclose(value, problem.results()[key], atol=1e-6) for key, value in run(problem, arrays).items())


IN_PARTS = {"a zero length": (4, [3, 0, 2]), "more steps than one call takes": (6, None)}


@pytest.fixture(params=IN_PARTS)
def in_parts(request, monkeypatch):
    """Steps and lengths of a batch in parts."""
    T, lengths = IN_PARTS[request.param]
    if lengths is None:
        monkeypatch.setattr("pycudnnrnn.engines.cudnn.engine.CudnnEngine.steps_max", 4)
    return T, lengths


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_batch_in_parts_that_runs_out_of_memory_can_be_tried_again_as_if_nothing_had_been(play, in_parts, dropout):
    """A forward has moved no dropout. A backward that has begun says that its reserve is used up."""
    _, _, device = play()
    T, lengths = in_parts
    op = ops.CudnnGRU(2, 3, 4, dtype="float64", dropout=dropout, seed=3)
    problem = make_problem(op, T, 3, lengths, seed=5)
    arrays = on_device(device, problem)
    start = op.dropout_state("cuda:0")
    expected = run(problem, arrays)
    op.set_dropout_state(start)

    def until_it_works(call):
        for nth in range(100):
            device.fail_at = nth
            try:
                return call(), nth
            except MemoryError:
                device.fail_at = None
                assert op.dropout_state("cuda:0") == start
            finally:
                device.fail_at = None
        raise AssertionError

    fwd, failures = until_it_works(
        lambda: op.forward(arrays["x"], arrays["hx"], arrays["params"], sequence_lengths=lengths)
    )
    assert failures >= 8
    start = op.dropout_state("cuda:0")
    out = device.from_host(np.full_like(problem.params, 7))
    for nth in range(100):
        device.fail_at = nth
        try:
            data = fwd.backward(arrays["dy"], arrays["dhy"], out=out, accumulate=True, retain=True)
        except MemoryError:
            assert (host(out) == 7).all()
        else:
            break
        finally:
            device.fail_at = None
    assert nth >= 12
    assert np.array_equal(host(data.input), expected["dx"])
    np.testing.assert_allclose(host(out), expected["dparams"] + 7, rtol=1e-12)
    device.fail_at = nth - 12
    with pytest.raises(MemoryError):
        fwd.backward(arrays["dy"])
    device.fail_at = None
    with contextlib.suppress(StateError):
        assert np.array_equal(host(fwd.backward(arrays["dy"], arrays["dhy"]).input), expected["dx"])


@pytest.mark.parametrize("name", ["params", "x", "hx", "cx", "y"])
def test_the_params_gradient_overlaps_nothing_that_is_read_again(play, name):
    played, _, device = play()
    problem = make_problem(LSTM, 300, 2, None, seed=5)
    arrays = on_device(device, problem)
    size = problem.params.size
    memory = device.empty((size + 4000,), problem.params.dtype)
    if name != "y":
        array = arrays[name]
        arrays[name] = memory[size - 8 : size - 8 + array.size].reshape(array.shape)
        host(arrays[name])[...] = host(array)
    for _ in range(2):  # the second one finds what the first has made
        fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"])
    out = memory[:size] if name != "y" else fwd.output.reshape(-1)[:size]
    launches = len(played.launches)
    argument = {"x": "input_data", "hx": "input_h", "cx": "input_c", "y": "output"}.get(name, name)
    with pytest.raises(ArgumentError, match=f"Invalid out: memory that overlaps {argument}"):
        fwd.backward(arrays["dy"], out=out)
    assert len(played.launches) == launches
    found = fwd.backward(arrays["dy"], arrays["dhy"], arrays["dcy"])
    assert np.allclose(host(found.params), problem.results()["dparams"], atol=1e-3)


def test_a_misaligned_place_for_the_params_gradient_is_refused_before_the_reserve_is_used(play):
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=5)
    arrays = on_device(device, problem)
    fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"])
    raw = device.empty((problem.params.nbytes + 8,), np.dtype(np.uint8))
    shifted = cupy.ndarray(problem.params.shape, problem.params.dtype, memptr=raw.data + 8)
    launches = len(played.launches)
    with pytest.raises(ArgumentError, match=r"Invalid out: .*aligned to 16"):
        fwd.backward(arrays["dy"], out=shifted)
    assert len(played.launches) == launches
    fwd.backward(arrays["dy"], out=device.copy(arrays["params"]))


@pytest.mark.parametrize("lengths", [None, [3, 0]], ids=["one call", "in parts"])
def test_a_backward_that_fails_once_it_has_begun_says_that_the_reserve_is_used_up(play, lengths):
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, lengths, seed=5)
    arrays = on_device(device, problem)
    fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"], sequence_lengths=lengths)
    played.fail["cudnnRNNBackwardData_v8", 1] = 5000
    with pytest.raises(CudnnError):
        fwd.backward_data(arrays["dy"])
    with pytest.raises(StateError, match="used up"):
        fwd.backward_data(arrays["dy"])
    with pytest.raises(StateError, match="before backward_data"):
        fwd.backward_weights()


@pytest.mark.parametrize("checkpoint_every", [None, 2])
@pytest.mark.parametrize("call", ["cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"])
def test_the_forwards_stream_waits_for_a_backward_that_failed_on_another(play, call, checkpoint_every):
    """What was launched before the failure may still read memory that the forward's stream would give away."""
    played, _, device = play()
    problem = make_problem(ops.CudnnGRU(1, 5, 4, dtype="float64"), 6, 2, None, seed=3)
    arrays = on_device(device, problem)
    first = device.current
    fwd = problem.op.forward(arrays["x"], arrays["hx"], arrays["params"], checkpoint_every=checkpoint_every)
    other = device.current = Stream()
    device.waits.clear()
    played.fail[call, 1] = 5000
    with pytest.raises(CudnnError):
        fwd.backward(arrays["dy"])
    assert device.waits[0] == (other, first)
    assert device.waits[-1] == (first, other)


def test_a_handle_whose_stream_could_not_be_set_is_set_to_the_one_before_again(play):
    played, _, device = play()
    problem = make_problem(ops.CudnnGRU(1, 5, 4), 3, 2, None, seed=3)
    arrays = on_device(device, problem)
    expected, first = run(problem, arrays)["y"], device.current
    device.current = Stream()
    nth = played.counts["cudnnSetStream"] + 1
    played.fail["cudnnSetStream", nth] = 5000
    with pytest.raises(CudnnError):
        run(problem, arrays)
    device.current = first
    assert np.array_equal(run(problem, arrays)["y"], expected)
    assert played.counts["cudnnSetStream"] == nth + 1


WRONG_LENGTHS = [
    [3.0, 1.0],
    [True, True],
    [3, None],
    np.array([3.0, 1.0]),
    np.array([[3, 1]]),
    (3,),
    [3, 4],
    [3, -1],
    "31",
]


@pytest.mark.parametrize("lengths", WRONG_LENGTHS, ids=repr)
@pytest.mark.parametrize("good", [[3, 1], (3, 1), np.array([3, 1]), [1, 1]], ids=repr)
def test_a_known_kind_of_call_does_not_let_wrong_arguments_through(play, lengths, good):
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=5)
    arrays = on_device(device, problem)

    def forward(**keywords):
        return LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"], **keywords)

    for _ in range(2):
        forward(sequence_lengths=good, is_training=False, time_major=True, keep_reserve=True)
    launches = len(played.launches)
    with pytest.raises(ArgumentError, match="sequence_lengths"):
        forward(sequence_lengths=lengths, is_training=False, time_major=True, keep_reserve=True)
    for name in ("is_training", "time_major", "keep_reserve"):
        flags = {"is_training": False, "time_major": True, "keep_reserve": True}
        with pytest.raises(ArgumentError, match=name):
            forward(sequence_lengths=good, **flags | {name: int(flags[name])})
    assert len(played.launches) == launches


def test_an_engine_put_in_anothers_place_is_the_one_that_runs(play):
    first, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=5)
    arrays = on_device(device, problem)
    run(problem, arrays)
    second, _, _ = play()
    before = len(first.launches)
    assert np.array_equal(run(problem, arrays)["y"], problem.results()["y"])
    assert (len(first.launches), len(second.launches)) == (before, 3)


@pytest.mark.long
def test_a_thousand_models_leave_nothing_behind(play):
    played, engine, device = play()
    problem = make_problem(LSTM, 3, 2, [3, 1], seed=5)
    run(problem, on_device(device, problem))
    gc.collect()
    device.allocations.clear()
    gc.collect()
    natives, memory = live(), HostMemory.live
    for i in range(1000):
        op = ops.CudnnLSTM(1, 2 + i % 5, 3, dtype="float32", dropout=0)
        trial = make_problem(op, 1 + i % 7, 2, None, seed=i)
        run(trial, on_device(device, trial))
        device.allocations.clear()
    del trial, op
    engine.runtime.compiled.clear()
    gc.collect()
    assert HostMemory.live == memory
    assert live()["RNNDescriptor"] <= natives["RNNDescriptor"]
    assert not played.complaints


@pytest.mark.parametrize("name", ["input_data", "input_h", "input_c", "params", "d_output", "d_output_h", "d_output_c"])
@pytest.mark.parametrize("defect", ["strided", "misaligned", "host", "dtype", "shape"])
def test_a_bad_array_is_refused_by_name_before_anything_crosses(play, name, defect):
    played, _, device = play()
    problem = make_problem(LSTM, 4, 4, None, seed=5)
    arrays = on_device(device, problem)
    run(problem, arrays)
    key = {"input_data": "x", "input_h": "hx", "input_c": "cx", "params": "params",
           "d_output": "dy", "d_output_h": "dhy", "d_output_c": "dcy"}[name]  # fmt: skip
    good = arrays[key]
    if defect == "strided":
        wide = device.empty((*good.shape[:-1], 2 * good.shape[-1]), good.dtype)
        arrays[key] = wide[..., ::2]
    elif defect == "misaligned":
        raw = device.empty((good.nbytes + 1,), np.dtype(np.uint8))
        arrays[key] = cupy.ndarray(good.shape, good.dtype, memptr=raw.data + 1)
    elif defect == "host":
        arrays[key] = host(good)
    elif defect == "dtype":
        arrays[key] = device.from_host(host(good).astype("float64"))
    else:
        arrays[key] = device.from_host(host(good)[..., 1:])
    launches = len(played.launches)
    passes = launches + (1 if name.startswith("d_") else 0)  # the forward before a bad gradient is right
    with pytest.raises(ArgumentError) as caught:
        run(problem, arrays)
    # The first array says what kind of call it is: where it is another, the next one is found to differ.
    assert caught.value.argument == (name if (name, defect) != ("input_data", "host") else "params")
    assert len(played.launches) == passes


@pytest.mark.parametrize("known", [False, True], ids=["first call", "known call"])
def test_params_are_aligned_to_16_bytes_and_not_to_an_element_alone(play, known):
    played, _, device = play()
    op = ops.from_spec(LSTM.spec)
    problem = make_problem(op, 4, 4, None, seed=5)
    arrays = on_device(device, problem)
    if known:
        run(problem, arrays)
    params, launches = arrays["params"], len(played.launches)
    raw = device.empty((params.nbytes + 8,), np.dtype(np.uint8))
    shifted = cupy.ndarray(params.shape, params.dtype, memptr=raw.data + 8)
    with pytest.raises(ArgumentError, match=r"params.*aligned to 16"):
        run(problem, arrays | {"params": shifted})
    assert len(played.launches) == launches


@pytest.mark.parametrize("algo", ["persist_static", "persist_dynamic", "persist_static_small_h"])
def test_persistent_algorithms_refuse_ragged_lengths_by_name(play, algo):
    played, _, device = play()
    op = ops.CudnnGRU(1, 3, 4, algo=algo)
    problem = make_problem(op, 3, 2, [3, 1], seed=0)
    with pytest.raises(ArgumentError, match=f"sequence_lengths.*{algo}"):
        run(problem, on_device(device, problem))
    assert not played.launches
    whole = make_problem(op, 3, 2, None, seed=0)
    found = run(whole, on_device(device, whole))
    assert np.array_equal(found["y"], whole.results()["y"])
    assert bool(played.counts["cudnnBuildRNNDynamic"]) == (algo == "persist_dynamic")


def test_an_input_matrix_where_skip_input_has_none_is_an_error(play):
    played, engine, _ = play()
    honest = played._region

    def lie(spec, pseudo_layer, id_, kind):
        region = honest(spec, pseudo_layer, id_, kind)
        return region.__class__(**(vars(region) | {"shape": (4, 4)})) if region.size == 0 else region

    played._region = lie
    with pytest.raises(LayoutError, match="must have no elements"):
        engine.layout(ops.CudnnGRU(1, 4, 4, "skip_input").spec)


def test_more_steps_in_both_directions_than_one_call_takes_are_refused_with_what_to_do_instead(play, monkeypatch):
    played, _, device = play()
    monkeypatch.setattr("pycudnnrnn.engines.cudnn.engine.CudnnEngine.steps_max", 2)
    op = ops.CudnnLSTM(2, 3, 4, direction="bidirectional", dropout=0.5)
    problem = make_problem(op, 3, 2, None, seed=0)
    arrays = on_device(device, problem)
    text = r"Invalid T: 3, expecting at most 2 steps in both directions here: use an op for each direction"
    with pytest.raises(ArgumentError, match=text):
        run(problem, arrays)
    with pytest.raises(ArgumentError, match=text):
        op.memory(3, 2, True, device="cuda")
    assert not played.counts["cudnnRNNForward"]
    assert op.dropout_state("cuda:0").position == 0


def test_a_buffer_laid_out_by_arithmetic_is_told_from_one_of_the_librarys_layout(play):
    _, engine, device = play(engine=PermutedLayoutEngine(3))
    problem = make_problem(LSTM, 3, 2, None, seed=0)
    assert engine.layout(LSTM.spec).size != LSTM.params_size()
    with pytest.raises(LayoutError, match="move_params"):
        run(problem, on_device(device, problem))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda r: {"shape": r.shape[::-1]}, "must have the shape"),
        (lambda r: {"shape": (0, 0)}, "reports none"),
        (lambda r: {"offset": r.offset + 0.5}, "no multiple of 4"),
        (lambda r: {"offset": -1}, "-4 bytes from the base"),
    ],
)
def test_a_layout_that_cannot_be_is_an_error(play, spoil, text):
    played, engine, _ = play()
    honest = played._region

    def lie(spec, pseudo_layer, id_, kind):
        region = honest(spec, pseudo_layer, id_, kind)
        spoilt = (pseudo_layer, id_, kind) == (0, 1, "weight")
        return region.__class__(**(vars(region) | spoil(region))) if spoilt else region

    played._region = lie
    with pytest.raises(LayoutError, match=text):
        engine.layout(ops.CudnnLSTM(1, 3, 4).spec)
