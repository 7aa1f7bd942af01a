"""Commands and an example on CUDA arrays: CuPy arrays over host memory, so without a GPU and without CuPy's kernels."""

import json

from pycudnnrnn import layout
from pycudnnrnn.spec import RNNSpec
from tests.helpers.layouts import ShuffledEngine

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
