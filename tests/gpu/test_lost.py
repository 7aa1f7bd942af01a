"""After a real illegal access every call fails at once. In a child process: its device is of no more use."""

import pytest

from tests.gpu.children import child, lost
from tests.helpers.every_call import CALLS


@pytest.mark.apart
@pytest.mark.parametrize("how", ["told", "found"])
def test_after_an_illegal_access_every_call_fails_at_once(cuda, answer, how):
    """`told`: CuPy said so to the caller, who goes on all the same; `found`: nobody knows of it before our call.

    What CuPy itself writes to stderr of objects that it cannot free is not ours, and recorded.
    """
    lines, code, err = child(lost, how)
    answers = [line for line in lines if "call" in line]
    answer(f"illegal access, {how}", {"lines": lines, "exit code": code, "stderr": err[-2000:]})
    assert [line["call"] for line in answers] == ["the first of all", *CALLS], err
    asking = set() if cuda.on_shim else {"preparing", "a layout", "memory told"}  # cuDNN may answer on the host alone
    answers = [line for line in answers if line["call"] not in asking or line["error"] != "NoneType"]
    assert {line["error"] for line in answers} == {"DeviceLostError"}
    assert {line["code"] for line in answers} <= ({700} if cuda.on_shim else {700, 716, 717, 719})
    assert lines[-1] == {"ended": True}
    assert code == 0, err
