"""The C interface as data, compared with the headers of three releases; and what the library binds of it.

The compiler reads the newest headers. Of the older ones a digest is kept, so that their wheels are not needed.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn._libcudnn_abi import FROM_8, PROTOTYPES, CEnum, cudnnDataType_t, cudnnStatus8_t, cudnnStatus_t
from pycudnnrnn.errors import EngineError
from tests.abi.make_digest import check_with_gcc, digest

KEPT = {path.stem: json.loads(path.read_text()) for path in Path(__file__).parent.glob("headers/*.json")}
ENUMS = {enum.__name__: enum for enum in CEnum.__subclasses__()}
NEW = {name: enum for name, enum in ENUMS.items() if enum is not cudnnStatus8_t}
SINCE = {1008: 90200, 2011: 90500, 2012: 90600, 3013: 90500, 3014: 91800}
"""Status codes that came after 9.0.0, with their first release."""

UNUSED = {"cudnnGetMaxDeviceVersion", "cudnnGetErrorString", "cudnnGetStream"}
"""Of no RNN, and called by nobody."""


@pytest.fixture
def newest(lib, include):
    """The headers of the newest release; the older ones have their digests."""
    if lib.version < max(SINCE.values()):
        pytest.skip("needs the newest release")
    return include


@pytest.fixture(params=["newest", *KEPT])
def header(request):
    """What the headers of one release declare."""
    return KEPT[request.param] if request.param in KEPT else digest(request.getfixturevalue("include"))


def test_every_prototype_is_the_headers_and_none_is_missing_or_out_of_its_versions(header):
    bound = {name: p for name, p in PROTOTYPES.items() if p.since <= header["version"] < p.until}
    table = {name: [p.result, *([n, kind.c] for n, kind in p.parameters.items())] for name, p in bound.items()}
    assert table == {name: header["functions"].get(name) for name in table}
    assert not (PROTOTYPES.keys() - bound.keys()) & header["functions"].keys()
    if header["version"] >= 90000:  # 8.x has the calls of 9.x beside older ones, which do no more
        assert header["functions"].keys() - PROTOTYPES.keys() <= UNUSED


def constants(enums):
    return {member.c_name: member.value for enum in enums for member in enum}


def test_the_compiler_agrees_with_every_constant_and_would_object_to_a_wrong_one(newest):
    assert check_with_gcc(newest, constants(NEW.values())) == ""
    assert "CUDNN_LSTM" in check_with_gcc(newest, {"CUDNN_LSTM": 3})


@pytest.mark.parametrize("version", KEPT)
def test_constants_of_older_releases_have_the_same_values(version):
    """Those of 8.9 but for the status, which has an enumeration for it."""
    header = {name: value for enum in KEPT[version]["enums"].values() for name, value in enum.items()}
    header |= KEPT[version]["macros"]
    enums = [enum for enum in NEW.values() if version != "8.9.7" or enum is not cudnnStatus_t]
    enums += [cudnnStatus8_t] if version == "8.9.7" else []
    known = {name: value for name, value in constants(enums).items() if value not in SINCE}
    assert known == {name: header.get(name) for name in known}


def test_no_constant_that_an_rnn_can_have_is_left_out(newest):
    enums = digest(newest)["enums"]
    assert set(enums["cudnnStatus_t"].values()) == set(cudnnStatus_t)
    assert set(KEPT["8.9.7"]["enums"]["cudnnStatus_t"].values()) == set(cudnnStatus8_t)
    for name in enums.keys() - {"cudnnStatus_t", "cudnnDataType_t"}:
        assert set(enums[name]) - constants([ENUMS[name]]).keys() <= {"CUDNN_RNN_ALGO_COUNT"}, name
    assert [kind.name for kind in cudnnDataType_t] == ["FLOAT", "DOUBLE", "HALF", "BFLOAT16"]
    for enum in ENUMS.values():
        assert getattr(libcudnn, enum.__name__) is enum
        assert len(enum) == len(enum.__members__), "no aliases"


def test_the_headers_of_9_translate_the_status_of_8_as_we_do(newest):
    """CuDNN 9 keeps the old names as aliases of the new codes; where both have a name of their own, it is the same."""
    status = digest(newest)["enums"]["cudnnStatus_t"]
    assert {old.name for old in FROM_8} == {old.name for old in cudnnStatus8_t} - {"SUCCESS"}
    for old, new in FROM_8.items():
        assert status[old.c_name] == new


def test_every_function_of_this_version_binds_and_the_others_say_which_version_has_them(lib):
    results = {"cudnnStatus_t": ctypes.c_int, "size_t": ctypes.c_size_t, "void": None}
    for name, prototype in PROTOTYPES.items():
        function = getattr(lib, name)
        assert len(function.argtypes) == len(prototype.parameters)
        assert function.restype is results[prototype.result]
        if function.is_there:
            assert function._foreign.argtypes == function.argtypes
            assert function._foreign.restype is function.restype
        if not prototype.since <= lib.version < prototype.until:
            with pytest.raises(EngineError, match=r"needs cuDNN|was removed in cuDNN 9\.0\.0"):
                function()
    with pytest.raises(AttributeError):
        lib.cudnnRNNForward.argtypes = None
    with pytest.raises(AttributeError, match="cudnnConvolutionForward"):
        _ = lib.cudnnConvolutionForward
