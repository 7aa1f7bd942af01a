"""The enumerations against the headers of three releases: by the compiler for the newest, by digest for the older."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn._libcudnn_abi import FROM_8, CEnum, cudnnDataType_t, cudnnStatus8_t, cudnnStatus_t
from tests.abi.make_digest import check_with_gcc, digest

ENUMS = {enum.__name__: enum for enum in CEnum.__subclasses__()}
NEW = {name: enum for name, enum in ENUMS.items() if enum is not cudnnStatus8_t}
SINCE = {1008: 90200, 2011: 90500, 2012: 90600, 3013: 90500, 3014: 91800}
"""Status codes that came after 9.0.0, with their first release."""


@pytest.fixture
def newest(lib, include):
    """The headers of the newest release; the older ones have their digests."""
    if lib.version < max(SINCE.values()):
        pytest.skip("needs the newest release")
    return include


def constants(enums):
    return {member.c_name: member.value for enum in enums for member in enum}


def declared(header):
    return {name: value for enum in header["enums"].values() for name, value in enum.items()} | header["macros"]


def kept(version):
    return json.loads((Path(__file__).parent / f"headers/{version}.json").read_text())


def test_the_compiler_agrees_with_every_constant(newest):
    assert check_with_gcc(newest, constants(NEW.values())) == ""


def test_the_compiler_would_object_to_a_wrong_constant(newest):
    assert "CUDNN_LSTM" in check_with_gcc(newest, {"CUDNN_LSTM": 3})


def test_constants_of_9_0_have_the_same_values():
    header = declared(kept("9.0.0"))
    known = {name: value for name, value in constants(NEW.values()).items() if value not in SINCE}
    assert known == {name: header.get(name) for name in known}


def test_constants_of_8_9_have_the_same_values_but_for_the_status():
    header = declared(kept("8.9.7"))
    enums = [enum for enum in NEW.values() if enum is not cudnnStatus_t]
    known = constants([*enums, cudnnStatus8_t])
    assert known == {name: header.get(name) for name in known}


def test_no_status_of_any_release_is_left_out(newest):
    status = digest(newest)["enums"]["cudnnStatus_t"]
    assert set(status.values()) == set(cudnnStatus_t)
    assert set(kept("8.9.7")["enums"]["cudnnStatus_t"].values()) == set(cudnnStatus8_t)


def test_no_constant_that_an_rnn_can_have_is_left_out(newest):
    for name, found in digest(newest)["enums"].items():
        if name not in {"cudnnStatus_t", "cudnnDataType_t"}:
            left_out = set(found) - constants([ENUMS[name]]).keys()
            assert left_out <= {"CUDNN_RNN_ALGO_COUNT"}, name
    assert [kind.name for kind in cudnnDataType_t] == ["FLOAT", "DOUBLE", "HALF", "BFLOAT16"]


def test_the_headers_of_9_translate_the_status_of_8_as_we_do(newest):
    """CuDNN 9 keeps the old names as aliases of the new codes; where both have a name of their own, it is the same."""
    status = digest(newest)["enums"]["cudnnStatus_t"]
    assert {old.name for old in FROM_8} == {old.name for old in cudnnStatus8_t} - {"SUCCESS"}
    for old, new in FROM_8.items():
        assert status[old.c_name] == new


@pytest.mark.parametrize("enum", ENUMS.values())
def test_enums_are_public_under_their_c_names(enum):
    assert getattr(libcudnn, enum.__name__) is enum
    assert len(enum) == len(enum.__members__), "no aliases"
