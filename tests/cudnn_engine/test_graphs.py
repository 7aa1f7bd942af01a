"""`plan.capture` and `layer.capture`: what was captured gives the eager numbers at every replay, on its own memory."""

import os
import pickle

import cupy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnGRU, CudnnLSTM, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CaptureError, CudnnError, EngineError
from pycudnnrnn.layers import LayerGraph
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.stand_in.host_device import NotCapturableError, Stream, host
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


@examples(100)
@given(problems(specs(dtypes=["float32"]), least_length=1))
def test_inference_replays_without_gradients_or_reserve(play, problem):
    played, _, device = play()
    graph = captured(device, problem, training=False)
    fill(graph, problem, ("x", "hx", "cx"))
    graph.replay()
    expected = problem.results()
    assert results(graph).keys() == expected.keys() - {"dx", "dhx", "dcx", "dparams"}
    assert all(np.array_equal(value, expected[name]) for name, value in results(graph).items())
    assert all(arguments[-1] == 0 for name, arguments, _ in played.calls if name == "cudnnRNNForward")
    assert graph.dy is graph.d_params is None


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


def test_without_carrying_the_initial_states_stay(play):
    _, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=3)
    graph = captured(device, problem)
    fill(graph, problem)
    graph.replay()
    assert np.array_equal(host(graph.hx), problem.hx)
    assert np.array_equal(host(graph.cx), problem.cx)


def test_a_replay_runs_on_the_stream_that_is_current(play):
    played, _, device = play()
    graph = captured(device, make_problem(LSTM, 3, 2, None, seed=3))
    expected = []
    played.launches.clear()
    for _ in range(3):
        device.current = Stream()
        graph.replay()
        expected += [device.current.ptr] * 3
    assert [stream for _, _, stream, _ in played.launches] == expected


def test_nothing_is_asked_allocated_or_waited_for_during_a_capture(play):
    """The host device and the shim refuse all of that; here it is shown that they do."""
    _, engine, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=3)
    arrays = on_device(device, problem)
    plans = [LSTM.prepare(3, 2, device="cuda:0") for _ in range(3)]  # one for each stream that is captured
    y, hy, cy = (device.from_host(np.zeros_like(a)) for a in (problem.results()[n] for n in ("y", "hy", "cy")))

    def forward():
        plans[-1].forward(arrays["params"], arrays["x"], None, None, y, hy, cy)

    device.capture(forward).launch()
    without_states = LSTM.forward(problem.x, None, None, problem.params, is_training=False)
    assert np.array_equal(host(y), without_states.output), "a prepared call can be captured by its caller"
    first = [True]
    plans.pop()

    def allocating():
        forward()
        if not first:
            device.empty((1,), np.dtype("u1"))
        first.clear()

    with pytest.raises(NotCapturableError):
        device.capture(allocating)
    first.append(True)

    def asking():
        if not first:
            engine.layout(ops.CudnnGRU(1, 7, 7).spec)
        first.clear()

    with pytest.raises((CaptureError, NotCapturableError)):
        device.capture(asking)


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


def test_a_plan_that_its_caller_captured_keeps_its_lengths_whatever_runs_in_between(play):
    _, _, device = play()
    problem = make_problem(LSTM, 4, 2, [4, 1], seed=3)
    arrays = on_device(device, problem)
    plans = [LSTM.prepare(4, 2, sequence_lengths=lengths, device="cuda:0") for lengths in ([4, 1], [2, 2])]
    shapes = [problem.results()[name].shape for name in ("y", "hy", "cy")]
    outputs = [[device.zeros(shape, np.dtype("f8")) for shape in shapes] for _ in plans]

    def forward(i=0):
        plans[i].forward(arrays["params"], arrays["x"], arrays["hx"], arrays["cx"], *outputs[i])

    graph = device.capture(forward)
    forward(1)
    LSTM(*(arrays[name] for name in ("x", "hx", "cx", "params")), is_training=False, sequence_lengths=[3, 2])
    for array in outputs[0]:
        host(array).fill(0)
    graph.launch()
    expected = LSTM(problem.x, problem.hx, problem.cx, problem.params, is_training=False, sequence_lengths=[4, 1])
    assert all(np.array_equal(host(found), value) for found, value in zip(outputs[0], expected, strict=True))


def test_a_graphs_scratch_memory_is_its_own(play):
    """Plans, eager calls and other graphs run in between and at the end; nothing that a graph uses is theirs."""
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=3)
    graphs = [captured(device, problem) for _ in range(2)]
    run(problem, on_device(device, problem))
    calls = [arguments for name, arguments, _ in played.calls if name == "cudnnRNNForward"]
    scratch = [(arguments[17], arguments[19]) for arguments in calls]  # workSpace, reserveSpace
    assert scratch[0] == scratch[1], "the run before a capture, and the capture"
    assert scratch[2] == scratch[3]
    assert len({address for pair in scratch for address in pair}) == 2 * 3
    held = {memory.address for memory in device.allocations}
    assert {address for pair in scratch for address in pair} <= held
    for graph in graphs:
        fill(graph, problem)
    graphs[0].replay()
    first = results(graphs[0])
    graphs[1].replay()
    assert all(np.array_equal(value, first[name]) for name, value in results(graphs[0]).items())


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


def test_replays_with_dropout_wait_for_each_other_across_streams(play):
    _, _, device = play()
    op = ops.CudnnGRU(2, 3, 4, dropout=0.5)
    graph = captured(device, make_problem(op, 3, 2, None, seed=1))
    graph.replay()
    before, device.current = device.current, Stream()
    graph.replay()
    assert (device.current, before) in device.waits


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


def test_each_allocation_failing_in_turn_leaves_no_graph_and_no_dropout_moved(play):
    _, _, device = play()
    problem = make_problem(ops.CudnnLSTM(2, 3, 4, dropout=0.5, seed=2), 3, 2, None, seed=1)
    params = device.from_host(problem.params)
    plan = problem.op.prepare(3, 2, is_training=True, device="cuda:0")
    before = problem.op.dropout_state("cuda:0")
    for nth in range(100):
        device.fail_at = nth
        try:
            plan.capture(params)
        except MemoryError:
            assert problem.op.dropout_state("cuda:0") == before
        else:
            break
        finally:
            device.fail_at = None
    assert nth >= 12


def test_a_forked_child_replays_nothing(play):
    _, _, device = play()
    graph = captured(device, make_problem(LSTM, 3, 2, None, seed=1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            graph.replay()
        except EngineError as error:
            code = 0 if "spawn" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


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


def test_a_kind_of_layer_graph_of_the_users_own_is_made_by_its_constructor(play):
    _, _, device = play()
    problem = make_problem(LSTM, 1, 2, None, seed=3)
    layer = layer_on(device, CudnnLSTM(2, 3, dtype="float64"), problem)

    class Counting(LayerGraph):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.replays = 0

        def replay(self, **keywords):
            super().replay(**keywords)
            self.replays += 1

    graph = Counting.of(LSTM.prepare(1, 2, device="cuda:0").capture(layer.params), layer)
    fill(graph, problem)
    graph.replay()
    assert graph.replays == 1
    assert np.array_equal(host(graph.outputs), problem.results()["y"])


def test_a_layer_on_the_cpu_has_no_graph():
    layer = CudnnGRU(1, 3, seed=1)
    layer.build((None, None, 4))
    with pytest.raises(CaptureError, match="CPU"):
        layer.capture(1, 1)


def test_a_graph_prints_its_buffers(play):
    _, _, device = play()
    inference = captured(device, make_problem(LSTM, 3, 2, None, 0), training=False)
    assert repr(inference).startswith(
        "<Graph: x [3, 2, 4], hx [2, 2, 3], cx [2, 2, 3], y [3, 2, 3], hy [2, 2, 3], cy ["
    )
    assert repr(inference).endswith(" on cuda:0>")
    assert "dx" not in repr(inference)
    training = captured(device, make_problem(GRU, 3, 2, None, 0))
    assert "dy [3, 2, 3], dhy [1, 2, 3], dx [3, 2, 5], dhx [1, 2, 3], d_params [" in repr(training)
    assert "cx" not in repr(training)
