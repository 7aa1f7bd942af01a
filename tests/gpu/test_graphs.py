"""CUDA graphs on a GPU: replays give the eager numbers, for every algorithm that can be captured."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import CaptureError, CudnnError
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu import asked
from tests.gpu.numbers import ALGORITHMS
from tests.gpu.prepared import captured, captured_by_cupy, eager, fill, wrong_in_a_callers_graph


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("lengths", [None, [7, 2, 5, 7, 1]], ids=["equal", "ragged"])
def test_a_hundred_replays_of_a_training_step_are_the_eager_one(cuda, answer, kind, dtype, lengths):
    problem = make_problem(KINDS[kind](2, 24, 17, dtype=dtype, direction="bidirectional"), 7, 5, lengths, seed=3)
    graph = captured(cuda, problem)
    expected = eager(cuda, problem, graph.params)
    fill(cuda, graph, problem)
    different = 0
    for _ in range(5 if cuda.on_shim else 100):
        graph.replay()
        different += any(not np.array_equal(cuda.get(getattr(graph, name)), expected[name]) for name in expected)
    answer(f"graph {kind} {dtype} {'ragged' if lengths else 'equal'}: replays that differ from eager", different)
    assert different == 0


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_algorithm_is_captured_or_says_that_it_cannot_be(cuda, answer, algo, kind, training, dtype):
    problem = make_problem(KINDS[kind](1, 128, 128, dtype=dtype, algo=algo), 10, 8, None, seed=3)
    try:
        graph = captured(cuda, problem, training=training)
        expected = eager(cuda, problem, graph.params)
    except (CaptureError, CudnnError) as error:
        answer(f"capture {algo} {kind} {dtype} {'training' if training else 'inference'}", f"refused: {error}")
        assert algo != "standard"
        return
    fill(cuda, graph, problem)
    graph.replay()
    equal = np.array_equal(cuda.get(graph.y), expected["y"])
    answer(
        f"capture {algo} {kind} {dtype} {'training' if training else 'inference'}",
        "as eager" if equal else "differs from eager",
    )
    assert equal


@pytest.mark.parametrize("lengths", [None, asked.RAGGED], ids=["equal", "ragged"])
def test_prepared_calls_run_in_a_graph_that_the_caller_captures(cuda, lengths):
    assert wrong_in_a_callers_graph(cuda, lambda work: captured_by_cupy(cuda, work), lengths) == []


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_streaming_by_replay_is_the_whole_sequence_at_once(cuda, answer, kind):
    problem = make_problem(KINDS[kind](2, 64, 32), 20, 1, None, seed=3)
    graph = captured(cuda, make_problem(problem.op, 1, 1, None, seed=3), training=False, carry_state=True)
    states = (None, None) if kind == "lstm" else (None,)
    whole = cuda.get(problem.op.forward(cuda.put(problem.x), *states, graph.params, is_training=False).output)
    worst = 0.0
    for t in range(20):
        cuda.device.copy_into(graph.x, cuda.put(problem.x[t : t + 1]))
        graph.replay()
        worst = max(worst, asked.largest(cuda.get(graph.y)[0], whole[t]))
    answer(f"streaming {kind}: largest difference from the whole sequence", worst)
    assert worst <= 1e-5


def test_dropout_goes_on_from_replay_to_replay_as_from_call_to_call(cuda):
    op = ops.CudnnGRU(3, 32, 16, dropout=0.5, seed=9)
    problem = make_problem(op, 6, 4, None, seed=3)
    start = op.dropout_state("cuda")
    params = cuda.put(problem.params) if cuda.on_shim else op.move_params(problem.params, "cuda")
    expected = [eager(cuda, problem, params) for _ in range(3)]
    op.set_dropout_state(start)
    graph = captured(cuda, problem)
    fill(cuda, graph, problem)
    for step in expected:
        graph.replay()
        assert np.array_equal(cuda.get(graph.y), step["y"])
        assert np.array_equal(cuda.get(graph.d_params), step["d_params"])
    assert op.dropout_state("cuda").position == 3
