"""A status other than success becomes a `CudnnError` that says what is known, on every version."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path

import pytest

from pycudnnrnn._discovery import Opened
from pycudnnrnn._libcudnn import Library, cudnnStatus_t
from pycudnnrnn._libcudnn_abi import FROM_8
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.errors import _HINTS as HINTS
from pycudnnrnn.errors import CudnnError, EngineError
from pycudnnrnn.spec import RNNSpec
from tests.helpers.together import together


def that_says(version):
    """A library that has nothing but a version, for the numbering of its status codes."""
    return Library(Opened(ctypes.CDLL(None), version, Path("/libcudnn.so"), "test", ()))


def refuse(lib, **wrong):
    sizes = {"input_size": 4, "hidden": 4, "proj": 4, "layers": 1} | wrong
    with RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4)) as rnn:
        lib.cudnnSetRNNDescriptor_v8(rnn, 0, 2, 2, 0, 0, 0, 0, 3, *sizes.values(), None, 1)


def test_the_error_says_which_call_which_status_and_why(lib):
    with pytest.raises(CudnnError) as caught:
        refuse(lib, proj=0)
    error = caught.value
    assert (error.function, error.family, error.version) == ("cudnnSetRNNDescriptor_v8", "BAD_PARAM", lib.version)
    assert error.status == "CUDNN_STATUS_BAD_PARAM"
    assert error.code == (2000 if lib.version >= 90000 else 3)
    assert error.detail == ("projSize <= 0" if lib.version >= 90000 else "")
    assert f"CUDNN_STATUS_BAD_PARAM ({error.code})" in str(error)
    later = lib.status_error("cudnnNext", 3000)
    assert (later.family, later.detail, bool(later.hint)) == ("NOT_SUPPORTED", "", True), "the text does not stay"


def test_the_text_is_that_of_the_calling_thread(lib):
    wrongs = [({"proj": 0}, "projSize <= 0"), ({"layers": 0}, "inputSize < 1 || hiddenSize < 1 || numLayers < 1")]

    def details(number):
        for _ in range(200):
            with pytest.raises(CudnnError) as caught:
                refuse(lib, **wrongs[number][0])
            yield caught.value.detail

    texts = together(2, lambda number: set(details(number)))
    assert texts == [{text if lib.version >= 90000 else ""} for _, text in wrongs]


FAMILIES = {2: "BAD_PARAM", 3: "NOT_SUPPORTED", 4: "INTERNAL_ERROR", 5: "EXECUTION_FAILED"}
CODES = {
    **{s.value: (s.c_name, FAMILIES.get(s.value // 1000, s.name)) for s in cudnnStatus_t if s},
    **{code: (f"unrecognised ({code})", FAMILIES[code // 1000]) for code in (2999, 3999, 5999)},
    **{code: (f"unrecognised ({code})", "UNKNOWN") for code in (1, 1999, -1, 6000, 99999, 2**31 - 1)},
}


def test_every_status_of_9_has_its_name_and_family_and_an_unknown_one_survives(lib):
    if lib.version < 90000:
        pytest.skip("numbering of 9.x")
    errors = {code: lib.status_error("cudnnTest", code) for code in CODES}
    assert {code: (error.status, error.family) for code, error in errors.items()} == CODES
    assert all(error.code == code and str(code) in str(error) for code, error in errors.items())
    hints = {5001: HINTS[5000], 5999: HINTS[5000], 3005: HINTS[3005], 2002: ""}
    assert {code: lib.status_error("cudnnTest", code).hint for code in hints} == hints
    assert set(HINTS) <= set(cudnnStatus_t)


def test_a_status_of_8_has_its_name_and_the_family_of_9():
    for old, new in FROM_8.items():
        error = that_says(8907).status_error("cudnnTest", old)
        assert (error.status, error.family) == (old.c_name, CODES[new][1])
    assert that_says(8907).status_error("cudnnTest", 2000).family == "UNKNOWN"
    assert that_says(90000).status_error("cudnnTest", 3000).status == "CUDNN_STATUS_NOT_SUPPORTED"


def test_the_error_pickles_and_is_an_engine_error(lib):
    error = lib.status_error("cudnnTest", 1001)
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, EngineError)
    assert (str(copy), vars(copy)) == (str(error), vars(error))
