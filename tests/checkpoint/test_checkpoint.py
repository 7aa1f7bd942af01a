"""Savers: what goes in comes out, bit for bit, and the latest is found again."""

import pickle

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnGRU, CudnnRNNRelu, CudnnRNNTanh, Saver, checkpoint, ops
from pycudnnrnn.checkpoint import _file
from pycudnnrnn.checkpoint._file import HEADER_MAX, TENSORS_MAX
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError, StateError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.layers import OF_MODE, built, layer_of


def forget(*arrays):
    for array in arrays:
        array[...] = 0


@examples(300)
@given(specs(dtypes=("float64", "float32", "float16", "bfloat16")), st.integers(0, 9))
def test_a_layer_saved_on_one_layout_restores_bit_for_bit_on_another(tmp_path_factory, spec, layout):
    path = tmp_path_factory.mktemp("round") / "model.safetensors"
    plain = layer_of(spec)
    plain.build((None, None, spec.input_size))
    with use_engine(PermutedLayoutEngine(layout)):
        layer = layer_of(spec, bias_initializer="random_normal")
        layer.build((None, None, spec.input_size))
        Saver({"m": layer}).save(path)
        expected = [a for arrays in layer.op.params_to_canonical(layer.params) for a in arrays]
    Saver({"m": plain}).restore(path)
    found = [a for arrays in plain.op.params_to_canonical(plain.params) for a in arrays]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_layers_saveables_variables_and_arrays_share_a_file(tmp_path):
    encoder, decoder = built(direction="bidirectional"), built(CudnnGRU, seed=2)
    scale = encoder.add_weight("scale", (2,), initializer="ones", trainable=False)
    own = decoder.add_weight("own", (2, 2), dtype="float16", initializer="ones")
    step, kernel = np.array(7), torch.arange(6.0).reshape(2, 3)
    saver = Saver({"encoder": encoder, "decoder": decoder.saveable, "step": step, "kernel": kernel, "own": own})
    path = saver.save(tmp_path / "all.safetensors")
    before = [a.copy() for a in (encoder.params, decoder.params, scale.value, own.value, step, kernel.numpy())]
    forget(encoder.params, decoder.params, scale.value, own.value, step, kernel.numpy())
    saver.restore(str(path))
    after = [encoder.params, decoder.params, scale.value, own.value, step, kernel.numpy()]
    assert all(np.array_equal(a, b) for a, b in zip(after, before, strict=True))
    names = set(safetensors.numpy.load_file(path))
    assert "encoder/stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/kernel" in names
    assert "decoder/cudnn_gru/rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/kernel" in names
    assert {"encoder/scale", "step", "kernel", "own"} < names


def test_a_sequence_of_saveables_has_tfs_names_and_nothing_before_them(tmp_path):
    """Two models under two scopes in one file, and both are read back as themselves."""
    first, second = (built(CudnnRNNTanh, seed=i) for i in (1, 2))
    savers = [
        CudnnOpaqueParamsSaveable.of(layer.params, layer.spec, scope, "s")
        for layer, scope in ((first, "m1"), (second, "m2"))
    ]
    path = Saver(savers).save(tmp_path / "two.safetensors")
    expected = {f"{m}/rnn/multi_rnn_cell/cell_{i}/basic_rnn_cell/{t}" for m in ("m1", "m2") for i in (0, 1)
                for t in ("kernel", "bias", "bias_cudnn_0", "bias_cudnn_1")}  # fmt: skip
    assert set(safetensors.numpy.load_file(path)) == expected
    before = first.params.copy(), second.params.copy()
    forget(first.params, second.params)
    Saver(savers).restore(path)
    assert np.array_equal(first.params, before[0])
    assert np.array_equal(second.params, before[1])
    with pytest.raises(ArgumentError, match="'cudnn_rnn_tanh' twice"):
        Saver([first, second])
    named = [CudnnGRU(1, 2, name="a"), CudnnGRU(1, 2, name="b")]
    for layer in named:
        layer.build((None, None, 2))
    Saver(named).restore(Saver([*named]).save(tmp_path / "named"))


def test_tf_12s_saveable_is_saved_too(tmp_path):
    op = ops.CudnnGRU(2, 3, 5)
    params = op.init_params(3)
    before = params.copy()
    saver = Saver([RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, params)])
    path = saver.save(tmp_path / "old")
    forget(params)
    saver.restore(path)
    assert np.array_equal(params, before)


def test_dropout_continues_where_it_was(tmp_path):
    layer = built(dropout=0.5)
    x = np.random.default_rng(0).normal(size=(4, 3, 5))
    layer(x)
    path = Saver({"m": layer}).save(tmp_path / "m")
    expected = [layer(x)[0] for _ in range(2)]
    twin = built(dropout=0.5, seed=9)
    Saver({"m": twin}).restore(path)
    assert all(np.array_equal(twin(x)[0], outputs) for outputs in expected)
    alone = checkpoint.load(checkpoint.save(tmp_path / "alone", twin))
    assert np.array_equal(alone(x)[0], twin(x)[0])


def test_dropout_states_that_only_a_gpu_can_read_are_kept_for_it(tmp_path):
    """They are bytes: a machine without a GPU carries them from one file into the next."""
    states = [ops.DropoutState("cudnn", 5, 3, b"\x01\x02\x03" * 100), ops.DropoutState("numpy", 2**64 - 1, 7)]
    layer = built(dropout=0.5)
    for state in states:
        layer.op.set_dropout_state(state)
    path = Saver({"m": layer}).save(tmp_path / "m")
    assert safetensors.numpy.load_file(path)["m/dropout_states/cudnn"].size == 300
    twin = built(dropout=0.5, seed=9)
    Saver({"m": twin}).restore(path)
    alone = checkpoint.load(checkpoint.save(tmp_path / "alone", twin))
    for found in (twin, alone, pickle.loads(pickle.dumps(twin))):
        assert sorted(found.op.dropout_states(), key=lambda state: state.engine) == states


def test_one_model_is_saved_with_its_spec_and_loaded_from_the_file_alone(tmp_path):
    for mode, kind in OF_MODE.items():
        extra = {
            "lstm": {"num_proj": 2, "cell_clip": (-1.0, 0.5)},
            "gru": {"bias_mode": "single_input"},
            "rnn_tanh": {"algo": "persist_dynamic", "math_type": "default"},
            "rnn_relu": {"dtype": "float16", "compute_dtype": "float16", "dropout": 0.5},
        }[mode]
        layer = built(kind, direction="bidirectional", name=f"my/{mode}", **extra)
        layer.add_weight("more", (1,))
        path = checkpoint.save(tmp_path / mode, layer)
        with use_engine(PermutedLayoutEngine(3)):
            loaded = checkpoint.load(path)
            assert (type(loaded), loaded.spec, loaded.name) == (kind, layer.spec, f"my/{mode}")
            assert list(loaded.variables_by_name()) == ["opaque_kernel"]
            canonical = loaded.op.params_to_canonical(loaded.params)
        assert np.array_equal(layer.op.canonical_to_params(*canonical), layer.params)
    with pytest.raises(ArgumentTypeError, match="a layer"):
        checkpoint.save(tmp_path / "x", layer.params)
    with pytest.raises(StateError, match="not built"):
        checkpoint.save(tmp_path / "x", CudnnGRU(1, 2))


def test_values_that_are_not_finite_are_reported_and_refused_on_request(tmp_path):
    layer = built(CudnnRNNRelu)
    layer.params[0] = np.nan
    layer.params[5] = np.inf
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m")
    saver.restore(path)
    assert np.isnan(layer.params[0])
    found = checkpoint.inspect(path)
    assert list(found.non_finite.values()) == [2]
    assert found.items["m"]["name"] == "cudnn_rnn_relu"
    assert found.tensors.keys() == safetensors.numpy.load_file(path).keys()
    with pytest.raises(CheckpointError) as raised:
        saver.restore(path, require_finite=True)
    assert raised.value.reason == "not finite"


def test_the_largest_model_that_is_written_is_read(tmp_path):
    layer = CudnnGRU(256, 1, direction="bidirectional", seed=1, bias_initializer="random_normal")
    layer.build((None, None, 1))
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m")
    before = layer.params.copy()
    forget(layer.params)
    saver.restore(path)
    assert np.array_equal(layer.params, before)
    assert len(checkpoint.inspect(path).tensors) == TENSORS_MAX


def test_a_file_of_another_program_is_read_where_that_is_asked_for_alone(tmp_path):
    path = tmp_path / "theirs.safetensors"
    arrays = {"a": np.arange(6, dtype="f4").reshape(2, 3), "empty": np.zeros((0, 3)), "odd": np.array([np.nan, np.inf])}
    safetensors.numpy.save_file(arrays, path, {"format": "pt"})
    for name, found in _file.read_foreign(path).tensors.items():
        assert (found.dtype, found.tolist()) == (arrays[name].dtype, arrays[name].tolist()) or name == "odd"
    found = checkpoint.inspect(path, foreign=True)
    assert (found.verified, found.items, found.metadata) == (False, {}, {"format": "pt"})
    assert found.summaries["a"][:4] == (6, 0, 5, 2.5)
    assert found.summaries["empty"] == (0, None, None, None, 0, 0)
    assert found.summaries["odd"] == (2, None, None, None, 1, 1)
    with pytest.raises(CheckpointError, match="not written by this package"):
        checkpoint.inspect(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="offsets"):
        _file.read_foreign(path)


# --- the book ---------------------------------------------------------------------------------------------------------


def test_the_latest_checkpoints_are_kept_and_named_by_step(tmp_path):
    step = np.array(0)
    saver = Saver({"step": step}, max_to_keep=2)
    for n in (1, 2, 3):
        step[...] = n
        path = saver.save(tmp_path / "model.safetensors", global_step=n if n < 3 else np.array(n))
        assert path.name == f"model-{n}.safetensors"
        assert checkpoint.latest_checkpoint(tmp_path) == path
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint.json", "model-2.safetensors", "model-3.safetensors"
    ]  # fmt: skip
    assert [p.name for p in saver.last_checkpoints] == ["model-2.safetensors", "model-3.safetensors"]
    saver.save(tmp_path / "model.safetensors", global_step=3)
    assert len(saver.last_checkpoints) == 2
    (tmp_path / "mine.safetensors").write_bytes(b"not the saver's")
    for keep in (None, 0):
        everything = Saver({"step": step}, max_to_keep=keep)
        for n in range(6):
            everything.save(tmp_path / f"keep{keep}", global_step=n)
        assert len(list(tmp_path.glob(f"keep{keep}-*"))) == 6
    assert (tmp_path / "mine.safetensors").exists()
    assert (tmp_path / "model-2.safetensors").exists(), "a saver deletes what it wrote, and nothing else"


def test_no_checkpoint_is_no_error_and_a_damaged_book_is_one(tmp_path):
    assert checkpoint.latest_checkpoint(tmp_path) is None
    assert checkpoint.latest_checkpoint(tmp_path / "nowhere") is None
    book = tmp_path / "checkpoint.json"
    for text, reason in (
        ("{", "header text"), ("[]", "header text"), ("{}", "header text"), ('{"latest": 3}', "metadata"),
        ('{"latest": "../../etc/passwd"}', "metadata"), ('{"latest": ""}', "metadata"), ("[" * 10**5, "header text"),
        ('{"latest": "a\\u0000"}', "metadata"), (" " * (2 << 20), "size"), ("\udcff", "header text"),
    ):  # fmt: skip
        book.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(CheckpointError) as raised:
            checkpoint.latest_checkpoint(tmp_path)
        assert raised.value.reason == reason, text[:40]
    book.write_text('{"latest": "gone"}')
    assert checkpoint.latest_checkpoint(tmp_path) is None
    book.unlink()
    book.mkdir()
    with pytest.raises(CheckpointError, match="unreadable"):
        checkpoint.latest_checkpoint(tmp_path)


# --- what cannot be saved ---------------------------------------------------------------------------------------------


def test_savers_refuse_what_they_cannot_hold(tmp_path):
    with pytest.raises(ArgumentTypeError, match="a layer, a saveable, a variable or an array"):
        Saver({"step": 3})
    with pytest.raises(ArgumentTypeError, match="strings as keys"):
        Saver({3: np.zeros(3)})
    with pytest.raises(ArgumentTypeError, match="things that have names"):
        Saver([np.zeros(3)])
    with pytest.raises(StateError, match="not built"):
        Saver({"m": CudnnGRU(1, 2)}).save(tmp_path / "m")
    same = CudnnOpaqueParamsSaveable.of(built().params, built().spec, "m", "s")
    with pytest.raises(ArgumentError, match="twice"):
        Saver({"m": built(), "": same}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="dtype"):
        Saver({"a": np.zeros(3, complex)}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="dtype"):
        Saver({"a": np.zeros(3, ">f4")}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="max_to_keep"):
        Saver({}, max_to_keep=-1)
    with pytest.raises(ArgumentError, match="global_step"):
        Saver({}).save(tmp_path / "m", global_step=-1)
    many = {str(i): np.zeros(0) for i in range(TENSORS_MAX + 1)}
    with pytest.raises(ArgumentError, match=f"at most {TENSORS_MAX}"):
        Saver(many).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match=f"{HEADER_MAX} bytes"):
        Saver({"x" * HEADER_MAX: np.zeros(1)}).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
