"""Conventions of frameworks that install on no Python of today, copied from their sources: gates, names and numbers.

Gluon, Chainer, Keras 2's CuDNN layers and TensorFlow 1.x. Each convention is written out here once more, gate by gate
and by name. For TensorFlow's cells the equations are written out as well, on the variables that the converter gives.
"""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn._checks import Assumption
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.testing.strategies import specs
from tests.helpers.cells import run_cells, tf_step
from tests.helpers.examples import examples
from tests.helpers.oracles import equal_dicts, equal_models, random_call, random_canonical, run_ours, worst

seeds = st.integers(0, 2**31)
double = specs(input_modes=["linear_input"], bias_modes=["double"], clip=False)


def activation_of(spec):
    return "relu" if spec.mode == "rnn_relu" else "tanh"


def by_gate(c):
    """Return {(pseudo-layer, "weight" or "bias", "W" or "R", gate's name): array}."""
    by_place = {}
    arrays = iter([*c.weights, *c.biases])
    for p, lin_layer_id, gate, kind, _ in canonical_shapes(c.spec):
        side = "P" if gate == "projection" else "WR"[lin_layer_id >= c.spec.num_gates]
        by_place[p, kind, side, gate] = next(arrays)
    return by_place


GATES = {
    # Gluon's rnn/rnn_layer.py and rnn_cell.py, 1.9.1: i, f, c (in_transform), o; r, z (update), o (next_h_tmp).
    # Chainer's n_step_lstm.py, 7.8, the code: w0 i, w1 f, w2 c (tanh), w3 o; its docstring has w2 and w3 the other way;
    # its functions/rnn/n_step_gru.py: r, z, h_bar.
    "lstm": ["input", "forget", "new", "output"],
    "gru": ["reset", "update", "new"],
    "rnn_tanh": ["hidden"],
    "rnn_relu": ["hidden"],
}


@examples(200)
@given(double, seeds)
def test_gluon_by_recorded_names_and_gate_order(spec, seed):
    c = random_canonical(spec, seed)
    gate = by_gate(c)
    expected = {}
    for p in range(spec.num_pseudo_layers):
        name = f"{'lr'[p % spec.num_dirs]}{p // spec.num_dirs}_"
        for kind, word in (("weight", "weight"), ("bias", "bias")):
            for side, half in (("W", "i2h"), ("R", "h2h")):
                parts = [gate[p, kind, side, g] for g in GATES[spec.mode]]
                expected[f"{name}{half}_{word}"] = np.concatenate(parts)
        if spec.num_proj:
            expected[f"{name}h2r_weight"] = gate[p, "weight", "P", "projection"]
    arrays = convert.gluon.from_canonical(c, prefix="rnn0_")
    equal_dicts(arrays, {f"rnn0_{name}": array for name, array in expected.items()})
    equal_models(convert.gluon.to_canonical(arrays, prefix="rnn0_", activation=activation_of(spec)), c)


@examples(200)
@given(specs(input_modes=["linear_input"], bias_modes=["double"], clip=False, projection=False), seeds)
def test_chainer_by_recorded_numbers(spec, seed):
    c = random_canonical(spec, seed)
    gate = by_gate(c)
    expected = {}
    for p in range(spec.num_pseudo_layers):
        for letter, kind in (("w", "weight"), ("b", "bias")):
            names = [(side, g) for side in "WR" for g in GATES[spec.mode]]
            expected |= {f"{p}/{letter}{j}": gate[p, kind, side, g] for j, (side, g) in enumerate(names)}
    arrays = convert.chainer.from_canonical(c)
    equal_dicts(arrays, expected)
    keywords = {"bidirectional": spec.num_dirs == 2, "activation": activation_of(spec)}
    equal_models(convert.chainer.to_canonical(arrays, **keywords), c)
    slashed = {f"/{name}": array for name, array in arrays.items()}
    equal_models(convert.chainer.to_canonical(slashed, **keywords), c)


def keras2_hdf5_rule(weights, gates):
    """What Keras 2 does to a CuDNN layer's weights when it loads them into LSTM or GRU(reset_after=True).

    Recorded from keras/saving/hdf5_format.py, `_convert_rnn_weights` (2.15): the input block of a gate is transposed
    and reshaped in column-major order, the recurrent one transposed; LSTM sums its two biases, GRU stacks them.
    """
    kernel, recurrent, bias = weights
    blocks = [block.T.reshape(block.shape, order="F") for block in np.hsplit(kernel, gates)]
    turned = [block.T for block in np.hsplit(recurrent, gates)]
    halves = bias.reshape(2, -1)
    return np.hstack(blocks), np.hstack(turned), halves.sum(axis=0) if gates == 4 else halves


@pytest.mark.parametrize(("mode", "gates"), [("lstm", 4), ("gru", 3)])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
def test_cudnn_layers_of_keras_2_follow_its_recorded_rule(mode, gates, direction):
    """Recorded conventions: no Keras that runs today has these layers."""
    c = random_canonical(RNNSpec(mode, 2, 4, 3, direction=direction, dtype="float64"), 5)
    arrays = convert.keras.from_canonical(c, cudnn=True)
    with pytest.warns(UserWarning, match="read with go_backwards=False, layers="):  # their activations have no choice
        equal_models(convert.keras.to_canonical(arrays), c)
    without = random_canonical(c.spec.replace(bias_mode="none"), 5)
    assert convert.keras.from_canonical(without, cudnn=True).keys() == arrays.keys(), "the biases are zeros"
    plain = list(convert.keras.from_canonical(c).values())
    values = list(arrays.values())
    for k in range(0, len(values), 3):
        for ours, ruled in zip(plain[k : k + 3], keras2_hdf5_rule(values[k : k + 3], gates), strict=True):
            np.testing.assert_array_equal(ours, ruled)


def run_tf(spec, arrays, x, hx, cx, lengths):
    """Walk the cells as dynamic_rnn and stack_bidirectional_dynamic_rnn do."""
    cell = {"lstm": "cudnn_compatible_lstm_cell", "gru": "cudnn_compatible_gru_cell"}.get(spec.mode, "basic_rnn_cell")
    steps = []
    for p in range(spec.num_pseudo_layers):
        layer, way = divmod(p, spec.num_dirs)
        path = f"rnn/multi_rnn_cell/cell_{layer}/{cell}/"
        if spec.num_dirs == 2:
            path = f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{('fw', 'bw')[way]}/{cell}/"
        of_cell = {name.removeprefix(path): array for name, array in arrays.items() if name.startswith(path)}
        steps.append(tf_step(spec, of_cell))
    states = (hx, cx) if spec.has_cell_state else (hx,)
    return run_cells(steps, x, states, lengths, num_dirs=spec.num_dirs)


@examples(200)
@given(specs(input_modes=["linear_input"], clip=False), seeds)
def test_tensorflows_cells_compute_the_same_on_what_we_write(spec, seed):
    c = random_canonical(spec, seed)
    arrays = convert.tensorflow.from_canonical(c)
    call = random_call(spec, seed)
    theirs = run_tf(spec, arrays, *call)
    assert worst(run_ours(c, *call), theirs) <= 1e-10
    back = convert.tensorflow.to_canonical(arrays, activation=activation_of(spec))
    if spec.bias_mode in ("double", "none") or (spec.bias_mode == "single_input" and spec.mode != "gru"):
        equal_models(back, c)
    summed = convert.tensorflow.from_canonical(c, keep_biases_apart=False)
    assert not any("bias_cudnn" in name for name in summed)
    for model in (back, convert.tensorflow.to_canonical(summed, activation=activation_of(spec))):
        assert worst(run_ours(model, *call), theirs) <= 1e-10


@examples(100)
@given(specs(input_modes=["skip_input"], clip=False), seeds)
@example(RNNSpec("lstm", 1, 4, 4, input_mode="skip_input", num_proj=2), 1)
def test_skip_input_has_a_place_in_tensorflows_names(spec, seed):
    c = random_canonical(spec, seed)
    arrays = convert.tensorflow.from_canonical(c)
    kernel = next(array for name, array in arrays.items() if name.endswith(("_cell/kernel", "gates/kernel")))
    assert len(kernel) == spec.state_size
    back = convert.tensorflow.to_canonical(arrays, activation=activation_of(spec))
    assert back.spec.input_mode == "skip_input"
    call = random_call(spec, seed)
    assert worst(run_ours(back, *call), run_ours(c, *call)) <= 1e-12


def test_a_pair_counts_while_its_sum_is_the_bias_and_no_longer():
    c = random_canonical(RNNSpec("lstm", 1, 4, 3, dtype="float64"), 1)
    arrays = convert.tensorflow.from_canonical(c, prefix="net/")
    trained = arrays | {name: array + 0.1 for name, array in arrays.items() if name.endswith("/bias")}
    back = convert.tensorflow.to_canonical(trained, prefix="net/")
    assert back.spec.bias_mode == "double"
    assert not any(np.shares_memory(a, b) for a in trained.values() for b in back.weights + back.biases)
    for gate in range(4):
        np.testing.assert_allclose(back.biases[gate], c.biases[gate] + c.biases[gate + 4] + 0.1)
        assert not back.biases[gate + 4].any()
    equal_models(convert.tensorflow.to_canonical(arrays, prefix="net/"), c)
    old = {name.replace("bias_cudnn_", "bias_cudnn "): array for name, array in arrays.items()}
    equal_models(convert.tensorflow.to_canonical(old, prefix="net/"), c)  # the space of TF 1.3


@pytest.mark.parametrize("bias_mode", ["single_input", "double"])
@pytest.mark.parametrize("forget_bias", [0.5, None])
def test_the_number_that_tfs_own_lstm_cell_adds_when_it_runs_goes_to_the_forget_gate(forget_bias, bias_mode):
    """rnn_cell_impl.py (r1.15): i, j, f, o = split(...); sigmoid(f + forget_bias), which is 1.0 by default."""
    c = random_canonical(RNNSpec("lstm", 1, 4, 3, bias_mode=bias_mode, dtype="float64"), 1)
    arrays = {name.replace("cudnn_compatible_", ""): a for name, a in convert.tensorflow.from_canonical(c).items()}
    if forget_bias is None:
        with pytest.warns(UserWarning, match="lstm_cell adds forget_bias to its forget gate when it runs: 1.0"):
            back = convert.tensorflow.to_canonical(arrays)
    else:
        back = convert.tensorflow.to_canonical(arrays, forget_bias=forget_bias)
    for gate, (ours, theirs) in enumerate(zip(back.biases, c.biases, strict=True)):
        assert np.array_equal(ours, theirs + (gate == 1) * (1.0 if forget_bias is None else forget_bias))


LAYERS = 12


@pytest.mark.filterwarnings("ignore:the arrays do not contain how their layers were made", "ignore:read as one stack")
@pytest.mark.parametrize("framework", ["pytorch", "keras", "onnx", "flax", "tensorflow", "equinox", "gluon", "chainer"])
def test_layer_10_comes_after_layer_2_in_whichever_order_a_file_has_them(framework):
    c = random_canonical(RNNSpec("lstm", LAYERS, 3, 3, dtype="float64"), 1)
    reader = getattr(convert, framework)
    arrays = reader.from_canonical(c)
    names = sorted(arrays)
    random.Random(1).shuffle(names)
    read = reader.to_canonical({name: arrays[name] for name in names})
    assert read.spec.num_layers == LAYERS
    assert all(map(np.array_equal, read.weights, c.weights))


@pytest.mark.parametrize(("framework", "layers"), [("flax", 2), ("flax", 3), ("equinox", 2), ("chainer", 2)])
def test_cells_that_only_numbers_order_are_read_as_layers_with_a_warning(framework, layers):
    c = random_canonical(RNNSpec("lstm", layers, 3, 3), 1)
    reader = getattr(convert, framework)
    arrays = {name.replace("layers_", "LSTMCell_"): array for name, array in reader.from_canonical(c).items()}
    twins = "; if they are two directions, give bidirectional=True" if layers == 2 else ""
    with pytest.warns(Assumption, match=f"read as one stack, in the order of their numbers: .*[^e]{twins}$"):
        assert reader.to_canonical(arrays).spec.num_layers == layers
    assert reader.to_canonical(arrays, bidirectional=False).spec.num_layers == layers
    if layers == 2:
        assert reader.to_canonical(arrays, bidirectional=True).spec.num_dirs == 2
