"""CUDA graphs on a GPU: replays give the eager numbers, for every algorithm that can be captured."""

import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import CaptureError, CudnnError
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import ALGORITHMS, ARRAYS, LENGTHS, differ, largest, run
from tests.gpu.prepared import RESULTS, captured, captured_by_cupy, wrong_in_a_callers_graph


def replay(cuda, graph, problem, names):
    """Replay; return the results under these names of an eager run, on the host and in its layout."""
    graph.replay()
    arrays = {name: getattr(graph, RESULTS[name]) for name in names}
    return {
        name: problem.op.move_params(array, "cpu") if name == "dparams" else cuda.get(array)
        for name, array in arrays.items()
    }


def fill(cuda, graph, problem):
    for name in ARRAYS:
        if getattr(graph, name) is not None:
            cuda.device.copy_into(getattr(graph, name), cuda.put(getattr(problem, name)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@LENGTHS
def test_a_hundred_replays_of_a_training_step_are_the_eager_one(cuda, answer, kind, dtype, lengths):
    problem = make_problem(KINDS[kind](2, 24, 17, dtype=dtype, direction="bidirectional"), 6, 4, lengths, seed=3)
    graph = captured(problem)
    expected = run(cuda, problem)
    fill(cuda, graph, problem)
    count = 5 if cuda.on_shim else 100
    different = sum(bool(differ(replay(cuda, graph, problem, expected), expected)) for _ in range(count))
    answer(f"graph {kind} {dtype} {'ragged' if lengths else 'equal'}: replays that differ from eager", different)
    assert different == 0


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_algorithm_is_captured_or_says_that_it_cannot_be(cuda, answer, algo, kind, training, dtype):
    problem = make_problem(KINDS[kind](1, 128, 128, dtype=dtype, algo=algo), 10, 8, None, seed=3)
    try:
        graph = captured(problem, training=training)
        expected = run(cuda, problem)
        fill(cuda, graph, problem)
        different = differ(replay(cuda, graph, problem, ["y"]), {"y": expected["y"]})
    except (CaptureError, CudnnError) as error:
        different = f"refused: {error}"
    answer(f"differs from eager: {algo} {kind} {dtype} {'training' if training else 'inference'}", different)
    assert different == [] or (algo != "standard" and "refused" in different)


@LENGTHS
def test_prepared_calls_run_in_a_graph_that_the_caller_captures(cuda, lengths):
    assert wrong_in_a_callers_graph(cuda, lambda work: captured_by_cupy(cuda, work), lengths) == []


def test_streaming_by_replay_is_the_whole_sequence_at_once(cuda, answer):
    problem = make_problem(ops.CudnnLSTM(2, 64, 32), 20, 1, None, seed=3)
    graph = captured(make_problem(problem.op, 1, 1, None, seed=3), training=False, carry_state=True)
    whole = cuda.get(problem.op.forward(cuda.put(problem.x), None, None, graph.params, is_training=False).output)
    worst = 0.0
    for t in range(20):
        cuda.device.copy_into(graph.x, cuda.put(problem.x[t : t + 1]))
        worst = max(worst, largest(replay(cuda, graph, problem, ["y"])["y"][0], whole[t]))
    answer("streaming: largest difference from the whole sequence", worst)
    assert worst <= 1e-5


def test_dropout_goes_on_from_replay_to_replay_as_from_call_to_call(cuda):
    op = ops.CudnnGRU(3, 32, 16, dropout=0.5, seed=9)
    problem = make_problem(op, 6, 4, None, seed=3)
    start = op.dropout_state("cuda")
    expected = [run(cuda, problem) for _ in range(3)]
    op.set_dropout_state(start)
    graph = captured(problem)
    fill(cuda, graph, problem)
    for step in expected:
        assert differ(replay(cuda, graph, problem, step), step) == []
    assert op.dropout_state("cuda").position == 3
