"""What is kept of what was made: the latest, up to a limit."""

from pycudnnrnn._recent import Recent


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
