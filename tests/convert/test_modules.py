"""Modules of the frameworks' own: the names under which they keep their weights, against what they compute."""

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import (
    equal_dicts,
    equal_models,
    need,
    random_call,
    random_canonical,
    randomized,
    run_ours,
    worst,
)

need("torch", "jax", "flax", "equinox")
import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import torch  # noqa: E402
from flax import linen, nnx, traverse_util  # noqa: E402

TOLERANCE = 1e-10


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def test_parameters_that_want_gradients_are_read_and_left_alone():
    module = torch.nn.LSTM(3, 4)
    parameters = dict(module.named_parameters())
    c = convert.pytorch.to_canonical(parameters)
    c.weights[0][:] = 7
    equal_models(convert.pytorch.to_canonical(module.state_dict()), convert.pytorch.to_canonical(parameters))
    assert not (module.weight_ih_l0 == 7).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype_goes_through_bit_for_bit(dtype):
    module = torch.nn.GRU(3, 4, dtype=getattr(torch, dtype))
    c = convert.pytorch.to_canonical(module.state_dict())
    assert c.spec.dtype == dtype
    for name, array in convert.pytorch.from_canonical(c).items():
        bits = torch.int64 if dtype == "float64" else torch.int32 if dtype == "float32" else torch.int16
        expected = module.state_dict()[name].view(bits).numpy()
        assert np.array_equal(array.view(expected.dtype), expected), name


def test_numbers_in_the_other_byte_order_are_read_as_numbers():
    arrays = {name: t.numpy() for name, t in torch.nn.LSTM(3, 4).state_dict().items()}
    swapped = {name: a.astype(a.dtype.newbyteorder()) for name, a in arrays.items()}
    equal_models(convert.pytorch.to_canonical(swapped), convert.pytorch.to_canonical(arrays))


CELLS = {"lstm": "LSTMCell", "optimized": "OptimizedLSTMCell", "gru": "GRUCell", "rnn_tanh": "SimpleCell"}
WIDE = {"dtype": "float64", "param_dtype": "float64"}


def random_params(module, x, seed):
    """Return random params of a module of linen's, by name."""
    params = module.init(jax.random.key(0), x)["params"]
    return randomized({n: np.asarray(a) for n, a in traverse_util.flatten_dict(params, sep="/").items()}, seed)


def applied(module, params, x, **keywords):
    return module.apply({"params": traverse_util.unflatten_dict(params, sep="/")}, x, **keywords)


@pytest.mark.parametrize("kind", CELLS)
def test_linens_own_rnn_modules_are_read_by_their_params(kind):
    x = np.random.default_rng(1).normal(size=(4, 6, 3))  # [T, B, I]
    lengths = np.array([4, 1, 3, 2, 4, 2])
    arrays, below = {}, x.swapaxes(0, 1)
    for k in range(2):
        module = linen.Bidirectional(*(linen.RNN(getattr(linen, CELLS[kind])(5, **WIDE)) for _ in range(2)))
        params = random_params(module, below, k)
        below = applied(module, params, below, seq_lengths=lengths)
        below = np.where((np.arange(4) < lengths[:, None])[..., None], below, 0)
        arrays |= {f"layers_{k}/{name}": array for name, array in params.items()}
    c = convert.flax.to_canonical(
        traverse_util.unflatten_dict(dict(sorted(arrays.items())), sep="/"), activation="tanh"
    )
    assert (c.spec.num_layers, c.spec.num_dirs, c.spec.num_units) == (2, 2, 5)
    zeros = np.zeros((4, 6, 5))
    assert np.abs(run_ours(c, x, zeros, zeros, lengths)[0] - below.swapaxes(0, 1)).max() <= TOLERANCE
    equal_dicts(dict(sorted(convert.flax.from_canonical(c).items())), dict(sorted(arrays.items())))


@pytest.mark.parametrize("kind", CELLS)
def test_nnx_cells_are_read_by_their_state_and_take_what_we_write(kind):
    cell = getattr(nnx, CELLS[kind])(3, 5, rngs=nnx.Rngs(0), **WIDE)
    pure = traverse_util.flatten_dict(nnx.to_pure_dict(nnx.state(cell, nnx.Param)))
    state = randomized({path: np.asarray(array) for path, array in pure.items()}, 4)
    nnx.update(cell, nnx.from_flat_state({p: nnx.Param(jax.numpy.asarray(a)) for p, a in state.items()}))
    c = convert.flax.to_canonical(state, activation="tanh")
    assert c.spec.bias_mode == ("single_recurrent" if c.spec.has_cell_state else "single_input")
    x, h, of_lstm = np.random.default_rng(2).normal(size=(3, 1, 2, 5))
    _, y = cell((of_lstm[0], h[0]) if c.spec.has_cell_state else h[0], x[0, :, :3])
    assert np.abs(run_ours(c, np.ascontiguousarray(x[..., :3]), h, of_lstm, [1, 1])[0][0] - y).max() <= TOLERANCE
    written = convert.flax.from_canonical(c, api="nnx", optimized=kind == "optimized")
    expected = {"cell/" + "/".join(path): array for path, array in state.items()}
    equal_dicts(dict(sorted(written.items())), dict(sorted(expected.items())))


def test_the_random_state_of_an_nnx_model_is_answered_with_how_to_leave_it_out():
    model = nnx.RNN(nnx.OptimizedLSTMCell(3, 5, rngs=nnx.Rngs(0)))
    with pytest.raises(ConvertError, match=r"'rngs/count', .*; nnx\.state\(module, nnx\.Param\) has only the weights"):
        convert.flax.to_canonical(nnx.state(model))
    assert convert.flax.to_canonical(nnx.state(model, nnx.Param)).spec.input_size == 3


def test_nnx_gru_cannot_hold_a_recurrent_bias_of_the_new_gate():
    c = random_canonical(RNNSpec("gru", 1, 5, 3), 1)
    with pytest.raises(ConvertError, match="the recurrent bias of the new gate: nnx GRUCell has no place"):
        convert.flax.from_canonical(c, api="nnx")
    c.biases[5][:] = 0
    nnx_arrays = convert.flax.from_canonical(c, api="nnx")
    call = random_call(c.spec, 1)
    assert worst(run_ours(convert.flax.to_canonical(nnx_arrays), *call), run_ours(c, *call)) <= 2e-6


@pytest.mark.parametrize("kind", [eqx.nn.LSTMCell, eqx.nn.GRUCell])
@pytest.mark.parametrize("use_bias", [True, False])
def test_equinox_cells_are_read_as_jax_names_their_leaves(kind, use_bias):
    cells = [[kind(size, 5, use_bias=use_bias, key=jax.random.key(k)) for k in range(2)] for size in (3, 10)]
    leaves = jax.tree_util.tree_leaves_with_path(cells)
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    c = convert.equinox.to_canonical(arrays, bidirectional=True)
    lstm = kind is eqx.nn.LSTMCell
    assert c.spec == RNNSpec(
        "lstm" if lstm else "gru", 2, 5, 3, direction="bidirectional", dtype="float64",
        bias_mode=("single_input" if lstm else "double") if use_bias else "none",
    )  # fmt: skip
    back = convert.equinox.from_canonical(c)
    ways = ("forward", "backward")
    expected = {key: arrays[f"[{key[0]}][{ways.index(key.split('/')[1])}].{key.split('/')[2]}"] for key in back}
    equal_dicts(back, expected)
    assert len(back) == len(arrays)


@pytest.mark.parametrize(("mode", "optimized"), [("lstm", True), ("lstm", False), ("gru", False), ("rnn_tanh", False)])
@pytest.mark.parametrize("api", ["linen", "nnx"])
def test_cells_without_a_bias_are_read_without_one(mode, optimized, api):
    c = random_canonical(RNNSpec(mode, 1, 5, 3, direction="bidirectional", dtype="float64", bias_mode="none"), 1)
    written = convert.flax.from_canonical(c, api=api, optimized=optimized)
    arrays = {n: a for n, a in written.items() if not n.endswith("bias")}
    equal_models(convert.flax.to_canonical(arrays, activation="tanh"), c)
