"""No error quotes a key, a name or a field at length; test_wrong_types.py has the long values of arguments."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, RNNSpec, Saver, checkpoint, convert
from pycudnnrnn._messages import TEXT_MAX
from pycudnnrnn.errors import ArgumentError, EngineError, PycudnnrnnError
from tests.api.test_wrong_types import CANONICAL

LONG = "x" * 100_000


def saved(tmp_path, name="a"):
    return Saver({name: np.zeros(2)}).save(tmp_path / "m")


ELSEWHERE = {
    "a saver's key": lambda _: Saver({LONG + "\ud800": np.zeros(2)}),
    "a key that is not in the file": lambda path: Saver({LONG: np.zeros(2)}).restore(saved(path)),
    "a key that only the file has": lambda path: Saver({"a": np.zeros(2)}).restore(saved(path, LONG)),
    "a format": lambda path: Saver({"a": np.zeros(2)}).save(path / "m", format=LONG),
    "an item of a configuration": lambda _: CudnnGRU.from_config({"num_layers": 1, "num_units": 2, LONG: 3}),
    "a field of a spec": lambda _: RNNSpec.from_json(f'{{"{LONG}": 1}}'),
    "a name of an array": lambda _: convert.pytorch.to_canonical(convert.pytorch.from_canonical(CANONICAL) | {LONG: 1}),
    "a file's name": lambda path: checkpoint.inspect(path / LONG),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_keys_names_and_fields_are_not_quoted_at_length_either(what, tmp_path):
    with pytest.raises((PycudnnrnnError, TypeError)) as caught:
        ELSEWHERE[what](tmp_path)
    assert len(str(caught.value)) <= TEXT_MAX


def test_of_a_long_text_the_argument_and_what_was_expected_stay():
    with pytest.raises(ArgumentError) as caught:
        CudnnGRU(1, 2, direction=LONG)
    text = str(caught.value)
    assert text.startswith("Invalid direction: xxx")
    assert text.endswith("xxx, expecting unidirectional or bidirectional")
    assert caught.value.got == LONG, "a program may read all of it"


def test_all_places_that_were_looked_at_stay_in_the_text_however_many():
    places = tuple(f"/opt/{k}/{'lib' * 20}" for k in range(100))
    lines = str(EngineError("none", (*places, LONG))).splitlines()
    assert [line.removeprefix("  - ") for line in lines[2:-1]] == list(places)
    assert len(lines[-1]) <= TEXT_MAX
