"""TensorFlow's own saver restores what ours wrote into TensorFlow's own cells, which compute what our layers do."""

import numpy as np
import pytest

from tests.checkpoint.tensorflow.conftest import layer_written, names_in_encoder
from tests.checkpoint.tensorflow.models import CUDNN, WRITTEN
from tests.checkpoint.tensorflow.restored import TOLERANCE, error_of

pytestmark = pytest.mark.long  # TensorFlow makes a graph for every model


def test_tensorflow_restores_every_layer_and_computes_the_same(models):
    ours = models / "ours"
    assert (ours / "latest.txt").read_text() == str(ours / WRITTEN[-1].name)
    errors = {model.name: error_of(ours, model, layer_written(model)[0]) for model in WRITTEN}
    assert max(errors.values()) <= TOLERANCE, errors


def test_a_graph_with_a_cudnn_layer_restores_through_the_saveable_without_its_opaque_kernel(models):
    """A saver of all variables asks for the buffer too, which is not written; what the saveable asks for is."""
    prefix, expected = models / "graph/model.ckpt-7", names_in_encoder(layer_written(CUDNN[0])[0])
    assert "Key encoder/opaque_kernel not found in checkpoint" in (models / "graph/model.ckpt-7.txt").read_text()
    found = dict(np.load(f"{prefix}.npz"))
    assert found.pop("global_step") == 7
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
