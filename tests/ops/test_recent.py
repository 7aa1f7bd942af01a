"""What is kept of what was made: the latest, up to a limit."""

import pytest

from pycudnnrnn._recent import Recent
from tests.helpers.together import Other, together


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


class Limit(int):
    """A limit that calls `then` when something is first compared with it."""

    then = None

    def __lt__(self, count):
        then, self.then = self.then, None
        if then is not None:
            then()
        return int(self) < count


@pytest.mark.parametrize(
    ("work", "found", "left"),
    [
        (lambda recent: recent.keep("c", "C"), "C", ["C"]),
        (Recent.values, ["B"], ["B"]),
        (Recent.clear, None, []),
    ],
    ids=["keep", "values", "clear"],
)
def test_whoever_comes_before_the_oldest_is_dropped_finds_it_dropped(work, found, left):
    other, limit = Other(), Limit(1)
    with other.watching():
        recent = Recent(limit)
    recent.keep("a", "A")
    limit.then = lambda: other.comes(lambda: work(recent))
    assert recent.keep("b", "B") == "B"
    assert other.result() == found
    assert recent.values() == left
