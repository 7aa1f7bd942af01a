"""Which algorithms cuDNN accepts for what, and what it makes of calls that the engine never makes.

In child processes: a kernel that fails may take its device with it, and one that waits for ever is ended.
"""

import pytest

from tests.gpu.children import accepted, child, once_on_the_shim, reached_cudnn, zero_length

ALGORITHMS = ["standard", "persist_static", "persist_dynamic", "persist_static_small_h"]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_each_algorithm_accepts(cuda, answer, algo):
    """Every row has the status of the size query and, where sizes came, that of the run."""
    once_on_the_shim(algo == "standard")
    rows, code, err = child(accepted, algo, timeout_s=60)
    answer(f"accepted {algo}", {"rows": rows, "exit code": code, "stderr": err[-1000:]})
    assert rows, err
    assert all(row["sizes"] for row in rows)
    if algo == "standard":
        assert code == 0, err
        assert [row for row in rows if row["run"] != "SUCCESS"] == []


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_what_cudnn_makes_of_an_empty_sequence(cuda, answer, mode):
    """The engine leaves them out of every native call; what they would do there is asked, and not relied on."""
    once_on_the_shim(mode == "training")
    lines, code, err = child(zero_length, mode)
    answer(f"native zero length, {mode}", {"lines": lines, "exit code": code, "stderr": err[-500:]})
    assert reached_cudnn(lines, code, err), err
