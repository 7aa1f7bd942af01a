"""A status other than success becomes a `CudnnError` that says what is known, on every version."""

from __future__ import annotations

import ctypes
import pickle
import threading
from pathlib import Path

import pytest

from pycudnnrnn._discovery import Opened
from pycudnnrnn._libcudnn import Library, cudnnHandle_t, cudnnStatus8_t, cudnnStatus_t
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.errors import _HINTS as HINTS
from pycudnnrnn.errors import CudnnError, EngineError
from pycudnnrnn.spec import RNNSpec


@pytest.fixture
def descriptor(lib):
    with RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4)) as descriptor:
        yield descriptor


@pytest.fixture
def eight(lib):
    """A library that says it is 8.9.7, for the numbering of its status codes."""
    return Library(Opened(ctypes.CDLL(None), 8907, Path("/8/libcudnn.so.8"), "test", ()))


def refuse(lib, descriptor, **wrong):
    sizes = {"input_size": 4, "hidden": 4, "proj": 4, "layers": 1} | wrong
    lib.cudnnSetRNNDescriptor_v8(descriptor, 0, 2, 2, 0, 0, 0, 0, 3, *sizes.values(), None, 1)


def test_the_error_says_which_call_which_status_and_why(lib, descriptor):
    with pytest.raises(CudnnError) as caught:
        refuse(lib, descriptor, proj=0)
    error = caught.value
    assert (error.function, error.family, error.version) == ("cudnnSetRNNDescriptor_v8", "BAD_PARAM", lib.version)
    assert error.status == "CUDNN_STATUS_BAD_PARAM"
    assert error.code == (2000 if lib.version >= 90000 else 3)
    assert error.detail == ("projSize <= 0" if lib.version >= 90000 else "")
    assert f"CUDNN_STATUS_BAD_PARAM ({error.code})" in str(error)


def test_the_error_stands_without_a_text(lib, descriptor):
    with pytest.raises(CudnnError) as caught:
        refuse(lib, descriptor, hidden=4, proj=5)
    assert (caught.value.family, caught.value.detail) == ("NOT_SUPPORTED", "")
    assert caught.value.hint


def test_the_text_is_read_once_and_does_not_stay_for_the_next_error(lib, descriptor):
    with pytest.raises(CudnnError):
        refuse(lib, descriptor, proj=0)
    assert lib.status_error("cudnnNext", 3000).detail == ""


def test_the_text_is_that_of_the_calling_thread(lib, descriptor):
    details = {}

    def fail(wrong, expected):
        with RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4)) as own:
            barrier.wait()
            for _ in range(200):
                with pytest.raises(CudnnError) as caught:
                    refuse(lib, own, **wrong)
                details.setdefault(expected, set()).add(caught.value.detail)

    barrier = threading.Barrier(2)
    wrongs = [({"proj": 0}, "projSize <= 0"), ({"layers": 0}, "inputSize < 1 || hiddenSize < 1 || numLayers < 1")]
    threads = [threading.Thread(target=fail, args=wrong) for wrong in wrongs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = {expected: {expected} for _, expected in wrongs}
    assert details == (known if lib.version >= 90000 else {expected: {""} for expected in known})


def test_a_handle_without_a_gpu_says_what_to_look_at(lib):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    with pytest.raises(CudnnError, match="nvidia-smi") as caught:
        lib.cudnnCreate(ctypes.byref(cudnnHandle_t()))
    assert caught.value.family == "NOT_INITIALIZED"


@pytest.mark.parametrize("status", [status for status in cudnnStatus_t if status])
def test_every_status_of_9_has_its_name_and_family(lib, status):
    if lib.version < 90000:
        pytest.skip("numbering of 9.x")
    error = lib.status_error("cudnnTest", status.value)
    assert error.status == status.c_name
    families = {2: "BAD_PARAM", 3: "NOT_SUPPORTED", 4: "INTERNAL_ERROR", 5: "EXECUTION_FAILED"}
    assert error.family == families.get(status.value // 1000, status.name)


EIGHT = dict(zip(range(1, 15), [
    "NOT_INITIALIZED", "INTERNAL_ERROR", "BAD_PARAM", "INTERNAL_ERROR", "BAD_PARAM", "NOT_SUPPORTED",
    "INTERNAL_ERROR", "EXECUTION_FAILED", "NOT_SUPPORTED", "LICENSE_ERROR", "NOT_SUPPORTED", "RUNTIME_IN_PROGRESS",
    "RUNTIME_FP_OVERFLOW", "SUBLIBRARY_VERSION_MISMATCH",
], strict=True))  # fmt: skip


@pytest.mark.parametrize("code", EIGHT)
def test_every_status_of_8_has_its_name_and_the_family_of_9(eight, code):
    error = eight.status_error("cudnnTest", code)
    assert (error.code, error.status, error.family) == (code, cudnnStatus8_t(code).c_name, EIGHT[code])


@pytest.mark.parametrize(
    ("code", "family"),
    [(2999, "BAD_PARAM"), (3999, "NOT_SUPPORTED"), (5999, "EXECUTION_FAILED"), (1, "UNKNOWN"), (1999, "UNKNOWN")]
    + [(code, "UNKNOWN") for code in (-1, 6000, 99999, 2**31 - 1)],
)
def test_an_unknown_status_survives(lib, code, family):
    if lib.version < 90000:
        pytest.skip("numbering of 9.x")
    error = lib.status_error("cudnnTest", code)
    assert (error.code, error.status, error.family) == (code, f"unrecognised ({code})", family)
    assert str(code) in str(error)


@pytest.mark.parametrize("code", [15, 2000, 3000, -1])
def test_a_code_of_9_means_nothing_on_8(eight, code):
    assert eight.status_error("cudnnTest", code).family == "UNKNOWN"


@pytest.mark.parametrize(("code", "hint"), [(5001, HINTS[5000]), (5999, HINTS[5000]), (3005, HINTS[3005]), (2002, "")])
def test_a_status_without_a_hint_of_its_own_has_its_familys(lib, code, hint):
    if lib.version < 90000:
        pytest.skip("numbering of 9.x")
    assert lib.status_error("cudnnTest", code).hint == hint


def test_hints_are_keyed_by_codes_that_exist():
    assert set(HINTS) <= set(cudnnStatus_t)


def test_the_error_pickles_and_is_an_engine_error(lib):
    error = lib.status_error("cudnnTest", 1001)
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, EngineError)
    assert (str(copy), vars(copy)) == (str(error), vars(error))
