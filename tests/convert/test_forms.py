"""How written arrays lie in memory, and which key an error names: two faults that no other test found."""

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import FRAMEWORKS, random_canonical

KEYWORDS = {"keras": [{}, {"cudnn": True}], "flax": [{}, {"api": "nnx"}, {"api": "nnx", "optimized": True}]}


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_written_is_in_c_order_and_in_memory_of_its_own(framework, mode):
    """A file's writer may take an array's memory as it lies."""
    c = random_canonical(RNNSpec(mode, 2, 5, 3, direction="bidirectional", bias_mode="single_input"), 1)
    written = []
    for keywords in KEYWORDS.get(framework, [{}]):
        try:
            written.append(getattr(convert, framework).from_canonical(c, **keywords))
        except ConvertError:
            continue  # the framework has no such cell
    for found in written:
        for name, array in found.items():
            assert array.flags.c_contiguous, name
            assert not any(np.shares_memory(array, other) for other in (*c.weights, *c.biases)), name
    assert written or (framework, mode) in {("jax_rnn", "gru"), ("jax_rnn", "rnn_tanh"), ("equinox", "rnn_tanh")}


@pytest.mark.parametrize(
    ("mode", "cut", "text"),
    [
        ("lstm", np.s_[:, :-1], "'cell/ii/kernel': expecting shape (3, 4), got (3, 5)"),
        ("lstm", np.s_[:-1], "'cell/hi/kernel': expecting shape (5, 5), got (4, 5)"),
        ("gru", np.s_[:, :-1], "'cell/ir/kernel': expecting shape (3, 4), got (3, 5)"),
        ("gru", np.s_[:-1], "'cell/hr/kernel': expecting shape (5, 5), got (4, 5)"),
        ("rnn_tanh", np.s_[:, :-1], "'cell/i/kernel': expecting shape (3, 4), got (3, 5)"),
        ("rnn_tanh", np.s_[:-1], "'cell/h/kernel': expecting shape (5, 5), got (4, 5)"),
    ],
)
def test_the_units_are_the_columns_of_flaxs_square_matrices(mode, cut, text):
    """The rows would do as well for a sound file, and would blame another key in this one."""
    arrays = convert.flax.from_canonical(random_canonical(RNNSpec(mode, 1, 5, 3), 1))
    recurrent = next(name for name in arrays if name.startswith("cell/h") and name.endswith("kernel"))
    with pytest.raises(ConvertError) as caught:
        convert.flax.to_canonical(arrays | {recurrent: arrays[recurrent][cut]})
    assert text in str(caught.value)
