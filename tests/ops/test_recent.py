"""What is kept of what was made: the latest, up to a limit."""

from pycudnnrnn._recent import Recent
from tests.helpers.together import together


def test_the_oldest_goes_first_and_what_is_kept_again_is_new():
    recent = Recent(3)
    for key in "abc":
        assert recent.keep(key, key.upper()) == key.upper()
    recent.keep("a", "another")
    recent.keep("d", "D")
    assert [recent.get(key) for key in "abcd"] == ["another", None, "C", "D"]
    assert recent.values() == ["C", "another", "D"]
    recent.clear()
    assert recent.values() == []
    assert recent.get("a") is None


def test_threads_never_keep_more_than_the_limit():
    recent = Recent(4)

    def work(i):
        for n in range(500):
            recent.keep((i, n), n)
            assert len(recent.values()) <= 4
        return True

    assert together(8, work) == [True] * 8
    assert len(recent.values()) == 4
