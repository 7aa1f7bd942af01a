"""Commands and an example on CUDA arrays: CuPy arrays over host memory, so without a GPU and without CuPy's kernels."""

import json

import pytest

from pycudnnrnn import layout
from pycudnnrnn.cli import check as self_test
from pycudnnrnn.spec import RNNSpec
from tests.helpers.layouts import ShuffledEngine
from tests.stand_in.host_cupy import use_host_cupy

GRU = ["layout", "gru", "2", "6", "5", "--queried"]
SPEC = RNNSpec("gru", 2, 6, 5)


def test_a_layout_that_differs_is_marked_region_by_region(run, play):
    permuted = ShuffledEngine(3)
    play(engine=permuted)
    asked = permuted.layout(SPEC)
    moved = layout.differences(layout.arithmetic_layout(SPEC), asked).keys() - {"size"}
    queried = json.loads(run(*GRU, "--json")[1])["queried"]
    assert (queried["size"], queried["equal"], queried["asked"]) == (asked.size, False, "on cuda:0")
    assert {tuple(key) for key in queried["differences"]} == moved != set()
    code, out, _ = run(*GRU)
    assert (code, out.count("≠ differs"), f"{len(moved)} regions differ" in out) == (0, len(moved), True)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_self_test_tells_another_layout_from_other_numbers(run, play, monkeypatch, wrong):
    class Other(ShuffledEngine):
        def calls(self, config):
            calls = super().calls(config)
            forward = calls.forward

            def wrongly(*arguments):
                y, *rest = forward(*arguments)
                return y + 1e-3 * wrong, *rest

            calls.forward = wrongly
            return calls

    _, _, device = play(engine=Other(1))
    use_host_cupy(device)
    cuda = {name: check for name, check in self_test.GROUPS["cuDNN engine"].items() if "NVIDIA" not in name}
    monkeypatch.setattr(self_test, "GROUPS", {"cuDNN engine": cuda})
    code, out, _ = run("check", "--json")
    failed = {check["name"] for check in json.loads(out)["checks"] if check["outcome"] == "failed"}
    assert code == 1
    numbers = {"equals the NumPy engine", "TensorFlow's values"} if wrong else set()
    assert failed == {"layouts are as predicted"} | numbers
