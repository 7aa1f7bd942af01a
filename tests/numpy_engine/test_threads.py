"""Ops, specs and layers that many threads share, on the NumPy engine."""

import itertools
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnGRU, ops
from pycudnnrnn.engines.numpy_engine.compiled import threads
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.examples import PROFILE
from tests.helpers.together import meeting, together

THREADS = 8
ROUNDS = 1000 if PROFILE == "nightly" else 10
BATCHES = ((5, 3, None), (7, 2, [7, 0]), (1, 4, None))


def results(problem):
    return {name: array.tobytes() for name, array in problem.results().items()}


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_relu"])
def test_threads_that_share_an_op_get_the_bits_of_one_thread(mode):
    spec = RNNSpec(mode, 2, 6, 5, direction="bidirectional", seed=ROUNDS)
    op = ops.from_spec(pickle.loads(pickle.dumps(spec)))  # nothing of it has been computed yet
    problems = [make_problem(ops.from_spec(spec), *batch, seed=1) for batch in BATCHES]
    expected = [results(problem) for problem in problems]
    shared = [make_problem(op, *batch, seed=1) for batch in BATCHES]

    def work(number):
        return all(results(shared[i % 3]) == expected[i % 3] for i in range(number, number + ROUNDS))

    assert together(THREADS, work) == [True] * THREADS


def test_each_training_forward_of_any_thread_moves_dropout_on_by_one():
    op = ops.CudnnGRU(2, 6, 5, dropout=0.5, seed=3)
    problem = make_problem(op, 3, 2, None, seed=1)
    drawn = together(THREADS, lambda _: [problem.forward().output.tobytes() for _ in range(ROUNDS)])
    assert op.dropout_state().position == THREADS * ROUNDS
    alone = make_problem(ops.CudnnGRU(2, 6, 5, dropout=0.5, seed=3), 3, 2, None, seed=1)
    assert sorted(itertools.chain(*drawn)) == sorted(alone.forward().output.tobytes() for _ in range(THREADS * ROUNDS))


@pytest.mark.parametrize("first", ["call", "forward", "build", "cell"])
def test_a_layer_that_many_threads_call_first_is_built_once(first):
    meet = meeting()

    def initializer(shape, dtype):
        meet()
        return np.random.default_rng().normal(size=shape).astype(dtype)

    x, h = np.ones((2, 3, 4), np.float32), np.zeros((3, 5), np.float32)
    kind, sizes = (CudnnCompatibleGRUCell, [5]) if first == "cell" else (CudnnGRU, [1, 5])
    layer = kind(*sizes, kernel_initializer=initializer)
    run = {
        "call": lambda: layer(x)[0],
        "forward": lambda: layer.forward(x).outputs,
        "build": lambda: layer.build(x.shape) or layer(x)[0],
        "cell": lambda: layer(x[0], h)[0],
    }[first]
    found = together(6, lambda _: run())
    assert all(np.array_equal(one, run()) for one in found)
    assert len(layer.weights) == len({variable.name for variable in layer.weights})


LIMITED = [("", word, 5) for word in ("8", "0", "many", "")]
ASKED = [("3", "2", 3), ("8", "2", 5), ("", "2", 2), ("", " 4, 2", 4), *LIMITED]


@pytest.mark.parametrize(("own", "openmp", "count"), ASKED)
def test_threads_are_as_many_as_is_asked_for_or_as_there_are_processors(monkeypatch, own, openmp, count):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 2, 3, 5, 6}, raising=False)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 8)
    monkeypatch.setenv(threads.VARIABLE, own)
    monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    assert threads.number() == count
    monkeypatch.delattr(threads.os, "sched_getaffinity")
    assert threads.number() == (8 if count == 5 else count)


@pytest.fixture
def now(monkeypatch):
    """A clock that a test moves. Nothing has been noted yet."""
    now = [1.0]
    monkeypatch.setattr(threads, "_past", SimpleNamespace(lost=0.0, alone_until=0.0, end=0.0, pieces=0))
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_after_teams_that_lost_time_one_thread_works_alone_for_a_while(now, monkeypatch):
    monkeypatch.setattr(threads, "number", lambda: 5)

    def teams(count, ran, number=2):
        for _ in range(count):
            now[0] += 0.004
            threads.note(now[0] - 0.004, ran, number)
        return threads.in_team()

    assert teams(1000, 0.0037) == 5, "little"
    assert teams(50, 0.0) == 5, "short"
    assert teams(500, 0.004) == 5
    assert teams(500, 0.0, 1) == 5, "one thread"
    assert teams(120, 0.002) == 5
    assert teams(10, 0.002) == 1
    now[0] += threads.ALONE_S
    assert teams(120, 0.002) == 5


def test_less_work_is_worth_a_thread_while_pieces_of_it_follow_one_another(now):
    def pieces(count, pause):
        for _ in range(count):
            start = now[0] + pause
            now[0] = start + 0.004
            threads.note(start, 0.004, 1)
        return threads.are_awake()

    assert not pieces(16, 0.0009)
    assert pieces(1, 0.0009)
    assert not pieces(1, 0.0011)
    assert not pieces(100, 0.0011)


@pytest.mark.parametrize("word", ["0", "-1", "two", "1.5", "²"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, word):
    monkeypatch.setenv(threads.VARIABLE, word)
    expected = f"Invalid PYCUDNNRNN_CPU_THREADS: '{word}', expecting a number of threads, 1 or more"
    with pytest.raises(ArgumentError, match=re.escape(expected)):
        threads.number()
