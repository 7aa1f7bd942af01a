"""After a real illegal access every call fails at once. In a child process: its device is of no more use."""

import pytest

from tests.gpu.children import child, lost, without_cupys
from tests.helpers.every_call import CALLS

LIMIT_MS = 10


@pytest.mark.apart
@pytest.mark.parametrize("how", ["told", "found"])
def test_after_an_illegal_access_every_call_fails_at_once(cuda, answer, measured, how):
    """`told`: CuPy said so to the caller, who goes on all the same; `found`: nobody knows of it before our call."""
    lines, code, err = child(lost, how)
    answers = [line for line in lines if "call" in line]
    answer(f"illegal access, {how}", {"lines": lines, "exit code": code, "stderr": err[-2000:]})
    assert [line["call"] for line in answers] == ["the first of all", *CALLS], err
    assert {line["error"] for line in answers} == {"DeviceLostError"}
    assert {line["code"] for line in answers} <= ({700} if cuda.on_shim else {700, 716, 717, 719})
    assert lines[-1] == {"ended": True}
    assert (code, err if cuda.on_shim else without_cupys(err)) == (0, "")
    later = max(line["ms"] for line in answers[1:])
    measured("lost device", calls_refused=len(answers), worst_ms=round(later, 3), over_the_limit=int(later > LIMIT_MS))
