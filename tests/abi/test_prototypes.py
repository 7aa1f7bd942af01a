"""The prototype table against the headers of three releases, and against the library itself."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path

import pytest

import pycudnnrnn
from pycudnnrnn._libcudnn_abi import PROTOTYPES
from pycudnnrnn.errors import EngineError
from tests.abi.make_digest import digest

KEPT = {path.stem: json.loads(path.read_text()) for path in Path(__file__).parent.glob("headers/*.json")}

LEGACY = {
    "cudnnRNNSetClip", "cudnnRNNGetClip", "cudnnCreatePersistentRNNPlan", "cudnnDestroyPersistentRNNPlan",
    "cudnnSetPersistentRNNPlan", "cudnnGetRNNWorkspaceSize", "cudnnGetRNNTrainingReserveSize",
    "cudnnRNNForwardInference", "cudnnRNNForwardInferenceEx", "cudnnSetRNNAlgorithmDescriptor",
    "cudnnGetRNNForwardInferenceAlgorithmMaxCount", "cudnnFindRNNForwardInferenceAlgorithmEx",
    "cudnnRNNForwardTraining", "cudnnRNNBackwardData", "cudnnRNNBackwardWeights", "cudnnRNNForwardTrainingEx",
    "cudnnRNNBackwardDataEx", "cudnnRNNBackwardWeightsEx", "cudnnGetRNNForwardTrainingAlgorithmMaxCount",
    "cudnnFindRNNForwardTrainingAlgorithmEx", "cudnnGetRNNBackwardDataAlgorithmMaxCount",
    "cudnnFindRNNBackwardDataAlgorithmEx", "cudnnGetRNNBackwardWeightsAlgorithmMaxCount",
    "cudnnFindRNNBackwardWeightsAlgorithmEx", "cudnnSetRNNDescriptor_v6", "cudnnGetRNNDescriptor_v6",
    "cudnnSetRNNMatrixMathType", "cudnnGetRNNMatrixMathType", "cudnnSetRNNBiasMode", "cudnnGetRNNBiasMode",
    "cudnnSetRNNProjectionLayers", "cudnnGetRNNProjectionLayers", "cudnnGetRNNParamsSize", "cudnnSetRNNPaddingMode",
    "cudnnGetRNNPaddingMode",
}  # fmt: skip
"""RNN functions of 8.9.7 that are not bound: 8.x has the calls of 9.x too, which do all that these do.

Of the older ones the two layout queries are: they are asked beside the newer one, and have to agree with it."""

UNUSED = {"cudnnGetMaxDeviceVersion", "cudnnGetErrorString", "cudnnGetStream"}
"""Of no RNN, and called by nobody."""


@pytest.fixture(params=["newest", *KEPT])
def header(request):
    """What the headers of one release declare."""
    if request.param != "newest":
        return KEPT[request.param]
    return digest(request.getfixturevalue("include"))


def test_every_prototype_equals_the_header(header):
    bound = {name: p for name, p in PROTOTYPES.items() if p.since <= header["version"] < p.until}
    table = {
        name: [p.result, *([parameter, kind.c] for parameter, kind in p.parameters.items())]
        for name, p in bound.items()
    }
    assert table == {name: header["functions"].get(name) for name in table}


def test_a_version_has_no_function_outside_its_range(header):
    outside = {name for name, p in PROTOTYPES.items() if not p.since <= header["version"] < p.until}
    assert not outside & header["functions"].keys()


def test_no_rnn_function_of_9_is_left_out(header):
    left_out = header["functions"].keys() - PROTOTYPES.keys() - UNUSED
    assert left_out == (LEGACY if header["version"] < 90000 else set())


def test_every_function_of_this_version_binds_and_the_others_say_which_version_has_them(lib):
    for name, prototype in PROTOTYPES.items():
        function = getattr(lib, name)
        assert len(function.argtypes) == len(prototype.parameters)
        assert function.restype is {"cudnnStatus_t": ctypes.c_int, "size_t": ctypes.c_size_t}.get(
            prototype.result, function.restype
        )
        if not prototype.since <= lib.version < prototype.until:
            with pytest.raises(EngineError, match=r"needs cuDNN|was removed in cuDNN 9\.0\.0"):
                function()


def test_argtypes_reach_the_foreign_function(lib):
    for name in PROTOTYPES:
        function = getattr(lib, name)
        if function._foreign is not None:
            assert function._foreign.argtypes == function.argtypes, name
            assert function._foreign.restype is function.restype, name


def test_a_function_that_no_rnn_needs_is_no_attribute(lib):
    with pytest.raises(AttributeError, match="cudnnConvolutionForward"):
        _ = lib.cudnnConvolutionForward
    assert "cudnnRNNForward" in dir(lib)


def test_what_nobody_calls_is_not_bound():
    files = Path(pycudnnrnn.__file__).parent.rglob("*.py")
    callers = "".join(path.read_text() for path in files if path.name != "_libcudnn_abi.py")
    callers = re.sub(r'"""(?:.|\n)*?"""', "", callers)  # docstrings name functions, and call none
    kinds = re.findall(r'\(Owned, kind="(\w*)"\)', callers)  # an owner calls what makes its kind and what frees it
    callers += " ".join(f"cudnn{verb}{kind}" for kind in kinds for verb in ("Create", "Destroy"))
    assert [name for name in PROTOTYPES if not re.search(rf"\b{name}\b", callers)] == []


def test_argtypes_cannot_be_taken_off(lib):
    with pytest.raises(AttributeError):
        lib.cudnnRNNForward.argtypes = None


def test_help_lists_every_function_once_and_those_of_8_apart(lib):
    listed = re.findall(r"cudnn[A-Z]\w+", pycudnnrnn.libcudnn.Library.__doc__)
    assert sorted(listed) == sorted(PROTOTYPES)
    (old,) = re.findall(r"- only in cuDNN 8: ((?:\w+,?\s+)+)", pycudnnrnn.libcudnn.Library.__doc__)
    assert set(re.findall(r"\w+", old)) == {name for name, prototype in PROTOTYPES.items() if prototype.until <= 90000}
    assert [name for name in dir(lib) if name.startswith("cudnn")] == sorted(PROTOTYPES)
