"""A restore changes all or nothing, and each kind of bad file is a `CheckpointError` with its reason."""

import contextlib
import functools
import json
import os
import pickle
import signal
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.lib.stride_tricks import as_strided

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh, Saver, _arrays, _assignment, checkpoint
from pycudnnrnn.errors import ArgumentError, CheckpointError, MissingDependencyError
from tests.fuzz.json_mutants import parts, rehashed
from tests.helpers.interrupts import at_every_moment
from tests.helpers.layers import built
from tests.helpers.together import together


def reason_of(read, path):
    with pytest.raises(CheckpointError) as raised:
        read(path)
    assert raised.value.path == Path(path)
    assert raised.value.reason in checkpoint.REASONS
    assert str(path) in str(raised.value)
    assert len(str(raised.value)) < 2000
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
    def tanh(kind=CudnnRNNTanh, **keywords):
        return built(kind, input_size=3, **keywords)

    path = Saver({"m": tanh()}).save(tmp_path / "tanh")
    more = tanh()
    more.add_weight("more", (1,))
    for things in (
        {"m": tanh(CudnnRNNRelu)},  # whose names and shapes are the same
        {"m": tanh(bias_mode="none")}, {"m": tanh(dtype="float32")}, {"n": tanh()}, {"m": np.zeros(3)}, {"m": more},
    ):  # fmt: skip
        assert reason_of(Saver(things).restore, path) == "mismatch", things
    grown = Saver({"m": more}).save(tmp_path / "more")
    assert reason_of(Saver({"m": tanh()}).restore, grown) == "mismatch"
    array = Saver({"a": np.zeros((2, 3))}).save(tmp_path / "array")
    for wrong in (np.zeros((3, 2)), np.zeros((2, 3), "f4")):
        assert reason_of(Saver({"a": wrong}).restore, array) == "mismatch"
    Saver({"s": built(CudnnLSTM, bias_mode="single_input")}).save(tmp_path / "tf", format="tensorflow")
    skips = Saver({"m": tanh(input_mode="skip_input")})
    for read, file, text in (
        (skips.restore, path, "input_mode of 'm' is linear_input, expecting skip"),
        (Saver({"b": np.zeros(3)}).restore, array, "not in this saver: 'a'; not in the file: 'b'"),
        (checkpoint.load, array, "of a Saver of 'a', not of checkpoint"),
        (checkpoint.load_op, tmp_path / "tf", "describes no layer: build it"),
    ):
        with pytest.raises(CheckpointError, match=text):
            read(file)


def test_what_is_no_file_of_ours_is_refused_without_waiting(tmp_path):
    """The library would wait for a pipe, and no signal ends that."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    np.savez(tmp_path / "x.npz", kernel=np.zeros(3))
    foreign = functools.partial(checkpoint.inspect, foreign=True)
    for read in (Saver({"a": np.zeros(3)}).restore, checkpoint.load, checkpoint.inspect, foreign):
        for name in ("nothing", "folder", "nul\0", "x" * 300):
            assert reason_of(read, tmp_path / name) == "unreadable"
        assert reason_of(read, tmp_path / "x.npz") == "format"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(safetensors, "safe_open", lambda *_: pytest.fail("it opens a pipe"))
            assert reason_of(read, tmp_path / "pipe") == "unreadable"


def test_a_file_of_another_program_is_read_where_that_is_asked_for_alone(tmp_path):
    path = tmp_path / "theirs.safetensors"
    arrays = {"a": np.arange(6, dtype="f4").reshape(2, 3), "empty": np.zeros((0, 3)), "odd": np.array([np.nan, np.inf])}
    safetensors.numpy.save_file(arrays, path, {"format": "pt"})
    contents = checkpoint.inspect(path, foreign=True)
    assert (contents.verified, contents.items, contents.metadata) == (False, {}, {"format": "pt"})
    summaries = {"a": (6, 0, 5, 2.5, 0, 0), "empty": (0, None, None, None, 0, 0), "odd": (2, None, None, None, 1, 1)}
    assert contents.summaries == summaries
    for read in (checkpoint.inspect, checkpoint.load):
        assert reason_of(read, path) == "format"


# --- one change to a good file, under a hash that fits ----------------------------------------------------------------


def changed(of_spec=None, **of_state):
    def change(_, metadata):
        items = json.loads(metadata["items"])
        model = items["model"]
        model["spec"] = json.dumps(json.loads(model["spec"]) | (of_spec or {}))
        metadata["items"] = json.dumps(items | {"model": model | of_state})

    return change


CHANGES = {
    "nothing": (lambda *_: None, None),
    "no metadata": (lambda _, m: m.clear(), "format"),
    "no items": (lambda _, m: m.pop("items") and None, "format"),
    "items that are no JSON": (lambda _, m: m.update(items="{"), "format"),
    "items that are nested deeply": (lambda _, m: m.update(items="[" * 10**5), "format"),
    "items that hold nothing": (lambda _, m: m.update(items="{}"), "mismatch"),
    "a name that is not a string": (changed(name=3), "format"),
    "an empty name": (changed(name=""), "format"),
    "dropout that is not a list": (changed(dropout=7), "format"),
    "dropout of a position that is true": (changed(dropout=[["e", 1, True, 0]]), "format"),
    "dropout that is not there": (changed(dropout=[["e", 1, 1, 4]]), "mismatch"),
    "a spec that is not a string": (changed(spec=3), "format"),
    "a spec of nothing": (changed({"num_layers": 0}), "format"),
    "a spec of 10**12 elements": (changed({"num_units": 10**6, "input_size": 10**6}), "mismatch"),
    "a spec of 50,000 layers": (changed({"num_layers": 50_000}), "mismatch"),
    "a tensor more": (lambda t, _: t.update(x=np.zeros(3)), "mismatch"),
    "a tensor less": (lambda t, _: t.pop(min(t)) is None, "mismatch"),
    "other values": (lambda t, _: t.update({min(t): t[min(t)] + 1}), None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_small_change_is_refused_with_its_reason(name, tmp_path):
    change, reason = CHANGES[name]
    path = checkpoint.save(tmp_path / "m", built(CudnnGRU))
    tensors, (header, _) = safetensors.numpy.load_file(path), parts(path.read_bytes())
    change(tensors, header["__metadata__"])
    changed_file = safetensors.numpy.save(tensors, {"sha256": ""} | header["__metadata__"])
    path.write_bytes(rehashed(*parts(changed_file)))
    for read in (checkpoint.load, checkpoint.load_op):
        with limited(16 << 20):
            if reason is None:
                read(path)
            else:
                assert reason_of(read, path) == reason


OF_F8 = b'{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}'
BYTES = {
    "nothing": b"",
    "100 MB of header in 1 KB": (100 << 20).to_bytes(8, "little") + bytes(1016),
    "a dtype that NumPy has not": len(OF_F8).to_bytes(8, "little") + OF_F8 + bytes(8),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_file_are_refused_by_every_reader_and_cost_nothing(name, tmp_path):
    (tmp_path / "m").write_bytes(BYTES[name])
    for read in (checkpoint.load, checkpoint.inspect, lambda path: checkpoint.inspect(path, foreign=True)):
        with limited(4 << 20):
            assert reason_of(read, tmp_path / "m") == "format"


def test_bfloat16_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    path = checkpoint.save(tmp_path / "m", built(CudnnGRU, dtype="bfloat16"))
    assert checkpoint.load(path).dtype == "bfloat16"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(MissingDependencyError, match="ml_dtypes"):
        checkpoint.load(path)


@pytest.mark.parametrize(("value", "form"), [(np.nan, "safetensors"), (-np.inf, "tensorflow")])
def test_values_that_are_not_finite_are_reported_and_refused_on_request(tmp_path, value, form):
    dtype = "float64" if form == "tensorflow" else "bfloat16"
    layer, other = (built(CudnnRNNRelu, bias_mode="single_input", dtype=dtype) for _ in range(2))
    layer.params[0] = value
    path = Saver({"m": layer}).save(tmp_path / "m", format=form)
    saver, before, alone = Saver({"m": other}), other.params.copy(), checkpoint.save(tmp_path / "alone", layer)
    for read, file in ((saver.restore, path), (checkpoint.load, alone), (checkpoint.load_op, alone)):
        assert reason_of(functools.partial(read, require_finite=True), file) == "not finite"
    assert np.array_equal(other.params, before)
    saver.restore(path)
    assert np.array_equal(other.params, layer.params, equal_nan=True)
    contents = checkpoint.inspect(path)
    assert list(contents.non_finite.values()) == [1]
    assert repr(contents) == f"Inspection({len(contents.tensors)} tensors, items {list(contents.items)}, verified=True)"


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


UNFIT = {
    "a read-only array": (lambda: np.ones(3), lambda: read_only(np.zeros(3))),
    "an array whose rows overlap": (lambda: np.ones((3, 2)), lambda: as_strided(np.zeros(4), (3, 2), (8, 8))),
    "an expanded tensor": (lambda: torch.ones(3), lambda: torch.zeros(1).expand(3)),
    "a tensor of inference": (lambda: torch.ones(3), torch.inference_mode()(lambda: torch.zeros(3))),
    "a read-only layer": (built, frozen_layer),
}
"""What is saved, and what the same name then stands for."""


@pytest.mark.parametrize("kind", UNFIT)
def test_a_restore_into_several_changes_none_where_one_cannot_be_changed(kind, tmp_path):
    good, bad = UNFIT[kind]
    first = built(dropout=0.5)
    first(np.zeros((2, 1, 5)))  # moves its dropout
    path = Saver({"a": first, "m": good(), "z": np.array([1, 2])}).save(tmp_path / "m")
    twin, other = built(seed=9, dropout=0.5), np.array([8, 9])
    before, dropout = twin.params.copy(), twin.op.dropout_state()
    with pytest.raises(ArgumentError):
        Saver({"a": twin, "m": bad(), "z": other}).restore(path)
    assert np.array_equal(twin.params, before)
    assert (twin.op.dropout_state(), other.tolist()) == (dropout, [8, 9])
    Saver({"a": twin, "m": good(), "z": other}).restore(path)
    assert np.array_equal(twin.params, first.params)


@pytest.mark.parametrize(
    ("modules", "step"), [((_arrays, checkpoint), 11), ((_assignment,), 1)], ids=["around the writes", "among them"]
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


@pytest.mark.parametrize("form", ["safetensors", "tensorflow"])
def test_ctrl_c_among_the_writes_comes_after_them_and_other_threads_write_without_it(tmp_path, monkeypatch, form):
    arrays = {"a": np.ones(2), "b": np.ones(2)}
    saver, real = Saver(arrays), _assignment.assignment
    path, before = saver.save(tmp_path / "m", format=form), signal.signal(signal.SIGINT, signal.default_int_handler)
    arrays["a"][...] = arrays["b"][...] = 0
    monkeypatch.setattr(_assignment, "assignment", lambda *a: lambda: (signal.raise_signal(2), real(*a)()))
    try:
        with pytest.raises(KeyboardInterrupt):
            saver.restore(path)
        with pytest.raises(ZeroDivisionError), _assignment.uninterrupted():
            _ = 1 / 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert [array.tolist() for array in arrays.values()] == [[1, 1]] * 2
        monkeypatch.undo()
        together(1, lambda _: saver.restore(path))
    finally:
        signal.signal(signal.SIGINT, before)
