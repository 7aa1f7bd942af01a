"""`Canonical`: what it holds, and what it is not made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.malformed import junk_arrays, junk_dicts
from tests.helpers.oracles import equal_models, random_call, random_canonical, run_ours, worst


@examples(100)
@given(specs(clip=False), st.integers(0, 2**31))
def test_double_biases_compute_the_same(spec, seed):
    c = random_canonical(spec, seed)
    both = c.double_biases()
    assert both.spec == spec.replace(bias_mode="double")
    call = random_call(spec, seed)
    assert worst(run_ours(both, *call), run_ours(c, *call)) <= 1e-14


@pytest.mark.parametrize("bias_mode", ["none", "single_input", "single_recurrent"])
@pytest.mark.parametrize(("framework", "keywords"), [("gluon", {}), ("chainer", {"activation": "relu"})])
def test_what_always_has_both_biases_gets_zeros_for_those_that_are_absent(framework, keywords, bias_mode):
    """And Gluon's plain cell is relu, unless another is named."""
    module, c = getattr(convert, framework), random_canonical(RNNSpec("rnn_relu", 2, 4, 3, bias_mode=bias_mode), 1)
    equal_models(module.to_canonical(module.from_canonical(c), **keywords), c.double_biases())


@examples(1000)
@given(st.integers(0, 15), st.integers(0, 15), junk_arrays | junk_dicts, st.booleans())
def test_a_canonical_that_is_none_is_not_made(index, other, junk, whole):
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    weights, biases = list(c.weights), list(c.biases)
    if whole:
        with pytest.raises(ConvertError):
            convert.Canonical(c.spec, junk, biases)
        with pytest.raises(ConvertError):
            convert.Canonical(junk, weights, biases)
        return
    weights[index % 8] = junk
    with pytest.raises(ConvertError):
        convert.Canonical(c.spec, weights, biases)
    weights = list(c.weights)
    biases[other % 8] = weights[index % 8]
    with pytest.raises(ConvertError):
        convert.Canonical(c.spec, weights, biases)
