"""What TensorFlow trained runs here, and computes what TensorFlow computes. The oracle is TensorFlow itself."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import checkpoint, convert
from pycudnnrnn.errors import ConvertError
from tests.checkpoint.tensorflow.models import BUILT, CUDNN, INPUT_SIZE, LENGTHS, OWN_CELLS, REFUSED
from tests.checkpoint.tensorflow.restored import TOLERANCE, by_name
from tests.helpers.oracles import run_ours, worst

pytestmark = pytest.mark.long  # TensorFlow makes a graph for every model


def keywords(model):
    activation = {"rnn_tanh": "tanh", "rnn_relu": "relu"}.get(model.kind)
    return {"prefix": f"{model.scope}/" if model.scope else ""} | ({"activation": activation} if activation else {})


def converted(folder, model, **more):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        arrays = checkpoint.read_tensorflow(folder / model.name)
        c = convert.tensorflow.to_canonical(arrays, **keywords(model), **more)
    return c, [str(warning.message) for warning in said]


def error_of(folder, model, c):
    """Return the worst difference from TensorFlow's own outputs and states."""
    theirs = np.load(folder / f"{model.name}.npz")
    states = [None] * (1 + c.spec.has_cell_state)
    ours = run_ours(c, theirs["x"], *states, *[None] * (2 - len(states)), LENGTHS)
    return worst(ours, [theirs.get(name) for name in ("output", "output_h", "output_c")])


@by_name([*CUDNN, *BUILT, *OWN_CELLS])
def test_a_trained_model_computes_what_it_did_in_tensorflow(models, model):
    c, said = converted(models, model)
    assert (c.spec.mode, c.spec.num_layers, c.spec.num_dirs) == (model.kind, model.num_layers, 1 + model.bidirectional)
    assert error_of(models, model, c) <= TOLERANCE
    (left,) = (text for text in said if text.startswith("left out, since they are of no cell: "))
    scope = f"{model.scope}/" if model.scope else ""
    assert f"'{scope}opaque_kernel'" in left or " more" in left


@by_name([model for model in OWN_CELLS if model.kind == "lstm"])
def test_what_an_lstm_cell_adds_to_its_forget_gate_is_folded_in_and_said(models, model):
    _, said = converted(models, model)
    assert any("1.0, its default, was added" in text for text in said)
    c, said = converted(models, model, forget_bias=1.0)
    assert not any("forget_bias" in text for text in said)
    assert error_of(models, model, c) <= TOLERANCE
    c, _ = converted(models, model, forget_bias=0.0)
    assert error_of(models, model, c) > 1e-3


@by_name(REFUSED)
def test_cells_that_compute_something_else_are_refused_by_their_variables(models, model):
    text = {"gru_cell": "its reset gate comes before the product", "peephole": "w_f_diag.* unexpected"}[model.cell]
    with pytest.raises(ConvertError, match=text):
        converted(models, model)


@by_name([model for model in BUILT if model.kind in {"rnn_tanh", "rnn_relu"}])
def test_an_activation_that_no_file_says_has_to_be_said(models, model):
    arrays = checkpoint.read_tensorflow(models / model.name)
    with pytest.raises(ConvertError, match="activation: nothing says whether it is of CudnnRNNTanh or CudnnRNNRelu"):
        convert.tensorflow.to_canonical(arrays)


def test_a_wrong_scope_names_those_that_are_there(models):
    arrays = checkpoint.read_tensorflow(models / CUDNN[0].name)
    with pytest.raises(ConvertError, match="there is an RNN under the prefix 'cudnn_lstm/'"):
        convert.tensorflow.to_canonical(arrays)


def test_a_forget_bias_where_no_cell_adds_one_is_refused(models):
    with pytest.raises(ConvertError, match="forget_bias: cudnn_compatible_lstm_cell adds nothing"):
        converted(models, CUDNN[0], forget_bias=1.0)
    for wrong in ("1", True, float("nan")):
        with pytest.raises(ConvertError, match="expecting a finite number"):
            converted(models, OWN_CELLS[0], forget_bias=wrong)


@by_name([CUDNN[1], CUDNN[10], CUDNN[-1]])
def test_the_example_runs_on_what_tensorflow_wrote(models, model):
    path = Path(__file__).parents[3] / "examples" / "tf_checkpoint.py"
    activation = [keywords(model)["activation"]] if "activation" in keywords(model) else []
    command = [sys.executable, str(path), str(models / model.name), model.scope, *activation]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    c, _ = converted(models, model)
    x = np.linspace(-1, 1, 6 * 2 * INPUT_SIZE).reshape(6, 2, -1).astype("f4")
    output = run_ours(c, x, *[None] * 2, [6, 6])[0]
    assert repr(c.spec) in done.stdout
    assert float(done.stdout.split()[-1]) == pytest.approx(float(output.mean()), abs=1e-5)
