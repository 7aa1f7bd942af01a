"""Libraries that lie about their version, do not belong together, or lack a function.

Each is a few lines of C in a child process: a library once opened cannot be closed again.
"""

from __future__ import annotations

import shutil

import pytest

from pycudnnrnn.errors import version_text

CHECKS = {9: ("Graph", "Ops", "Adv"), 8: ("OpsInfer", "OpsTrain", "AdvInfer", "AdvTrain")}
PARTS = {9: ("graph", "ops", "adv"), 8: ("ops_infer", "ops_train", "adv_infer", "adv_train")}

LOAD = """
import sys
from pycudnnrnn import errors, libcudnn
try:
    lib = libcudnn.load(PATH)
except errors.EngineError as error:
    print(type(error).__name__, str(error).splitlines()[0])
    sys.exit()
print("loaded", lib.version)
"""


@pytest.fixture
def fake(tmp_path, compile_library):
    """Build a libcudnn of C stubs: `version`, what each version check returns, and which functions there are."""

    def build(version, *, major=9, check=0, checks=None, functions=("cudnnRNNForward",), extra=""):
        folder, checks = tmp_path / "fake", CHECKS[major] if checks is None else checks
        empty = compile_library(folder / "empty.so", "int nothing;")
        for part in PARTS[major]:
            shutil.copy(empty, folder / f"libcudnn_{part}.so.{major}")
        source = f"unsigned long cudnnGetVersion(void) {{ return {version}ul; }}\n"
        source += "".join(
            f"int cudnn{name}VersionCheck(void) {{ return {check}; }}\n"
            for name in (CHECKS[major] if checks is None else checks)
        )
        source += "".join(f"int {name}(void) {{ return 0; }}\n" for name in functions)
        return compile_library(folder / f"libcudnn.so.{major}", source + extra)

    return build


@pytest.fixture
def load(child):
    def run(path, code=""):
        result = child(f"PATH = {str(path)!r}\n" + LOAD + code, env={"PYCUDNNRNN_LIBRARY": ""})
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    return run


@pytest.mark.parametrize("version", [90000, 91300, 92800, 92900, 99999])
def test_any_9_is_accepted_newer_ones_too(fake, load, version):
    assert load(fake(version)) == f"loaded {version}"


def test_8_9_7_is_accepted(fake, load):
    assert load(fake(8907, major=8)) == "loaded 8907"


@pytest.mark.parametrize(("version", "major"), [(8906, 8), (8500, 8), (7605, 8), (0, 9), (1, 9), (8900, 9)])
def test_older_than_8_9_7_is_refused(fake, load, version, major):
    text = load(fake(version, major=major))
    assert text.startswith("EngineError")
    assert f"it reports version {version}; supported are 8.9.7 to any 9.x" in text


@pytest.mark.parametrize("version", [100000, 110203, 2**31, 2**63 + 5, 2**64 - 1])
def test_the_next_major_version_and_garbage_are_refused(fake, load, version):
    text = load(fake(version))
    assert text.startswith("EngineError")
    assert f"it reports version {version}; supported" in text


@pytest.mark.parametrize(("version", "major"), [(8907, 9), (92800, 8)])
def test_a_version_that_the_file_name_contradicts_is_refused(fake, load, version, major):
    text = load(fake(version, major=major))
    assert text.startswith("EngineError")
    assert f"it reports version {version_text(version)}, but its file name has major version {major}" in text


@pytest.mark.parametrize(("check", "major"), [(1002, 9), (3009, 9), (3010, 9), (14, 8)])
def test_sub_libraries_that_do_not_belong_together_are_refused(fake, load, check, major):
    text = load(fake({9: 92800, 8: 8907}[major], major=major, check=check))
    assert text.startswith("EngineError")
    assert f"VersionCheck returned {check}: its sub-libraries do not belong together" in text


def test_a_library_without_its_version_checks_is_refused(fake, load):
    text = load(fake(92800, checks=()))
    assert text.startswith("EngineError")
    assert "does not export cudnnGraphVersionCheck" in text


def test_a_function_that_is_missing_is_an_error_when_it_is_called(fake, load):
    code = """
function = lib.cudnnGetRNNWeightSpaceSize
print(len(function.argtypes))
try:
    function(None, None, None)
except errors.EngineError as error:
    print(error)
"""
    loaded, count, text = load(fake(92800), code).splitlines()
    assert (loaded, count) == ("loaded 92800", "3")
    assert text.startswith("cudnnGetRNNWeightSpaceSize is missing from this library, although its version should")


def test_a_status_is_an_error_where_the_library_has_no_text_for_it(fake, load):
    code = """
import ctypes
try:
    lib.cudnnCreateTensorDescriptor(ctypes.byref(libcudnn.cudnnTensorDescriptor_t()))
except errors.CudnnError as error:
    print(error.status, repr(error.detail))
"""
    extra = "int cudnnCreateTensorDescriptor(void **made) { return 2000; }"
    assert load(fake(92800, extra=extra), code) == "loaded 92800\nCUDNN_STATUS_BAD_PARAM ''"


def test_a_function_of_a_newer_version_says_which(fake, load):
    code = """
for name in ("cudnnRNNSetClip_v9", "cudnnGetLastErrorString"):
    try:
        getattr(lib, name)()
    except errors.EngineError as error:
        print(error)
"""
    # The symbol is there, as in a library that calls itself something else: the version decides, not the symbol.
    extra = "int cudnnRNNSetClip_v9(void) { return 0; }"
    _, clip, text = load(fake(8907, major=8, extra=extra), code).splitlines()
    assert clip.startswith("cudnnRNNSetClip_v9 needs cuDNN 9.0.0 or newer; /")
    assert text.startswith("cudnnGetLastErrorString needs cuDNN 9.0.0 or newer; /")
    assert text.endswith("is 8.9.7")


def test_a_removed_function_says_since_when(fake, load):
    code = """
try:
    lib.cudnnGetRNNLinLayerBiasParams()
except errors.EngineError as error:
    print(error)
"""
    text = load(fake(90000, functions=("cudnnRNNForward", "cudnnGetRNNLinLayerBiasParams")), code)
    assert "cudnnGetRNNLinLayerBiasParams was removed in cuDNN 9.0.0; " in text


@pytest.mark.parametrize("cudart", [12090, 13050])
def test_the_cuda_version_that_it_was_built_for_can_be_asked(fake, load, cudart):
    extra = f"unsigned long cudnnGetCudartVersion(void) {{ return {cudart}; }}"
    assert load(fake(92800, extra=extra), "print(lib.cudnnGetCudartVersion())").endswith(f"\n{cudart}")


def test_the_real_library_that_says_it_is_newer_still_works(lib, build_shim, tmp_path, load):
    if lib.version < 90000:
        pytest.skip("9.x")
    shim = build_shim(tmp_path / "shim", "unsigned long cudnnGetVersion(void) { return 99900; }")
    code = """
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.spec import RNNSpec
found = RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4, cell_clip=2)).read()
print(found["clipMode"].name, found["lclip"], found["rclip"])
"""
    assert load(shim, code) == "loaded 99900\nMINMAX -2.0 2.0"


def test_bfloat16_before_9_13_is_refused_by_name(lib, build_shim, tmp_path, load):
    if lib.version < 90000:
        pytest.skip("9.x")
    shim = build_shim(tmp_path / "shim", "unsigned long cudnnGetVersion(void) { return 91200; }")
    code = """
from pycudnnrnn.engines.cudnn.descriptors import RNNDataDescriptor, RNNDescriptor
from pycudnnrnn.spec import DType, RNNSpec
makers = [
    lambda: RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4, dtype="bfloat16")),
    lambda: RNNDataDescriptor(lib, DType.BFLOAT16, 5, 2, 4),
]
for make in makers:
    try:
        make()
    except errors.EngineError as error:
        print(error)
"""
    refusal = "bfloat16 needs cuDNN 9.13.0 or newer; this is 9.12.0"
    assert load(shim, code) == f"loaded 91200\n{refusal}\n{refusal}"


@pytest.mark.parametrize(("number", "text"), [(8907, "8.9.7"), (90000, "9.0.0"), (92801, "9.28.1"), (100203, "10.2.3")])
def test_versions_are_written_as_people_write_them(number, text):
    assert version_text(number) == text
