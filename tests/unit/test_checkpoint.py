"""Savers: what goes in comes out, whole files or none, and only what is expected."""

import builtins
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

import pycudnnrnn as package
from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh, Saver, checkpoint, ops
from pycudnnrnn.checkpoint._file import HEADER_MAX, TENSORS_MAX
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError, PycudnnrnnError, StateError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.unit.test_layers import OF_MODE, layer_of

ROOT = Path(__file__).parents[2]


def built(kind=CudnnLSTM, input_size=5, seed=1, **keywords):
    layer = kind(2, 3, seed=seed, **keywords)
    layer.build((None, None, input_size))
    rng = np.random.default_rng(seed)
    layer.params += rng.normal(size=layer.params.shape).astype(layer.params.dtype)
    return layer


def forget(*arrays):
    for array in arrays:
        array[...] = 0


# --- round trips ------------------------------------------------------------------------------------------------------


@examples(300)
@given(specs(dtypes=("float64", "float32", "float16", "bfloat16")), st.integers(0, 9))
def test_a_layer_saved_on_one_layout_restores_bit_for_bit_on_another(tmp_path_factory, spec, layout):
    path = tmp_path_factory.mktemp("round") / "model.safetensors"
    plain = layer_of(spec)
    plain.build((None, None, spec.input_size))
    with use_engine(PermutedLayoutEngine(layout)):
        layer = layer_of(spec, bias_initializer="random_normal")
        layer.build((None, None, spec.input_size))
        Saver({"m": layer}).save(path)
        expected = [a for arrays in layer.op.params_to_canonical(layer.params) for a in arrays]
    Saver({"m": plain}).restore(path)
    found = [a for arrays in plain.op.params_to_canonical(plain.params) for a in arrays]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_layers_saveables_variables_and_arrays_share_a_file(tmp_path):
    encoder, decoder = built(direction="bidirectional"), built(CudnnGRU, seed=2)
    scale = encoder.add_weight("scale", (2,), initializer="ones", trainable=False)
    own = decoder.add_weight("own", (2, 2), dtype="float16", initializer="ones")
    step, kernel = np.array(7), torch.arange(6.0).reshape(2, 3)
    saver = Saver({"encoder": encoder, "decoder": decoder.saveable, "step": step, "kernel": kernel, "own": own})
    path = saver.save(tmp_path / "all.safetensors")
    before = [a.copy() for a in (encoder.params, decoder.params, scale.value, own.value, step, kernel.numpy())]
    forget(encoder.params, decoder.params, scale.value, own.value, step, kernel.numpy())
    saver.restore(str(path))
    after = [encoder.params, decoder.params, scale.value, own.value, step, kernel.numpy()]
    assert all(np.array_equal(a, b) for a, b in zip(after, before, strict=True))
    names = set(safetensors.numpy.load_file(path))
    assert "encoder/stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/kernel" in names
    assert "decoder/cudnn_gru/rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/kernel" in names
    assert {"encoder/scale", "step", "kernel", "own"} < names


def test_a_sequence_of_saveables_has_tfs_names_and_nothing_before_them(tmp_path):
    """Two models under two scopes in one file, and both are read back as themselves."""
    first, second = (built(CudnnRNNTanh, seed=i) for i in (1, 2))
    savers = [
        CudnnOpaqueParamsSaveable.of(layer.params, layer.spec, scope, "s")
        for layer, scope in ((first, "m1"), (second, "m2"))
    ]
    path = Saver(savers).save(tmp_path / "two.safetensors")
    expected = {f"{m}/rnn/multi_rnn_cell/cell_{i}/basic_rnn_cell/{t}" for m in ("m1", "m2") for i in (0, 1)
                for t in ("kernel", "bias", "bias_cudnn_0", "bias_cudnn_1")}  # fmt: skip
    assert set(safetensors.numpy.load_file(path)) == expected
    before = first.params.copy(), second.params.copy()
    forget(first.params, second.params)
    Saver(savers).restore(path)
    assert np.array_equal(first.params, before[0])
    assert np.array_equal(second.params, before[1])
    with pytest.raises(ArgumentError, match="'cudnn_rnn_tanh' twice"):
        Saver([first, second])
    named = [CudnnGRU(1, 2, name="a"), CudnnGRU(1, 2, name="b")]
    for layer in named:
        layer.build((None, None, 2))
    Saver(named).restore(Saver([*named]).save(tmp_path / "named"))


def test_tf_12s_saveable_is_saved_too(tmp_path):
    op = ops.CudnnGRU(2, 3, 5)
    params = op.init_params(3)
    before = params.copy()
    saver = Saver([RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, params)])
    path = saver.save(tmp_path / "old")
    forget(params)
    saver.restore(path)
    assert np.array_equal(params, before)


def test_dropout_continues_where_it_was(tmp_path):
    layer = built(dropout=0.5)
    x = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("f4")
    layer(x)
    path = Saver({"m": layer}).save(tmp_path / "m")
    expected = [layer(x)[0] for _ in range(2)]
    twin = built(dropout=0.5, seed=9)
    Saver({"m": twin}).restore(path)
    assert all(np.array_equal(twin(x)[0], outputs) for outputs in expected)
    alone = checkpoint.load(checkpoint.save(tmp_path / "alone", twin))
    assert np.array_equal(alone(x)[0], twin(x)[0])


def test_dropout_states_that_only_a_gpu_can_read_are_kept_for_it(tmp_path):
    """They are bytes: a machine without a GPU carries them from one file into the next."""
    states = [ops.DropoutState("cudnn", 5, 3, b"\x01\x02\x03" * 100), ops.DropoutState("numpy", 2**64 - 1, 7)]
    layer = built(dropout=0.5)
    for state in states:
        layer.op.set_dropout_state(state)
    path = Saver({"m": layer}).save(tmp_path / "m")
    assert safetensors.numpy.load_file(path)["m/dropout_states/cudnn"].size == 300
    twin = built(dropout=0.5, seed=9)
    Saver({"m": twin}).restore(path)
    alone = checkpoint.load(checkpoint.save(tmp_path / "alone", twin))
    for found in (twin, alone, pickle.loads(pickle.dumps(twin))):
        assert sorted(found.op.dropout_states(), key=lambda state: state.engine) == states


def test_one_model_is_saved_with_its_spec_and_loaded_from_the_file_alone(tmp_path):
    for mode, kind in OF_MODE.items():
        extra = {"num_proj": 2, "cell_clip": (-1.0, 0.5)} if mode == "lstm" else {"bias_mode": "single_input"}
        layer = built(kind, direction="bidirectional", dtype="float64", name=f"my/{mode}", **extra)
        path = checkpoint.save(tmp_path / mode, layer)
        with use_engine(PermutedLayoutEngine(3)):
            loaded = checkpoint.load(path)
            assert (type(loaded), loaded.spec, loaded.name) == (kind, layer.spec, f"my/{mode}")
            canonical = loaded.op.params_to_canonical(loaded.params)
        assert np.array_equal(layer.op.canonical_to_params(*canonical), layer.params)
    with pytest.raises(ArgumentTypeError, match="a layer"):
        checkpoint.save(tmp_path / "x", layer.params)
    with pytest.raises(StateError, match="not built"):
        checkpoint.save(tmp_path / "x", CudnnGRU(1, 2))


def test_values_that_are_not_finite_are_reported_and_refused_on_request(tmp_path):
    layer = built(CudnnRNNRelu)
    layer.params[0] = np.nan
    layer.params[5] = np.inf
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m")
    saver.restore(path)
    assert np.isnan(layer.params[0])
    found = checkpoint.inspect(path)
    assert list(found.non_finite.values()) == [2]
    assert found.items["m"]["name"] == "cudnn_rnn_relu"
    assert found.tensors.keys() == safetensors.numpy.load_file(path).keys()
    with pytest.raises(CheckpointError) as raised:
        saver.restore(path, require_finite=True)
    assert raised.value.reason == "not finite"


# --- the book ---------------------------------------------------------------------------------------------------------


def test_the_latest_checkpoints_are_kept_and_named_by_step(tmp_path):
    step = np.array(0)
    saver = Saver({"step": step}, max_to_keep=2)
    for n in (1, 2, 3):
        step[...] = n
        path = saver.save(tmp_path / "model.safetensors", global_step=n if n < 3 else np.array(n))
        assert path.name == f"model-{n}.safetensors"
        assert checkpoint.latest_checkpoint(tmp_path) == path
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint.json", "model-2.safetensors", "model-3.safetensors"
    ]  # fmt: skip
    assert [p.name for p in saver.last_checkpoints] == ["model-2.safetensors", "model-3.safetensors"]
    saver.save(tmp_path / "model.safetensors", global_step=3)
    assert len(saver.last_checkpoints) == 2
    (tmp_path / "mine.safetensors").write_bytes(b"not the saver's")
    for keep in (None, 0):
        everything = Saver({"step": step}, max_to_keep=keep)
        for n in range(6):
            everything.save(tmp_path / f"keep{keep}", global_step=n)
        assert len(list(tmp_path.glob(f"keep{keep}-*"))) == 6
    assert (tmp_path / "mine.safetensors").exists()
    assert (tmp_path / "model-2.safetensors").exists(), "a saver deletes what it wrote, and nothing else"


def test_no_checkpoint_is_no_error_and_a_damaged_book_is_one(tmp_path):
    assert checkpoint.latest_checkpoint(tmp_path) is None
    assert checkpoint.latest_checkpoint(tmp_path / "nowhere") is None
    book = tmp_path / "checkpoint.json"
    for text, reason in (
        ("{", "header text"), ("[]", "header text"), ("{}", "header text"), ('{"latest": 3}', "metadata"),
        ('{"latest": "../../etc/passwd"}', "metadata"), ('{"latest": ""}', "metadata"), ("[" * 10**5, "header text"),
        ('{"latest": "a\\u0000"}', "metadata"), (" " * (2 << 20), "size"), ("\udcff", "header text"),
    ):  # fmt: skip
        book.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(CheckpointError) as raised:
            checkpoint.latest_checkpoint(tmp_path)
        assert raised.value.reason == reason, text[:40]
    book.write_text('{"latest": "gone"}')
    assert checkpoint.latest_checkpoint(tmp_path) is None
    book.unlink()
    book.mkdir()
    with pytest.raises(CheckpointError, match="unreadable"):
        checkpoint.latest_checkpoint(tmp_path)


# --- whole files or none ----------------------------------------------------------------------------------------------

CALLS = {name: (os, name) for name in ("open", "fsync", "close", "replace")} | {"write": (Path, "write_bytes")}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_file_and_no_other(call, error, tmp_path, monkeypatch):
    layer = built()
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m.safetensors")
    before, params = path.read_bytes(), layer.params.copy()
    layer.params += 1
    owner, name = CALLS[call]
    real = getattr(owner, name)

    def fail(*arguments, **keywords):
        if call == "close":
            real(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(type(error)):
            saver.save(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.json", "m.safetensors"]
    saver.restore(path)
    assert np.array_equal(layer.params, params)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_in_a_save_leaves_a_whole_file(call, moment, tmp_path):
    path = tmp_path / "m.safetensors"
    code = f"""
import os, numpy as np
from pathlib import Path
from pycudnnrnn import Saver
array = np.arange(1000.0)
saver = Saver({{"a": array}})
saver.save({str(path)!r})
array += 1
owner = Path if {call!r} == "write" else os
real = getattr(owner, {CALLS[call][1]!r})
def die(*arguments, **keywords):
    if {moment!r} == "after":
        real(*((arguments[0], arguments[1][:100]) if {call!r} == "write" else arguments), **keywords)
    os._exit(9)
setattr(owner, {CALLS[call][1]!r}, die)
saver.save({str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, cwd=ROOT, capture_output=True)
    assert done.returncode == 9, done.stderr
    array = np.zeros(1000)
    Saver({"a": array}).restore(path)
    first = 1 if (call, moment) == ("replace", "after") else 0
    assert np.array_equal(array, np.arange(1000.0) + first)


def test_a_file_has_the_usual_permissions(tmp_path):
    path = Saver({"a": np.arange(5.0)}).save(tmp_path / "m")
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_restore_takes_all_or_nothing(tmp_path):
    layer, step = built(), np.array([1, 2])
    path = Saver({"m": layer, "step": step}).save(tmp_path / "m")
    expected = layer.params.copy()
    other, frozen = built(seed=5), np.array([0, 0])
    frozen.flags.writeable = False
    before = other.params.copy()
    with pytest.raises(ArgumentError, match="read-only"):
        Saver({"m": other, "step": frozen}).restore(path)
    assert np.array_equal(other.params, before)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="SHA-256 differs"):
        Saver({"m": other, "step": step}).restore(path)
    assert np.array_equal(other.params, before)
    assert np.array_equal(layer.params, expected)


# --- only what is expected --------------------------------------------------------------------------------------------


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
    assert reason_of(Saver({"m": built(CudnnRNNTanh, dtype="float64")}), tanh) == "dtype"
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
    with pytest.raises(CheckpointError, match="something else than one model"):
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
    real = os.pread
    monkeypatch.setattr("pycudnnrnn.checkpoint._file.os.pread", lambda fd, n, at: real(fd, n, at) if n == 8 else b"")
    assert reason_of(saver, path) == "unreadable"

    def fail(*_):
        raise OSError("bad sector")

    monkeypatch.setattr("pycudnnrnn.checkpoint._file.os.pread", fail)
    assert reason_of(saver, path) == "unreadable"
    monkeypatch.setattr("pycudnnrnn.checkpoint._file.os.pread", lambda fd, n, at: real(fd, min(n, 5), at))
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
        patch.setattr("pycudnnrnn.checkpoint._file.os.fstat", swap)
        saver.restore(link)
    assert array.tolist() == [0, 1, 2]
    assert len(opened) == 1
    assert reason_of(saver, link) == "header length"


def test_savers_refuse_what_they_cannot_hold(tmp_path):
    with pytest.raises(ArgumentTypeError, match="a layer, a saveable, a variable or an array"):
        Saver({"step": 3})
    with pytest.raises(ArgumentTypeError, match="strings as keys"):
        Saver({3: np.zeros(3)})
    with pytest.raises(ArgumentTypeError, match="things that have names"):
        Saver([np.zeros(3)])
    with pytest.raises(StateError, match="not built"):
        Saver({"m": CudnnGRU(1, 2)}).save(tmp_path / "m")
    same = CudnnOpaqueParamsSaveable.of(built().params, built().spec, "m", "s")
    with pytest.raises(ArgumentError, match="twice"):
        Saver({"m": built(), "": same}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="dtype"):
        Saver({"a": np.zeros(3, complex)}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="max_to_keep"):
        Saver({}, max_to_keep=-1)
    with pytest.raises(ArgumentError, match="global_step"):
        Saver({}).save(tmp_path / "m", global_step=-1)
    many = {str(i): np.zeros(0) for i in range(TENSORS_MAX + 1)}
    with pytest.raises(ArgumentError, match=f"at most {TENSORS_MAX}"):
        Saver(many).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match=f"{HEADER_MAX} bytes"):
        Saver({"x" * HEADER_MAX: np.zeros(1)}).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_the_largest_model_that_is_written_is_read(tmp_path):
    layer = CudnnGRU(256, 1, direction="bidirectional", seed=1, bias_initializer="random_normal")
    layer.build((None, None, 1))
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m")
    before = layer.params.copy()
    forget(layer.params)
    saver.restore(path)
    assert np.array_equal(layer.params, before)
    assert len(checkpoint.inspect(path).tensors) == TENSORS_MAX


# --- the named attacks ------------------------------------------------------------------------------------------------


def good(folder):
    layer = built(CudnnGRU)
    return checkpoint.save(folder / "good", layer).read_bytes()


def taken_apart(data):
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def put_together(header, payload):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def edited(change):
    def attack(folder):
        header, payload = taken_apart(good(folder))
        name = min(set(header) - {"__metadata__"})
        payload = change(header, name, payload) or payload
        return put_together(header, payload)

    return attack


class Exploit:
    def __reduce__(self):
        return builtins.exec, ("raise SystemExit('unpickled')",)


def npz(folder):
    np.savez(folder / "x.npz", kernel=np.zeros(3))
    return (folder / "x.npz").read_bytes()


def zip_bomb(folder):
    with zipfile.ZipFile(folder / "bomb", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("kernel.npy", bytes(64 << 20))
    return (folder / "bomb").read_bytes()


def duplicate_key(folder):
    header, payload = taken_apart(good(folder))
    text = json.dumps(header).encode()
    name = min(set(header) - {"__metadata__"})
    return put_together(text[:-1] + b", " + json.dumps({name: header[name]}).encode()[1:], payload)


def overlap(header, name, _):
    header[name]["data_offsets"] = list(
        next(e for n, e in header.items() if n not in {name, "__metadata__"})["data_offsets"]
    )


def hole(header, name, payload):
    end = len(payload)
    size = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
    header[name]["data_offsets"] = [end + 8, end + 8 + size]
    return payload + bytes(8 + size)


def dotted(header, name, _):
    header["../" + name] = header.pop(name)


def huge_spec(header, _, __):
    items = json.loads(header["__metadata__"]["items"])
    spec = json.loads(items["model"]["spec"])
    items["model"]["spec"] = json.dumps(spec | {"num_units": 10**6, "input_size": 10**6})
    header["__metadata__"]["items"] = json.dumps(items)


def deep_spec(header, _, __):
    items = json.loads(header["__metadata__"]["items"])
    spec = json.loads(items["model"]["spec"])
    items["model"]["spec"] = json.dumps(spec | {"num_layers": 2**31 - 1})
    header["__metadata__"]["items"] = json.dumps(items)


ATTACKS = {
    "a pickle": (lambda _: pickle.dumps(Exploit()), "header length"),
    "an npz file": (npz, "header length"),
    "a zip bomb": (zip_bomb, "header length"),
    "a shape of 10**13": (edited(lambda h, n, _: h[n].update(shape=[10**13])), "shape"),
    "a negative dimension": (edited(lambda h, n, _: h[n].update(shape=[-1, 3])), "header form"),
    "a duplicate key": (duplicate_key, "duplicate key"),
    "an overlap": (edited(overlap), "offsets"),
    "a hole": (edited(hole), "offsets"),
    "a name with ../": (edited(dotted), "missing tensor"),
    "an unknown dtype": (edited(lambda h, n, _: h[n].update(dtype="F128")), "dtype"),
    "a spec of 10**12 elements": (edited(huge_spec), "shape"),
    "100 MB of header in 1 KB": (lambda _: (100 << 20).to_bytes(8, "little") + bytes(1016), "header length"),
    # and some more
    "a spec of 2**31 layers": (edited(deep_spec), "spec"),
    "deep nesting": (lambda _: put_together(b"[" * 10**5 + b"]" * 10**5, b""), "header text"),
    "nothing": (lambda _: b"", "header length"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_named_attack_is_refused_and_allocates_next_to_nothing(name, tmp_path, measured):
    """In a process of its own with 1 GiB of address space beyond what its imports took."""
    attack, reason = ATTACKS[name]
    path = tmp_path / "attack"
    path.write_bytes(attack(tmp_path))
    code = f"""
import resource, tracemalloc
from pycudnnrnn import CudnnGRU, Saver, checkpoint
from pycudnnrnn.errors import CheckpointError
layer = CudnnGRU(2, 3)
layer.build((None, None, 5))
saver = Saver({{"": layer}})
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
tracemalloc.start()
for restore in (checkpoint.load, saver.restore, checkpoint.inspect):
    try:
        restore({str(path)!r})
        print("accepted")
    except CheckpointError as error:
        print(error.reason)
print(tracemalloc.get_traced_memory()[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    by_load, by_saver, by_inspect, peak = done.stdout.splitlines()
    assert by_load == reason
    assert "accepted" not in {by_saver, by_inspect}
    assert int(peak) < 16 << 20
    measured("R5", refused=1, peak_bytes=int(peak))


def test_all_names_are_public():
    for name in ("Saver", "checkpoint"):
        assert name in package.__all__
    assert set(checkpoint.__all__) <= set(dir(checkpoint))
