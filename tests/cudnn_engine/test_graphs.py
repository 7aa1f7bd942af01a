"""`plan.capture` and `layer.capture`: what was captured gives the eager numbers at every replay, on its own memory."""

import gc
import pickle

import cupy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnGRU, CudnnLSTM, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CaptureError, CudnnError
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run

RESULTS = {"y": "y", "hy": "hy", "cy": "cy", "dx": "dx", "dhx": "dhx", "dcx": "dcx", "dparams": "d_params"}
LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float64")
GRU = ops.CudnnGRU(1, 3, 5, dtype="float32")


def fill(graph, problem, names=("x", "hx", "cx", "dy", "dhy", "dcy")):
    for name in names:
        if getattr(graph, name) is not None:
            host(getattr(graph, name))[...] = getattr(problem, name)


def results(graph):
    found = {name: getattr(graph, attribute) for name, attribute in RESULTS.items()}
    return {name: host(array).copy() for name, array in found.items() if array is not None}


def captured(device, problem, *, training=True, **keywords):
    T, B, _ = problem.x.shape
    plan = problem.op.prepare(T, B, is_training=training, sequence_lengths=problem.lengths, device="cuda:0")
    return plan.capture(device.from_host(problem.params), **keywords)


@examples(200)
@given(problems(specs(dtypes=["float32", "float64", "float16"]), least_length=1), st.integers(0, 2**16))
def test_a_training_step_replays_with_the_numpy_engines_numbers_whatever_the_inputs(play, problem, seed):
    played, _, device = play()
    graph = captured(device, problem)
    other = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
    host(graph.params)[...] = other.params
    played.calls.clear()
    allocations = len(device.allocations)
    for trial in (other, other):
        fill(graph, trial)
        graph.replay()
        expected = trial.results()
        assert results(graph).keys() == expected.keys()
        assert all(np.array_equal(value, expected[name]) for name, value in results(graph).items())
    assert len(device.allocations) == allocations
    assert not played.calls, "a replay makes no call of cuDNN"
    assert not played.complaints


@pytest.mark.parametrize("op", [LSTM, GRU], ids=["lstm", "gru"])
def test_streaming_carries_its_states_from_replay_to_replay(play, op):
    _, _, device = play()
    problem = make_problem(op, 6, 2, None, seed=3)
    plan = op.prepare(1, 2, device="cuda:0")
    graph = plan.capture(device.from_host(problem.params), carry_state=True)
    assert not host(graph.hx).any(), "capturing left nothing behind"
    states = (None, None) if op is LSTM else (None,)
    whole = op.forward(problem.x, *states, problem.params, is_training=False)
    for _ in range(2):
        for t in range(6):
            host(graph.x)[...] = problem.x[t : t + 1]
            graph.replay()
            np.testing.assert_allclose(host(graph.y)[0], whole.output[t], rtol=0, atol=1e-6)
        np.testing.assert_allclose(host(graph.hx), whole.output_h, rtol=0, atol=1e-6)
        assert np.array_equal(host(graph.hx), host(graph.hy))
        for state in (graph.hx, graph.cx):  # from the start again
            if state is not None:
                host(state)[...] = 0


def refused_in_capture(device, work):
    """Run work inside a capture alone, without the run before it, and return the error that it must raise."""
    errors = [None]

    def later():
        if errors:
            errors.clear()
            return
        with pytest.raises(CaptureError) as caught:
            work()
        errors.append(caught.value)

    device.capture(later)
    return errors[0]


@pytest.mark.parametrize("again", [False, True], ids=["first call", "known call"])
def test_what_takes_memory_or_asks_is_refused_by_name_during_the_callers_own_capture(play, again):
    played, _, device = play()
    op = ops.CudnnLSTM(2, 3, 4, dropout=0.5, seed=1)
    problem = make_problem(op, 3, 2, [3, 1], seed=3)
    arrays = on_device(device, problem)
    eager = {
        "whole": lambda: op.forward(arrays["x"], None, None, arrays["params"], is_training=False),
        "ragged": lambda: op.forward(
            arrays["x"], None, None, arrays["params"], is_training=False, sequence_lengths=[3, 1]
        ),
        "in parts": lambda: op.forward(arrays["x"], None, None, arrays["params"], sequence_lengths=[3, 0]),
        "backward": lambda: fwd.backward_data(arrays["dy"]),
        "dropout": lambda: op.forward(arrays["x"], None, None, arrays["params"]),
        "prepare": lambda: op.prepare(3, 2, device="cuda:0"),
        "capture": lambda: plan.capture(arrays["params"]),
        "layout": lambda: ops.CudnnLSTM(1, 4, 4).layout("cuda:0"),
        "states": lambda: ops.CudnnLSTM(2, 3, 4, dropout=0.5).dropout_state("cuda:0"),
        "auto": lambda: ops.CudnnLSTM(1, 3, 4, algo="auto").prepare(9, 9, device="cuda:0"),
        "prepared, with dropout": lambda: dropping.forward(arrays["params"], arrays["x"], None, None, *outputs),
        "replay, with dropout": lambda: replayed.replay(sequence_lengths=None),
        "states of before": lambda: op.dropout_state("cuda:0"),
    }
    dropping = op.prepare(3, 2, is_training=True, device="cuda:0")
    replayed = dropping.capture(arrays["params"])
    outputs = [device.empty(shape, np.dtype("f4")) for shape in ((3, 2, 3), (2, 2, 3), (2, 2, 3))]
    outputs.append(device.empty((dropping.reserve_nbytes,), np.dtype("u1")))
    plan = op.prepare(3, 2, device="cuda:0")
    fwd = op.forward(arrays["x"], None, None, arrays["params"], is_training=False, keep_reserve=True)
    if again:
        for name, work in eager.items():
            if name not in {"auto", "layout", "states", "backward", "prepared, with dropout"}:
                work()
    launches, state = len(played.launches), op.dropout_state("cuda:0")
    for work in eager.values():
        assert "while the stream is captured" in str(refused_in_capture(device, work))
    assert len(played.launches) == launches
    assert op.dropout_state("cuda:0") == state
    assert not played.complaints


def test_dropout_moves_on_with_each_replay_as_with_eager_calls_and_not_by_capturing(play):
    _, _, device = play()
    op = ops.CudnnGRU(2, 6, 4, dropout=0.5, seed=9, dtype="float64")
    problem = make_problem(op, 4, 3, None, seed=3)
    arrays = on_device(device, problem)
    start = op.dropout_state("cuda:0")
    eager = [run(problem, arrays) for _ in range(3)]
    op.set_dropout_state(start)
    first = run(problem, arrays)
    graph = captured(device, problem)
    assert op.dropout_state("cuda:0").position == 1
    fill(graph, problem)
    for expected in (eager[1], eager[2]):
        graph.replay()
        found = results(graph)
        assert all(np.array_equal(found[name], expected[name]) for name in found)
    assert op.dropout_state("cuda:0").position == 3
    assert np.array_equal(first["y"], eager[0]["y"])


@pytest.mark.parametrize("lengths", [[3, 2], None])
def test_other_lengths_are_refused_and_the_captured_ones_may_be_said_again(play, lengths):
    _, _, device = play()
    graph = captured(device, make_problem(LSTM, 3, 2, lengths, seed=1))
    graph.replay(sequence_lengths=lengths or np.array([3, 3]))
    with pytest.raises(CaptureError, match="prepare and capture again"):
        graph.replay(sequence_lengths=[2, 3])
    with pytest.raises(ArgumentError, match="sequence_lengths"):
        graph.replay(sequence_lengths=[4, 3])


def test_what_has_no_graph_is_refused_by_name(play):
    _, _, device = play()
    on_cpu = make_problem(LSTM, 3, 2, None, seed=1)
    with pytest.raises(CaptureError, match="CPU"):
        LSTM.prepare(3, 2).capture(on_cpu.params)
    with pytest.raises(ArgumentError, match="one native call"):
        LSTM.prepare(3, 2, sequence_lengths=[3, 0], device="cuda:0")
    plan = LSTM.prepare(3, 2, device="cuda:0")
    with pytest.raises(ArgumentError, match=r"params: one on cpu, expecting an array on cuda:0"):
        plan.capture(on_cpu.params)
    with pytest.raises(ArgumentError, match="params"):
        plan.capture(device.from_host(on_cpu.params[:-1]))
    with pytest.raises(ArgumentTypeError, match="carry_state"):
        plan.capture(device.from_host(on_cpu.params), carry_state=1)
    raw = device.empty((on_cpu.params.nbytes + 8,), np.dtype(np.uint8))
    shifted = cupy.ndarray(on_cpu.params.shape, on_cpu.params.dtype, memptr=raw.data + 8)
    with pytest.raises(ArgumentError, match=r"params.*aligned"):
        plan.capture(shifted)
    both = ops.CudnnLSTM(1, 3, 4, direction="bidirectional")
    with pytest.raises(ArgumentError, match="carry_state"):
        both.prepare(3, 2, device="cuda:0").capture(device.from_host(make_problem(both, 3, 2, None, 1).params),
                                                    carry_state=True)  # fmt: skip
    with pytest.raises(ArgumentTypeError, match="Graph"):
        pickle.dumps(captured(device, on_cpu))


@pytest.mark.parametrize("name", ["cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"])
def test_a_refusal_during_the_capture_is_a_capture_error_and_one_before_it_is_cudnns(play, name):
    played, _, device = play()
    problem = make_problem(ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=2), 3, 2, None, seed=1)
    before = problem.op.dropout_state("cuda:0")
    for nth, error in ((1, CudnnError), (3, CaptureError)):  # 1: the run before; 2 and 3: the next run, its capture
        played.fail[name, nth] = 5000
        with pytest.raises(error):
            captured(device, problem)
        assert problem.op.dropout_state("cuda:0") == before
        assert device.current.capturing is None
    fill(graph := captured(device, problem), problem)
    graph.replay()
    assert np.isfinite(results(graph)["y"]).all()


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_a_graph_is_destroyed_once_when_its_owner_goes(play, in_a_cycle):
    """test_exits.py has the end of the interpreter, which destroys none."""
    _, _, device = play()
    device.broken["nothing that is ever asked"] = 700  # then the device lists what is asked of it
    gc.collect()
    before, graph = owned.live()["CudnnGraph"], [captured(device, make_problem(GRU, 3, 2, None, seed=5))]
    if in_a_cycle:
        graph.append(graph)
    graph[0].replay()
    assert owned.live()["CudnnGraph"] == before + 1
    del graph
    gc.collect()
    assert device.asked.count("graphExecDestroy") == 1
    assert owned.live()["CudnnGraph"] == before


# --- layers -----------------------------------------------------------------------------------------------------------


def layer_on(device, layer, problem):
    """A built layer whose buffer is on the device, without a copy between host and device, which the shim has not."""
    layer._spec = problem.op.spec
    layer._attach(problem.op, device.from_host(problem.params), "cuda:0")
    return layer


@pytest.mark.parametrize(("kind", "op"), [(CudnnLSTM, LSTM), (CudnnGRU, GRU)], ids=["lstm", "gru"])
def test_a_layers_graph_has_its_names_and_follows_its_weights(play, kind, op):
    _, engine, device = play()
    problem = make_problem(op, 3, 2, [3, 2], seed=3)
    layer = layer_on(device, kind(op.num_layers, op.num_units, dtype=op.dtype), problem)
    with use_engine(engine):
        graph = layer.capture(3, 2, training=True, sequence_lengths=[3, 2])
    other = make_problem(op, 3, 2, [3, 2], seed=4)
    host(layer.params)[...] = other.params
    fill(graph, other)
    graph.replay()
    expected = other.results()
    assert np.array_equal(host(graph.outputs), expected["y"])
    assert np.array_equal(host(graph.d_params), expected["dparams"])
    assert graph.inputs is graph.x
    assert len(graph.states) == len(graph.initial_state) == (2 if op is LSTM else 1)
    assert graph.states[0] is graph.hy
    assert graph.initial_state[-1] is (graph.cx if op is LSTM else graph.hx)


def test_a_layers_graph_refuses_to_run_on_weights_that_the_layer_has_left(play):
    _, _, device = play()
    problem = make_problem(LSTM, 1, 2, None, seed=3)
    layer = layer_on(device, CudnnLSTM(2, 3, dtype="float64"), problem)
    graph = layer.capture(1, 2, carry_state=True)
    layer._attach(problem.op, device.from_host(problem.params), "cuda:0")
    with pytest.raises(CaptureError, match="another buffer"):
        graph.replay()
