"""TensorFlow's trainings run here, and ours run there, with the same numbers. The oracle is TensorFlow itself."""

import warnings

import numpy as np
import pytest

from pycudnnrnn import Saver, checkpoint, convert
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable
from tests.checkpoint.tensorflow.conftest import layer_for, layer_written
from tests.checkpoint.tensorflow.models import CUDNN, LENGTHS, OWN_CELLS, WRITTEN
from tests.helpers.oracles import run_ours, worst

pytestmark = pytest.mark.long  # TensorFlow makes a graph for every model
TOLERANCE = 1e-6
"""Of float32, in a small model whose outputs are about 1."""


def by_name(models):
    return pytest.mark.parametrize("model", models, ids=lambda model: model.name)


def difference(folder, model, run):
    """Return how far `run(x)` is from TensorFlow's own outputs and states."""
    expected = np.load(folder / f"{model.name}.npz")
    return worst(run(expected["x"]), [expected.get(name) for name in ("output", "output_h", "output_c")])


def error_of_layer(folder, model, layer):
    def run(x):
        output, states = layer(x, training=False, sequence_lengths=list(LENGTHS))
        return [output, *states, *[None] * (2 - len(states))]

    return difference(folder, model, run)


def converted(folder, model, **more):
    """Return how far a converted model is from TensorFlow's, its spec, and what was warned of."""
    activation = {"rnn_tanh": "tanh", "rnn_relu": "relu"}.get(model.kind)
    keywords = {"prefix": model.scope, **({"activation": activation} if activation else {}), **more}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        c = convert.tensorflow.to_canonical(checkpoint.read_tensorflow(folder / model.name), **keywords)
    error = difference(folder, model, lambda x: run_ours(c, x, None, None, LENGTHS))
    return error, c.spec, [str(warning.message) for warning in said]


@by_name([*CUDNN, *OWN_CELLS])
def test_a_trained_model_computes_what_it_did_in_tensorflow(models, model):
    error, spec, said = converted(models, model)
    assert error <= TOLERANCE
    assert (spec.mode, spec.num_layers, spec.num_dirs) == (model.kind, model.num_layers, 1 + model.bidirectional)
    (left,) = (text for text in said if text.startswith("left out, because no cell has them: "))
    assert "opaque_kernel'" in left or " more" in left
    adds = model.cell.endswith("lstm_cell")
    assert any("1.0, its default, was added" in text for text in said) == adds
    if adds:
        error, _, said = converted(models, model, forget_bias=1.0)
        assert error <= TOLERANCE
        assert not any("forget_bias" in text for text in said)
        assert converted(models, model, forget_bias=0.0)[0] > 1e-3


@by_name(CUDNN)
def test_a_layer_and_a_saveable_restored_from_a_training_compute_what_it_did_in_tensorflow(models, model):
    layer, other, step = layer_for(model), layer_for(model), np.array(-1, np.int64)
    Saver({model.scope: layer, "global_step": step}).restore(models / model.name)
    assert error_of_layer(models, model, layer) <= TOLERANCE
    assert step == checkpoint.read_tensorflow(models / model.name, names=["global_step"])["global_step"]
    Saver([CudnnOpaqueParamsSaveable.of(other.params, other.spec, model.scope, "s")]).restore(models / model.name)
    assert np.array_equal(layer.params, other.params)


def test_tensorflow_restores_every_layer_that_we_write_into_its_own_cells_and_computes_the_same(models):
    ours = models / "ours"
    assert (ours / "latest.txt").read_text() == str(ours / WRITTEN[-1].name)
    errors = {model.name: error_of_layer(ours, model, layer_written(model)[0]) for model in WRITTEN}
    assert max(errors.values()) <= TOLERANCE, errors
    assert not any("opaque" in name for model in WRITTEN for name in checkpoint.read_tensorflow(ours / model.name))
