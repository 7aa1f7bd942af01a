"""What the errors at the edge say, to the letter: the argument, what came, what was expected."""

import numpy as np
import pytest
import torch

from pycudnnrnn._checks import check_bool, check_int, check_real, check_word, one_of
from pycudnnrnn.canonical import from_canonical
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, LayoutError
from pycudnnrnn.layout import ParamLayout, Region, arithmetic_layout
from pycudnnrnn.schedule import check_lengths
from pycudnnrnn.spec import Direction, RNNSpec

SPEC = RNNSpec("gru", 1, 3, 2)
LAYOUT = arithmetic_layout(SPEC)
WORDS = arithmetic_layout(RNNSpec("lstm", 2, 3, 2, direction="bidirectional", bias_mode="single_input"))
WEIGHTS = [np.zeros(region.shape) for region in LAYOUT.weights]
BIASES = [np.zeros(region.shape) for region in LAYOUT.biases]
HOST = "expecting host integers (a list or a NumPy array)"


class OnDevice:
    """An array of a library that has it on a GPU."""

    def __dlpack_device__(self):
        return 2, 0

    def tolist(self):
        raise AssertionError("it is read")


class Nowhere(OnDevice):
    """An array that is spread over devices, as its library says."""

    def __dlpack_device__(self):
        raise RuntimeError("of no one device")


def put(weights, biases):
    from_canonical(weights, biases, LAYOUT, np.zeros(LAYOUT.size))


CASES = [
    (lambda: check_int("n", True, 1, 5), ArgumentTypeError, "Invalid n: True, expecting an integer"),
    (lambda: check_int("n", "3", 1, 5), ArgumentTypeError, "Invalid n: '3', expecting an integer"),
    (lambda: check_int("n", 6, 1, 5), ArgumentError, "Invalid n: 6, expecting an integer from 1 to 5"),
    (lambda: check_bool("b", 1), ArgumentTypeError, "Invalid b: 1, expecting a Python bool"),
    (lambda: check_real("r", "1"), ArgumentTypeError, "Invalid r: '1', expecting a real number"),
    (lambda: check_real("r", [1]), ArgumentTypeError, "Invalid r: [1], expecting a real number"),
    (lambda: check_real("r", 10**400), ArgumentError,
     "Invalid r: a larger one, expecting a number that fits a C double"),
    (lambda: check_real("r", np.nan), ArgumentError, "Invalid r: nan, expecting a real number"),
    (lambda: check_word(Direction, "d", "up"), ArgumentError,
     "Invalid d: 'up', expecting 'unidirectional' or 'bidirectional'"),
    (lambda: check_lengths({3}, 3, 1), ArgumentTypeError, f"Invalid sequence_lengths: <class 'set'>, {HOST}"),
    (lambda: check_lengths(5, 3, 1), ArgumentTypeError, f"Invalid sequence_lengths: <class 'int'>, {HOST}"),
    (lambda: check_lengths(torch.tensor([3]), 3, 1), ArgumentTypeError,
     f"Invalid sequence_lengths: <class 'torch.Tensor'>, {HOST}: sequence_lengths.tolist() makes them"),
    (lambda: check_lengths(OnDevice(), 3, 1), ArgumentTypeError,
     (f"Invalid sequence_lengths: {OnDevice}, {HOST}: sequence_lengths.tolist() makes them, "
      "and waits: reading a device array would synchronise each call")),
    (lambda: check_lengths(Nowhere(), 3, 1), ArgumentTypeError,
     f"Invalid sequence_lengths: {Nowhere}, {HOST}: sequence_lengths.tolist() makes them"),
    (lambda: check_lengths([True], 3, 1), ArgumentTypeError,
     "Invalid sequence_lengths: a list with booleans, expecting integers"),
    (lambda: check_lengths([1, [2]], 3, 2), ArgumentTypeError,
     "Invalid sequence_lengths: a list of lists, expecting integers"),
    (lambda: check_lengths([1.0], 3, 1), ArgumentTypeError,
     "Invalid sequence_lengths dtype: float64, expecting integers"),
    (lambda: check_lengths(np.array([True]), 3, 1), ArgumentTypeError,
     "Invalid sequence_lengths dtype: bool, expecting integers"),
    (lambda: check_lengths([1], 3, 2), ArgumentError,
     "Invalid sequence_lengths shape: (1,), expecting (2,), one per sequence"),
    (lambda: check_lengths([1, 4], 3, 2), ArgumentError,
     "Invalid sequence_lengths[1]: 4, expecting a length from 0 to T=3"),
    (lambda: LAYOUT.region(1, 7, "bias"), ArgumentError,
     "Invalid region: (1, 7, 'bias'), expecting a (pseudo_layer, lin_layer_id, kind) of this layout"),
    (lambda: WORDS.region(layer=2), ArgumentError, "Invalid layer: 2, expecting 0 or 1 in this layout"),
    (lambda: WORDS.region(layer=0, gate="reset", side="input"), ArgumentError,
     "Invalid gate: 'reset', expecting 'input', 'forget', 'new' or 'output' where layer=0"),
    (lambda: WORDS.region(direction=1), ArgumentError,
     "Invalid direction: 1, expecting 'forward' or 'backward' in this layout"),
    (lambda: WORDS.region(layer=1, gate="new", kind="bias", side="recurrent"), ArgumentError,
     "Invalid side: 'recurrent', expecting 'input' where layer=1, gate='new', kind='bias'"),
    (lambda: WORDS.region(0, 1, "weight", layer=1), ArgumentError,
     "Invalid layer: 1, expecting 0 where pseudo_layer=0"),
    (lambda: WORDS.region(layer=1, gate="forget", kind="weight"), ArgumentError,
     ("Invalid region: layer=1, gate='forget', kind='weight', expecting criteria for one region; 4 match: "
      "add direction ('forward' or 'backward'), side ('input' or 'recurrent')")),
    (WORDS.region, ArgumentError,
     ("Invalid region: no criteria, expecting criteria for one region; 48 match: add layer (0 or 1), "
      "direction ('forward' or 'backward'), gate ('input', 'forget', 'new' or 'output'), "
      "kind ('weight' or 'bias'), side ('input' or 'recurrent')")),
    (lambda: ParamLayout(0, ()).region(layer=0), ArgumentError,
     "Invalid layer: 0, expecting nothing in this layout"),
    (lambda: put(WEIGHTS[1:], BIASES), ArgumentError, "Invalid weights: 5 arrays, expecting 6 arrays"),
    (lambda: put(WEIGHTS, [*BIASES[:4], np.zeros(4), BIASES[5]]), ArgumentError,
     "Invalid biases[4] shape: (4,), expecting (3,) (bias of gate 'update', pseudo-layer 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_the_text_names_the_argument_what_came_and_what_was_expected(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert str(caught.value) == text


def test_a_layout_that_cannot_be_says_which_region_is_where():
    first, second = (Region(0, i, "reset", "weight", 4 * i, (5,)) for i in range(2))
    with pytest.raises(LayoutError) as caught:
        ParamLayout(20, (first, second))
    assert str(caught.value) == f"{second} overlaps {first}"
    with pytest.raises(LayoutError) as caught:
        ParamLayout(20, (Region(0, 0, "reset", "weight", -1, (5,)),))
    assert str(caught.value).endswith("starts before the buffer")
    with pytest.raises(LayoutError) as caught:
        ParamLayout(8, (second,))
    assert str(caught.value) == f"{second} ends at 9, past the buffer's 8 elements"


def test_names_are_joined_as_in_a_sentence():
    assert one_of(["a"]) == "'a'"
    assert one_of(["a", "b"]) == "'a' or 'b'"
    assert one_of(["a", "b", "c"]) == "'a', 'b' or 'c'"
