"""`pycudnnrnn check`: it passes here, and fails by name where something is wrong."""

import importlib
import json
import re
import subprocess
import sys
from unittest.mock import Mock

import pytest

from pycudnnrnn._discovery import NotFoundError
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve
from pycudnnrnn.errors import EngineError
from pycudnnrnn.testing import goldens
from tests.helpers.layouts import ShuffledEngine

self_test = importlib.import_module("pycudnnrnn.cli.check")


@pytest.fixture
def only(monkeypatch):
    """Give a function that leaves one group of checks, or one check of it."""

    def leave(group, name=None, patch=monkeypatch):
        checks = self_test.GROUPS[group]
        patch.setattr(self_test, "GROUPS", {group: checks if name is None else {name: checks[name]}})

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
    slow = ("NVIDIA's checksums", "TensorFlow's values")
    quick = {group: {n: c for n, c in checks.items() if n not in slow} for group, checks in self_test.GROUPS.items()}
    monkeypatch.setattr(self_test, "GROUPS", quick)
    monkeypatch.setattr(self_test, "engine_for", Mock(side_effect=ImportError("CuPy does not load")))
    code, out, _ = run("check")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "## pycudnnrnn check")
    assert re.fullmatch(r"\d+ passed, 0 failed, \d+ not run", lines[2])
    table = lines[lines.index("| --- | --- | --- | --- |") - 1 :]
    assert 2 + len(quick) <= len(table) <= 2 + sum(map(len, quick.values())), "alike results share a row"
    assert all(name in out for checks in quick.values() for name in checks)
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in table)


def failed(run):
    code, checks = outcomes(run)
    assert code == 1
    return {name: check["detail"] for name, check in checks.items() if check["outcome"] == "failed"}


def test_a_wrong_engine_is_found_by_the_reference(run, only, monkeypatch):
    only("NumPy engine", "equals the reference")

    right = NumpyReserve.backward_weights

    def wrong(reserve, out, *, accumulate):
        right(reserve, out, accumulate=accumulate)
        out[0] += 1e-6

    monkeypatch.setattr(NumpyReserve, "backward_weights", wrong)
    with use_engine(ShuffledEngine(0)):
        checks = failed(run)
    assert "dparams is" in checks["NumPy engine", "equals the reference"]


def test_a_number_that_does_not_come_out_fails_by_its_name(run, only, monkeypatch):
    first, *others = goldens.TF_VALUES
    gru = goldens.NVIDIA_CHECKSUMS["gru"]
    for table, wrong, name in (
        ("TF_VALUES", ((*first[:-1], first[-1] + 1), *others), "TensorFlow's values"),
        ("NVIDIA_CHECKSUMS", {"gru": gru | {"dhx": gru["dhx"] * 1.001}}, "NVIDIA's checksums"),
    ):
        with monkeypatch.context() as patch:
            only("NumPy engine", name, patch)
            patch.setattr(goldens, table, wrong)
            assert failed(run).keys() == {("NumPy engine", name)}


def test_a_library_that_cannot_be_used_fails_and_one_that_is_not_there_is_not_run(run, only, monkeypatch):
    only("library")
    loads = Mock(side_effect=EngineError("it is damaged"))
    monkeypatch.setattr(self_test.libcudnn, "load", loads)
    assert failed(run)["library", "libcudnn loads"] == "EngineError: it is damaged"
    loads.side_effect = NotFoundError("nowhere")
    code, checks = outcomes(run)
    assert (code, checks["library", "libcudnn loads"]["outcome"]) == (0, "not run")


def test_a_descriptor_that_comes_back_changed_fails(run, only, monkeypatch):
    only("library")
    read = RNNDescriptor.read
    monkeypatch.setattr(RNNDescriptor, "read", lambda self: read(self) | {"numLayers": 7})
    assert "came back as" in failed(run)["library", "descriptors return their settings"]


def test_a_function_that_a_library_lacks_fails_by_name(run, only, monkeypatch):
    only("library")
    library = self_test.libcudnn.load()
    monkeypatch.setattr(library.cudnnRNNForward, "_foreign", None)
    assert failed(run)["library", "all functions exist"] == "missing: cudnnRNNForward"


def test_any_exception_is_a_line_of_the_report(run, only, monkeypatch):
    only("NumPy engine", "TensorFlow's values")
    monkeypatch.setattr(goldens, "sum_on_ones", Mock(side_effect=ZeroDivisionError("a | pipe\nand a line")))
    code, out, _ = run("check")
    assert code == 1
    assert r"**failed** | ZeroDivisionError: a \| pipe and a line |" in out
