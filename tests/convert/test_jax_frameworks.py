"""Flax (linen and nnx), Equinox and jax.experimental.rnn, against themselves on the CPU in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import (
    check_both_directions,
    equal_dicts,
    equal_models,
    need,
    random_call,
    random_canonical,
    randomized,
    run_ours,
    worst,
    written,
)

need("jax", "flax", "equinox")
import equinox as eqx  # noqa: E402
import jax  # noqa: E402
from flax import linen, nnx, traverse_util  # noqa: E402
from jax.experimental import rnn as jax_rnn  # noqa: E402

TOLERANCE = 1e-10
SIZES = (5, 3)
"""T and B of every drawn call: JAX compiles each shape, and it is the weights that are converted."""

seeds = st.integers(0, 2**31)


def drawn(modes):
    return specs(modes=modes, input_modes=["linear_input"], clip=False, projection=False, max_layers=2, max_units=3)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@examples(30)
@given(drawn(["lstm", "gru", "rnn_tanh"]), seeds)
def test_any_model_computes_the_same_in_linen_cells_and_comes_back(spec, seed):
    check_both_directions("flax", spec, seed, tolerance=TOLERANCE, lossless=spec.mode != "gru", sizes=SIZES)


@examples(20)
@given(drawn(["lstm", "gru"]), seeds)
def test_any_model_computes_the_same_in_equinox_cells_and_comes_back(spec, seed):
    check_both_directions("equinox", spec, seed, tolerance=TOLERANCE, lossless=spec.mode != "gru", sizes=SIZES)


@examples(15)  # each shape is compiled
@given(drawn(["lstm"]), seeds)
def test_any_lstm_computes_the_same_in_jax_experimental_rnn_and_comes_back(spec, seed):
    sizes = {"input_size": spec.input_size, "hidden_size": spec.num_units, "num_layers": spec.num_layers}
    read = sizes | {"bidirectional": spec.num_dirs == 2}
    check_both_directions("jax_rnn", spec, seed, read=read, tolerance=TOLERANCE, sizes=SIZES)


def test_jax_experimental_rnn_itself_counts_the_elements_that_we_write():
    spec = RNNSpec("lstm", 2, 5, 3, direction="bidirectional")
    flat = convert.jax_rnn.from_canonical(random_canonical(spec, 1))["weights"]
    assert flat.shape == (jax_rnn.get_num_params_in_lstm(3, 5, 2, True),)
    with pytest.raises(ConvertError, match=r"'weights': expecting shape"):
        convert.jax_rnn.to_canonical(
            {"weights": flat[:-1]}, input_size=3, hidden_size=5, num_layers=2, bidirectional=True
        )


LINEN = {
    "lstm": linen.LSTMCell,
    "optimized": linen.OptimizedLSTMCell,
    "gru": linen.GRUCell,
    "rnn_tanh": linen.SimpleCell,
}
NNX = {"lstm": nnx.LSTMCell, "optimized": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell, "rnn_tanh": nnx.SimpleCell}


@pytest.mark.parametrize(
    ("kind", "bidirectional"),
    [
        *((kind, True) for kind in LINEN),
        *(pytest.param(kind, False, marks=() if kind == "lstm" else pytest.mark.long) for kind in LINEN),
    ],
)
def test_linens_own_rnn_modules_are_read_by_their_params(kind, bidirectional):
    def layer():
        rnn = [linen.RNN(LINEN[kind](5, dtype="float64", param_dtype="float64"), return_carry=True) for _ in range(2)]
        return linen.Bidirectional(*rnn, return_carry=True) if bidirectional else rnn[0]

    x = np.random.default_rng(1).normal(size=(4, 6, 3))  # [T, B, I]
    lengths = np.array([4, 1, 3, 2, 4, 2])
    c = below = None
    found = {}
    results = []
    below = x.swapaxes(0, 1)
    for k in range(2):
        module = layer()
        params = module.init(jax.random.key(k), below)["params"]
        flat = randomized({n: np.asarray(a) for n, a in traverse_util.flatten_dict(params, sep="/").items()}, k)
        found[f"layers_{k}"] = traverse_util.unflatten_dict(flat, sep="/")
        carry, below = module.apply({"params": found[f"layers_{k}"]}, below, seq_lengths=lengths)
        below = np.where((np.arange(4) < lengths[:, None])[..., None], below, 0)
        results.append(carry)
    c = convert.flax.to_canonical(found)
    assert (c.spec.num_layers, c.spec.num_dirs, c.spec.num_units) == (2, 1 + bidirectional, 5)
    wanted = {"lstm": "single_recurrent", "optimized": "single_recurrent", "gru": "double", "rnn_tanh": "single_input"}
    assert c.spec.bias_mode == wanted[kind]
    zeros = np.zeros((c.spec.num_pseudo_layers, 6, 5))
    y, hy, cy = run_ours(c, x, zeros, zeros, lengths)
    assert np.abs(y - below.swapaxes(0, 1)).max() <= TOLERANCE
    carries = [way for carry in results for way in (carry if bidirectional else (carry,))]
    if c.spec.has_cell_state:
        carries, cells = [h for _, h in carries], [c for c, _ in carries]
        assert np.abs(cy - np.stack(cells)).max() <= TOLERANCE
    assert np.abs(hy - np.stack(carries)).max() <= TOLERANCE
    flat = {"/".join(path): array for path, array in traverse_util.flatten_dict(found).items()}
    ours = convert.flax.from_canonical(c)
    equal_dicts({name: ours[name] for name in sorted(ours)}, {name: flat[name] for name in sorted(flat)})


def test_linen_cells_that_a_compact_module_named_need_to_be_told_their_directions():
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            for _ in range(2):
                cells = [linen.RNN(linen.GRUCell(5, dtype="float64", param_dtype="float64")) for _ in range(2)]
                x = linen.Bidirectional(*cells)(x)
            return x

    x = np.random.default_rng(1).normal(size=(4, 2, 3))
    params = Model().init(jax.random.key(0), x.swapaxes(0, 1))["params"]
    flat = randomized({n: np.asarray(a) for n, a in traverse_util.flatten_dict(params, sep="/").items()}, 1)
    y = Model().apply({"params": traverse_util.unflatten_dict(flat, sep="/")}, x.swapaxes(0, 1))
    c = convert.flax.to_canonical(flat, bidirectional=True)
    zeros = np.zeros((4, 2, 5))
    assert np.abs(run_ours(c, x, zeros, zeros, [4, 4])[0] - y.swapaxes(0, 1)).max() <= TOLERANCE
    with pytest.raises(ConvertError, match="expecting shape"):
        convert.flax.to_canonical(flat)  # four layers of one direction do not fit


@pytest.mark.parametrize("kind", NNX)
def test_nnx_cells_are_read_by_their_state_and_take_what_we_write(kind):
    cell = NNX[kind](3, 5, rngs=nnx.Rngs(0), dtype="float64", param_dtype="float64")
    pure = traverse_util.flatten_dict(nnx.to_pure_dict(nnx.state(cell, nnx.Param)))
    state = randomized({path: np.asarray(array) for path, array in pure.items()}, 4)
    nnx.update(cell, nnx.from_flat_state({p: nnx.Param(jax.numpy.asarray(a)) for p, a in state.items()}))
    c = convert.flax.to_canonical(state)
    wanted = {"lstm": "single_recurrent", "optimized": "single_recurrent", "gru": "single_input"}
    assert c.spec.bias_mode == wanted.get(kind, "single_input")
    rng = np.random.default_rng(2)
    x, h, cell_state = rng.normal(size=(1, 2, 3)), rng.normal(size=(1, 2, 5)), rng.normal(size=(1, 2, 5))
    carry, y = cell((cell_state[0], h[0]) if c.spec.has_cell_state else h[0], x[0])
    ours = run_ours(c, x, h, cell_state, [1, 1])
    assert np.abs(ours[0][0] - y).max() <= TOLERANCE
    if c.spec.has_cell_state:
        assert np.abs(ours[2][0] - carry[0]).max() <= TOLERANCE
    written = convert.flax.from_canonical(c, api="nnx", optimized=kind == "optimized")
    theirs = {"cell/" + "/".join(path): array for path, array in state.items()}
    equal_dicts({name: written[name] for name in sorted(written)}, {name: theirs[name] for name in sorted(theirs)})


def test_nnxs_own_bidirectional_rnn_is_read_with_ragged_lengths():
    def rnn(k):
        cell = nnx.LSTMCell(3, 5, rngs=nnx.Rngs(k), dtype="float64", param_dtype="float64")
        return nnx.RNN(cell, rngs=nnx.Rngs(k))

    module = nnx.Bidirectional(rnn(1), rnn(2))
    x = np.random.default_rng(1).normal(size=(4, 3, 3))
    lengths = np.array([4, 2, 3])
    y = np.asarray(module(jax.numpy.asarray(x.swapaxes(0, 1)), seq_lengths=jax.numpy.asarray(lengths)))
    c = convert.flax.to_canonical(nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    assert (c.spec.num_dirs, c.spec.bias_mode) == (2, "single_recurrent")
    zeros = np.zeros((2, 3, 5))
    ours = run_ours(c, x, zeros, zeros, lengths)[0]
    runs = (np.arange(4)[:, None] < lengths)[..., None]
    assert np.abs(ours - np.where(runs, y.swapaxes(0, 1), 0)).max() <= TOLERANCE


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
    theirs = {key: arrays[f"[{key[0]}][{ways.index(key.split('/')[1])}].{key.split('/')[2]}"] for key in back}
    equal_dicts(back, theirs)
    assert len(back) == len(arrays)


def test_cells_whose_names_contradict_one_another_or_the_caller_are_refused():
    both = convert.flax.from_canonical(random_canonical(RNNSpec("lstm", 1, 5, 3, direction="bidirectional"), 1))
    with pytest.raises(ConvertError, match="bidirectional: is False, and the names say forward and backward"):
        convert.flax.to_canonical(both, bidirectional=False)
    again = {name.replace("forward_rnn", "fw_rnn"): array for name, array in both.items() if "forward" in name}
    with pytest.raises(ConvertError, match="stands where 'forward_rnn/cell' stands"):
        convert.flax.to_canonical(both | again)
    with pytest.raises(ConvertError, match="'cell/if_/kernel': holds the same as 'cell/if/kernel'"):
        convert.flax.to_canonical(written("flax", "lstm") | {"cell/if_/kernel": np.ones((3, 4), "f4")})


@pytest.mark.parametrize(("mode", "optimized"), [("lstm", True), ("lstm", False), ("gru", False), ("rnn_tanh", False)])
@pytest.mark.parametrize("api", ["linen", "nnx"])
def test_cells_without_a_bias_are_read_without_one(mode, optimized, api):
    spec = RNNSpec(mode, 1, 5, 3, direction="bidirectional", dtype="float64", bias_mode="none")
    c = random_canonical(spec, 1)
    written = convert.flax.from_canonical(c, api=api, optimized=optimized)
    found = {name: array for name, array in written.items() if not name.endswith("bias")}
    assert len(found) < len(written)
    equal_models(convert.flax.to_canonical(found), c)


def test_a_relu_simple_cell_is_read_when_it_is_said():
    assert convert.flax.to_canonical(written("flax", "rnn_tanh"), activation="relu").spec.mode == "rnn_relu"
    equal_models(
        convert.flax.to_canonical({"a": written("flax", "lstm")}), convert.flax.to_canonical(written("flax", "lstm"))
    )
