"""What is opened: libraries that lie about their version or lack a function, and libraries that an attacker planted.

The fake libcudnn is a few lines of C that take their answers from the environment. What is loaded is loaded in forks of
one child, because a library cannot be closed again.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.errors import EngineError
from pycudnnrnn.spec import RNNSpec
from tests.helpers.installed import install_wheel
from tests.stand_in.shim import Shim

PARTS = {9: ("graph", "ops", "adv"), 8: ("ops_infer", "ops_train", "adv_infer", "adv_train")}
EMPTY = "int nothing;"
FAKE = """
#include <stdlib.h>
static unsigned long answer(const char *name) { return strtoul(getenv(name), 0, 10); }
unsigned long cudnnGetVersion(void) { return answer("VERSION"); }
unsigned long cudnnGetCudartVersion(void) { return 13050; }
int cudnnGraphVersionCheck(void) { return 0; }
int cudnnOpsVersionCheck(void) { return 0; }
int cudnnAdvVersionCheck(void) { return answer("CHECK"); }
int cudnnOpsInferVersionCheck(void) { return 0; }
int cudnnOpsTrainVersionCheck(void) { return 0; }
int cudnnAdvInferVersionCheck(void) { return answer("CHECK"); }
int cudnnAdvTrainVersionCheck(void) { return 0; }
int cudnnCreateTensorDescriptor(void **made) { return 2000; }
int cudnnRNNSetClip_v9(void) { return 0; }
int cudnnGetRNNLinLayerBiasParams(void) { return 0; }
"""
PLANTED = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void) { FILE *f = fopen(getenv("MARKER"), "w"); if (f) fclose(f); }
unsigned long cudnnGetVersion(void) { return 92800; }
"""

LOAD = """
import ctypes
try:
    lib = libcudnn.load({path!r})
    print("loaded", lib.version)
    {then}
except errors.EngineError as error:
    print(type(error).__name__, getattr(error, "status", ""), str(error).splitlines()[0])
"""
TENSOR = "lib.cudnnCreateTensorDescriptor(ctypes.byref(libcudnn.cudnnTensorDescriptor_t()))"
MAJORS = {9: "libcudnn.so.9", 8: "libcudnn.so.8"}

CASES = {
    # what is loaded: (the file's name, the version that it reports, what its last check returns, a call, what comes)
    **{f"9: {v}": (MAJORS[9], v, 0, "", f"loaded {v}") for v in (90000, 92800, 99999)},
    "8.9.7": (MAJORS[8], 8907, 0, "", "loaded 8907"),
    **{
        f"{major}: {v}": (MAJORS[major], v, 0, "", f"EngineError.*reports version {v}; supported are 8.9.7 to any 9.x")
        for major, v in ((8, 8906), (8, 7605), (9, 0), (9, 8900), (9, 100000), (9, 2**63 + 5), (9, 2**64 - 1))
    },
    "9 named 8": (MAJORS[8], 92800, 0, "", "EngineError.*version 9.28.0, but its file name has major version 8"),
    "8 named 9": (MAJORS[9], 8907, 0, "", "EngineError.*version 8.9.7, but its file name has major version 9"),
    **{
        f"parts of another version, {major}: {code}": (
            MAJORS[major], v, code, "", f"EngineError.*VersionCheck returned {code}: its sub-libraries do not belong",
        )
        for major, v, code in ((9, 92800, 1002), (9, 92800, 3009), (8, 8907, 14))
    },
    **{
        name: (name, 92800, 0, "", f"EngineError.*{text}")
        for name, text in (
            (name, "its name is not libcudnn.so.9 or libcudnn.so.8; supported are 8.9.7 to any 9.x")
            for name in ("libcudnn.so.7", "libcudnn.so.90", "libcudnn.so.99.1", "libcudnn.so")
        )
    },
    "no checks": ("empty/libcudnn.so.9", 92800, 0, "", "EngineError.*does not export cudnnGetVersion.*not complete"),
    "a missing function": (
        MAJORS[9], 92800, 0, "lib.cudnnGetRNNWeightSpaceSize(None, None, None)",
        "loaded 92800\nEngineError.*cudnnGetRNNWeightSpaceSize is missing from this library, although its version shou",
    ),
    "a newer function": (  # the symbol is there: the version decides
        MAJORS[8], 8907, 0, "lib.cudnnRNNSetClip_v9()",
        "loaded 8907\nEngineError.*cudnnRNNSetClip_v9 needs cuDNN 9.0.0 or newer; /.* is 8.9.7",
    ),
    "a removed function": (
        MAJORS[9], 90000, 0, "lib.cudnnGetRNNLinLayerBiasParams()",
        "loaded 90000\nEngineError.*cudnnGetRNNLinLayerBiasParams was removed in cuDNN 9.0.0; ",
    ),
    "a status without a text": (MAJORS[9], 92800, 0, TENSOR, "loaded 92800\nCudnnError CUDNN_STATUS_BAD_PARAM .*28.0$"),
    "the CUDA version": (MAJORS[9], 92800, 0, "print(lib.cudnnGetCudartVersion())", "loaded 92800\n13050"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(forks, compile_library, tmp_path_factory):
    """What each case printed."""
    folder = tmp_path_factory.mktemp("fakes")
    for place, source in ((folder, FAKE), (folder / "empty", EMPTY)):
        place.mkdir(exist_ok=True)
        for major, parts in PARTS.items():
            for part in parts:
                shutil.copy(compile_library(EMPTY), place / f"libcudnn_{part}.so.{major}")
        for name in {Path(case[0]).name for case in CASES.values()}:
            shutil.copy(compile_library(source), place / name)
    return forks(
        {
            case: ({"VERSION": str(version), "CHECK": str(check)}, LOAD.format(path=str(folder / name), then=then))
            for case, (name, version, check, then, _) in CASES.items()
        }
    )


@pytest.mark.parametrize("case", CASES)
def test_a_fake_is_loaded_or_refused_by_what_it_reports(outcomes, case):
    assert re.match(CASES[case][-1], outcomes[case]), outcomes[case]


def test_a_newer_version_works_and_bfloat16_before_9_13_is_refused(shim_path):
    clipped, bfloat16 = (RNNSpec("lstm", 1, 4, 4, **options) for options in ({"cell_clip": 2}, {"dtype": "bfloat16"}))
    newer, older, oldest = (Shim(shim_path, version=version).library for version in (99900, 91200, 8907))
    for library in (newer, older, oldest):
        settings = RNNDescriptor(library, clipped).read()
        assert (settings["clipMode"].name, settings["lclip"], settings["rclip"]) == ("MINMAX", -2, 2)
    assert settings["clipNanOpt"].name == "PROPAGATE_NAN"
    RNNDescriptor(newer, bfloat16)
    with pytest.raises(EngineError, match=r"bfloat16 needs cuDNN 9\.13\.0 or newer; this is 9\.12\.0"):
        RNNDescriptor(older, bfloat16)


# --- libraries that an attacker planted (CWE-427): each writes a file when it is opened

USE = """
import sys
from pathlib import Path
sys.path.insert(0, "")
from pycudnnrnn import libcudnn
from pycudnnrnn.engines.cudnn.descriptors import TensorDescriptor
lib = libcudnn.load()
TensorDescriptor(lib, "float32", [1, 2, 3]).close()
mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
print(lib.path, *[name for name in mapped if "libcudnn" in name])
"""


@pytest.fixture
def planted(tmp_path, lib, compile_library):
    """A folder with a fake of each library, and an installed wheel that lists them."""
    install_wheel(tmp_path, "nvidia-cudnn-cu13", Path(lib.path).name)
    for name in [Path(lib.path).name, *(Path(part).name for part in lib.parts)]:
        shutil.copy(compile_library(PLANTED), tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("attack", ["", "{0}", "/nowhere:"], ids=["working folder", "LD_LIBRARY_PATH", "empty element"])
def test_no_planted_library_is_opened(child, planted, lib, attack):
    """In the working folder and on sys.path in all three; LD_LIBRARY_PATH is read when a process starts."""
    environment = {"MARKER": str(planted / "marker"), "LD_LIBRARY_PATH": attack.format(planted)}
    result = child(USE, cwd=planted, env={name: value for name, value in environment.items() if value})
    assert (result.returncode, result.stderr) == (0, "")
    path, *mapped = result.stdout.split()
    assert not (planted / "marker").exists(), "the foreign library ran"
    assert (path, len(mapped) >= 4) == (lib.path, True)
    assert {Path(file).parent for file in mapped} == {Path(lib.path).parent}


def test_the_traps_work(child, planted, lib):
    environment = {"MARKER": str(planted / "marker"), "LD_LIBRARY_PATH": str(planted)}
    child(f"import ctypes; ctypes.CDLL({Path(lib.path).name!r})", env=environment)
    assert (planted / "marker").exists()
