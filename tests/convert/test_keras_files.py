"""Keras's files: written for Keras and read from it, damaged ones, and such as no program would write."""

import io
import zipfile

import h5py
import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ArgumentError, ConvertError
from tests.helpers.oracles import KERAS_ARRAYS, equal_dicts, need, random_canonical

need("keras")
import keras  # noqa: E402

pytestmark = [KERAS_ARRAYS, pytest.mark.filterwarnings("ignore:the arrays do not contain how their layers were made")]
MODES = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn_tanh"}


@pytest.mark.parametrize(
    ("kind", "bidirectional", "dtype"),
    [("LSTM", True, "float64"), ("GRU", False, "bfloat16"), ("GRU", True, "float32"), ("SimpleRNN", False, "float32")],
)
def test_a_file_that_we_write_is_loaded_by_keras_and_comes_back(kind, bidirectional, dtype, tmp_path):
    """HDF5 has no bfloat16: two bytes, and an attribute that names them."""
    # torch has no QR of bfloat16
    options = {"return_sequences": True, "dtype": dtype, "recurrent_initializer": "zeros"}
    layers = [getattr(keras.layers, kind)(5, **options) for _ in range(2)]
    layers = [keras.layers.Bidirectional(layer, dtype=dtype) if bidirectional else layer for layer in layers]
    model = keras.Sequential([keras.Input((None, 3)), *layers])
    direction = "bidirectional" if bidirectional else "unidirectional"
    c = random_canonical(RNNSpec(MODES[kind], 2, 5, 3, direction=direction, dtype=dtype), 4)
    arrays = convert.keras.from_canonical(c)
    convert.keras.write_h5(tmp_path / "ours.weights.h5", arrays)
    model.load_weights(tmp_path / "ours.weights.h5")
    for theirs, name in zip(model.weights, arrays, strict=True):
        assert np.array_equal(theirs.value.detach().double().numpy(), arrays[name].astype("f8")), name
    model.save_weights(tmp_path / "theirs.weights.h5")
    for name in ("ours", "theirs"):
        read = convert.keras.to_canonical(convert.keras.read(tmp_path / f"{name}.weights.h5"))
        assert read.spec.dtype == dtype
        equal_dicts(convert.keras.from_canonical(read), arrays)


@pytest.mark.parametrize("name", ["o.h5", "o.keras", "weights.h5"])
def test_a_name_from_which_keras_loads_no_weights_is_refused(name, tmp_path):
    arrays = convert.keras.from_canonical(random_canonical(RNNSpec("lstm", 1, 5, 3), 1))
    with pytest.raises(ArgumentError, match=r"Invalid path: .*, expecting a name that ends in '.weights.h5'"):
        convert.keras.write_h5(tmp_path / name, arrays)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"gru/gru_cell/kernel": np.array(["x"], object)}, "expecting a floating dtype"),
        ({"gru/gru_cell/kernel": np.ones(3), "gru/gru_cell/bias": [1.0]}, "expecting an array, got list"),
        ({"one/gru_cell/kernel": np.ones(3)}, "where Keras looks for lstm"),
        ({f"bidirectional/forward_{n}/gru_cell/kernel": np.ones(3) for n in "ab"}, "has the place of another array"),
        ({}, "empty"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(arrays, text, tmp_path):
    path = tmp_path / "m.weights.h5"
    path.write_bytes(b"precious")
    with pytest.raises(ConvertError, match=text):
        convert.keras.write_h5(path, arrays)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


# --- HDF5 -------------------------------------------------------------------------------------------------------------


def never_written(file):
    for k in range(20):
        file.create_dataset(f"{k:02}", shape=(100_000,), dtype="f4")


def damaged_chunk(file):
    dataset = file.create_dataset("kernel", shape=(64, 10), chunks=(64, 10), dtype="f4", compression="gzip")
    dataset.id.write_direct_chunk((0, 0), b"\x78\x9cno such stream")


HOSTILE_HDF5 = {
    "a link out of the file": (
        lambda file: file.__setitem__("layers", h5py.ExternalLink("/etc/hostname", "/")), "is a link to elsewhere"),
    "an array kept in another file": (
        lambda file: file.create_dataset("kernel", (4,), "f4", external=[("/etc/hostname", 0, 16)]),
        "keeps its data in another file"),
    "an array larger than the file": (
        lambda file: file.create_dataset("kernel", (10**13,), "f4", chunks=(1024,)),
        "'kernel': declares more than 100 times the bytes of the file"),
    "arrays that are too large together": (never_written, "with the arrays before it"),
    "a damaged chunk": (damaged_chunk, "evil.h5: cannot be read as a file of Keras, HDF5 or .keras: "),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_HDF5)
def test_a_hostile_hdf5_file_is_refused_before_it_does_harm(what, tmp_path):
    build, text = HOSTILE_HDF5[what]
    with h5py.File(tmp_path / "evil.h5", "w") as file:
        build(file)
    with pytest.raises(ConvertError) as caught:
        convert.keras.read(tmp_path / "evil.h5")
    assert text in str(caught.value)


# --- .keras -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("keras") / "good.keras"
    keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4, name="gru"), keras.layers.Dense(2)]).save(path)
    return {name: zipfile.ZipFile(path).read(name) for name in ("config.json", "model.weights.h5")}


def zipped(members, compression=zipfile.ZIP_STORED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def with_(good, **changes):
    return zipped([*(good | {name.replace("_", "."): content for name, content in changes.items()}).items()])


BOMB = "it unpacks to more than 100 times its own size"
HOSTILE_ZIP = {
    "no weights": (lambda good: zipped([("config.json", good["config.json"])]), "no item named 'model.weights.h5'"),
    "a bomb of weights": (
        lambda good: zipped([("config.json", "{}"), ("model.weights.h5", bytes(10**7))], zipfile.ZIP_DEFLATED), BOMB),
    "a bomb of configuration": (
        lambda good: zipped([*(good | {"config.json": bytes(10**7)}).items()], zipfile.ZIP_DEFLATED), BOMB),
    "no JSON": (lambda good: with_(good, config_json=b"{"), "its configuration cannot be read"),
    "JSON without a bottom": (lambda good: with_(good, config_json=b"[" * 100_000), "its configuration cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_ZIP)
def test_a_hostile_keras_file_is_refused_before_it_does_harm(what, good, tmp_path):
    make, text = HOSTILE_ZIP[what]
    (tmp_path / "evil.keras").write_bytes(make(good))
    with pytest.raises(ConvertError) as caught:
        convert.keras.read(tmp_path / "evil.keras")
    assert text in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["evil.keras"], "and nothing was unpacked"
