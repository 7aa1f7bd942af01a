"""What `specs()` finds in 100 examples: each of 14 faults in a reader of the buffer that somebody else wrote."""

import math

import pytest
from hypothesis import Phase, given, settings

from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.testing.strategies import specs

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn_tanh": "h", "rnn_relu": "h"}

FAULTS = [
    "directions are outside of layers", "layers above read one direction", "units in place of the projection",
    "skip input has input matrices", "skip input has none in any layer", "recurrent before input",
    "LSTM's gates i and f are swapped", "GRU's gates r and z are swapped", "the projection is first",
    "the projection is transposed", "single_recurrent is taken for single_input", "biases are next to their weights",
    "weights are transposed", "the second bias is left out",
]  # fmt: skip


def read(spec, fault=""):
    """Return the offset and the shape of each region, by pseudo-layer, name of its gate, and kind."""
    swaps = {"LSTM's gates i and f are swapped": ("if", "fi"), "GRU's gates r and z are swapped": ("rz", "zr")}
    gates = GATES[str(spec.mode)].replace(*swaps.get(fault, ("", "")))
    U, S, D = spec.num_units, spec.num_proj or spec.num_units, spec.num_dirs
    S = U if fault == "units in place of the projection" else S
    weights, biases = [], []
    pairs = [(layer, way) for layer in range(spec.num_layers) for way in range(D)]
    if fault == "directions are outside of layers":
        pairs.sort(key=lambda pair: pair[::-1])
    for layer, way in pairs:
        p = layer * D + way
        columns = (S if fault == "layers above read one direction" else D * S) if layer else spec.input_size
        skip = spec.input_mode == "skip_input" and (layer == 0 or fault == "skip input has none in any layer")
        if skip and fault != "skip input has input matrices":
            columns = 0
        inputs = [(p, gate + "W", "weight", (U, columns)) for gate in gates]
        recurrent = [(p, gate + "R", "weight", (U, S)) for gate in gates]
        matrices = recurrent + inputs if fault == "recurrent before input" else inputs + recurrent
        if fault == "weights are transposed":
            matrices = [(*start, shape[::-1]) for *start, shape in matrices]
        if spec.num_proj:
            shape = (U, S) if fault == "the projection is transposed" else (S, U)
            matrices.insert(0 if fault == "the projection is first" else len(matrices), (p, "P", "weight", shape))
        sides = {"none": "", "single_input": "W", "single_recurrent": "R", "double": "WR"}[str(spec.bias_mode)]
        if fault == "single_recurrent is taken for single_input":
            sides = sides.replace("R", "W") if sides == "R" else sides
        if fault == "the second bias is left out":
            sides = sides[:1]
        weights += matrices
        parts = weights if fault == "biases are next to their weights" else biases
        parts += [(p, gate + side, "bias", (U,)) for side in sides for gate in gates]
    places, end = {}, 0
    for *key, shape in weights + biases:
        size = math.prod(shape)
        places[tuple(key)] = (end if size else 0, shape)
        end += size
    return places


def expected(spec):
    letters = {"input": "i", "forget": "f", "new": "n" if spec.mode == "gru" else "g", "output": "o", "reset": "r"}
    letters |= {"update": "z", "hidden": "h", "projection": ""}
    symbols = {"W": "W", "R": "R", "P": "P", "bW": "W", "bR": "R"}
    return {
        (r.pseudo_layer, letters[r.gate] + symbols[r.symbol], r.kind): (r.offset, r.shape)
        for r in arithmetic_layout(spec).regions
    }


@settings(max_examples=300)
@given(specs())
def test_the_reader_without_a_fault_is_right(spec):
    assert read(spec) == expected(spec)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_within_100_examples(fault):
    @settings(max_examples=100, derandomize=True, database=None, phases=[Phase.generate])
    @given(specs())
    def check(spec):
        assert read(spec, fault) == expected(spec)

    with pytest.raises(AssertionError):
        check()
