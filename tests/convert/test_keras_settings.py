"""What a Keras file's configuration says of its layers: of each layer under a name of its own, of both directions."""

import json

import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import need

need("keras", "h5py")
import h5py  # noqa: E402
import keras  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # keras.Variable.__array__ has not followed NumPy 2
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
layers = keras.layers


def rnn(name, activation="tanh", **keywords):
    return layers.SimpleRNN(4, activation=activation, return_sequences=True, name=name, **keywords)


def part(name, *inside):
    return keras.Sequential([keras.Input((None, 4)), *inside], name=name)


def settings_in(path, model):
    model.save(path)
    return convert.keras.read_settings(path)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_each_layer_has_its_own_entry_by_a_name_that_leads_to_no_other(tmp_path, suffix):
    encoder = part("enc", rnn("same", "relu"), rnn("alone", "gelu"), part("sub", rnn("dec", "selu")))
    found = settings_in(tmp_path / f"m{suffix}", part("whole", encoder, part("dec", rnn("same"))))
    assert {name: own["activation"] for name, own in found.items()} == {
        "enc/same": "relu", "alone": "gelu", "enc/sub/dec": "selu", "dec/same": "tanh"
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize(
    ("kind", "keywords", "text"),
    [
        (layers.SimpleRNN, {"activation": "relu"}, "'activation': 'relu'"),
        (layers.LSTM, {"recurrent_activation": "hard_sigmoid"}, "'recurrent_activation': 'hard_sigmoid'"),
        (layers.GRU, {"reset_after": False}, "'reset_after': False"),
    ],
)
def test_a_backward_layer_that_differs_from_the_forward_one_is_refused(tmp_path, suffix, kind, keywords, text):
    forward, backward = kind(4), kind(4, go_backwards=True, **keywords)
    both = layers.Bidirectional(forward, backward_layer=backward, name="both")
    with pytest.raises(ConvertError, match=r"backward layer of 'enc/both': expecting .* as for its forward") as caught:
        settings_in(tmp_path / f"m{suffix}", part("whole", part("enc", both)))
    assert text in str(caught.value).partition(", got ")[2]


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_backward_layer_that_is_the_forward_one_turned_round_is_read(tmp_path, suffix):
    both = layers.Bidirectional(rnn("one", "relu"), backward_layer=rnn("two", "relu", go_backwards=True), name="both")
    found = settings_in(tmp_path / f"m{suffix}", part("whole", both))
    assert found == {"both": {"activation": "relu", "go_backwards": False}}


def read(tmp_path, config):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(config)
    return convert.keras.read_settings(tmp_path / "m.h5")


def layer(kind, name, **own):
    return {"class_name": kind, "config": {"name": name} | own}


ONE = layer("LSTM", "lstm", recurrent_initializer={}, activation="tanh", go_backwards=False)


@pytest.mark.parametrize(
    "backward", [ONE, layer("Ours", "ours", activation="tanh", go_backwards=True), layer("LSTM", "lstm")]
)
def test_a_backward_layer_that_is_no_such_layer_or_runs_forward_is_refused(tmp_path, backward):
    with pytest.raises(ConvertError, match="backward layer of 'both'"):
        read(
            tmp_path,
            layer("Sequential", "s", layers=[layer("Bidirectional", "both", layer=ONE, backward_layer=backward)]),
        )


def test_two_layers_of_one_path_are_refused(tmp_path):
    with pytest.raises(ConvertError, match="'lstm': is the name of two layers"):
        read(tmp_path, {"config": [ONE, ONE]})


@pytest.mark.parametrize("cell", [False, True])
def test_a_gru_from_before_there_was_a_choice_resets_before(tmp_path, cell):
    gru = layer("GRUCell" if cell else "GRU", "gru", recurrent_initializer={}, activation="tanh")
    gru = layer("RNN", "over", cell=gru, go_backwards=False) if cell else gru
    (found,) = read(tmp_path, {"config": [gru]}).values()
    assert found["reset_after"] is False
