"""No error quotes a key, a name or a field at length; test_wrong_types.py has the long values of arguments."""

import pytest

from pycudnnrnn import CudnnGRU
from pycudnnrnn.errors import ArgumentError, EngineError

LONG = "x" * 100_000


def test_of_a_long_text_the_argument_and_what_was_expected_stay():
    with pytest.raises(ArgumentError) as caught:
        CudnnGRU(1, 2, direction=LONG)
    text = str(caught.value)
    assert text.startswith("Invalid direction: xxx")
    assert text.endswith("xxx, expecting unidirectional or bidirectional")
    assert caught.value.got == LONG, "a program may read all of it"
    with pytest.raises(TypeError) as hinted:
        CudnnGRU(1, 2, **{LONG: 3})
    assert len(str(hinted.value)) <= 2000


def test_all_places_that_were_looked_at_stay_in_the_text_however_many():
    places = tuple(f"/opt/{k}/{'lib' * 20}" for k in range(100))
    lines = str(EngineError("none", (*places, LONG))).splitlines()
    assert [line.removeprefix("  - ") for line in lines[2:-1]] == list(places)
    assert len(lines[-1]) <= 2000
