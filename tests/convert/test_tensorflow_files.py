"""Checkpoints of TensorFlow 1.x as they lie in files: TF's own cells in scopes of any name, of every age.

No TensorFlow of today has these cells, so the oracle is their equations (rnn_cell_impl.py, r1.15), on the variables.
"""

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.cells import run_cells, tf_step
from tests.helpers.oracles import equal_models, random_call, random_canonical, run_ours, worst

I, U = 5, 6


def at(scope, seed, inputs=I):
    rng = np.random.default_rng(seed)
    return {f"{scope}/kernel": rng.normal(size=(inputs + U, 4 * U)), f"{scope}/bias": rng.normal(size=4 * U)}


def check(c, arrays, forget_bias, *scopes):
    """Compare with the equations on the variables in the scopes of a model's cells, in cuDNN's order."""
    steps = []
    for scope in scopes:
        cell = {name.removeprefix(f"{scope}/"): array for name, array in arrays.items() if name.startswith(f"{scope}/")}
        steps.append(tf_step(c.spec, cell | {"bias": cell["bias"] + np.repeat([0, 0, forget_bias, 0], U)}))
    x, *states, lengths = random_call(c.spec, 9)
    theirs = run_cells(steps, x, states, lengths, num_dirs=c.spec.num_dirs)
    assert worst(run_ours(c, x, *states, lengths), theirs) < 1e-12


NAMES = {
    "DeepSpeech 0.6's LSTMBlockFusedCell": ("lstm_fused_cell", "lstm_fused_cell"),
    "LSTMBlockFusedCell's own name": ("model/lstm_block_wrapper", "model/lstm_block_wrapper"),
    "nmt's decoder, a MultiRNNCell": ("s2s/decoder/multi_rnn_cell/cell_0/basic_lstm_cell", "s2s/decoder"),
    "nmt's attention": ("d/multi_rnn_cell/cell_0_attention/attention/basic_lstm_cell", "d"),
    "a cell that was called by itself": ("net/lstm_cell_3", "net/lstm_cell_3"),
    "Tacotron 2's decoder": ("dec/decoder_LSTM/multi_rnn_cell/cell_0/decoder_LSTM_1", "dec/decoder_LSTM"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_is_read_in_a_scope_of_any_name(name):
    scope, prefix = NAMES[name]
    arrays = at(scope, 1)
    others = {f"{scope}/kernel/Adam": np.ones(3), "dense/kernel": np.ones((64, 16)), "dense/bias": np.ones(16)}
    check(convert.tensorflow.to_canonical(arrays, prefix=prefix, forget_bias=0.5), arrays, 0.5, scope)
    with pytest.raises(ConvertError) as caught:
        convert.tensorflow.to_canonical(arrays | others)
    (choice,) = caught.value.choices
    with pytest.warns(UserWarning, match="left out, because no cell has them: '.*Adam'$"):
        check(convert.tensorflow.to_canonical(arrays | others, **choice, forget_bias=0.5), arrays, 0.5, scope)


def test_the_names_of_tf_1_0_are_read():
    rng, shapes = np.random.default_rng(2), {"kernel": (I + 3, 4 * U), "bias": (4 * U,), "projection/kernel": (U, 3)}
    arrays = {f"rnn/lstm_cell/{name}": rng.normal(size=shape) for name, shape in shapes.items()}
    old = {name.replace("kernel", "weights").replace("bias", "biases"): array for name, array in arrays.items()}
    check(convert.tensorflow.to_canonical(old, forget_bias=1.0), arrays, 1, "rnn/lstm_cell")


def test_cells_with_names_of_their_own_are_read_in_both_directions():
    """keras-team/keras#10179: LSTMCell(name="fw")."""
    scopes = [f"bidirectional_rnn/{way}/{way}" for way in ("fw", "bw")]
    arrays = at(scopes[0], 1) | at(scopes[1], 2)
    check(convert.tensorflow.to_canonical(arrays, forget_bias=1.0), arrays, 1, *scopes)


def test_the_caller_orders_cells_of_any_names_in_one_direction_and_in_both():
    arrays = (
        at("my/up", 1, U) | at("my/down", 2) | at("fw", 3) | at("bw", 4) | at("up/fw", 5, 2 * U) | at("up/bw", 6, 2 * U)
    )
    c = convert.tensorflow.to_canonical(arrays, layers=["my/down", "my/up"], forget_bias=0)
    check(c, arrays, 0, "my/down", "my/up")
    c = convert.tensorflow.to_canonical(arrays, layers=[("fw", "bw"), ("up/fw", "up/bw")], forget_bias=0)
    check(c, arrays, 0, "fw", "bw", "up/fw", "up/bw")


def test_two_rnns_under_one_scope_are_told_apart():
    """Nmt's encoder: bidirectional layers below, others above."""
    both = [f"encoder/bidirectional_rnn/{way}/lstm_cell" for way in ("fw", "bw")]
    up = [f"encoder/rnn/multi_rnn_cell/cell_{k}/lstm_cell" for k in range(2)]
    arrays = at(both[0], 1) | at(both[1], 2) | at(up[0], 3) | at(up[1], 4, U)
    with pytest.raises(ConvertError, match="there is more than one RNN under 'encoder/'; choose one: ") as caught:
        convert.tensorflow.to_canonical(arrays, prefix="encoder")
    assert [c["prefix"] for c in caught.value.choices] == ["encoder/bidirectional_rnn/", "encoder/rnn/"]
    for prefix, scopes in (("encoder/bidirectional_rnn", both), ("encoder/rnn", up)):
        c = convert.tensorflow.to_canonical(arrays, prefix=prefix, forget_bias=1.0)
        check(c, arrays, 1, *scopes)
    c = convert.tensorflow.to_canonical(arrays, layers=["encoder/rnn"], forget_bias=1.0)
    check(c, arrays, 1, *up)


def test_averages_are_read_if_the_caller_asks_for_them():
    arrays, means = at("rnn/lstm_cell", 1), at("rnn/lstm_cell", 2)
    named = {f"{name}/ExponentialMovingAverage": array for name, array in means.items()}
    with pytest.warns(UserWarning, match="/ExponentialMovingAverage'; ema=True reads the averages"):
        c = convert.tensorflow.to_canonical(arrays | named, forget_bias=0)
    check(c, arrays, 0, "rnn/lstm_cell")
    with pytest.warns(
        UserWarning, match=r"left out, because no cell has them: 'rnn/lstm_cell/bias', 'rnn/lstm_cell/kernel'$"
    ):
        c = convert.tensorflow.to_canonical(arrays | named, forget_bias=0, ema=True)
    check(c, means, 0, "rnn/lstm_cell")
    with pytest.raises(
        ConvertError, match=r"the nearest names are 'rnn/lstm_cell/bias/Exp.*; ema=True reads averages$"
    ):
        convert.tensorflow.to_canonical(named)
    check(convert.tensorflow.to_canonical(named, forget_bias=0, ema=True), means, 0, "rnn/lstm_cell")


LSTM = at("rnn/lstm_cell", 1)


def test_what_only_has_the_shapes_of_a_cell_is_offered_only_if_there_is_nothing_else():
    dense = {"dense/kernel": np.ones((64, 16)), "dense/bias": np.ones(16)}
    with pytest.raises(
        ConvertError,
        match=r"prefix='dense/' \(a cell by its shapes alone\); -s prefix=dense/ on",
    ) as caught:
        convert.tensorflow.to_canonical(dense)
    assert not caught.value.choices, "the command does not take it by itself"
    bare = {name.removeprefix("dense/"): array for name, array in dense.items()}
    assert convert.tensorflow.to_canonical(bare, forget_bias=0).spec.num_units == 4, "for the caller it is a cell"
    with pytest.warns(UserWarning, match="left out, because no cell has them: 'bias', 'kernel'"):
        assert convert.tensorflow.to_canonical(bare | LSTM, forget_bias=0).spec.num_units == U
    with pytest.raises(ConvertError, match="choose one: prefix=''; -s prefix= on the"):
        convert.tensorflow.to_canonical(dense | LSTM, prefix="x")


@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize(("cell", "num_proj"), [("lstm_cell", None), ("lstm_cell", 3), ("basic_lstm_cell", None)])
@pytest.mark.parametrize("bias_mode", ["none", "double"])
def test_tfs_own_cells_compute_the_same_on_what_is_written_for_them(direction, cell, num_proj, bias_mode):
    spec = RNNSpec("lstm", 2, U, I, direction=direction, dtype="float64", num_proj=num_proj, bias_mode=bias_mode)
    c = random_canonical(spec, 3)
    arrays = convert.tensorflow.from_canonical(c, prefix="net", cell=cell, forget_bias=0.7)
    assert not any("cudnn" in name for name in arrays)
    scopes = [f"net/rnn/multi_rnn_cell/cell_{k}/{cell}" for k in range(2)]
    if direction == "bidirectional":
        path = "net/stack_bidirectional_rnn/cell_{}/bidirectional_rnn/{}/" + cell
        scopes = [path.format(k, way) for k in range(2) for way in ("fw", "bw")]
    check(c, arrays, 0.7, *scopes)
    check(convert.tensorflow.to_canonical(arrays, prefix="net", forget_bias=0.7), arrays, 0.7, *scopes)
    usual = convert.tensorflow.from_canonical(c, cell=cell)
    assert np.allclose(usual[min(usual)], arrays[min(arrays)] - 0.3 * np.repeat([0, 0, 1, 0], U))


def test_skip_input_becomes_identity_matrices_in_tfs_own_cell():
    c = random_canonical(RNNSpec("lstm", 1, U, U, input_mode="skip_input", dtype="float64"), 1)
    arrays = convert.tensorflow.from_canonical(c, cell="lstm_cell")
    call = random_call(c.spec, 9)
    back = convert.tensorflow.to_canonical(arrays, forget_bias=1.0)
    assert worst(run_ours(back, *call), run_ours(c, *call)) < 1e-12
    equal_models(convert.tensorflow.to_canonical(convert.tensorflow.from_canonical(c)), c)
