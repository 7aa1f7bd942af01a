"""Read this first: what each converter promises, as properties of random models, against the frameworks themselves.

A model that goes out to a framework computes the same numbers there, and comes back bit for bit. `test_orders.py` has
the frameworks that do not install any more, `test_modules.py` the ways in which the others name their own weights.
"""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn._checks import Assumption
from pycudnnrnn.cli.convert.verify import run_pytorch
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import (
    KERAS_ARRAYS,
    check_both_directions,
    equal_models,
    need,
    random_call,
    random_canonical,
    run_ours,
    worst,
)

pytestmark = KERAS_ARRAYS
seeds = st.integers(0, 2**31)


class Oracle(NamedTuple):
    """A framework: what has to be installed, the models that it can hold, how closely it computes, and how often."""

    needs: tuple[str, ...]
    models: st.SearchStrategy[RNNSpec]
    tolerance: float
    examples: int
    sizes: tuple[int, int] | None = None
    """T and B of every call: JAX compiles each shape."""


def drawn(**limits):
    return specs(input_modes=["linear_input"], clip=False, **limits)


def for_jax(*modes):
    return drawn(modes=modes, projection=False, max_layers=2, max_units=3)


ORACLES = {
    "pytorch": Oracle(("torch",), drawn(), 1e-10, 300),
    # Keras on torch loops over time in float32, whatever the dtype, where there is a mask or a SimpleRNN.
    "keras": Oracle(("keras",), drawn(projection=False, max_layers=2), 2e-6, 60),
    # onnxruntime computes these operators in float32.
    "onnx": Oracle(("onnx", "onnxruntime"), drawn(projection=False, dtypes=["float32"]), 3e-6, 200),
    "flax": Oracle(("jax", "flax"), for_jax("lstm", "gru", "rnn_tanh"), 1e-10, 30, (5, 3)),
    "equinox": Oracle(("jax", "equinox"), for_jax("lstm", "gru"), 1e-10, 20, (5, 3)),
    "jax_rnn": Oracle(("jax",), for_jax("lstm"), 1e-10, 15, (5, 3)),
}


KERAS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "simple_rnn", "rnn_relu": "simple_rnn"}


def reading(framework, spec):
    """Return the keywords of `to_canonical` for what the arrays do not contain."""
    both, plain = spec.num_dirs == 2, spec.mode.removeprefix("rnn_") if spec.mode.startswith("rnn") else None
    if framework == "jax_rnn":
        sizes = {"input_size": spec.input_size, "hidden_size": spec.num_units, "num_layers": spec.num_layers}
        return sizes | {"bidirectional": both}
    if framework == "equinox":  # the names of several cells have only numbers
        return {"bidirectional": both}
    if framework == "onnx":
        relu = {"activations": ["Relu"] * spec.num_dirs} if plain == "relu" else {}
        return {"linear_before_reset": 1} if spec.mode == "gru" else relu
    if framework == "keras":
        name = "bidirectional" if both else KERAS[spec.mode]
        layers = [name, *(f"{name}_{k}" for k in range(1, spec.num_layers))]
        gates = {} if plain else {"recurrent_activation": "sigmoid"}
        return {"activation": plain or "tanh", "go_backwards": False, "layers": layers} | gates
    return {"nonlinearity" if framework == "pytorch" else "activation": plain} if plain else {}


@examples(50)
@given(specs(input_modes=["skip_input"], clip=False), seeds)
def test_skip_input_becomes_identity_matrices(spec, seed):
    need("torch")
    c, call = random_canonical(spec, seed), random_call(spec, seed)
    assert worst(run_ours(c, *call), run_pytorch(convert.pytorch.from_canonical(c), spec, *call)) <= 1e-10


@examples(100)
@given(specs(clip=False), seeds)
def test_double_biases_compute_the_same(spec, seed):
    c = random_canonical(spec, seed)
    both = c.double_biases()
    assert both.spec == spec.replace(bias_mode="double")
    call = random_call(spec, seed)
    assert worst(run_ours(both, *call), run_ours(c, *call)) <= 1e-14


@pytest.mark.parametrize("bias_mode", ["none", "single_input", "single_recurrent"])
@pytest.mark.parametrize("framework", ["gluon", "chainer"])
def test_what_always_has_both_biases_gets_zeros_for_those_that_are_absent(framework, bias_mode):
    module, c = getattr(convert, framework), random_canonical(RNNSpec("rnn_relu", 2, 4, 3, bias_mode=bias_mode), 1)
    equal_models(module.to_canonical(module.from_canonical(c), activation="relu"), c.double_biases())


@pytest.mark.parametrize(("framework", "default"), [("gluon", "relu"), ("chainer", "tanh"), ("flax", "tanh")])
def test_the_activation_of_a_plain_cell_is_taken_for_its_default_with_a_warning(framework, default):
    module, c = getattr(convert, framework), random_canonical(RNNSpec("rnn_tanh", 1, 4, 3), 1)
    arrays = module.from_canonical(c)
    with pytest.warns(Assumption, match=f"read as activation='{default}', its default"):
        assert module.to_canonical(arrays).spec.mode == f"rnn_{default}"
    other = {"relu": "tanh", "tanh": "relu"}[default]
    assert module.to_canonical(arrays, activation=other).spec.mode == f"rnn_{other}"


@pytest.mark.parametrize("framework", ORACLES)
def test_any_model_computes_the_same_in_its_framework_and_comes_back(framework):
    oracle = ORACLES[framework]
    need(*oracle.needs)

    @examples(oracle.examples)
    @given(oracle.models, seeds)
    def check(spec, seed):
        lossless = spec.mode != "gru" or framework not in {"flax", "equinox"}  # they sum two of the GRU's biases
        check_both_directions(
            framework, spec, seed, read=reading(framework, spec), tolerance=oracle.tolerance, lossless=lossless,
            sizes=oracle.sizes,
        )  # fmt: skip

    dtype = "float32" if framework == "onnx" else "float64"
    for mode in ("lstm",) if framework == "jax_rnn" else ("lstm", "gru"):  # two biases, whatever is drawn
        spec = RNNSpec(mode, 2, 3, 2, direction="bidirectional", dtype=dtype)
        check.hypothesis.inner_test(spec, 1)
    check()
