"""Ops, specs and layers that many threads share, on the NumPy engine."""

import contextlib
import itertools
import pickle
import threading

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnGRU, ops
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout
from pycudnnrnn.ops._dropout import Dropouts
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.examples import PROFILE
from tests.helpers.together import Other, together

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
    two = threading.Barrier(2)

    def initializer(shape, dtype):
        with contextlib.suppress(threading.BrokenBarrierError):  # which is how it ends where one thread builds
            two.wait(0.2)
        return np.random.default_rng().normal(size=shape).astype(dtype)

    x, h = np.ones((2, 3, 4), np.float32), np.zeros((3, 5), np.float32)
    if first == "cell":
        layer = CudnnCompatibleGRUCell(5, kernel_initializer=initializer)
    else:
        layer = CudnnGRU(1, 5, kernel_initializer=initializer)

    def run(number=0):
        if first == "cell":
            return layer(x[0], h)[0]
        if first == "build":
            layer.build(x.shape)
        return layer.forward(x).outputs if first == "forward" else layer(x)[0]

    found = together(6, run)
    assert all(np.array_equal(one, run()) for one in found)
    assert len(layer.weights) == len({variable.name for variable in layer.weights})


def test_a_forward_that_begins_while_another_moves_dropout_on_has_masks_of_its_own():
    other, positions, moves = Other(), [], 0

    class State(ops.DropoutState):
        def __post_init__(self):
            nonlocal moves
            super().__post_init__()
            moves += self.position > 0
            if moves == 1:
                other.comes(draw)

    def draw():
        with dropout.forward() as masks:
            positions.append(masks.state.position)

    with other.watching():
        dropout = NumpyDropout(State("numpy", 3))
    draw()
    other.result()
    assert sorted(positions) == [0, 1]
    assert dropout.state().position == 2


@pytest.mark.parametrize("work", ["on", "start_from"])
def test_a_dropout_that_is_asked_for_or_set_while_another_thread_makes_it_is_one_dropout(work):
    other, later = Other(), ops.DropoutState("numpy", 3, position=5)
    calls = {"on": lambda: dropouts.on(engine), "start_from": lambda: dropouts.start_from(later)}

    class Engine(NumpyEngine):
        made = 0

        def dropout(self, spec, state):
            self.made += 1
            if self.made == 1:
                other.comes(calls[work])
            return super().dropout(spec, state)

    with other.watching():
        dropouts, engine = Dropouts(RNNSpec("gru", 2, 3, 4, dropout=0.5), {}), Engine()
    first = dropouts.on(engine)
    if work == "on":
        assert other.result() is first
        assert dropouts.on(engine) is first
    else:
        other.result()
        assert dropouts.on(engine).state() == later
