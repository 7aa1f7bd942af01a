"""What the errors at the edge say, to the letter, and one text for one argument in all docstrings."""

import inspect
import re

import numpy as np
import pytest

from docs.api import explained
from pycudnnrnn import RNNSpec, layers, ops
from pycudnnrnn._checks import check_bool, check_int, check_real, check_word, needs, one_of, shorten
from pycudnnrnn.canonical import from_canonical
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, MissingDependencyError, PycudnnrnnError
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, MathType, RNNMode

LAYOUT = arithmetic_layout(RNNSpec("gru", 1, 3, 2))
WORDS = arithmetic_layout(RNNSpec("lstm", 2, 3, 2, direction="bidirectional", bias_mode="single_input"))
WEIGHTS, BIASES = ([np.zeros(region.shape) for region in regions] for regions in (LAYOUT.weights, LAYOUT.biases))


VALUES = [
    (lambda: check_int("n", 6, 1, 5), "n: 6, expecting an integer from 1 to 5"),
    (lambda: check_real("r", 10**400), "r: a larger one, expecting a number that fits a C double"),
    (lambda: check_word(Direction, "d", "up"), "d: 'up', expecting 'unidirectional' or 'bidirectional'"),
    (lambda: LAYOUT.region(0, 0, "weight", side="recurrent"),
     "side: 'recurrent', expecting 'input' where pseudo_layer=0, lin_layer_id=0, kind='weight'"),
    (lambda: WORDS.region(layer=2), "layer: 2, expecting 0 or 1 in this layout"),
    (lambda: WORDS.region(layer=1, gate="forget", kind="weight"),
     ("region: layer=1, gate='forget', kind='weight', expecting criteria for one region; 4 match: "
      "add direction ('forward' or 'backward'), side ('input' or 'recurrent')")),
    (lambda: ParamLayout(0, ()).region(layer=0), "layer: 0, expecting nothing in this layout"),
    (lambda: from_canonical(WEIGHTS, [*BIASES[:4], np.zeros(4), BIASES[5]], LAYOUT, np.zeros(LAYOUT.size)),
     "biases[4] shape: (4,), expecting (3,) (bias of gate 'update', pseudo-layer 0)"),
]  # fmt: skip
TYPES = [
    (lambda: check_int("n", True, 1, 5), "n: True, expecting an integer"),
    (lambda: check_bool("b", 1), "b: 1, expecting a Python bool"),
    (lambda: check_real("r", "1"), "r: '1', expecting a real number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "text", "error"),
    [(*case, ArgumentError) for case in VALUES] + [(*case, ArgumentTypeError) for case in TYPES],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_text_names_the_argument_what_came_and_what_was_expected(call, text, error):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert str(caught.value) == f"Invalid {text}"
    assert isinstance(caught.value, PycudnnrnnError)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError) == (error is ArgumentTypeError)


def test_names_are_joined_as_in_a_sentence_and_values_are_short():
    assert [one_of(["a", "b", "c"][:n]) for n in (1, 2, 3)] == ["'a'", "'a' or 'b'", "'a', 'b' or 'c'"]
    assert shorten("x" * 78) == repr("x" * 78)
    assert shorten("x" * 79) == repr("x" * 79)[:77] + "..."
    error = str(MissingDependencyError("h5py", "convert", "a .keras file"))
    assert error.startswith("a .keras file needs h5py, which is not installed: pip install h5py, or")
    assert error.endswith("pip install '.[convert]'")
    with pytest.raises(ImportError, match=r"^no libnvrtc$"), needs("CuPy", "cuda13", "a CUDA device"):
        raise ImportError("no libnvrtc")


CELLS = ("CudnnLSTM", "CudnnGRU", "CudnnRNNTanh", "CudnnRNNRelu")
OPS = [getattr(ops, name) for name in CELLS]
KINDS = [RNNSpec, *OPS, *(getattr(layers, name) for name in CELLS)]
TEXTS = explained(inspect.getdoc(RNNSpec))
ENUMS = {
    "mode": RNNMode, "input_mode": [*InputMode, "auto_select"], "direction": Direction, "dtype": DType,
    "bias_mode": BiasMode, "algo": Algorithm, "math_type": MathType,
}  # fmt: skip


def test_every_argument_of_a_spec_is_explained_with_every_word_that_it_takes():
    assert list(TEXTS) == list(inspect.signature(RNNSpec).parameters)
    for name, words in ENUMS.items():
        assert set(re.findall(r'"(\w+)"', TEXTS[name])) >= set(map(str, words)), name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_an_argument_has_one_text_and_it_names_the_default(kind):
    """What RNNSpec writes of an argument is what ops and layers write, unless their default is another."""
    spec, parameters = (inspect.signature(of).parameters for of in (RNNSpec, kind))
    assert kind not in OPS or list(explained(inspect.getdoc(kind))) == list(parameters)
    for name, text in explained(inspect.getdoc(kind)).items():
        if name in spec and parameters[name].default == spec[name].default:
            assert text == TEXTS[name]
            default = parameters[name].default
            written = f'"{default}"' if isinstance(default, str) else repr(default)
            assert default is inspect.Parameter.empty or text.endswith(f"Default: {written}."), name
