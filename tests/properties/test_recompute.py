"""A forward that keeps only states, and computes the rest again in backward: every bit is as without."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnLSTM, errors, ops
from pycudnnrnn.engines.numpy_engine import gradients, recompute
from pycudnnrnn.engines.numpy_engine.dropout import dropout_mask
from pycudnnrnn.engines.numpy_engine.recompute import walks
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.schedule import Schedule, check_lengths
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.pairwise import pairwise


@st.composite
def dropping_specs(draw):
    """Every spec, and where dropout can act, often with it."""
    spec = draw(specs(dtypes=["float64", "float32", "float16", "bfloat16"]))
    return spec.replace(dropout=draw(st.sampled_from([0.0, 0.3, 1.0])) if spec.num_layers > 1 else 0.0, seed=7)


def bits(arrays):
    return [None if a is None else (a.shape, a.dtype.str, a.tobytes()) for a in arrays]


def results(problem, **keywords):
    return bits(problem.results(**keywords).values())


@pytest.fixture
def small_blocks():
    """Let blocks and drawn masks be a few rows, so that small batches have many."""
    with pytest.MonkeyPatch.context() as patch:

        def choose(rows):
            patch.setattr(gradients, "BLOCK_ROWS", rows)
            # So that the larger of the two is BLOCK_ROWS, whatever num_units is.
            patch.setattr(gradients, "BLOCK_ROWS_A_UNIT", 0)
            patch.setattr(recompute, "MASK_ROWS", rows)

        yield choose


@examples(600)
@given(
    problems(dropping_specs(), max_time=12, least_time=0),
    st.integers(1, 14),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
)
def test_outputs_and_all_gradients_have_the_same_bits(small_blocks, problem, every, rows, is_training, time_major):
    small_blocks(rows)
    if not time_major:
        swapped = {name: np.ascontiguousarray(getattr(problem, name).swapaxes(0, 1)) for name in ("x", "dy")}
        lengths = problem.full_lengths
        problem = dataclasses.replace(problem, lengths=lengths, **swapped)
    keywords = {"is_training": is_training, "keep_reserve": True, "time_major": time_major}
    start = problem.op.dropout_state()
    plain = results(problem, **keywords)
    after = problem.op.dropout_state()
    problem.op.set_dropout_state(start)
    assert results(problem, checkpoint_every=every, **keywords) == plain
    assert problem.op.dropout_state() == after
    assert (after == start) == (not is_training or not problem.spec.dropout)


BLOCKS = (
    ("lstm", "gru", "rnn_tanh"),
    ("float32", "float64"),
    ("unidirectional", "bidirectional"),
    ((1500, 3, 17, 33), (3000, 1, 9, 64), (360, 20, 40, 24)),
)
OFTEN = pairwise(*BLOCKS)
"""Every pair of values; `make test-long` has the other rows of the product."""


@pytest.mark.parametrize(
    ("mode", "dtype", "direction", "sizes"),
    [pytest.param(*row, marks=() if row in OFTEN else pytest.mark.long) for row in itertools.product(*BLOCKS)],
    ids=str,
)
def test_batches_of_many_true_blocks_have_the_same_bits(mode, dtype, direction, sizes, monkeypatch):
    """At the sizes of real blocks, where BLAS has other kernels for other numbers of rows."""
    monkeypatch.setattr(recompute, "MASK_ROWS", 500)  # fewer than these batches have
    T, B, inputs, units = sizes
    kind = {"lstm": ops.CudnnLSTM, "gru": ops.CudnnGRU, "rnn_tanh": ops.CudnnRNNTanh}[mode]
    op = kind(2, units, inputs, direction=direction, dtype=dtype, dropout=0.2)
    rng = np.random.default_rng(1)
    lengths = [T, *rng.integers(0, T, B - 1).tolist()]
    problem = make_problem(op, T, B, lengths, seed=2)
    schedule = Schedule(T, B, check_lengths(lengths, T, B))
    assert all(len(strand.chunks) > 1 for level in walks(op.spec, schedule, 1) for strand in level)
    start = op.dropout_state()
    plain = results(problem)
    for every in (1, 61, T):
        op.set_dropout_state(start)
        assert results(problem, checkpoint_every=every) == plain, every


@examples(300)
@given(problems(specs(), max_time=12), st.integers(1, 14), st.integers(1, 9))
def test_a_chunk_has_at_least_so_many_steps_and_hardly_more(problem, every, rows):
    """All steps once, in order; every chunk but the last reaches `every`, and would not without its last block."""
    spec = problem.spec
    schedule = Schedule(*problem.x.shape[:2], check_lengths(problem.lengths, *problem.x.shape[:2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "BLOCK_ROWS", rows)
        patch.setattr(gradients, "BLOCK_ROWS_A_UNIT", 0)
        for level in walks(spec, schedule, every):
            assert len(level) == spec.num_dirs
            for direction, strand in enumerate(level):
                steps = [step for chunk in strand.chunks for step in chunk]
                assert steps == schedule.steps[:: -1 if direction else 1]
                assert all(len(chunk) >= every for chunk in strand.chunks[:-1])
                for chunk in strand.chunks:
                    *_, last_block = gradients.walk_in_blocks(spec, chunk)
                    assert len(chunk) - len(last_block) < every


@examples(100)
@given(problems(dropping_specs(), max_time=9), st.integers(1, 6))
def test_a_backward_in_two_halves_adds_retains_and_is_used_up_as_without(small_blocks, problem, every):
    small_blocks(3)
    start = problem.op.dropout_state()
    plain = problem.forward()
    problem.op.set_dropout_state(start)
    fwd = problem.forward(checkpoint_every=every)
    filled = np.random.default_rng(1).normal(size=problem.params.shape).astype(problem.params.dtype)
    with pytest.raises(StateError, match="before backward_data"):
        fwd.backward_weights()
    for retain in (True, True, False):
        outs = []
        for one in (plain, fwd):
            data = one.backward_data(*problem.upstream(), retain=retain)
            added = one.backward_weights(out=filled.copy(), accumulate=True)
            written = one.backward_weights(out=filled.copy())
            outs.append(bits([data.input, data.input_h, data.input_c, added, written]))
        assert outs[0] == outs[1]
    with pytest.raises(StateError, match="used up"):
        fwd.backward_data(*problem.upstream())


@examples(100)
@given(problems(max_time=9), st.integers(1, 6), st.integers(0, 2**16))
def test_an_engine_with_another_layout_gets_its_gradient_there_and_padding_is_left_as_without(
    small_blocks, problem, every, seed
):
    small_blocks(3)
    with use_engine(PermutedLayoutEngine(seed)):
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
        assert results(moved, checkpoint_every=every) == results(moved)
        for accumulate in (False, True):
            outs = [
                moved.forward(**keywords).backward(
                    *moved.upstream(), out=np.full_like(moved.params, 7), accumulate=accumulate
                )
                for keywords in ({}, {"checkpoint_every": every})
            ]
            assert np.array_equal(outs[0].params, outs[1].params)


@examples(100)
@given(problems(max_time=9), st.integers(1, 6))
def test_what_padding_holds_changes_nothing(small_blocks, problem, every):
    small_blocks(3)
    dirty_x, dirty_dy = problem.x.copy(), problem.dy.copy()
    for b, length in enumerate(problem.full_lengths):
        dirty_x[length:, b] = dirty_dy[length:, b] = np.nan
    dirty = dataclasses.replace(problem, x=dirty_x, dy=dirty_dy)
    assert results(dirty, checkpoint_every=every) == results(problem)


@examples(200)
@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4))
def test_masks_drawn_in_parts_are_the_mask(first, rows, width, position, layer):
    spec = ops.CudnnGRU(5, 4, 4, dropout=0.4, seed=3).spec
    state = ops.DropoutState("numpy", 3, position)
    whole = dropout_mask(state, spec, layer, 0, (first + rows, width))
    assert np.array_equal(dropout_mask(state, spec, layer, first, (rows, width)), whole[first:])


def test_upstream_gradients_may_be_missing():
    problem = make_problem(ops.CudnnLSTM(2, 24, 8, direction="bidirectional", dtype="float64"), 400, 3, None, 1)
    for upstream in ((problem.dy,), (None, problem.dhy), (None, None, problem.dcy)):
        plain, ours = (problem.forward(checkpoint_every=every).backward(*upstream) for every in (None, 50))
        assert bits(dataclasses.astuple(ours)) == bits(dataclasses.astuple(plain))


def test_a_layer_recomputes_too():
    layer = CudnnLSTM(2, 24, seed=1, dtype="float64")
    x = np.random.default_rng(1).normal(size=(600, 2, 5))
    dy = np.random.default_rng(2).normal(size=(600, 2, 24))
    plain, ours = (layer.forward(x, checkpoint_every=every) for every in (None, 64))
    grads = [fwd.backward(dy) for fwd in (plain, ours)]
    assert bits([plain.outputs, *plain.states, grads[0].inputs, grads[0].params]) == bits(
        [ours.outputs, *ours.states, grads[1].inputs, grads[1].params]
    )
    with pytest.raises(ArgumentError, match=r"checkpoint_every"):
        layer.forward(x, training=False, checkpoint_every=64)


@pytest.mark.parametrize("value", [True, 2.0, "3", np.bool_(True), [4]])
@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
def test_only_an_integer_says_how_often(kind, value):
    problem = make_problem(kind(1, 3, 2), 5, 2, None, 1)
    with pytest.raises(ArgumentTypeError, match=r"checkpoint_every.*expecting an integer"):
        problem.forward(checkpoint_every=value)


@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_less_than_a_step_is_refused(value):
    problem = make_problem(ops.CudnnLSTM(1, 3, 2), 5, 2, None, 1)
    with pytest.raises(ArgumentError, match=r"checkpoint_every.*an integer from 1 to 2147483647"):
        problem.forward(checkpoint_every=value)


@pytest.mark.parametrize("keywords", [{"is_training": False}, {"keep_reserve": False}])
def test_where_nothing_is_kept_it_is_refused_and_dropout_stays(keywords):
    op = ops.CudnnLSTM(2, 3, 2, dropout=0.5)
    problem = make_problem(op, 5, 2, None, 1)
    with pytest.raises(errors.ArgumentError, match=r"checkpoint_every.*None: nothing is kept for a backward"):
        problem.forward(checkpoint_every=2, **keywords)
    assert op.dropout_state().position == 0
