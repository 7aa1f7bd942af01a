"""What goes into a checkpoint comes out bit for bit, and a damaged file is refused: read this file first."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNTanh, Saver, checkpoint, ops
from pycudnnrnn.errors import CheckpointError
from pycudnnrnn.layers import Variable
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.kinds import DTYPES, KINDS, put
from tests.helpers.layers import built, layer_of
from tests.helpers.layouts import ShuffledEngine

RECORDED = Path(__file__).parent / "files/format-1.safetensors"


def canonical_bytes(op, params):
    return [array.tobytes() for arrays in op.params_to_canonical(params) for array in arrays]


@examples(150)
@given(specs(dtypes=DTYPES), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_a_model_of_any_layout_comes_back_bit_for_bit(tmp_path_factory, spec, layout, seed):
    """By a saver into another layer, and from the file alone; with NaN, infinities and zeros of both signs."""
    folder, rng = tmp_path_factory.mktemp("round"), np.random.default_rng(seed)
    plain = layer_of(spec)
    plain.build((None, None, spec.input_size))
    with use_engine(ShuffledEngine(layout)):
        layer = layer_of(spec, name="my/rnn")
        layer.build((None, None, spec.input_size))
        params = rng.normal(size=layer.params.size).astype(spec.dtype.numpy)
        odd = rng.random(params.size) < 0.2
        params[odd] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], odd.sum())
        layer.params[...] = params
        layer.add_weight("more", (1,))
        op = ops.from_spec(spec)
        expected = canonical_bytes(op, params)
        Saver({"m": layer}).save(folder / "saver")
        checkpoint.save(folder / "op", op, params)
        checkpoint.save(folder / "layer", layer)
    plain.add_weight("more", (1,))
    Saver({"m": plain}).restore(folder / "saver")
    assert canonical_bytes(plain.op, plain.params) == expected
    loaded, loaded_params = checkpoint.load_op(folder / "op")
    assert (type(loaded), loaded.spec, loaded_params.dtype) == (type(op), spec, spec.dtype.numpy)
    assert canonical_bytes(loaded, loaded_params) == expected
    again = checkpoint.load(folder / "layer")
    assert (type(again), again.spec, again.name) == (type(layer), spec, "my/rnn")
    assert list(again.variables_by_name()) == ["opaque_kernel"]
    assert canonical_bytes(again.op, again.params) == expected
    assert checkpoint.load(folder / "op").name == f"cudnn_{spec.mode}"


def things(seed):
    """What the recorded file holds; its weights are those of the file only after a restore."""
    encoder = CudnnLSTM(2, 3, direction="bidirectional", dropout=0.5, seed=seed, num_proj=2, name="enc")
    encoder.build((None, None, 4))
    encoder.add_weight("scale", (2,), initializer="zeros")
    gru = CudnnGRU(1, 2, dtype="bfloat16", seed=5)
    tanh = CudnnRNNTanh(1, 2, dtype="float16", seed=5, bias_mode="single_input")
    for layer in (gru, tanh):
        layer.build((None, None, 2))
    kinds = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
             "float64")  # fmt: skip
    arrays = {f"a/{kind}": np.zeros((2, 3), kind) for kind in kinds}
    return {"encoder": encoder, "g": gru, "t": tanh.saveable, **arrays, "ü": np.zeros((0, 3)), "step": np.array(0)}


def test_a_file_of_the_first_format_is_restored_and_saved_again_to_the_byte(tmp_path):
    """It was written before the reader was rewritten. So the same contents give the same bytes, too."""
    items = things(seed=3)
    Saver(items).restore(RECORDED)
    assert items["step"] == 7
    assert items["encoder"].op.dropout_state() == ops.DropoutState("numpy", 3, 1)
    assert items["encoder"].get_weights()[1].tolist() == [1, 1]
    for name, array in safetensors.numpy.load_file(RECORDED).items():
        assert name not in items or np.array_equal(items[name], array)
    assert Saver(items).save(tmp_path / "again").read_bytes() == RECORDED.read_bytes()


@pytest.mark.parametrize("kind", [*KINDS, "variable"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_params_of_every_library_are_written(tmp_path, kind, dtype):
    op = ops.CudnnGRU(2, 3, 5, dtype=dtype)
    params = op.init_params(seed=1)
    checkpoint.save(tmp_path / "m", op, Variable("v", params) if kind == "variable" else put(kind, params))
    assert np.array_equal(checkpoint.load_op(tmp_path / "m")[1], params)


def test_arrays_are_saved_and_restored_by_their_elements_however_they_lie_in_memory(tmp_path):
    whole = np.zeros((4, 6))
    views = {"rows": whole[::2, 1:3], "turned": np.zeros((3, 5)).T, "back": np.zeros(4)[::-1], "none": np.zeros((0, 3)),
             "row": np.zeros(3)[None], "torch": torch.zeros(6, 2)[::2].T,
             "parameter": torch.nn.Parameter(torch.zeros(3))}  # fmt: skip
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(*a.shape, 2)).astype(str(a.dtype)[-7:])[..., 1] for name, a in views.items()}
    Saver(views).restore(Saver(values).save(tmp_path / "m"))
    for name, array in views.items():
        host = array.detach().numpy() if name in {"torch", "parameter"} else array
        assert np.array_equal(host, values[name]), name
    assert not whole[1::2].any()


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_continues_where_it_was(tmp_path):
    """After a restore, after a load, and when its state goes back: earlier masks come again."""
    layer, x = built(dropout=0.5), np.random.default_rng(0).normal(size=(4, 3, 5))
    fresh = Saver({"m": layer}).save(tmp_path / "fresh")
    layer(x)
    path, alone = Saver({"m": layer}).save(tmp_path / "m"), checkpoint.save(tmp_path / "alone", layer)
    state = layer.op.dropout_state()
    expected = [layer(x)[0] for _ in range(2)]
    assert state.position == 1
    assert not np.array_equal(*expected)
    twin = built(dropout=0.5, seed=9)
    for restored in (twin, layer):
        Saver({"m": restored}).restore(path)
        assert restored.op.dropout_state() == state
        assert all(np.array_equal(restored(x)[0], outputs) for outputs in expected)
    assert np.array_equal(checkpoint.load(alone)(x)[0], expected[0])
    op, params = checkpoint.load_op(alone)
    assert op.dropout_state() == state
    assert np.array_equal(op(x, None, None, params)[0], expected[0])
    Saver({"m": layer}).restore(fresh)
    assert layer.op.dropout_state().position == 0


@pytest.mark.parametrize("more", [{"compute_dtype": "float16"}, {"dtype": "float32", "algo": "persist_static"}])
def test_a_loaded_layer_has_the_whole_spec(tmp_path, more):
    layer = built(CudnnGRU, **({"dtype": "float16", "dropout": 0.5, "seed": 3, "math_type": "fma"} | more))
    assert checkpoint.load(checkpoint.save(tmp_path / "m", layer)).spec == layer.spec


def test_dropout_states_that_only_a_gpu_can_read_are_kept_for_it(tmp_path):
    """They are bytes: a machine without a GPU carries them from one file into the next."""
    states = [ops.DropoutState("cudnn", 5, 3, b"\x01\x02\x03" * 100), ops.DropoutState("numpy", 2**64 - 1, 7)]
    layer, twin = built(dropout=0.5), built(dropout=0.5, seed=9)
    for state in states:
        layer.op.set_dropout_state(state)
    path = Saver({"m": layer}).save(tmp_path / "m")
    assert safetensors.numpy.load_file(path)["m/dropout_states/cudnn"].size == 300
    Saver({"m": twin}).restore(path)
    alone = checkpoint.load(checkpoint.save(tmp_path / "alone", twin))
    for layer in (twin, alone, pickle.loads(pickle.dumps(twin))):
        assert sorted(layer.op.dropout_states(), key=lambda state: state.engine) == states


# --- damage -----------------------------------------------------------------------------------------------------------


@examples(300)
@given(st.data())
def test_a_damaged_file_is_refused_or_right_and_a_refused_one_changes_nothing(tmp_path_factory, data):
    layer, path = built(dropout=0.5), tmp_path_factory.mktemp("damage") / "m"
    good = Saver({"m": layer}).save(path).read_bytes()
    at, put = len(good) - data.draw(st.integers(1, len(good))), data.draw(st.binary(min_size=1, max_size=9))
    path.write_bytes(good[:at] + put + good[at + data.draw(st.sampled_from([0, len(put), len(good)])) :])
    twin = built(dropout=0.5, seed=9)
    expected, state = twin.params.copy(), twin.op.dropout_state()
    try:
        Saver({"m": twin}).restore(path)
    except CheckpointError as error:
        assert error.reason in checkpoint.REASONS  # noqa: PT017  some of the damages do no harm
    else:
        expected, state = layer.params, layer.op.dropout_state()
    assert np.array_equal(twin.params, expected)
    assert twin.op.dropout_state() == state
