"""One text for one argument: what RNNSpec writes of it is what each class writes that takes it."""

import inspect
import re

import pytest

from docs.api import explained
from pycudnnrnn import RNNSpec, layers, ops
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, MathType, RNNMode

CELLS = ("CudnnLSTM", "CudnnGRU", "CudnnRNNTanh", "CudnnRNNRelu")
OPS, LAYERS = ([getattr(module, name) for name in CELLS] for module in (ops, layers))
FUNCTIONS = [getattr(ops, name) for name in ops.__all__ if name.startswith("cudnn_")]
TEXTS = explained(inspect.getdoc(RNNSpec))
WORDS = {
    "mode": RNNMode, "input_mode": [*InputMode, "auto_select"], "direction": Direction, "dtype": DType,
    "bias_mode": BiasMode, "algo": Algorithm, "math_type": MathType,
}  # fmt: skip


def defaults(kind):
    return {name: p.default for name, p in inspect.signature(kind).parameters.items()}


def own_texts(kind):
    """What a class or function writes of its arguments; of those with another default than RNNSpec's, nothing."""
    found = explained(inspect.getdoc(kind))
    return {name: text for name, text in found.items() if defaults(kind)[name] == defaults(RNNSpec).get(name)}


def test_every_argument_of_a_spec_is_explained_with_every_word_that_it_takes():
    assert list(TEXTS) == list(inspect.signature(RNNSpec).parameters)
    for name, words in WORDS.items():
        assert set(re.findall(r'"(\w+)"', TEXTS[name])) >= set(map(str, words)), name


@pytest.mark.parametrize(
    "kind", [RNNSpec, *OPS, *LAYERS, *FUNCTIONS], ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)
def test_a_text_names_the_default_of_its_argument_as_a_user_writes_it(kind):
    for name, text in own_texts(kind).items():
        default = defaults(kind)[name]
        if default is not inspect.Parameter.empty:
            assert type(default) in (str, int, float, type(None)), name
            written = f'"{default}"' if isinstance(default, str) else repr(default)
            assert text.endswith(f"Default: {written}."), name


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_an_op_explains_every_argument_in_the_words_of_the_spec(kind):
    assert list(explained(inspect.getdoc(kind))) == list(inspect.signature(kind).parameters)
    assert own_texts(kind).items() <= TEXTS.items()


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_a_layer_has_the_words_of_the_spec_for_the_arguments_of_the_spec(kind):
    found = own_texts(kind)
    assert {name: TEXTS[name] for name in found.keys() & TEXTS.keys()}.items() <= found.items()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_function_has_the_words_of_the_spec_for_what_it_describes(function):
    """Its seed starts the masks of one call, and params do not depend on dropout: those have texts of their own."""
    found = own_texts(function)
    shared = found.keys() & TEXTS.keys() - {"seed", "dropout"}
    assert {name: found[name] for name in shared} == {name: TEXTS[name] for name in shared}
    if "is_training" in found:
        assert found["dropout"] == TEXTS["dropout"]


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_a_call_has_the_words_of_the_forward(kind):
    forward, call = explained(inspect.getdoc(kind.forward)), explained(inspect.getdoc(kind.__call__))
    assert call.items() <= forward.items()
    assert forward.keys() - call.keys() == {"keep_reserve", "checkpoint_every"}
