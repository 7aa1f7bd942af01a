"""TensorFlow's own saver restores what ours wrote into TensorFlow's own cells, which compute what our layers do."""

import warnings

import numpy as np
import pytest

from pycudnnrnn import Saver
from tests.tensorflow.conftest import run_tensorflow
from tests.tensorflow.models import INPUT_SIZE, WRITTEN, B, T
from tests.tensorflow.test_models import TOLERANCE
from tests.tensorflow.test_restore import error_of, layer_for

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
