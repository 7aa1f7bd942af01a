"""`op.memory` against what is measured: NumPy tells tracemalloc of each array, and the rest is small beside them."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem, sequence_lengths, specs
from tests.helpers.examples import examples

FACTOR, SLACK_NBYTES = 1.25, 1 << 18
"""How far a prediction may be from the peak: by a quarter, and for the smallest problems so many bytes."""


def arguments(op, T, B):
    problem = make_problem(op, T, B, None, 0)
    return [problem.x, *[None] * (1 + op.spec.has_cell_state), problem.params], problem.dy


def measured(op, T, B, *, is_training, checkpoint_every=None, lengths=None):
    """Return the most bytes that a forward, and in training its backward, hold at once beside their arguments."""

    def run():
        given, dy = arguments(op, T, B)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        fwd = op.forward(*given, is_training, sequence_lengths=lengths, checkpoint_every=checkpoint_every)
        gradients = fwd.backward(dy) if is_training else None
        peak = tracemalloc.get_traced_memory()[1] - before
        del fwd, gradients
        return peak

    tracemalloc.start()
    try:
        run()  # what is made once: kernels are compiled for these sizes
        return run()
    finally:
        tracemalloc.stop()


def check_told(op, T, B, is_training, every=None, lengths=None):
    peak = measured(op, T, B, is_training=is_training, checkpoint_every=every, lengths=lengths)
    told = op.memory(T, B, is_training, every, sequence_lengths=lengths)
    assert peak / FACTOR - SLACK_NBYTES <= told.total_nbytes <= peak * FACTOR + SLACK_NBYTES, (told, peak)


@st.composite
def sizable(draw):
    """A spec with its units and inputs scaled up, few or many rows, lengths, and how often states are kept."""
    small = draw(specs(dtypes=["float16", "float32", "float64"], max_units=5, max_layers=3))
    units, scale = 16 * small.num_units, 16
    spec = small.replace(
        num_units=units,
        input_size=scale * small.input_size,
        num_proj=None if small.num_proj is None else scale * small.num_proj,
        dropout=draw(st.sampled_from([0.0, 0.4])) if small.num_layers > 1 else 0.0,
    )
    B = draw(st.sampled_from([1, 7, 32]))
    T = max(1, draw(st.integers(1, 60) | st.integers(2000, 4000)) // B)
    lengths = draw(st.none() | sequence_lengths(T, B))
    return spec, T, B, draw(st.none() | st.integers(max(1, T // 20), T)) if spec.num_dirs == 1 else None, lengths


@pytest.mark.long
@examples(100)
@given(sizable(), st.sampled_from([True, True, False]))
def test_the_prediction_is_near_the_measured_peak(problem, is_training):
    spec, T, B, every, lengths = problem
    check_told(ops.from_spec(spec), T, B, is_training, every if is_training else None, lengths)


BOTH = {"direction": "bidirectional"}

FEW = {
    "three layers": (("lstm", 3, 320, 80), {}, 37, 5, None),
    "skip input, many rows": (("lstm", 1, 256, 256), {"input_mode": "skip_input"}, 400, 8, None),
    "many more inputs than units": (("rnn_relu", 1, 8, 4096), {}, 2, 500, None),
    "a GRU": (("gru", 1, 200, 200), {"dtype": "float64"}, 1, 4, None),
    "skip input": (("lstm", 1, 400, 400), {"input_mode": "skip_input"}, 1, 1, None),
    "both directions": (("rnn_relu", 1, 320, 40), BOTH | {"dtype": "float64"}, 20, 5, None),
    "both directions, wide input": (("gru", 1, 300, 3000), BOTH, 2, 16, None),
    "half precision": (("lstm", 1, 320, 200), {"dtype": "float16"}, 1, 16, None),
    "no sequences": (("gru", 1, 512, 512), {}, 4, 0, None),
    "no steps": (("lstm", 1, 256, 256), {"dtype": "float64"}, 0, 500, None),
    "empty sequences": (("lstm", 1, 256, 256), {"dtype": "float64"}, 3, 500, [3, *[0] * 499]),
    "unequal lengths": (("rnn_tanh", 1, 32, 400), {"dtype": "float64"}, 1000, 5, [834, 818, 666, 546, 321]),
}


@pytest.mark.parametrize("what", FEW)
def test_the_prediction_is_near_the_peak_also_for_few_rows_and_unequal_lengths(what):
    arguments, keywords, T, B, lengths = FEW[what]
    op = ops.from_spec(RNNSpec(*arguments, **keywords))
    check_told(op, T, B, True, None, lengths)
    check_told(op, T, B, False, None, lengths)
    if op.spec.num_dirs == 1:
        check_told(op, T, B, True, 2, lengths)


@pytest.mark.parametrize("name", ["CudnnLSTM", "CudnnGRU"])
def test_results_are_told_to_the_byte(name):
    op = getattr(ops, name)(2, 6, 5, direction="bidirectional", dtype="float64", dropout=0.5)  # so masks are kept
    given, dy = arguments(op, 7, 3)
    fwd = op.forward(*given)
    grads = fwd.backward(dy)
    told = op.memory(7, 3, True)
    assert told.output_nbytes == sum(a.nbytes for a in (fwd.output, fwd.output_h, fwd.output_c) if a is not None)
    found = (grads.input, grads.input_h, grads.input_c, grads.params)
    assert told.gradient_nbytes == sum(a.nbytes for a in found if a is not None)
    assert told.reserve_nbytes == op.prepare(7, 3, is_training=True).reserve_nbytes
    inference = op.memory(7, 3, False)
    assert (inference.output_nbytes, inference.reserve_nbytes) == (told.output_nbytes, 0)
    assert inference.gradient_nbytes == 0


def test_bad_questions_are_refused():
    for arguments, lengths, text in (
        ((-1, 2, True), None, "T.*from 0"),
        ((2, 2, False, 1), None, "checkpoint_every.*nothing is kept"),
        ((3, 2), [4, 3], "sequence_lengths.*0 to T=3"),
    ):
        with pytest.raises(ArgumentError, match=text):
            ops.CudnnGRU(1, 3, 2).memory(*arguments, sequence_lengths=lengths)
