"""A layer from a converted model: its sizes from the spec, its weights from the arrays."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, RNNSpec, convert, layers, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from tests.helpers.oracles import random_canonical

SPECS = [
    RNNSpec("lstm", 2, 5, 4, direction="bidirectional", dtype="float64", num_proj=3, cell_clip=(-1.0, 1.0)),
    RNNSpec("gru", 2, 5, 4, dropout=0.5, seed=7, dtype="float64", bias_mode="single_input"),
    RNNSpec("rnn_tanh", 1, 4, 4, "skip_input", dtype="float64"),
    RNNSpec("rnn_relu", 1, 5, 4, dtype="float64"),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec.mode))
def test_a_layer_from_a_converted_model_runs_it(spec):
    c = random_canonical(spec, 1)
    op = ops.from_spec(spec)
    x = np.random.default_rng(0).normal(size=(6, 2, 4))
    states = [None] * (1 + spec.has_cell_state)
    expected = op(x, *states, op.canonical_to_params(c), is_training=False)[0]
    chosen = layers.from_canonical(c, name="encoder")
    assert (chosen.spec, chosen.name, type(chosen).__name__) == (spec, "encoder", type(op).__name__)
    for layer in (chosen, type(chosen).from_canonical(c)):
        assert np.array_equal(layer(x, training=False)[0], expected)
    assert not type(chosen).from_spec(spec).params.any()


def test_the_model_of_another_cell_and_what_is_no_model_are_refused():
    c = random_canonical(SPECS[1], 1)
    with pytest.raises(ArgumentError, match=r"Invalid rnn_mode: 'gru', expecting 'lstm', .*layers\.from_canonical"):
        CudnnLSTM.from_canonical(c)
    for call in (CudnnGRU.from_canonical, layers.from_canonical):
        with pytest.raises(ArgumentTypeError, match=r"Invalid canonical: .*expecting a convert\.Canonical"):
            call({"weight_ih_l0": np.ones(3)})
    with pytest.raises(ArgumentTypeError, match="Invalid spec"):
        CudnnGRU.from_spec(c)
    with pytest.raises(ArgumentTypeError, match=r"Invalid spec: .*of a convert\.Canonical c it is c\.spec"):
        ops.from_spec(c)
    assert convert.Canonical is type(c)
