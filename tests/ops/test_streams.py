"""A stream keeps its calls, its arrays and its states to itself. What it computes is in `test_ops`."""

import copy
import pickle

import numpy as np
import pytest
import torch

from pycudnnrnn import CudnnLSTM, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import ArgumentError
from tests.helpers.recorded import RecordingEngine

L, U, I = 2, 3, 4


def streamed(dtype="float64"):
    op = ops.CudnnLSTM(L, U, I, dtype=dtype)
    return op, op.init_params(seed=1), np.random.default_rng(0).normal(size=(6, 2, I)).astype(dtype)


def test_pieces_of_one_size_are_bound_once_and_sizes_may_come_in_any_order():
    op, params, x = streamed()
    whole = op(x, None, None, params, False)[0]
    with use_engine(engine := RecordingEngine()):
        stream = op.stream(params)
        for _ in range(2):
            pieces = [stream(x[0])[None], stream(x[1:3]), stream(x[3])[None], stream(x[4:6])]
            np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-14)
            stream.reset()
        assert engine.binds == 2 * 2 * 2  # two sizes, from either set of states, before and after the reset


def test_states_and_outputs_are_copies():
    op, params, x = streamed()
    start = tuple(np.full((L, 2, U), 0.5) for _ in range(2))
    stream, other = op.stream(params, start), op.stream(params, copy.deepcopy(start))
    start[0][...] = 7
    first = stream(x[0])
    expected = first.copy()
    stream.states[0][...] = 7
    second = stream(x[1])
    other(x[0])
    assert np.array_equal(second, other(x[1]))
    assert np.array_equal(first, expected)
    stream.reset()
    stream.states[0][...] = 7
    assert np.array_equal(stream(x[0]), first)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
@pytest.mark.parametrize("of_layer", [False, True])
def test_a_copy_continues_from_the_same_states_and_resets_to_the_same(again, of_layer):
    op, params, x = streamed()
    layer = CudnnLSTM(L, U, seed=0, dtype="float64")
    start = tuple(np.full((L, 2, U), value) for value in (0.5, -0.5))
    stream = layer.stream(start) if of_layer else op.stream(params, start)
    stream(x[:2])
    twin = again(stream)
    expected = stream(x[2:4])
    assert np.array_equal(twin(x[2:4]), expected)
    for one in (stream, twin):
        one.reset()
    assert np.array_equal(twin(x[0]), stream(x[0]))
    assert np.array_equal(twin.states[0], stream.states[0])


def test_new_values_in_params_and_other_params_count_from_the_next_piece():
    op, params, x = streamed()
    stream = op.stream(params)
    before = stream(x[0])
    states = stream.states
    params[...] = op.init_params(seed=2)
    expected = op(x[1:2], *states, params, False)[0][0]
    assert np.array_equal(stream(x[1]), expected)
    assert not np.array_equal(before, expected)
    layer = CudnnLSTM(L, U, seed=0, dtype="float64")
    stream = layer.stream()
    stream(x[0])
    states = stream.states
    layer.to("cpu").params = op.init_params(seed=3)  # in a new buffer
    np.testing.assert_array_equal(stream(x[1]), layer(x[1:2], states, training=False)[0][0])


def test_a_wrong_piece_changes_nothing_and_prepares_nothing():
    op, params, x = streamed()
    with use_engine(engine := RecordingEngine()):
        stream = op.stream(params)
        for wrong, text in (
            (x[0].astype("f"), "Invalid inputs dtype: float32, expecting float64"),
            (x[0, :, :2], "Invalid inputs shape: .*input_size=4"),
            (x[0, 0], r"Invalid inputs shape: .*\[B, I\] for one step"),
            (x[0].tolist(), "Invalid inputs: <class 'list'>"),
        ):
            with pytest.raises(ArgumentError, match=text):
                stream(wrong)
        assert engine.binds == 0
        assert stream.states is None
        stream(x[0, :1])  # one sequence: the wrong pieces had two
        with pytest.raises(ArgumentError, match="number of sequences: 2, expecting 1, those of the states"):
            stream(x[1])
        np.testing.assert_allclose(stream(x[1, :1]), op(x[:2, :1], None, None, params, False)[0][1], atol=1e-14)
    layer = CudnnLSTM(L, U, seed=0)
    with pytest.raises(ArgumentError, match="dtype"):
        layer.stream()(x[0])
    assert not layer.built
    with pytest.raises(ArgumentError, match=r"Invalid initial_state \(c\) shape"):
        op.stream(params, (np.zeros((L, 2, U)), np.zeros((L, 2, U + 1))))(x[0])


def test_results_and_states_are_the_latest_pieces_kind():
    op, params, x = streamed()
    stream = op.stream(params, (torch.zeros(L, 2, U, dtype=torch.float64), None))
    assert isinstance(stream(x[0]), np.ndarray)
    assert isinstance(stream(torch.from_numpy(x[1])), torch.Tensor)
    assert all(isinstance(state, torch.Tensor) for state in stream.states)


def test_a_stream_reads_params_of_torch_wherever_their_memory_is():
    op = ops.CudnnLSTM(1, 8, 3)
    old, new = (torch.from_numpy(op.init_params(seed=seed)) for seed in (1, 2))
    x, stream = torch.ones(4, 2, 3), op.stream(old)
    stream(x)
    states = stream.states
    old.data = new
    assert torch.equal(stream(x), op.stream(new, states)(x))
