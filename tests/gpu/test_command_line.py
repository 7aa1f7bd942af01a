"""The commands that ask a GPU: the devices, and the self-test."""

import json
import sys

import pytest

from pycudnnrnn.cli import main


@pytest.fixture
def run(cuda, monkeypatch, capsys):
    pytest.importorskip("click")
    pytest.importorskip("rich")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pycudnnrnn", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, json.loads(capsys.readouterr().out)

    return call


def test_the_self_test_passes_with_nothing_left_out(cuda, run, answer, monkeypatch):
    from pycudnnrnn.cli import check as self_test

    if cuda.on_shim:  # what needs no device is in tests/cli, and NVIDIA's checksums take NumPy half a minute
        checks = {name: each for name, each in self_test.GROUPS["cuDNN engine"].items() if "NVIDIA" not in name}
        monkeypatch.setattr(self_test, "GROUPS", {"cuDNN engine": checks})
    code, report = run("check", "--json")
    answer("check", report["checks"])
    wrong = [check for check in report["checks"] if check["outcome"] == "failed"]
    left_out = [check for check in report["checks"] if check["outcome"] == "not run"]
    assert (wrong, [check for check in left_out if check["group"] == "cuDNN engine"]) == ([], [])
    assert code == 0


def test_info_says_that_cuda_arrays_run(cuda, run):
    if cuda.on_shim:
        pytest.skip("there is no libcudnn to find")
    code, report = run("info", "--json")
    assert (code, report["engines"]["CUDA arrays"]["engine"]) == (0, "cudnn")
