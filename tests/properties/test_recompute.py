"""A forward that keeps only states, and computes the rest again in backward, has the numbers of one that keeps all.

The NumPy engine computes both. Float64 is equal to 1e-12 of the largest number, float32 to 1e-6; sums of more than one
chunk are added in another order, so that the last bits differ.
"""

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycudnnrnn import CudnnLSTM, ops
from pycudnnrnn.errors import ArgumentError, StateError
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.axes import by_batch
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine

NEAR = {"float64": 1e-12, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}
"""By dtype: how far a number may be from that without, as a share of the largest. 16-bit states are rounded where a
chunk begins."""


@st.composite
def dropping_specs(draw):
    """Every spec of one direction and every dtype, and where dropout can act, often with it."""
    spec = draw(specs(dtypes=["float64", "float32", "float16", "bfloat16"]).filter(lambda spec: spec.num_dirs == 1))
    return spec.replace(dropout=draw(st.sampled_from([0.0, 0.3, 1.0])) if spec.num_layers > 1 else 0.0, seed=7)


def assert_near(results, expected, dtype):
    assert results.keys() == expected.keys()
    for name, array in expected.items():
        assert (results[name].shape, results[name].dtype) == (array.shape, array.dtype), name
        wide = array.astype(np.float64)
        most = NEAR[dtype] * np.abs(wide).max(initial=0)
        np.testing.assert_allclose(results[name].astype(np.float64), wide, rtol=0, atol=most, err_msg=name)


@examples(800)
@given(
    problems(dropping_specs(), max_time=12, least_time=0), st.integers(1, 14), st.booleans(), st.booleans(),
    st.sampled_from([None, None, 1, 2]),
)  # fmt: skip
@example(make_problem(ops.CudnnGRU(2, 5, 3, dropout=0.3, dtype="float64"), 6, 3, [6, 3, 0], 1), 2, True, True, None)
def test_outputs_and_all_gradients_are_those_without(problem, every, is_training, time_major, layout):
    """In 16 bits the states between chunks are rounded: weights that would make more of that are made small."""
    keywords = {"is_training": is_training, "keep_reserve": True, "time_major": time_major}
    with use_engine(ShuffledEngine(layout)) if layout else contextlib.nullcontext():
        if layout:
            problem = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, layout)
        if not time_major:
            problem = by_batch(problem)
        if problem.spec.dtype in {"float16", "bfloat16"}:
            problem = dataclasses.replace(problem, params=problem.params / 4)
        start = problem.op.dropout_state()
        plain = problem.results(**keywords)
        after = problem.op.dropout_state()
        problem.op.set_dropout_state(start)
        assert_near(problem.results(checkpoint_every=every, **keywords), plain, problem.spec.dtype)
        assert problem.op.dropout_state() == after
    assert (after == start) == (not is_training or not problem.spec.dropout)


@examples(100)
@given(problems(dropping_specs(), max_time=9), st.integers(1, 6))
def test_a_backward_in_two_halves_adds_retains_and_is_used_up_as_without(problem, every):
    start = problem.op.dropout_state()
    plain = problem.forward()
    problem.op.set_dropout_state(start)
    fwd = problem.forward(checkpoint_every=every)
    filled = np.random.default_rng(1).normal(size=problem.params.shape).astype(problem.params.dtype)
    for one in (plain, fwd):
        with pytest.raises(StateError, match="before backward_data"):
            one.backward_weights()
    for retain in (True, True, False):
        outs = []
        for one in (plain, fwd):
            data = one.backward_data(*problem.upstream(), retain=retain)
            assert data.params is None
            added = one.backward_weights(out=filled.copy(), accumulate=True)
            written = one.backward_weights(out=filled.copy())
            outs.append({"dx": data.input, "dh": data.input_h, "added": added, "written": written})
        assert_near(outs[1], outs[0], problem.spec.dtype)
    for one in (plain, fwd):
        with pytest.raises(StateError, match="used up by an earlier backward: give that one retain=True"):
            one.backward_data(*problem.upstream())


def test_the_gradients_of_16_bit_chunks_are_summed_in_32_bits():
    op = ops.CudnnRNNTanh(1, 1, 1, dtype="float16")
    x, dy, params = np.ones((1000, 1, 1), np.float16), np.ones((1000, 1, 1), np.float16), np.full(4, 0.1, np.float16)
    whole, chunks = (op.forward(x, None, params, checkpoint_every=every).backward(dy).params for every in (None, 1))
    np.testing.assert_allclose(chunks, whole, rtol=2e-3)


def test_a_layer_recomputes_too_with_some_gradients_from_above_missing():
    layer, results = CudnnLSTM(2, 24, seed=1, dtype="float64"), []
    x, dy = (np.random.default_rng(seed).normal(size=(600, 2, size)) for seed, size in ((1, 5), (2, 24)))
    for every in (None, 64):
        fwd = layer.forward(x, checkpoint_every=every)
        grads = fwd.backward(dy)
        results.append({"y": fwd.outputs, "h": fwd.states[0], "dx": grads.inputs, "params": grads.params})
    assert_near(results[1], results[0], "float64")


@pytest.mark.parametrize(
    ("direction", "arguments", "text"),
    [
        ("bidirectional", {"checkpoint_every": 9}, "None with both directions, .*: use an op for each direction"),
        ("unidirectional", {"checkpoint_every": 2.0}, "an integer"),
        ("unidirectional", {"checkpoint_every": 0}, "an integer from 1 to 2147483647"),
        ("unidirectional", {"checkpoint_every": 2, "is_training": False}, "None: nothing is kept for a backward"),
        ("unidirectional", {"checkpoint_every": 2, "keep_reserve": False}, "None: nothing is kept for a backward"),
    ],
)
def test_what_cannot_be_done_is_refused_and_dropout_stays(direction, arguments, text):
    op = ops.CudnnLSTM(2, 3, 2, direction=direction, dropout=0.5)
    with pytest.raises(ArgumentError, match=f"Invalid checkpoint_every: .*, expecting {text}"):
        make_problem(op, 5, 2, None, 1).forward(**arguments)
    assert op.dropout_state().position == 0
    if direction == "bidirectional":
        with pytest.raises(ArgumentError, match=text):
            op.memory(5, 2, True, 9)
