"""`pycudnnrnn check`: it passes here, and fails by name where something is wrong."""

import functools
import importlib
import json
import re
import subprocess
import sys

import pytest

from pycudnnrnn._discovery import NotFoundError
from pycudnnrnn.cli.check import self_test
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve
from pycudnnrnn.errors import EngineError
from pycudnnrnn.testing import PermutedLayoutEngine, goldens

_check = importlib.import_module("pycudnnrnn.cli.check")  # the package has the command under this name


PUBLISHED = ("NVIDIA's checksums", "TensorFlow's values")
"""The checks that compute for seconds."""


@pytest.fixture
def only(monkeypatch):
    """Give a function that leaves one group of checks, or one check of it."""

    def leave(group, name=None):
        checks = self_test.GROUPS[group]
        monkeypatch.setattr(self_test, "GROUPS", {group: checks if name is None else {name: checks[name]}})

    return leave


def outcomes(run):
    code, out, _ = run("check", "--json")
    return code, {(c["group"], c["name"]): c for c in json.loads(out)["checks"]}


@pytest.mark.long
def test_it_passes_here_in_a_process_with_json_alone_on_standard_output():
    command = [sys.executable, "-m", "pycudnnrnn", "check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert [(c["group"], c["name"]) for c in checks] == [(g, name) for g, of in self_test.GROUPS.items() for name in of]
    for check in checks:
        assert check["outcome"] in ({"passed"} if check["group"] == "NumPy engine" else {"passed", "not run"})
        assert check["detail"]


def test_the_report_is_markdown_alone_on_standard_output(run, monkeypatch):
    quick = {
        group: {name: check for name, check in checks.items() if name not in PUBLISHED}
        for group, checks in self_test.GROUPS.items()
    }
    monkeypatch.setattr(self_test, "GROUPS", quick)
    code, out, _ = run("check")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "## pycudnnrnn check"
    assert re.fullmatch(r"\d+ passed, 0 failed, \d+ not run", lines[2])
    table = lines[lines.index("| --- | --- | --- | --- |") - 1 :]
    assert 2 + len(quick) <= len(table) <= 2 + sum(map(len, quick.values())), "alike results share a row"
    assert all(name in out for checks in quick.values() for name in checks)
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in table)
    assert "\x1b" not in out


def failed(run):
    code, found = outcomes(run)
    assert code == 1
    return {name: check["detail"] for name, check in found.items() if check["outcome"] == "failed"}


def test_a_wrong_engine_is_found_by_the_reference(run, only, monkeypatch):
    only("NumPy engine", "equals the reference")

    right = NumpyReserve.backward_weights

    def wrong(reserve, out, *, accumulate):
        right(reserve, out, accumulate=accumulate)
        out[0] += 1e-6

    monkeypatch.setattr(NumpyReserve, "backward_weights", wrong)
    with use_engine(PermutedLayoutEngine(0)):
        found = failed(run)
    assert "dparams is" in found["NumPy engine", "equals the reference"]


@pytest.mark.parametrize(
    ("table", "key", "name"),
    [
        ("NVIDIA_CHECKSUMS", "gru", "NVIDIA's checksums"),
        ("TF_VALUES", 1, "TensorFlow's values"),
    ],
)
def test_a_number_that_does_not_come_out_fails_by_its_name(run, only, monkeypatch, table, key, name):
    only("NumPy engine", name)
    numbers = getattr(goldens, table)
    if table == "NVIDIA_CHECKSUMS":  # one cell of the four is enough to be wrong
        numbers = {key: numbers[key]}
        monkeypatch.setattr(goldens, "checksums", functools.cache(goldens.checksums))
    if isinstance(numbers, tuple):
        wrong = tuple((*row[:-1], row[-1] + 1) if i == key else row for i, row in enumerate(numbers))
    else:
        wrong = numbers | {key: numbers[key] | {"dhx": numbers[key]["dhx"] * 1.001}}
    monkeypatch.setattr(goldens, table, wrong)
    assert failed(run).keys() == {("NumPy engine", name)}
    monkeypatch.setattr(goldens, table, numbers)
    assert outcomes(run)[0] == 0


def test_a_library_that_cannot_be_used_fails_and_one_that_is_not_there_is_not_run(run, only, monkeypatch):
    only("library")

    def load(error):
        def raises():
            raise error

        return raises

    monkeypatch.setattr(self_test.libcudnn, "load", load(EngineError("it is damaged")))
    assert failed(run)["library", "libcudnn loads"] == "EngineError: it is damaged"
    monkeypatch.setattr(self_test.libcudnn, "load", load(NotFoundError("nowhere")))
    code, found = outcomes(run)
    assert code == 0
    assert found["library", "libcudnn loads"]["outcome"] == "not run"


@pytest.mark.parametrize("change", [{"numLayers": 7}, {"rclip": 0.25}, {"clipMode": 1}], ids=str)
def test_a_descriptor_that_comes_back_changed_fails(run, only, monkeypatch, change):
    only("library")
    read = RNNDescriptor.read
    monkeypatch.setattr(RNNDescriptor, "read", lambda self: read(self) | change)
    found = failed(run)
    assert "came back as" in found["library", "descriptors return their settings"]


def test_a_function_that_a_library_lacks_fails_by_name(run, only, monkeypatch):
    only("library")
    library = self_test.libcudnn.load()
    monkeypatch.setattr(library.cudnnRNNForward, "_foreign", None)
    assert failed(run)["library", "all functions exist"] == "missing: cudnnRNNForward"


def test_any_exception_is_a_line_of_the_report(run, only, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a | pipe\nand a line")

    only("NumPy engine", "TensorFlow's values")
    monkeypatch.setattr(goldens, "sum_on_ones", broken)
    code, out, _ = run("check")
    assert code == 1
    assert r"**failed** | ZeroDivisionError: a \| pipe and a line |" in out
