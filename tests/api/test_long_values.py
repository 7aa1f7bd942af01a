"""No error quotes a value at length: whatever the public surface is given, the text stays one that people read."""

import copy
import inspect
import re

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, RNNSpec, Saver, checkpoint, convert, libcudnn
from pycudnnrnn._text import TEXT_MAX
from pycudnnrnn.errors import ArgumentError, CheckpointError, EngineError, PycudnnrnnError
from pycudnnrnn.layers import RNNLayer
from tests.api.test_wrong_types import CANONICAL, PARAMETERS, RIGHT, row_of

LONG = "x" * 100_000
VALUES = {"text": LONG, "bytes": LONG.encode(), "list": [LONG], "a long list": ["x"] * 100_000, "keys": {LONG: 1}}
DIGITS = 10**5000
"""Python writes no integer of more than 4,300 digits."""

IN_OTHER_WORDS = re.compile(r"torch\..*-device|.*-path")
"""Torch names its devices, and the system a path that it has not."""


def given():
    """(row, parameter, values): every parameter of every callable in the table, and those that it takes by name."""
    for row, (function, right) in RIGHT.items():
        parameters = inspect.signature(function).parameters.values()
        by_name = {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} - {"name"}
        plain = {name: types for where, name, types in PARAMETERS if row_of(where) == row}
        for name in sorted((by_name | set(right) | set(plain)) - {"row", "module"}):
            if not IN_OTHER_WORDS.fullmatch(f"{row}-{name}"):
                numbers = {"digits": DIGITS} if {"int", "float"} & set(plain.get(name, ())) else {}
                yield pytest.param(row, name, VALUES | numbers, id=f"{row}-{name}")


def fresh(function):
    """The same, of a layer of its own: some long values are taken."""
    owner = getattr(function, "__self__", None)
    return getattr(copy.deepcopy(owner), function.__name__) if isinstance(owner, RNNLayer) else function


def error_of(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001  # whichever it is, it has a text
        return error
    return None


@pytest.mark.parametrize(("row", "name", "values"), list(given()))
@pytest.mark.filterwarnings("ignore")
def test_no_error_is_longer_than_people_read(row, name, values):
    function, right = RIGHT[row]
    for value in values.values():
        call = fresh(function)
        error = error_of(lambda call=call, value=value: call(**right | {name: value}))
        assert len(str(error)) <= TEXT_MAX
        assert "digits" not in str(error) or isinstance(error, PycudnnrnnError)


def saved(tmp_path, name="a"):
    return Saver({name: np.zeros(2)}).save(tmp_path / "m")


ELSEWHERE = {
    "a saver's key": lambda _: Saver({LONG + "\ud800": np.zeros(2)}),
    "a saver's other key": lambda _: Saver({DIGITS: np.zeros(2)}),
    "what a saver has no item for": lambda _: Saver({LONG: object()}),
    "a key that is not in the file": lambda path: Saver({LONG: np.zeros(2)}).restore(saved(path)),
    "a key that only the file has": lambda path: Saver({"a": np.zeros(2)}).restore(saved(path, LONG)),
    "a format": lambda path: Saver({"a": np.zeros(2)}).save(path / "m", format=LONG),
    "an item of a configuration": lambda _: CudnnGRU.from_config({"num_layers": 1, "num_units": 2, LONG: 3}),
    "a value of a configuration": lambda _: CudnnLSTM.from_config({"num_layers": 1, "num_units": 2, "dtype": LONG}),
    "a device": lambda _: CudnnGRU(1, 2, device=LONG),
    "a field of a spec": lambda _: RNNSpec.from_json(f'{{"{LONG}": 1}}'),
    "a text for a spec": lambda _: RNNSpec.from_json(LONG),
    "a name of an array": lambda _: convert.pytorch.to_canonical(convert.pytorch.from_canonical(CANONICAL) | {LONG: 1}),
    "a prefix": lambda _: convert.pytorch.to_canonical({"a": np.zeros(2)}, prefix=LONG),
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
    assert str(CheckpointError("m", "damaged", "short")) == "m: damaged: short"


def test_all_places_that_were_looked_at_stay_in_the_text_however_many():
    places = tuple(f"/opt/{k}/{'lib' * 20}" for k in range(100))
    lines = str(EngineError("none", (*places, LONG))).splitlines()
    assert [line.removeprefix("  - ") for line in lines[2:-1]] == list(places)
    assert len(lines[-1]) <= TEXT_MAX
    with pytest.raises(EngineError) as caught:
        libcudnn.load("/" + LONG)
    assert len(str(caught.value)) < 2 * TEXT_MAX
