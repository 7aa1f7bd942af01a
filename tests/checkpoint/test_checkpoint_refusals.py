"""Each reason to refuse a checkpoint: another model, a file that cannot be read, one small change to a good file.

The hash fits where it can.
"""

import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnRNNRelu, CudnnRNNTanh, Saver, checkpoint
from pycudnnrnn.errors import CheckpointError, PycudnnrnnError
from tests.fuzz.checkpoint_mutants import joined, parts, rehashed
from tests.helpers.layers import built


def forget(*arrays):
    for array in arrays:
        array[...] = 0


def reason_of(saver, path):
    with pytest.raises(CheckpointError) as raised:
        saver.restore(path)
    assert raised.value.path == Path(path)
    assert raised.value.reason in checkpoint.REASONS
    assert str(path) in str(raised.value)
    assert isinstance(raised.value, PycudnnrnnError)
    assert pickle.loads(pickle.dumps(raised.value)).reason == raised.value.reason
    return raised.value.reason


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    tanh = Saver({"m": built(CudnnRNNTanh)}).save(tmp_path / "tanh")
    assert reason_of(Saver({"m": built(CudnnRNNRelu)}), tanh) == "spec", "names and shapes are the same"
    for keywords in ({"direction": "bidirectional"}, {"bias_mode": "none"}, {"input_size": 4}):
        assert reason_of(Saver({"m": built(CudnnRNNTanh, **keywords)}), tanh) == "spec"
    assert reason_of(Saver({"m": built(CudnnRNNTanh, dtype="float32")}), tanh) == "dtype"
    linear = Saver({"m": built(CudnnRNNTanh, input_size=3)}).save(tmp_path / "linear")
    assert reason_of(Saver({"m": built(CudnnRNNTanh, input_size=3, input_mode="skip_input")}), linear) == "spec"
    assert reason_of(Saver({"n": built(CudnnRNNTanh)}), tanh) == "metadata"
    assert reason_of(Saver({"m": built(CudnnRNNTanh), "step": np.array(1)}), tanh) == "metadata"
    assert reason_of(Saver({"m": np.zeros(3)}), tanh) == "metadata"
    more = built(CudnnRNNTanh)
    more.add_weight("more", (1,))
    assert reason_of(Saver({"m": more}), tanh) == "missing tensor"
    assert reason_of(Saver({"m": built(CudnnRNNTanh)}), Saver({"m": more}).save(tmp_path / "more")) == "unknown tensor"
    array = Saver({"a": np.zeros((2, 3))}).save(tmp_path / "array")
    assert reason_of(Saver({"a": np.zeros((3, 2))}), array) == "shape"
    assert reason_of(Saver({"a": built(CudnnRNNTanh)}), array) == "metadata"
    with pytest.raises(
        CheckpointError, match=r"not one model of checkpoint\.save's, but of a Saver, under 'a': build what it held"
    ):
        checkpoint.load(array)


def test_files_that_cannot_be_read_are_refused_without_waiting(tmp_path):
    saver = Saver({"a": np.zeros(3)})
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("nothing", "folder", "pipe", "loop", "nul\0"):
        assert reason_of(saver, tmp_path / name) == "unreadable"
    assert reason_of(saver, "/dev/zero") == "unreadable"


def test_a_file_that_shrinks_or_fails_while_it_is_read_is_refused(tmp_path, monkeypatch):
    saver = Saver({"a": np.zeros(3)})
    path = saver.save(tmp_path / "m")
    real = io.FileIO

    def reading(by):
        class Read(real):
            def readinto(self, buffer):
                return by(super().readinto, memoryview(buffer))

        monkeypatch.setattr("pycudnnrnn._source.io.FileIO", Read)

    left = [8]
    reading(lambda read, buffer: read(buffer[: left.pop()]) if left else 0)
    assert reason_of(saver, path) == "unreadable"
    assert not left

    def fail(*_):
        raise OSError("bad sector")

    reading(fail)
    assert reason_of(saver, path) == "unreadable"
    reading(lambda read, buffer: read(buffer[:5]))
    saver.restore(path)


def test_a_swap_between_check_and_read_changes_nothing(tmp_path, monkeypatch):
    """The file is opened once: what is checked is what is read."""
    array = np.arange(3.0)
    saver = Saver({"a": array})
    path = saver.save(tmp_path / "good")
    evil = tmp_path / "evil"
    evil.write_bytes(b"\xff" * path.stat().st_size)
    link = tmp_path / "link"
    link.symlink_to(path)
    real, opened = os.fstat, []

    def swap(descriptor):
        opened.append(descriptor)
        link.unlink()
        link.symlink_to(evil)
        return real(descriptor)

    forget(array)
    with monkeypatch.context() as patch:
        patch.setattr("pycudnnrnn._source.os.fstat", swap)
        saver.restore(link)
    assert array.tolist() == [0, 1, 2]
    assert len(opened) == 1
    assert reason_of(saver, link) == "header length"


# --- one small change -------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    """A layer, its file, and the file's header and payload."""
    layer = CudnnGRU(1, 2, seed=1)
    layer.build((None, None, 3))
    path = checkpoint.save(tmp_path / "m", layer)
    return layer, path, *parts(path.read_bytes())


def a_name(header):
    return next(name for name in sorted(header) if name.endswith("candidate/input_projection/bias"))


def items_of(header, change):
    items = json.loads(header["__metadata__"]["items"])
    changed = change(items["model"])
    header["__metadata__"]["items"] = json.dumps(items if changed is None else changed)


def spec_of(header, **fields):
    def change(state):
        state["spec"] = json.dumps(json.loads(state["spec"]) | fields)

    items_of(header, change)


def with_metadata(header, **fields):
    header["__metadata__"] = {k: v for k, v in (header["__metadata__"] | fields).items() if v is not ...}


HEADERS = {
    "an entry that is not an object": (lambda h: h.update({a_name(h): 3}), "header form"),
    "an entry with more in it": (lambda h: h[a_name(h)].update(more=1), "header form"),
    "three offsets": (lambda h: h[a_name(h)].update(data_offsets=[0, 8, 8]), "header form"),
    "an offset that is true": (lambda h: h[a_name(h)].update(data_offsets=[True, 8]), "header form"),
    "a fraction for a shape": (lambda h: h[a_name(h)].update(shape=[2.0]), "header form"),
    "metadata that is not a string": (lambda h: with_metadata(h, items={}), "header form"),
    "metadata that is a list": (lambda h: h.update(__metadata__=[]), "header form"),
    "no metadata": (lambda h: h.pop("__metadata__"), "metadata"),
    "another program's": (lambda h: with_metadata(h, format="pt"), "metadata"),
    "no hash": (lambda h: with_metadata(h, sha256=...), "metadata"),
    "no items": (lambda h: with_metadata(h, items=...), "metadata"),
    "items that are no JSON": (lambda h: with_metadata(h, items="{"), "metadata"),
    "items that are nested deeply": (lambda h: with_metadata(h, items="[" * 10**5), "metadata"),
    "items that are a list": (lambda h: with_metadata(h, items="[]"), "metadata"),
    "two models": (lambda h: items_of(h, lambda state: {"model": state, "more": state}), "metadata"),
    "a state that is a list": (lambda h: items_of(h, lambda _: {"model": []}), "metadata"),
    "a state without dropout": (lambda h: items_of(h, lambda state: state.pop("dropout") and None), "metadata"),
    "a name that is not a string": (lambda h: items_of(h, lambda state: state.update(name=3)), "metadata"),
    "an empty name": (lambda h: items_of(h, lambda state: state.update(name="")), "metadata"),
    "dropout that is not a list": (lambda h: items_of(h, lambda state: state.update(dropout={})), "metadata"),
    "dropout of 1 GB": (lambda h: items_of(h, lambda s: s.update(dropout=[["e", 1, 1, 2**30]])), "metadata"),
    "dropout of one engine twice": (
        lambda h: items_of(h, lambda s: s.update(dropout=[["e", 1, 1, 0]] * 2)),
        "metadata",
    ),
    "dropout of an odd engine": (lambda h: items_of(h, lambda s: s.update(dropout=[["../e", 1, 1, 0]])), "metadata"),
    "dropout of 17 engines": (
        lambda h: items_of(h, lambda s: s.update(dropout=[[f"e{i}", 1, 1, 0] for i in range(17)])),
        "metadata",
    ),
    "dropout of a negative position": (
        lambda h: items_of(h, lambda s: s.update(dropout=[["e", 1, -1, 0]])),
        "metadata",
    ),
    "dropout of a position that is true": (
        lambda h: items_of(h, lambda s: s.update(dropout=[["e", 1, True, 0]])),
        "metadata",
    ),
    "dropout of too large a position": (
        lambda h: items_of(h, lambda s: s.update(dropout=[["e", 1, 2**64 - 1, 0]])),
        "metadata",
    ),
    "dropout of too large a seed": (
        lambda h: items_of(h, lambda s: s.update(dropout=[["e", 2**64, 1, 0]])),
        "metadata",
    ),
    "dropout that is not there": (
        lambda h: items_of(h, lambda s: s.update(dropout=[["e", 1, 1, 4]])),
        "missing tensor",
    ),
    "a spec that is not a string": (lambda h: items_of(h, lambda state: state.update(spec=3)), "spec"),
    "a spec of nothing": (lambda h: spec_of(h, num_layers=0), "spec"),
    "a wider spec": (lambda h: spec_of(h, num_units=3), "shape"),
    "a spec of more layers": (lambda h: spec_of(h, num_layers=2), "missing tensor"),
    "a spec without biases": (lambda h: spec_of(h, bias_mode="none"), "unknown tensor"),
    "a spec of another dtype": (
        lambda h: spec_of(h, dtype="float64", math_type="fma", compute_dtype="float64"),
        "dtype",
    ),
    "an offset too far": (lambda h: h[a_name(h)].update(data_offsets=[0, 2**64]), "offsets"),
    "a minus before a zero": (None, "library"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_small_change_to_the_header_is_refused_with_its_reason(name, model):
    _, path, header, payload = model
    change, reason = HEADERS[name]
    if change is None:
        text = json.dumps(header).encode().replace(b'"data_offsets": [0,', b'"data_offsets": [-0,', 1)
        path.write_bytes(joined(text, payload))
    else:
        change(header)
        path.write_bytes(joined(header, payload))
    with pytest.raises(CheckpointError) as raised:
        checkpoint.load(path)
    assert raised.value.reason == reason
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "header length"),
        (b"\x02\0\0\0\0\0\0\0{", "header length"),
        (b"\x01\0\0\0\0\0\0\0{}", "header length"),
        (b"\x02\0\0\0\0\0\0\0[]", "header form"),
        (b"\x02\0\0\0\0\0\0\0{\xff", "header text"),
        (b"\x0b\0\0\0\0\0\0\0" + b'{"a": NaN} ', "header text"),
        (joined({str(i): 0 for i in range(4097)}, b""), "too many tensors"),
    ],
)
@pytest.mark.parametrize("read", [checkpoint.load, checkpoint.inspect])
def test_a_file_of_a_few_bytes_is_refused_with_its_reason(data, reason, read, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as raised:
        read(path)
    assert raised.value.reason == reason


def test_bytes_before_between_and_after_the_tensors_are_refused(model):
    layer, path, header, payload = model
    names = [name for name in header if name != "__metadata__"]
    files = [joined(header, payload + b"\0"), joined(header, payload[:-1])]
    for name in names:
        header[name]["data_offsets"] = [n + 4 for n in header[name]["data_offsets"]]
    files.append(joined(header, bytes(4) + payload))
    before = layer.params.copy()
    for data in files:
        path.write_bytes(data)
        for restore in (checkpoint.load, checkpoint.inspect):
            with pytest.raises(CheckpointError) as raised:
                restore(path)
            assert raised.value.reason == "offsets"
    assert np.array_equal(layer.params, before)


def test_another_value_under_the_old_hash_is_damage_and_under_a_new_one_is_a_value(model):
    _, path, header, payload = model
    other = bytes([payload[0] ^ 1]) + payload[1:]
    path.write_bytes(joined(header, other))
    for restore in (checkpoint.load, checkpoint.inspect):
        with pytest.raises(CheckpointError, match="SHA-256"):
            restore(path)
    path.write_bytes(rehashed(header, other))
    assert checkpoint.inspect(path).non_finite == {}
    checkpoint.load(path)
    with_metadata(header, items="[]")
    path.write_bytes(rehashed(header, payload))
    with pytest.raises(CheckpointError, match="does not say what it holds by name"):
        checkpoint.inspect(path)


def test_a_saver_refuses_the_states_of_other_things(model, tmp_path):
    layer, _, _, _ = model
    saver = Saver({"m": layer, "s": layer.saveable, "a": np.zeros(2)})
    path = saver.save(tmp_path / "three")
    header, payload = parts(path.read_bytes())
    good = json.loads(header["__metadata__"]["items"])
    for key, state in (("a", {"spec": ""}), ("s", {}), ("m", {}), ("m", good["m"] | {"name": 3}), ("s", good["m"])):
        header["__metadata__"]["items"] = json.dumps(good | {key: state})
        path.write_bytes(rehashed(header, payload))
        with pytest.raises(CheckpointError) as raised:
            saver.restore(path)
        assert raised.value.reason == "metadata"


def test_bfloat16_without_its_package_is_a_reason_and_no_crash(tmp_path, monkeypatch):
    layer = CudnnGRU(1, 2, dtype="bfloat16")
    layer.build((None, None, 3))
    path = checkpoint.save(tmp_path / "m", layer)
    assert checkpoint.load(path).dtype == "bfloat16"
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    for restore, reason in ((checkpoint.load, "spec"), (checkpoint.inspect, "dtype")):
        with pytest.raises(CheckpointError, match="ml_dtypes") as raised:
            restore(path)
        assert raised.value.reason == reason


def test_a_file_far_too_large_is_refused_before_it_is_read(model):
    layer, path, _, _ = model
    saver = Saver({"m": layer, "flag": np.array([True])})
    saver.save(path)
    saver.restore(path, require_finite=True)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room
    with pytest.raises(CheckpointError) as raised:
        saver.restore(path)
    assert raised.value.reason == "size"


def test_an_unknown_dtype_is_named_by_inspect(model):
    _, path, header, payload = model
    header[a_name(header)]["dtype"] = "F8_E4M3"
    path.write_bytes(joined(header, payload))
    with pytest.raises(CheckpointError, match="F8_E4M3"):
        checkpoint.inspect(path)
    with pytest.raises(CheckpointError, match="unreadable"):
        checkpoint.inspect(path.parent)
