"""`checkpoint.save(path, op, params)` and `load_op`: an op and its params in one file, and back from the file alone."""

import pickle

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnGRU, CudnnLSTM, Saver, checkpoint, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError
from pycudnnrnn.layers import Variable
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.kinds import DTYPES, KINDS, put
from tests.helpers.layers import built


def canonical_bytes(op, params):
    return [array.tobytes() for arrays in op.params_to_canonical(params) for array in arrays]


def op_with_dropout(seed=7):
    return ops.CudnnLSTM(2, 8, 4, dropout=0.5, seed=seed)


@examples(200)
@given(specs(dtypes=DTYPES), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_an_op_is_recreated_from_the_file_alone_bit_for_bit(tmp_path_factory, spec, layout, seed):
    """On another layout, too, with NaN, infinities and zeros of both signs among the numbers."""
    path = tmp_path_factory.mktemp("op") / "m.safetensors"
    rng = np.random.default_rng(seed)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
    with use_engine(PermutedLayoutEngine(layout)):
        op = ops.from_spec(spec)
        params = rng.normal(size=op.params_size()).astype(spec.dtype.numpy)
        params[rng.random(params.size) < 0.2] = odd[rng.integers(5)]
        expected = canonical_bytes(op, params)
        assert checkpoint.save(path, op, params) == path
    loaded, found = checkpoint.load_op(path)
    assert (type(loaded), loaded.spec) == (type(op), spec)
    assert (found.shape, found.dtype) == ((loaded.params_size(),), spec.dtype.numpy)
    assert canonical_bytes(loaded, found) == expected


@pytest.mark.parametrize("kind", [*KINDS, "variable"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_params_of_every_library_are_written(tmp_path, kind, dtype):
    op = ops.CudnnGRU(2, 3, 5, dtype=dtype)
    params = op.init_params(seed=1)
    given = Variable("v", params) if kind == "variable" else put(kind, params)
    checkpoint.save(tmp_path / "m", op, given)
    assert np.array_equal(checkpoint.load_op(tmp_path / "m")[1], params)


def test_dropout_continues_where_it_was(tmp_path):
    op = op_with_dropout()
    params = op.init_params(seed=1)
    x = np.random.default_rng(0).normal(size=(4, 3, 4)).astype("f4")
    op(x, None, None, params)
    checkpoint.save(tmp_path / "m", op, params)
    twin, twin_params = checkpoint.load_op(tmp_path / "m")
    assert twin.dropout_state() == op.dropout_state()
    assert twin.dropout_state().position > 0
    for _ in range(2):
        assert np.array_equal(twin(x, None, None, twin_params)[0], op(x, None, None, params)[0])


def test_dropout_states_that_only_a_gpu_can_read_are_kept_for_it(tmp_path):
    states = [ops.DropoutState("cudnn", 5, 3, b"\x01\x02\x03" * 100), ops.DropoutState("numpy", 2**64 - 1, 7)]
    op = op_with_dropout()
    for state in states:
        op.set_dropout_state(state)
    checkpoint.save(tmp_path / "m", op, op.init_params())
    assert safetensors.numpy.load_file(tmp_path / "m")["dropout_states/cudnn"].size == 300
    loaded = checkpoint.load_op(tmp_path / "m")[0]
    for found in (loaded, pickle.loads(pickle.dumps(loaded))):
        assert sorted(found.dropout_states(), key=lambda state: state.engine) == states


def test_a_model_is_read_as_an_op_or_as_a_layer_whichever_wrote_it(tmp_path):
    op, layer = op_with_dropout(), built(CudnnGRU, direction="bidirectional", dropout=0.5)
    params, x = op.init_params(seed=1), np.ones((3, 2, 4), "f4")
    checkpoint.save(tmp_path / "op", op, params)
    as_layer = checkpoint.load(tmp_path / "op")
    assert (type(as_layer), as_layer.spec, as_layer.name) == (CudnnLSTM, op.spec, "cudnn_lstm")
    assert np.array_equal(as_layer(x)[0], op(x, None, None, params)[0])
    layer.add_weight("more", (1,))
    checkpoint.save(tmp_path / "layer", layer)
    loaded, own = checkpoint.load_op(tmp_path / "layer")
    assert (type(loaded), loaded.spec) == (ops.CudnnGRU, layer.spec)
    assert np.array_equal(own, layer.params)
    y = np.ones((3, 2, 5))
    assert np.array_equal(loaded(y, None, own)[0], layer(y)[0])


def test_wrong_arguments_of_save_are_named_and_nothing_is_written(tmp_path):
    op, layer = op_with_dropout(), built(CudnnGRU)
    params, path = op.init_params(), tmp_path / "m"
    for arguments, kind, text in (
        ((op,), ArgumentTypeError, r"params: None, expecting the op's params: save\(path, op, params\)"),
        ((layer, params), ArgumentError, "params: .*ndarray.*, expecting None with a layer, which has its own"),
        ((op, params[:-1]), ArgumentError, r"params shape: \(.*\), expecting"),
        ((op, params.astype("f8")), ArgumentError, "params dtype: float64, expecting float32, the model's"),
        ((op, params.tolist()), ArgumentTypeError, "params: .*list"),
        ((params,), ArgumentTypeError, "layer: .*ndarray.*, expecting a layer, or an op with its params"),
        ((params, op), ArgumentTypeError, r"layer: .*ndarray.*, expecting .*: save\(path, op, params\)"),
    ):
        with pytest.raises(kind, match=f"^Invalid {text}"):
            checkpoint.save(path, *arguments)
    with pytest.raises(ArgumentError, match=r"^Invalid path"):
        checkpoint.save(tmp_path / "m.npz", op, params)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_one_model_are_refused(tmp_path):
    op = op_with_dropout()
    params = op.init_params()
    path = checkpoint.save(tmp_path / "m", op, params)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    bad = {
        "hash": path,
        "metadata": Saver({"a": built(), "b": built(CudnnGRU)}).save(tmp_path / "two"),
        "unreadable": tmp_path / "none",
    }
    for reason, file in bad.items():
        with pytest.raises(CheckpointError) as raised:
            checkpoint.load_op(file)
        assert raised.value.reason == reason
    with pytest.raises(CheckpointError, match="under 'a', 'b': build what it held"):
        checkpoint.load_op(bad["metadata"])
    Saver({"a": built(bias_mode="single_input")}).save(tmp_path / "m.ckpt", format="tensorflow")
    with pytest.raises(CheckpointError, match="describes no layer"):
        checkpoint.load_op(tmp_path / "m.ckpt")
    params[3] = np.nan
    checkpoint.save(path, op, params)
    assert np.isnan(checkpoint.load_op(path)[1][3])
    with pytest.raises(CheckpointError) as raised:
        checkpoint.load_op(path, require_finite=True)
    assert raised.value.reason == "not finite"
