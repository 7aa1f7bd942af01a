"""Ops, specs and layers that many threads share, on the NumPy engine."""

import contextlib
import itertools
import pickle
import threading

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnGRU, ops
from pycudnnrnn._tf1.nodes import NODES_KEPT, Nodes
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.examples import PROFILE
from tests.helpers.together import together

THREADS = 8
ROUNDS = {"dev": 10, "ci": 100, "nightly": 1000}[PROFILE]
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


def test_each_call_of_a_layer_by_any_thread_is_recorded_and_the_latest_are_kept():
    nodes, array = Nodes("a layer"), np.zeros((2, 3))
    together(4, lambda _: [nodes.add([array], [array]) for _ in range(200 * ROUNDS)])
    assert len(nodes.list()) == NODES_KEPT
    assert nodes.at(800 * ROUNDS - 1, "input_shapes") == (2, 3)
    with pytest.raises(ArgumentError):
        nodes.at(800 * ROUNDS, "input_shapes")
