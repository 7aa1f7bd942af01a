"""A restore changes all or nothing, and each kind of bad file is a `CheckpointError` with its reason."""

import contextlib
import hashlib
import json
import os
import pickle
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.lib.stride_tricks import as_strided

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh, Saver, _arrays, _overwriting, checkpoint
from pycudnnrnn.errors import ArgumentError, CheckpointError, MissingDependencyError, PycudnnrnnError
from tests.helpers.interrupts import at_every_moment
from tests.helpers.layers import built


def reason_of(read, path):
    with pytest.raises(CheckpointError) as raised:
        read(path)
    assert raised.value.path == Path(path)
    assert raised.value.reason in checkpoint.REASONS
    assert str(path) in str(raised.value)
    assert len(str(raised.value)) < 2000
    assert isinstance(raised.value, PycudnnrnnError)
    assert pickle.loads(pickle.dumps(raised.value)).reason == raised.value.reason
    return raised.value.reason


@contextlib.contextmanager
def limited(nbytes):
    """Refuse a block that takes more memory."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= nbytes
    finally:
        tracemalloc.stop()


# --- another model, or no file ----------------------------------------------------------------------------------------


def test_a_checkpoint_of_other_things_is_a_mismatch(tmp_path):
    tanh = Saver({"m": built(CudnnRNNTanh, input_size=3)}).save(tmp_path / "tanh")
    more = built(CudnnRNNTanh, input_size=3)
    more.add_weight("more", (1,))
    others = [
        {"m": built(CudnnRNNRelu, input_size=3)},  # whose names and shapes are the same
        *({"m": built(CudnnRNNTanh, **{"input_size": 3, **changes})} for changes in (
            {"bias_mode": "none"}, {"dtype": "float32"})),
        {"n": built(CudnnRNNTanh, input_size=3)}, {"m": np.zeros(3)}, {"m": more}, {},
    ]  # fmt: skip
    for things in others:
        assert reason_of(Saver(things).restore, tanh) == "mismatch", things
    grown = Saver({"m": more}).save(tmp_path / "more")
    assert reason_of(Saver({"m": built(CudnnRNNTanh, input_size=3)}).restore, grown) == "mismatch"
    array = Saver({"a": np.zeros((2, 3))}).save(tmp_path / "array")
    for wrong in (np.zeros((3, 2)), np.zeros((2, 3), "f4")):
        assert reason_of(Saver({"a": wrong}).restore, array) == "mismatch"
    with pytest.raises(CheckpointError, match="input_mode of 'm' is linear_input, expecting skip_input"):
        Saver({"m": built(CudnnRNNTanh, input_size=3, input_mode="skip_input")}).restore(tanh)
    with pytest.raises(CheckpointError, match="only the file has 'a', only this saver has 'b'"):
        Saver({"b": np.zeros(3)}).restore(array)
    for load in (checkpoint.load, checkpoint.load_op):
        with pytest.raises(CheckpointError, match="of a Saver of 'a', not of checkpoint"):
            load(array)
        Saver({"s": built(CudnnLSTM, bias_mode="single_input")}).save(tmp_path / "tf", format="tensorflow")
        with pytest.raises(CheckpointError, match="describes no layer: build it"):
            load(tmp_path / "tf")


def test_what_is_no_file_of_ours_is_refused_without_waiting(tmp_path, monkeypatch):
    """The library would wait for a pipe, and no signal ends that."""
    real = safetensors.safe_open

    def of_files(path, *arguments):
        assert path.is_file()
        return real(path, *arguments)

    monkeypatch.setattr(safetensors, "safe_open", of_files)
    saver = Saver({"a": np.zeros(3)})
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    reads = [saver.restore, checkpoint.load, checkpoint.inspect, lambda path: checkpoint.inspect(path, foreign=True)]
    for read in reads:
        for name in ("nothing", "folder", "pipe", "loop", "nul\0", "x" * 300):
            assert reason_of(read, tmp_path / name) == "unreadable"
        assert reason_of(read, "/dev/zero") == "unreadable"
        np.savez(tmp_path / "x.npz", kernel=np.zeros(3))
        assert reason_of(read, tmp_path / "x.npz") == "format"


def test_a_file_of_another_program_is_read_where_that_is_asked_for_alone(tmp_path):
    path = tmp_path / "theirs.safetensors"
    arrays = {"a": np.arange(6, dtype="f4").reshape(2, 3), "empty": np.zeros((0, 3)), "odd": np.array([np.nan, np.inf])}
    safetensors.numpy.save_file(arrays, path, {"format": "pt"})
    found = checkpoint.inspect(path, foreign=True)
    assert (found.verified, found.items, found.metadata) == (False, {}, {"format": "pt"})
    assert found.summaries["a"] == (6, 0, 5, 2.5, 0, 0)
    assert found.summaries["empty"] == (0, None, None, None, 0, 0)
    assert found.summaries["odd"] == (2, None, None, None, 1, 1)
    assert found.non_finite == {"odd": 2}
    for read in (checkpoint.inspect, checkpoint.load):
        assert reason_of(read, path) == "format"
    safetensors.numpy.save_file(arrays, path)
    assert checkpoint.inspect(path, foreign=True).metadata == {}


# --- one change to a good file, under a hash that fits ----------------------------------------------------------------


def rehashed(tensors, metadata):
    """Make a file with a hash that fits, as somebody would who wants to get past it: written anew, from the format."""
    found = hashlib.sha256()

    def add(*parts):
        for part in parts:
            raw = part if isinstance(part, bytes) else part.encode()
            found.update(len(raw).to_bytes(8, "little") + raw)

    own = {key: value for key, value in metadata.items() if key != "sha256"}
    for key in sorted(own):
        add(key, own[key])
    for name in sorted(tensors):
        add(name, tensors[name].dtype.name, str(tensors[name].shape), tensors[name].tobytes())
    return safetensors.numpy.save(tensors, own | {"sha256": found.hexdigest()})


def state_changed(**fields):
    def change(_, metadata):
        items = json.loads(metadata["items"])
        items["model"] |= fields
        metadata["items"] = json.dumps(items)

    return change


def spec_changed(**fields):
    def change(_, metadata):
        items = json.loads(metadata["items"])
        items["model"]["spec"] = json.dumps(json.loads(items["model"]["spec"]) | fields)
        metadata["items"] = json.dumps(items)

    return change


def items_are(text):
    return lambda _, metadata: metadata.update(items=text)


def contents(path):
    with safetensors.safe_open(path, "numpy") as file:
        return safetensors.numpy.load_file(path), file.metadata()


CHANGES = {
    "nothing": (lambda *_: None, None),
    "no metadata": (lambda _, m: m.clear(), "format"),
    "no items": (lambda _, m: m.pop("items") and None, "format"),
    "items that are no JSON": (items_are("{"), "format"),
    "items that are nested deeply": (items_are("[" * 10**5), "format"),
    "items that hold nothing": (items_are("{}"), "mismatch"),
    "a name that is not a string": (state_changed(name=3), "format"),
    "dropout that is not a list": (state_changed(dropout=7), "format"),
    "dropout of a row too short": (state_changed(dropout=[["e", 1, 1]]), "format"),
    "dropout of a position that is true": (state_changed(dropout=[["e", 1, True, 0]]), "format"),
    "dropout of too large a seed": (state_changed(dropout=[["e", 2**64, 1, 0]]), "format"),
    "dropout of a size that is text": (state_changed(dropout=[["e", 1, 1, "4"]]), "format"),
    "dropout that is not there": (state_changed(dropout=[["e", 1, 1, 4]]), "mismatch"),
    "a spec that is not a string": (state_changed(spec=3), "format"),
    "a spec of nothing": (spec_changed(num_layers=0), "format"),
    "a wider spec": (spec_changed(num_units=3), "mismatch"),
    "a spec of 10**12 elements": (spec_changed(num_units=10**6, input_size=10**6), "mismatch"),
    "a spec of 50,000 layers": (spec_changed(num_layers=50_000), "mismatch"),
    "a spec of another dtype": (spec_changed(dtype="float64", math_type="fma", compute_dtype="float64"), "mismatch"),
    "a tensor more": (lambda t, _: t.update(x=np.zeros(3)), "mismatch"),
    "a tensor less": (lambda t, _: t.pop(min(t)) is None, "mismatch"),
    "other values": (lambda t, _: t.update({min(t): t[min(t)] + 1}), None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_small_change_is_refused_with_its_reason(name, tmp_path):
    change, reason = CHANGES[name]
    layer = CudnnGRU(1, 2, seed=1)
    layer.build((None, None, 3))
    path = checkpoint.save(tmp_path / "m", layer)
    tensors, metadata = contents(path)
    change(tensors, metadata)
    path.write_bytes(rehashed(tensors, metadata))
    for read in (checkpoint.load, checkpoint.load_op):
        with limited(16 << 20):
            if reason is None:
                read(path)
            else:
                assert reason_of(read, path) == reason


def test_a_saver_refuses_the_states_of_other_things(tmp_path):
    layer = built(CudnnGRU)
    saver = Saver({"m": layer, "s": layer.saveable, "a": np.zeros(2)})
    path = saver.save(tmp_path / "three")
    tensors, metadata = contents(path)
    good = json.loads(metadata["items"])
    wrong = [("a", {"spec": ""}), ("s", {}), ("m", {}), ("m", good["s"]), ("s", good["m"]), ("a", []), ("m", None)]
    for key, state in wrong:
        path.write_bytes(rehashed(tensors, metadata | {"items": json.dumps(good | {key: state})}))
        assert reason_of(saver.restore, path) in {"format", "mismatch"}


BYTES = {
    "nothing": b"",
    "100 MB of header in 1 KB": (100 << 20).to_bytes(8, "little") + bytes(1016),
    "deep nesting": (2 * 10**5).to_bytes(8, "little") + b"[" * 10**5 + b"]" * 10**5,
    **{f"a tensor of {what}": len(text).to_bytes(8, "little") + text + bytes(8) for what, text in {
        "10**13 elements": b'{"a":{"dtype":"F32","shape":[10000000000000],"data_offsets":[0,8]}}',
        "65 axes": b'{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,8]}}' % b",".join([b"1"] * 64 + [b"2"]),
        "a dtype that NumPy has not": b'{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}',
    }.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_file_are_refused_by_every_reader_and_cost_nothing(name, tmp_path):
    (tmp_path / "m").write_bytes(BYTES[name])
    for read in (checkpoint.load, checkpoint.inspect, lambda path: checkpoint.inspect(path, foreign=True)):
        with limited(4 << 20):
            assert reason_of(read, tmp_path / "m") == "format"


def test_bfloat16_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    layer = CudnnGRU(1, 2, dtype="bfloat16")
    layer.build((None, None, 3))
    path = checkpoint.save(tmp_path / "m", layer)
    assert checkpoint.load(path).dtype == "bfloat16"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for read in (checkpoint.load, checkpoint.inspect):
        with pytest.raises(MissingDependencyError, match="ml_dtypes"):
            read(path)


def test_values_that_are_not_finite_are_reported_and_refused_on_request(tmp_path):
    layer, counts = built(CudnnRNNRelu), np.array([1, 2])
    saver = Saver({"m": layer, "counts": counts})
    saver.restore(saver.save(tmp_path / "m"), require_finite=True)
    for value in (np.nan, -np.inf):
        layer.params[0] = value
        path, alone = saver.save(tmp_path / "m"), checkpoint.save(tmp_path / "alone", layer)
        layer.params[0] = 0
        for read in (saver.restore, checkpoint.load, checkpoint.load_op):
            with pytest.raises(CheckpointError) as raised:
                read(path if read == saver.restore else alone, require_finite=True)
            assert raised.value.reason == "not finite"
        assert layer.params[0] == 0
        saver.restore(path)
        assert layer.params[0] == value or np.isnan(layer.params[0])
        assert list(checkpoint.inspect(path).non_finite.values()) == [1]


def test_one_tensor_at_a_time_is_in_memory_to_inspect_and_twice_the_model_to_restore(tmp_path):
    layer = CudnnGRU(2, 600, dtype="float64")
    layer.build((None, None, 600))
    saver, n = Saver({"m": layer}), layer.params.nbytes
    path = saver.save(tmp_path / "m")
    largest = max(spec.nbytes for spec in checkpoint.inspect(path).tensors.values())
    for work, most in ((lambda: checkpoint.inspect(path), largest), (lambda: saver.restore(path), 2 * n)):
        with limited(most + (12 << 20)):
            work()
    assert largest + (12 << 20) < n, "or this shows nothing"


# --- all or nothing ---------------------------------------------------------------------------------------------------


def read_only(array):
    array.flags.writeable = False
    return array


def frozen_layer():
    layer = built()
    read_only(layer.params)
    return layer


def with_a_variable(value):
    layer = built(CudnnGRU)
    layer.add_weight("own", (2, 2), initializer="ones")
    layer.variables_by_name()["own"].value = value
    return layer


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(3)


UNFIT = {
    "a read-only array": (lambda: np.ones(3), lambda: read_only(np.zeros(3))),
    "an array whose rows overlap": (lambda: np.ones((3, 2)), lambda: as_strided(np.zeros(4), (3, 2), (8, 8))),
    "an expanded tensor": (lambda: torch.ones(3), lambda: torch.zeros(1).expand(3)),
    "a tensor of inference mode": (lambda: torch.ones(3), inference_tensor),
    "a read-only layer": (built, frozen_layer),
    "a read-only variable of a layer": (
        lambda: with_a_variable(np.ones((2, 2))), lambda: with_a_variable(read_only(np.ones((2, 2))))
    ),
}  # fmt: skip
"""What is saved, and what the same name then stands for."""


@pytest.mark.parametrize("kind", UNFIT)
def test_a_restore_into_several_changes_none_where_one_cannot_be_changed(kind, tmp_path):
    good, bad = UNFIT[kind]
    first, last = built(dropout=0.5), np.array([1, 2])
    first(np.zeros((2, 1, 5)))  # moves its dropout
    path = Saver({"a": first, "m": good(), "z": last}).save(tmp_path / "m")
    twin, other = built(seed=9, dropout=0.5), np.array([8, 9])
    before, dropout = twin.params.copy(), twin.op.dropout_state()
    with pytest.raises(ArgumentError):
        Saver({"a": twin, "m": bad(), "z": other}).restore(path)
    assert np.array_equal(twin.params, before)
    assert twin.op.dropout_state() == dropout
    assert other.tolist() == [8, 9]
    Saver({"a": twin, "m": good(), "z": other}).restore(path)
    assert np.array_equal(twin.params, first.params)
    assert twin.op.dropout_state() == first.op.dropout_state()


@pytest.mark.parametrize(
    ("modules", "step"), [((_arrays, checkpoint), 11), ((_overwriting,), 1)], ids=["around the writes", "among them"]
)
def test_an_interrupt_at_any_moment_of_a_restore_comes_before_all_or_after_all(tmp_path, modules, step):
    layer, a = built(dropout=0.5), np.full(3, 1.0)
    layer(np.zeros((2, 1, 5)))
    path = Saver({"m": layer, "a": a}).save(tmp_path / "m")
    twin, other = built(seed=9, dropout=0.5), np.zeros(3)
    params, dropout = twin.params.copy(), twin.op.dropout_state()
    saver, seen = Saver({"m": twin, "a": other}), set()
    for moment in at_every_moment(lambda: saver.restore(path), [m.__file__ for m in modules], step):
        new = [np.array_equal(twin.params, layer.params), twin.op.dropout_state() == layer.op.dropout_state()]
        old = [np.array_equal(twin.params, params), twin.op.dropout_state() == dropout]
        assert all([*new, other.all()]) or all([*old, not other.any()]), moment
        seen.add(all(new))
        twin.params[...], other[...] = params, 0
        twin.op.set_dropout_state(dropout)
    assert seen == {True, False}


def test_set_weights_changes_none_where_one_array_is_bad():
    layer = built()
    for i in range(2):
        layer.add_weight(f"w{i}", (2,), initializer="zeros")
    before = layer.get_weights()
    for bad in ("x", np.array(["1", "2"]), np.array([1j, 2]), [3.0], np.ones(2)):
        if isinstance(bad, np.ndarray) and bad.dtype == float:
            read_only(layer.weights[2].value)
        with pytest.raises(ArgumentError, match=r"weights\[2\]"):
            layer.set_weights([layer.params + 1, np.ones(2), bad])
        assert all(map(np.array_equal, layer.get_weights(), before))
