"""What `pycudnnrnn convert` says each array was made of, against what changes when an array of the source does."""

import functools
import warnings

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn._tf1.tensors import pairs_that_count
from pycudnnrnn.cli.convert.origins import flat, origins_of
from pycudnnrnn.convert import ConvertError
from tests.helpers.oracles import FRAMEWORKS, need, random_canonical

LSTM = RNNSpec("lstm", 2, 3, 4, direction="bidirectional")
GRU = RNNSpec("gru", 2, 3, 4)
TANH = RNNSpec("rnn_tanh", 1, 3, 4, direction="bidirectional")
ONE = RNNSpec("lstm", 1, 3, 4, bias_mode="single_input")
SKIP = RNNSpec("lstm", 2, 3, 3, input_mode="skip_input")

SPECS = (LSTM, GRU, TANH, ONE)

LACKING = {("jax_rnn", GRU), ("jax_rnn", TANH), ("equinox", TANH)}


def as_written(framework, spec):
    """Return a framework's arrays of a random model, and the keywords to read them with."""
    both = {"bidirectional": spec.direction == "bidirectional"}
    sizes = {"input_size": spec.input_size, "hidden_size": spec.num_units, "num_layers": spec.num_layers}
    keywords = {
        "tensorflow": {"activation": "tanh"} if spec == TANH else {},
        "onnx": {"linear_before_reset": 1} if spec == GRU else {},
        "chainer": both,
        "jax_rnn": sizes | both,
    }
    arrays = getattr(convert, framework).from_canonical(random_canonical(spec, 1))
    for array in flat(arrays).values():
        array[array == 0] = 1  # a bias that the spec does not have
    return arrays, keywords.get(framework, {})


def tuned(spec):
    """Return TensorFlow's arrays with a first bias that is no longer the sum of its pair."""
    arrays, keywords = as_written("tensorflow", spec)
    arrays[next(name for name in arrays if name.endswith("/bias"))] += 1
    return arrays, keywords


def of_cell(cell):
    """Return the arrays of another of TensorFlow's LSTM cells, which adds to its forget gate."""
    found = convert.tensorflow.from_canonical(random_canonical(ONE, 1))
    return {name.replace("cudnn_compatible_lstm_cell", cell): array for name, array in found.items()}, {}


def spaced(spec):
    """Return TensorFlow's arrays with the names of its pairs as TF 1.3 had them for the GRU."""
    arrays, keywords = as_written("tensorflow", spec)
    return {name.replace("gates/bias_cudnn_", "bias_cudnn "): array for name, array in arrays.items()}, keywords


SOURCES = {
    **{
        f"{framework} {spec.mode} {spec.bias_mode}": (framework, functools.partial(as_written, framework, spec))
        for framework in FRAMEWORKS
        for spec in SPECS
        if (framework, spec) not in LACKING
    },
    "tensorflow, skip input": ("tensorflow", lambda: as_written("tensorflow", SKIP)),
    "tensorflow LSTM, trained further": ("tensorflow", lambda: tuned(LSTM)),
    "tensorflow GRU, trained further": ("tensorflow", lambda: tuned(GRU)),
    "tensorflow GRU, TF 1.3's names": ("tensorflow", lambda: spaced(GRU)),
    "tensorflow, a forget bias": ("tensorflow", lambda: of_cell("basic_lstm_cell")),
}


@pytest.mark.parametrize("what", SOURCES)
def test_each_array_is_said_to_be_of_what_changes_it_and_of_nothing_exactly_where_it_is_constant(what):
    framework, make = SOURCES[what]
    reader = getattr(convert, framework)
    arrays, keywords = make()
    pairs = pairs_that_count(flat(arrays))

    def read(given):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which forget bias was added
            return reader.to_canonical(given, **keywords)

    def changed(name):
        """Return the source with another array of this name, its pair's sum kept."""
        given = {own: np.array(array) for own, array in flat(arrays).items()}
        given[name] += np.float32(0.5)
        for bias, pair in pairs.items():
            given[bias] = given[pair[0]] + given[pair[1]]
        return given

    c = read(arrays)
    reached = 0
    for target in FRAMEWORKS:
        write = getattr(convert, target).from_canonical
        try:
            written = write(c)
        except ConvertError:
            continue
        reached += 1
        origins = origins_of(read, arrays, write, c.spec, written)
        assert origins.keys() == written.keys()
        for own, array in written.items():
            if c.spec.input_mode != "skip_input":
                assert (origins[own] == []) == (not np.any(array)), (target, own)
        for name in flat(arrays).keys() - pairs.keys():
            after = write(read(changed(name)))
            differ = {own for own in written if not np.array_equal(written[own], after[own])}
            assert differ == {own for own, names in origins.items() if name in names}, (target, name)
        assert not pairs.keys() & {name for names in origins.values() for name in names}
    assert reached >= 4


def test_other_things_whose_names_are_those_of_a_pair_are_no_pair():
    arrays, _ = as_written("tensorflow", ONE)
    arrays |= {"of/bias": np.ones(3), "of/bias_cudnn_0": np.ones(2), "of/bias_cudnn_1": np.ones((2, 4))}

    def read(given):
        with pytest.warns(UserWarning, match="left out"):
            return convert.tensorflow.to_canonical(given)

    written = convert.pytorch.from_canonical(read(arrays))
    origins = origins_of(read, arrays, convert.pytorch.from_canonical, ONE, written)
    assert {name.rpartition("/")[0] for names in origins.values() for name in names} == {
        "rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell"
    }


def test_the_names_of_a_pair_in_a_file_of_torchs_are_no_pair():
    need("torch")
    import torch

    arrays = {f"rnn.{name}": torch.from_numpy(array) for name, array in as_written("pytorch", LSTM)[0].items()}
    arrays |= dict.fromkeys(["of/bias", "of/bias_cudnn_0", "of/bias_cudnn_1"], torch.ones(3, dtype=torch.float8_e5m2))

    def read(given):
        return convert.pytorch.to_canonical(given, prefix="rnn")

    written = convert.pytorch.from_canonical(read(arrays))
    origins = origins_of(read, arrays, convert.pytorch.from_canonical, LSTM, written)
    assert origins == {name: [f"rnn.{name}"] for name in written}
