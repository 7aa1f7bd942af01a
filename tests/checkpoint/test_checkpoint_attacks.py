"""The named attacks: files made to do harm are refused, and cost next to nothing."""

import builtins
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, checkpoint
from tests.fuzz.checkpoint_mutants import joined, parts
from tests.helpers.layers import built

ROOT = Path(__file__).parents[2]


def good(folder):
    return checkpoint.save(folder / "good", built(CudnnGRU, dtype="float32")).read_bytes()


def edited(change):
    def attack(folder):
        header, payload = parts(good(folder))
        name = min(set(header) - {"__metadata__"})
        payload = change(header, name, payload) or payload
        return joined(header, payload)

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
    header, payload = parts(good(folder))
    text = json.dumps(header).encode()
    name = min(set(header) - {"__metadata__"})
    return joined(text[:-1] + b", " + json.dumps({name: header[name]}).encode()[1:], payload)


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


def long_spec(header, _, __):
    items = json.loads(header["__metadata__"]["items"])
    spec = json.loads(items["model"]["spec"])
    items["model"]["spec"] = json.dumps(spec | {"mode": "x" * 500_000})
    header["__metadata__"]["items"] = json.dumps(items)


ATTACKS = {
    "a pickle": (lambda _: pickle.dumps(Exploit()), "header length"),
    "an npz file": (npz, "header length"),
    "a zip bomb": (zip_bomb, "header length"),
    "a shape of 10**13": (edited(lambda h, n, _: h[n].update(shape=[10**13])), "shape"),
    "sizes of 4291 digits": (edited(lambda h, n, _: h[n].update(shape=[10**4290] * 200)), "header form"),
    "2000 axes": (edited(lambda h, n, _: h[n].update(shape=[2**62] * 2000)), "header form"),
    "64 axes of 2**63 - 1": (edited(lambda h, n, _: h[n].update(shape=[2**63 - 1] * 64)), "shape"),
    "offsets of 4291 digits": (edited(lambda h, n, _: h[n].update(data_offsets=[10**4290] * 2)), "header form"),
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
    "a spec that is half a megabyte of nothing": (edited(long_spec), "spec"),
    "deep nesting": (lambda _: joined(b"[" * 10**5 + b"]" * 10**5, b""), "header text"),
    "nothing": (lambda _: b"", "header length"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_named_attack_is_refused_and_allocates_next_to_nothing(name, tmp_path):
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
foreign = lambda path: checkpoint.inspect(path, foreign=True)
for restore in (checkpoint.load, saver.restore, checkpoint.inspect, foreign):
    try:
        restore({str(path)!r})
        print("accepted")
    except CheckpointError as error:
        assert len(str(error)) < 2000
        print(error.reason)
print(tracemalloc.get_traced_memory()[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    by_load, by_saver, by_inspect, by_foreign, peak = done.stdout.splitlines()
    assert by_load == reason
    assert "accepted" not in {by_saver, by_inspect, by_foreign}
    assert int(peak) < 16 << 20
