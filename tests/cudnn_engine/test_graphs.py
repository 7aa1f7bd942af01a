"""`plan.capture` and `layer.capture`: what was captured gives the eager numbers at every replay, on its own memory."""

import itertools
import operator

import cupy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnLSTM, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CaptureError, CudnnError, StateError
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.gpu.prepared import RESULTS
from tests.helpers.examples import examples
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run

LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float64")
GRU = ops.CudnnGRU(1, 3, 5, dtype="float32")


def fill(graph, problem, names=("x", "hx", "cx", "dy", "dhy", "dcy")):
    for name in names:
        if getattr(graph, name) is not None:
            host(getattr(graph, name))[...] = getattr(problem, name)


def results(graph):
    arrays = {name: getattr(graph, attribute) for name, attribute in RESULTS.items()}
    return {name: host(array).copy() for name, array in arrays.items() if array is not None}


def captured(device, problem, *, training=True, **keywords):
    T, B, _ = problem.x.shape
    plan = problem.op.prepare(T, B, is_training=training, sequence_lengths=problem.lengths, device="cuda:0")
    return plan.capture(device.from_host(problem.params), **keywords)


@examples(200)
@given(problems(specs(dtypes=["float32", "float64", "float16"]), least_length=1), st.integers(0, 2**16))
def test_a_training_step_replays_with_the_numpy_engines_numbers_whatever_the_inputs(shim, device, problem, seed):
    graph = captured(device, problem)
    other = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
    host(graph.params)[...] = other.params
    shim.calls.clear()
    allocations = len(device.allocations)
    for trial in (other, other):
        fill(graph, trial)
        graph.replay()
        expected = trial.results()
        assert results(graph).keys() == expected.keys()
        assert all(np.array_equal(value, expected[name]) for name, value in results(graph).items())
    assert len(device.allocations) == allocations
    assert not shim.calls, "a replay makes no call of cuDNN"


@pytest.mark.parametrize("op", [LSTM, GRU], ids=["lstm", "gru"])
def test_streaming_carries_its_states_from_replay_to_replay(device, op):
    problem = make_problem(op, 6, 2, None, seed=3)
    plan = op.prepare(1, 2, device="cuda:0")
    graph = plan.capture(device.from_host(problem.params), carry_state=True)
    assert not host(graph.hx).any(), "capturing left nothing behind"
    states = (None, None) if op is LSTM else (None,)
    whole = op.forward(problem.x, *states, problem.params, is_training=False)
    for t in range(6):
        host(graph.x)[...] = problem.x[t : t + 1]
        graph.replay()
        np.testing.assert_allclose(host(graph.y)[0], whole.output[t], rtol=0, atol=1e-6)
    assert np.array_equal(host(graph.hx), host(graph.hy))


def test_what_takes_memory_or_asks_is_refused_by_name_during_the_callers_own_capture(shim, device):
    """At the first call, and where the kind of call is known."""
    op = ops.CudnnLSTM(2, 3, 4, dropout=0.5, seed=1)
    arrays = on_device(device, make_problem(op, 3, 2, [3, 1], seed=3))
    inputs, sizes = (arrays["x"], None, None, arrays["params"]), itertools.count(5)
    dropping = op.prepare(3, 2, is_training=True, device="cuda:0")
    replayed = dropping.capture(arrays["params"])
    outputs = [device.empty(shape, np.dtype("f4")) for shape in ((3, 2, 3), (2, 2, 3), (2, 2, 3))]
    outputs.append(device.empty((dropping.reserve_nbytes,), np.dtype("u1")))
    fwd = op.forward(*inputs, is_training=False, keep_reserve=True)
    calls = [
        lambda: op.forward(*inputs),
        lambda: op.forward(*inputs, is_training=False, sequence_lengths=[3, 1]),
        lambda: op.forward(*inputs, sequence_lengths=[3, 0]),
        lambda: op.prepare(3, 2, device="cuda:0"),
        lambda: dropping.capture(arrays["params"]),
        replayed.replay,
        lambda: op.dropout_state("cuda:0"),
        lambda: fwd.backward_data(arrays["dy"], retain=True),
        lambda: dropping.forward(arrays["params"], arrays["x"], None, None, *outputs),
        lambda: ops.CudnnLSTM(1, next(sizes), 4).layout("cuda:0"),
        lambda: ops.CudnnLSTM(1, 3, 4, algo="auto").prepare(9, 9, device="cuda:0"),
    ]
    for _ in range(2):
        launches, state = len(shim.launches), op.dropout_state("cuda:0")
        with device.recording(device.current):
            for work in calls:
                with pytest.raises(CaptureError, match="while the stream is captured"):
                    work()
        assert len(shim.launches) == launches
        assert op.dropout_state("cuda:0") == state
        for work in calls:
            work()


def test_dropout_moves_on_with_each_replay_as_with_eager_calls_and_not_by_capturing(device):
    op = ops.CudnnGRU(2, 6, 4, dropout=0.5, seed=9, dtype="float64")
    problem = make_problem(op, 4, 3, None, seed=3)
    arrays = on_device(device, problem)
    start = op.dropout_state("cuda:0")
    eager = [run(problem, arrays) for _ in range(3)]
    op.set_dropout_state(start)
    run(problem, arrays)
    graph = captured(device, problem)
    assert op.dropout_state("cuda:0").position == 1
    fill(graph, problem)
    for expected in (eager[1], eager[2]):
        graph.replay()
        assert all(np.array_equal(array, expected[name]) for name, array in results(graph).items())
    assert op.dropout_state("cuda:0").position == 3
    op.set_dropout_state(start)
    with pytest.raises(StateError, match="capture it again"):
        graph.replay()


def test_what_has_no_graph_is_refused_by_name(device):
    host_params = make_problem(LSTM, 3, 2, None, seed=1).params
    params, plan = device.from_host(host_params), LSTM.prepare(3, 2, device="cuda:0")
    both = ops.CudnnLSTM(1, 3, 4, direction="bidirectional").prepare(3, 2, device="cuda:0")
    raw = device.empty((host_params.nbytes + 8,), np.dtype(np.uint8))
    shifted = cupy.ndarray(params.shape, params.dtype, memptr=raw.data + 8)
    refused = [
        (lambda: LSTM.prepare(3, 2).capture(host_params), CaptureError, "CPU"),
        (lambda: LSTM.prepare(3, 2, sequence_lengths=[3, 0], device="cuda:0"), ArgumentError, "one native call"),
        (lambda: plan.capture(host_params), ArgumentError, "params: one on cpu, expecting an array on cuda:0"),
        (lambda: plan.capture(params[:-1]), ArgumentError, "params"),
        (lambda: plan.capture(shifted), ArgumentError, "params.*aligned"),
        (lambda: plan.capture(params, carry_state=1), ArgumentTypeError, "carry_state"),
        (lambda: both.capture(params, carry_state=True), ArgumentError, "carry_state"),
    ]
    for call, error, text in refused:
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("name", ["cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"])
def test_a_refusal_during_the_capture_is_a_capture_error_and_one_before_it_is_cudnns(shim, device, name):
    problem = make_problem(ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=2), 3, 2, None, seed=1)
    before = problem.op.dropout_state("cuda:0")
    for nth, error in ((1, CudnnError), (3, CaptureError)):  # 1: the run before; 2 and 3: the next run, its capture
        shim.fail[name, nth] = 5000
        with pytest.raises(error):
            captured(device, problem)
        assert problem.op.dropout_state("cuda:0") == before
        assert device.current.capturing is None
    fill(graph := captured(device, problem), problem)
    graph.replay()
    assert np.isfinite(results(graph)["y"]).all()


def test_a_layers_graph_has_its_names_and_follows_its_weights_until_the_layer_leaves_them(device):
    problem, other = (make_problem(LSTM, 3, 2, [3, 2], seed=seed) for seed in (3, 4))
    layer = CudnnLSTM(2, 3, dtype="float64")
    layer._spec = LSTM.spec  # built without a copy between host and device, which the stand-in has not
    layer._attach(LSTM, device.from_host(problem.params), "cuda:0")
    graph = layer.capture(3, 2, training=True, sequence_lengths=[3, 2])
    host(layer.params)[...] = other.params
    fill(graph, other)
    graph.replay()
    expected = other.results()
    assert np.array_equal(host(graph.outputs), expected["y"])
    assert np.array_equal(host(graph.d_params), expected["dparams"])
    names = (graph.inputs, *graph.states, *graph.initial_state)
    assert all(map(operator.is_, names, (graph.x, graph.hy, graph.cy, graph.hx, graph.cx)))
    layer._attach(LSTM, device.from_host(problem.params), "cuda:0")
    with pytest.raises(CaptureError, match="another buffer"):
        graph.replay()
