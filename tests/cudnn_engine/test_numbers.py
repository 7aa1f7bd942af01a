"""The whole CUDA path with numbers, through the shim: every result and gradient equals the NumPy engine's.

This shows call discipline (descriptors, sizes, pointers, order), not cuDNN's numerics: the shim computes with the NumPy
engine on what the real descriptors say.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import engine as engine_module
from pycudnnrnn.errors import LayoutError
from pycudnnrnn.spec import TIME_MAX
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.stand_in.problem import run_on

every_dtype = specs(dtypes=["float16", "bfloat16", "float32", "float64"])
LSTM = ops.CudnnLSTM(2, 5, 4, dtype="float32", direction="bidirectional")


def assert_equal(results, expected, atol=0):
    assert results.keys() == expected.keys()
    for name, value in results.items():
        assert value.dtype == expected[name].dtype, name
        wide = value.astype("f8"), expected[name].astype("f8")
        np.testing.assert_allclose(*wide, rtol=0, atol=atol, err_msg=name)


@examples(300)
@given(problems(every_dtype, least_length=1), st.booleans())
def test_every_spec_gives_the_numpy_engines_numbers(device, problem, time_major):
    assert_equal(run_on(device, problem, time_major=time_major), problem.results())


@examples(300)
@given(problems(specs(max_layers=2), least_time=0), st.booleans())
def test_empty_batches_and_zero_lengths_give_the_numpy_engines_numbers(shim, device, problem, time_major):
    """A zero length never reaches the library, and an empty batch makes no call at all."""
    shim.counts.clear()
    assert_equal(run_on(device, problem, time_major=time_major), problem.results(), atol=1e-11)
    if not any(problem.full_lengths):
        assert not shim.counts["cudnnRNNForward"]


@examples(300)
@given(problems(specs(max_layers=2).filter(lambda s: s.num_dirs == 1), max_time=9), st.integers(1, 4), st.booleans())
def test_a_run_longer_than_one_call_takes_is_split_in_time_exactly(play, problem, limit, time_major):
    shim = play()
    assert engine_module.CudnnEngine.steps_max == TIME_MAX
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module.CudnnEngine, "steps_max", limit)
        assert_equal(run_on(shim.device, problem, time_major=time_major), problem.results(), atol=1e-11)
    assert shim.counts["cudnnRNNForward"] == -(-max(problem.full_lengths) // limit)


@examples(200)
@given(problems(specs(max_layers=2), least_length=1), st.integers(0, 2**16))
def test_a_library_with_another_layout_gives_the_same_numbers(play, problem, seed):
    """The layout is asked for: params moved there compute the same, and the gradient comes back in that layout."""
    permuted = ShuffledEngine(seed)
    shim = play(engine=permuted)
    with use_engine(permuted):
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
        expected = moved.results()
    assert shim.native.layout(problem.spec) == permuted.layout(problem.spec)
    assert_equal(run_on(shim.device, moved), expected)


@examples(100)
@given(problems(specs(max_layers=2), least_length=1))
def test_version_8_is_asked_by_both_queries(play, problem):
    shim = play(version=8907)
    assert shim.native.layout(problem.spec) == problem.op.layout("cpu")
    assert shim.counts["cudnnGetRNNLinLayerMatrixParams"]
    assert_equal(run_on(shim.device, problem), problem.results())


def test_two_queries_that_disagree_are_an_error(play):
    shim = play(version=8907)
    honest, other = shim.cudnnGetRNNLinLayerBiasParams, {0: 1, 1: 0}
    shim.cudnnGetRNNLinLayerBiasParams = lambda *a: honest(*a[:6], other.get(a[6], a[6]), *a[7:])
    with pytest.raises(LayoutError, match="disagree"):
        shim.native.layout(ops.CudnnGRU(1, 3, 3).spec)
