"""Commands and an example on CUDA arrays: CuPy arrays over host memory, so without a GPU and without CuPy's kernels."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import layout, ops, plot
from pycudnnrnn.cli.check import self_test
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing import PermutedLayoutEngine
from tests.stand_in.host_cupy import lift, use_host_cupy
from tests.stand_in.host_device import host

EXAMPLES = Path(__file__).parents[2] / "examples"


GRU = ["layout", "gru", "2", "6", "5", "--queried"]
SPEC = RNNSpec("gru", 2, 6, 5)


def test_a_layout_that_cudnn_has_too_is_equal(run, play):
    play()
    report = json.loads(run(*GRU, "--json")[1])["queried"]
    assert (report["equal"], report["differences"]) == (True, [])
    code, out, _ = run(*GRU)
    assert (code, "elements; equal" in out, "differs" in out) == (0, True, False)


def test_a_layout_that_differs_is_marked_region_by_region(run, play, tmp_path):
    permuted = PermutedLayoutEngine(3)
    play(engine=permuted)
    asked, predicted = permuted.layout(SPEC), layout.arithmetic_layout(SPEC)
    different = layout.differences(predicted, asked)
    assert different
    code, out, _ = run(*GRU, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["queried"]["size"] == asked.size > report["size"]
    assert report["queried"]["equal"] is False
    assert {tuple(key) for key in report["queried"]["differences"]} == different.keys()
    assert [r["offset"] for r in report["queried"]["regions"]] == [r.offset for r in asked.regions]
    code, out, _ = run(*GRU, "--output", "a.svg")
    assert code == 0
    assert out.count("≠ differs") == len(different)
    assert f"{len(different)} regions differ" in out
    assert (tmp_path / "a.svg").exists()


class Swapped(PermutedLayoutEngine):
    """Two matrices in each other's place, and no element more."""

    def layout(self, spec):
        found = layout.arithmetic_layout(spec)
        first, second, *rest = found.regions
        places = (first, second.offset), (second, first.offset)
        return layout.ParamLayout(
            found.size, (*(dataclasses.replace(region, offset=offset) for region, offset in places), *rest)
        )


def test_a_layout_of_the_same_size_that_differs_is_not_equal(run, play):
    play(engine=Swapped(0))
    report = json.loads(run(*GRU, "--json")[1])
    assert report["queried"]["size"] == report["size"]
    assert report["queried"]["equal"] is False
    assert report["queried"]["differences"] == [[0, 0, "weight"], [0, 1, "weight"]]


def test_the_picture_is_cudnns_layout_with_what_arithmetic_says_elsewhere(run, play, monkeypatch):
    permuted = PermutedLayoutEngine(3)
    play(engine=permuted)
    drawn = []
    monkeypatch.setattr(plot, "draw_layout", lambda layout, *_, expected=None, **__: drawn.append((layout, expected)))
    assert run(*GRU, "--output", "a.svg")[0] == run(*GRU[:-1], "--output", "a.svg")[0] == 0
    assert drawn == [(permuted.layout(SPEC), layout.arithmetic_layout(SPEC)), (layout.arithmetic_layout(SPEC), None)]


def test_the_self_test_runs_the_whole_cuda_path(run, play, monkeypatch):
    _, _, device = play()
    use_host_cupy(device)
    without = {group: checks for group, checks in self_test.GROUPS.items() if group != "NumPy engine"}
    monkeypatch.setattr(self_test, "GROUPS", without)  # its checks need no device; tests/cli/test_check.py has them
    code, out, _ = run("check", "--json")
    found = {(c["group"], c["name"]): c for c in json.loads(out)["checks"]}
    cuda = [check for (group, _), check in found.items() if group == "cuDNN engine"]
    assert [(check["outcome"], check["detail"]) for check in cuda if check["outcome"] != "passed"] == []
    assert len(cuda) == len(self_test.GROUPS["cuDNN engine"])
    assert code == 0


@pytest.mark.parametrize("wrong", [False, True])
def test_the_self_test_tells_another_layout_from_other_numbers(run, play, monkeypatch, wrong):
    class Other(PermutedLayoutEngine):
        def forward(self, batch):
            run = super().forward(batch)

            def wrongly(*arguments):
                y, *rest = run(*arguments)
                return y + 1e-3 * wrong, *rest

            return wrongly

    _, _, device = play(engine=Other(1))
    use_host_cupy(device)
    cuda = {name: check for name, check in self_test.GROUPS["cuDNN engine"].items() if "NVIDIA" not in name}
    monkeypatch.setattr(self_test, "GROUPS", {"cuDNN engine": cuda})
    code, out, _ = run("check", "--json")
    failed = {check["name"] for check in json.loads(out)["checks"] if check["outcome"] == "failed"}
    assert code == 1
    numbers = {"equals the NumPy engine", "TensorFlow's values"} if wrong else set()
    assert failed == {"layouts are as predicted"} | numbers


def test_norms_of_a_gradient_on_the_device_are_drawn(play, tmp_path):
    _, _, device = play()
    use_host_cupy(device)
    op = ops.CudnnGRU(1, 4, 3)
    plot.draw_gradient_norms(lift(np.ones(op.params_size(), "f4"), device), op.layout(), tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_the_cupy_example_trains_by_the_cuda_path_and_learns(play, monkeypatch, capsys):
    """examples/cupy_training.py with CuPy's functions computed by NumPy: its calls reach the engine, as they would."""
    played, _, device = play()
    monkeypatch.setitem(sys.modules, "cupy", use_host_cupy(device))
    monkeypatch.setattr(sys, "argv", ["cupy_training.py"])
    source = (
        (EXAMPLES / "cupy_training.py").read_text().replace("UPDATES = 12, 64, 24, 300", "UPDATES = 12, 64, 24, 100")
    )
    assert ", 100\n" in source
    names = {}
    exec(compile(source, "cupy_training.py", "exec"), names)
    shortened = capsys.readouterr().out
    assert "on cuda" in shortened
    assert played.counts["cudnnRNNForward"] == played.counts["cudnnRNNBackwardWeights_v8"] == 100
    assert isinstance(host(names["params"]), np.ndarray)
    monkeypatch.setattr(sys, "argv", ["cupy_training.py", "cpu"])
    on_cpu = {}
    exec(compile(source, "cupy_training.py", "exec"), on_cpu)
    np.testing.assert_allclose(host(names["params"]), on_cpu["params"], atol=2e-3)
