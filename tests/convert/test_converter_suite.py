"""The suite that a third party subclasses, run on our own converters, and on converters with a fault each."""

import unittest

import numpy as np
import pytest
from hypothesis import Phase, settings

from pycudnnrnn import convert, testing
from pycudnnrnn.cli.convert.verify import run_pytorch
from pycudnnrnn.testing import strategies
from tests.helpers.oracles import need

MODELS = {"bias_modes": ["double"], "clip": False, "dtypes": ["float64", "float32", "float16"]}


class TestPytorch(testing.ConverterTests):
    """The dicts of arrays of a module of `convert`. test_frameworks.py and test_orders.py have the others."""

    models = strategies.specs(input_modes=["linear_input"], **MODELS)

    def to_mine(self, spec, weights, biases):
        return convert.pytorch.from_canonical(convert.Canonical(spec, weights, biases))

    def from_mine(self, spec, mine):
        said = {"nonlinearity": spec.mode.removeprefix("rnn_")} if spec.mode.startswith("rnn") else {}
        c = convert.pytorch.to_canonical(mine, **said)
        return c.weights, c.biases

    def run_mine(self, spec, mine, x, hx, cx):
        need("torch")
        return run_pytorch(mine, spec, x, hx, cx, np.full(x.shape[1], len(x)))


class Plain(testing.ConverterTests):
    """A right converter: each array under its name, as text."""

    def to_mine(self, spec, weights, biases):
        return {
            f"{kind}{i}": a.copy() for kind, arrays in (("w", weights), ("b", biases)) for i, a in enumerate(arrays)
        }

    def from_mine(self, spec, mine):
        return [[a for name, a in mine.items() if name.startswith(kind)] for kind in "wb"]


class SortsLayersAsText(testing.ConverterTests):
    """It names arrays by their layer, and reads them in the order of the names: 10 before 2."""

    def to_mine(self, spec, weights, biases):
        mine = {}
        for kind, arrays in (("w", weights), ("b", biases)):
            of_layer = max(1, len(arrays) // spec.num_layers)
            mine |= {f"{kind}{i // of_layer}/{i % of_layer:02}": array.copy() for i, array in enumerate(arrays)}
        return mine

    def from_mine(self, spec, mine):
        return [[mine[name] for name in sorted(mine) if name.startswith(kind)] for kind in "wb"]


class AddsTheBiases(Plain):
    def to_mine(self, spec, weights, biases):
        mine = super().to_mine(spec, weights, biases)
        return mine | {"b0": mine["b0"] + mine["b1"], "b1": 0 * mine["b1"]} if "b1" in mine else mine


class WritesIntoItsArguments(Plain):
    def to_mine(self, spec, weights, biases):
        mine = super().to_mine(spec, weights, biases)
        weights[-1][...] *= 2
        return mine


class ReadsTheBufferInOneGo(Plain):
    """It takes the matrices to lie one after the other, as in the arithmetic layout."""

    def to_mine(self, spec, weights, biases):
        mine, buffer = super().to_mine(spec, weights, biases), weights[0]
        while isinstance(buffer.base, np.ndarray):
            buffer = buffer.base
        start = (weights[0].ctypes.data - buffer.ctypes.data) // buffer.itemsize if weights[0].size else 0
        for i, weight in enumerate(weights):
            flat = buffer.reshape(-1)[start : start + weight.size]
            mine[f"w{i}"] = flat.reshape(weight.shape).copy() if flat.size == weight.size else weight.copy()
            start += weight.size
        return mine


class RunsOtherNumbers(TestPytorch):
    __test__ = False

    def run_mine(self, *arguments):
        y, *states = super().run_mine(*arguments)
        return y + 1e-9, *states


class RunsWithoutResults(Plain):
    """Nothing would be compared."""

    def run_mine(self, *_):
        return ()


FAULTS = {
    SortsLayersAsText: "test_a_deep_model_comes_back_in_order",
    AddsTheBiases: "test_it_comes_back_bit_for_bit",
    WritesIntoItsArguments: "test_it_comes_back_bit_for_bit",
    ReadsTheBufferInOneGo: "test_views_of_another_layout_with_padding_come_back",
    RunsOtherNumbers: "test_numbers_are_those_of_the_reference",
    RunsWithoutResults: "test_numbers_are_those_of_the_reference",
}


@pytest.fixture
def quick():
    """The suite uses the profile that is loaded."""
    before = settings.get_current_profile_name()
    settings.register_profile("quick", settings(), max_examples=100, phases=[Phase.generate])
    settings.load_profile("quick")
    yield
    settings.load_profile(before)


@pytest.mark.parametrize("faulty", FAULTS, ids=lambda kind: kind.__name__)
def test_the_suite_finds_a_converter_with_a_fault(quick, faulty):
    if faulty is RunsOtherNumbers:
        need("torch")
    with pytest.raises((AssertionError, ValueError)):
        getattr(faulty(), FAULTS[faulty])()


def test_a_right_converter_passes_and_says_that_its_numbers_were_not_compared(quick):
    suite = Plain()
    for name in dict.fromkeys(FAULTS.values()):
        if "numbers" in name:
            with pytest.raises(unittest.SkipTest, match="run_mine is not defined"):
                getattr(suite, name)()
        else:
            getattr(suite, name)()
