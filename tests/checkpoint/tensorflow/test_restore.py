"""A saver restores what TensorFlow's saver wrote, each its own, or nothing. The oracle is TensorFlow itself."""

import numpy as np
import pytest

from pycudnnrnn import Saver, checkpoint
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable
from tests.checkpoint.tensorflow.models import BUILT, CUDNN
from tests.checkpoint.tensorflow.restored import TOLERANCE, by_name, error_of, layer_for

pytestmark = pytest.mark.long  # TensorFlow makes a graph for every model


@by_name([*CUDNN, *BUILT])
def test_a_layer_restored_from_a_training_computes_what_it_did_in_tensorflow(models, model):
    layer, step = layer_for(model), np.array(-1, np.int64)
    Saver({model.scope: layer, "global_step": step}).restore(models / model.name)
    assert error_of(models, model, layer) <= TOLERANCE
    assert step == checkpoint.read_tensorflow(models / model.name, names=["global_step"])["global_step"]


@by_name([model for model in CUDNN if model.num_layers == 2])
def test_a_saveable_reads_the_same_by_its_own_scope(models, model):
    layer, other = layer_for(model), layer_for(model)
    Saver({model.scope: layer}).restore(models / model.name)
    Saver([CudnnOpaqueParamsSaveable.of(other.params, other.spec, model.scope, "s")]).restore(models / model.name)
    assert np.array_equal(layer.params, other.params)
