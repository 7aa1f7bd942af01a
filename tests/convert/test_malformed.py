"""Malformed input to every converter, a thousand each in CI: `ConvertError`, and nothing else, ever."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.examples import examples
from tests.helpers.oracles import FRAMEWORKS, random_canonical

MODES = {"jax_rnn": ["lstm"], "equinox": ["lstm", "gru"], "flax": ["lstm", "gru", "rnn_tanh"]}

junk_arrays = st.sampled_from([
    None, 3, "text", b"bytes", [1.0, 2.0], {}, {"kernel": 1}, object(), np.float32(1), np.ones(0, "f4"),
    np.ones((), "f4"), np.ones((2, 3, 4, 5), "f4"), np.ones((3, 4), "i8"), np.ones((3, 4), "c8"), np.ones((3, 4), bool),
    np.array(["a"]), np.array([None]), np.array([{}], dtype=object), np.zeros(2, [("a", "f4")]), np.ones(3, "M8[s]"),
])  # fmt: skip
junk_dicts = st.sampled_from(
    [None, 3, "text", [], (), {}, {1: 2}, {None: np.ones(3)}, {"": np.ones(3)}, np.ones((3, 4))]
)
junk_keys = st.sampled_from([None, 3, 2.5, (), ("a", None), b"k", "", "/", "weight_ih_l999999", "0/W", "vars/9", "é"])
junk_keywords = st.sampled_from([None, 3, -1, 2.5, "", "gelu", b"tanh", [], [None], {}, object(), float("nan"), 10**30])


def valid(framework, mode, layers, direction, seed):
    """Return a dict that converts, and the keywords it needs."""
    c = random_canonical(RNNSpec(mode, layers, 4, 3, direction=direction), seed)
    bidirectional = direction == "bidirectional"
    keywords = {
        "onnx": {"linear_before_reset": 1} if mode == "gru" else {},
        "chainer": {"bidirectional": bidirectional},
        "jax_rnn": {"input_size": 3, "hidden_size": 4, "num_layers": layers, "bidirectional": bidirectional},
        "tensorflow": {"activation": "tanh"} if mode == "rnn_tanh" else {},
    }
    return getattr(convert, framework).from_canonical(c), keywords.get(framework, {})


@st.composite
def damaged(draw, framework):
    """Draw a dict with one thing wrong in it, and whether the wrong thing has to be noticed."""
    mode = draw(st.sampled_from(MODES.get(framework, ["lstm", "gru", "rnn_tanh"])))
    direction = draw(st.sampled_from(["unidirectional", "bidirectional"]))
    arrays, keywords = valid(framework, mode, draw(st.integers(1, 2)), direction, draw(st.integers(0, 99)))
    key = draw(st.sampled_from(sorted(arrays)))
    array = arrays[key]
    how = draw(st.sampled_from(["drop", "add", "rename", "junk", "shape", "dtype", "dict", "key", "keyword", "mixed"]))
    if how == "dict":
        return draw(junk_dicts), keywords, True
    if how == "keyword":
        named = list(getattr(convert, framework).to_canonical.__kwdefaults__ or ()) + list(keywords)
        return arrays, keywords | {draw(st.sampled_from(sorted(named))): draw(junk_keywords)}, False
    if how == "drop":
        del arrays[key]
        weight = not any(word in key for word in ("bias", "B", "/b"))
        return arrays, keywords, weight  # a bias may be left out, where the model then has none
    if how == "rename":
        arrays[draw(st.text(max_size=20))] = arrays.pop(key)
        return arrays, keywords, False
    if how == "add":
        arrays["unheard_of"] = array
    if how == "key":
        arrays[draw(junk_keys)] = array
        return arrays, keywords, False
    if how == "junk":
        arrays[key] = draw(junk_arrays)
        return arrays, keywords, not isinstance(arrays[key], dict)
    if how == "shape":
        shapes = [array[None], array[:-1], array[..., :-1], np.concatenate([array, array]), array[..., None], array[:0]]
        arrays[key] = draw(st.sampled_from(shapes))
        changed = arrays[key].ndim != array.ndim or not arrays[key].size
        return arrays, keywords, changed  # another size may be another model
    if how == "dtype":
        arrays[key] = array.astype(draw(st.sampled_from(["i4", "c8", "O", "U8", "?"])))
    if how == "mixed":
        arrays[key] = array.astype("f8")
        return arrays, keywords, len(arrays) > 1
    return arrays, keywords, True


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_malformed_input_is_a_convert_error(framework):
    module = getattr(convert, framework)
    refused = []

    @examples(1000)
    @given(damaged(framework))
    def check(drawn):
        arrays, keywords, has_to_be_noticed = drawn
        try:
            with warnings.catch_warnings(record=True) as left_out:
                warnings.simplefilter("always")
                c = module.to_canonical(arrays, **keywords)
            left_out = [warning for warning in left_out if "not contain" not in str(warning.message)]
        except ConvertError as error:
            refused.append(str(error))
        else:
            assert not has_to_be_noticed or left_out, {n: np.shape(a) for n, a in arrays.items()}
            assert framework == "tensorflow" or not left_out
            assert isinstance(c, convert.Canonical)

    check()
    assert all(text.startswith(f"{framework}: ") and len(text) < 2000 for text in refused)
    assert len(refused) > 5


@examples(1000)
@given(st.integers(0, 15), junk_arrays | junk_dicts)
def test_a_canonical_that_is_none_is_neither_made_nor_written(index, junk):
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    weights, biases, bad_weights, bad_biases = ([*arrays] for arrays in (c.weights, c.biases) * 2)
    bad_weights[index % 8], bad_biases[index % 8] = junk, c.weights[0]
    narrow = [c.weights[0][:, 1:], *weights[1:]]
    wide = [weights[0].astype("f8"), *weights[1:]]
    pairs = [(junk, biases), (bad_weights, biases), (narrow, biases), (wide, biases), (weights, bad_biases)]
    for framework in FRAMEWORKS:
        with pytest.raises(ConvertError, match="expecting a Canonical"):
            getattr(convert, framework).from_canonical(junk)
    for parts in ((junk, weights, biases), *((c.spec, *pair) for pair in pairs)):
        with pytest.raises(ConvertError):
            convert.Canonical(*parts)
