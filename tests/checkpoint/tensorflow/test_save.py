"""TensorFlow's own saver restores what ours wrote into TensorFlow's own cells, which compute what our layers do."""

import warnings

import numpy as np
import pytest

from pycudnnrnn import Saver
from tests.checkpoint.tensorflow.conftest import run_tensorflow
from tests.checkpoint.tensorflow.models import CUDNN, INPUT_SIZE, WRITTEN, B, T
from tests.checkpoint.tensorflow.restored import TOLERANCE, error_of, layer_for

pytestmark = pytest.mark.long  # TensorFlow makes a graph for every model


def test_tensorflow_restores_every_layer_and_computes_the_same(tmp_path):
    rng, layers = np.random.default_rng(0), {}
    for model in WRITTEN:
        layer = layers[model] = layer_for(model, **({"num_proj": model.num_proj} if model.num_proj else {}))
        layer.params[...] = rng.normal(scale=0.3, size=layer.params.shape)
        np.save(tmp_path / f"{model.name}-x.npy", rng.normal(size=(T, B, INPUT_SIZE)).astype("f4"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "TensorFlow's cells have one bias per gate")
            saver = Saver({model.scope: layer, "global_step": np.array(model.num_layers)})
            saver.save(tmp_path / model.name, format="tensorflow")
    latest = run_tensorflow("restore_models", tmp_path).strip()
    assert latest == str(tmp_path / WRITTEN[-1].name)
    errors = {model.name: error_of(tmp_path, model, layer) for model, layer in layers.items()}
    print(errors)
    assert max(errors.values()) <= TOLERANCE, errors


def test_a_graph_with_a_cudnn_layer_restores_through_the_saveable_without_its_opaque_kernel(tmp_path):
    """A saver of all variables asks for the buffer too, which is not written; what the saveable asks for is."""
    layer, prefix = layer_for(CUDNN[0]), tmp_path / "model.ckpt-7"
    layer.params[...] = np.random.default_rng(0).normal(size=layer.params.shape)
    with pytest.warns(UserWarning, match="TensorFlow's cells have one bias per gate"):
        Saver({"encoder": layer, "global_step": np.array(7)}).save(prefix, format="tensorflow")
    expected = {"encoder/" + name.partition("/")[2]: a for name, a in layer.saveable.tensors().items()}
    expected = {name: array for name, array in expected.items() if "bias_cudnn" not in name}
    np.savez(f"{prefix}-canonical.npz", **expected)
    said = run_tensorflow("restore_graph", prefix, "encoder")
    assert "Key encoder/opaque_kernel not found in checkpoint" in said
    found = dict(np.load(f"{prefix}.npz"))
    assert found.pop("global_step") == 7
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
