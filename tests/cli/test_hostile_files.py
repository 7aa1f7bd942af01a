"""Commands given what is not a file of weights: pipes, devices, the advice of others, values that look like others."""

import os
import pickle

from safetensors.numpy import save_file

from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import need, random_canonical

need("torch", "onnx", "h5py")
import torch  # noqa: E402


class Exploit:
    def __reduce__(self):
        return os.system, ("true",)


def test_a_refused_pt_file_is_never_advised_to_be_run(run, tmp_path, recwarn):
    torch.save({"a": Exploit()}, tmp_path / "code.pt")
    (tmp_path / "pickle.pt").write_bytes(pickle.dumps({"a": Exploit()}))
    (tmp_path / "noise.pt").write_bytes(bytes(range(256)) * 9)
    torch.save({"weight_ih_l0": torch.zeros(3)}, tmp_path / "short.pt")
    os.truncate(tmp_path / "short.pt", 900)
    (tmp_path / "protocol.pt").write_bytes(pickle.dumps({"a": 1}, protocol=5))  # torch warns of it
    for name in ("code", "pickle", "noise", "short", "protocol"):
        code, out, err = run("convert", f"{name}.pt", "x.onnx")
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert "not a file of weights only" in err
        assert not {"weights_only", "False", "trust", "torch.load", "allowlist"} & set(err.replace("=", " ").split())
        assert "\x1b" not in err
    assert not [warning for warning in recwarn if "pickle protocol" in str(warning.message)]
    assert "posix.system" in run("convert", "code.pt", "x.onnx")[2]


def test_values_of_other_kinds_are_read_by_kind(run, tmp_path):
    c = random_canonical(RNNSpec("lstm", 2, 4, 3), 0)
    save_file(convert.keras.from_canonical(c, layers=["1", "none"]), tmp_path / "m.safetensors")
    to_jax = ["--from", "keras", "-s", "layers=1,none", "--to", "jax_rnn"]
    assert run("convert", "m.safetensors", "n.safetensors", *to_jax)[0] == 0
    sizes = [f"-s{key}" for key in ("input_size=3", "hidden_size=4", "num_layers=2", "bidirectional=false")]
    code, _, err = run("convert", "n.safetensors", "m.pt", "--from", "jax_rnn", *sizes)
    assert (code, err) == (0, "")
    for wrong in ("num_layers=true", "num_layers=2.0", "num_layers=٢", "bidirectional=1"):
        assert run("convert", "n.safetensors", "o.pt", "--from", "jax_rnn", *sizes, f"-s{wrong}")[0] == 1
