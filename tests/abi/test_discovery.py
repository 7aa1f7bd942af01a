"""Where libcudnn is looked for, in which order, and what an error tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pycudnnrnn import _discovery, libcudnn
from pycudnnrnn._discovery import Candidate, Context, NotFoundError, find
from pycudnnrnn.errors import ArgumentTypeError, EngineError
from tests.helpers.installed import empty_places, install_wheel, put

STEPS = ["PYCUDNNRNN_LIBRARY", "already loaded", "wheel", "conda", "CUDNN_PATH", "CUDA_PATH", "system"]


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No step finds anything, until a test puts something there."""
    empty_places(monkeypatch, tmp_path)
    monkeypatch.setattr(_discovery, "loaded_files", lambda names: [])
    monkeypatch.setattr(_discovery, "SYSTEM_FOLDERS", (str(tmp_path / "system"),))
    return tmp_path


def test_the_error_lists_every_place_and_what_to_do(nowhere):
    put(nowhere / "system/libcudnn.so.9")
    install_wheel(nowhere / "site", "nvidia-cudnn-cu13").unlink()
    with pytest.raises(NotFoundError) as caught:
        find(Context())
    assert [attempt.partition(":")[0] for attempt in caught.value.attempts] == STEPS
    text = str(caught.value)
    assert text.startswith(f"{caught.value.reason}\nPlaces looked at:\n  - PYCUDNNRNN_LIBRARY: not set\n")
    assert all(attempt in text for attempt in caught.value.attempts)
    for remedy in ("libcudnn.load(allow_system=True)", "pip install nvidia-cudnn-cu13", "pip install '.[cuda13]'"):
        assert remedy in text
    assert str(NotFoundError("There is none.")) == "There is none."


def test_the_order_is_argument_environment_process_wheel_conda_toolkit_system(nowhere, monkeypatch):
    """Each place that is filled, from the last resort to the first, wins over those filled before."""
    monkeypatch.setenv("CUDNN_PATH", str(nowhere / "toolkit"))
    context = {"allow_system": True}

    def wins(via, path):
        assert find(Context(**context))[0] == Candidate(path, via)

    wins("system", put(nowhere / "system/libcudnn.so.8"))
    wins("system", put(nowhere / "system/libcudnn.so.9"))
    monkeypatch.setenv("CUDA_PATH", str(nowhere / "cuda"))
    wins("CUDA_PATH", put(nowhere / "cuda/lib64/libcudnn.so.9"))
    wins("CUDNN_PATH", put(nowhere / "toolkit/lib64/libcudnn.so.9"))
    wins("CUDNN_PATH", put(nowhere / "toolkit/lib/libcudnn.so.9"))
    (nowhere / "prefix" / "conda-meta").mkdir(parents=True)
    wins("conda", put(nowhere / "prefix/lib/libcudnn.so.9"))
    install_wheel(nowhere / "user", "nvidia-cudnn-cu13")
    wins("wheel nvidia-cudnn-cu12", install_wheel(nowhere / "site", "nvidia-cudnn-cu12"))
    wins("wheel nvidia-cudnn-cu13", install_wheel(nowhere / "site", "nvidia-cudnn-cu13"))
    (nowhere / "site" / "nvidia_cudnn_cu13-9.28.0.dist-info" / "RECORD").write_text("nvidia/cudnn/include/cudnn.h,,\n")
    wins("wheel nvidia-cudnn-cu12", nowhere / "site/nvidia/cudnn/lib/libcudnn.so.9")
    process = put(nowhere / "process/libcudnn.so.9")
    monkeypatch.setattr(_discovery, "loaded_files", lambda names: [process])
    wins("already loaded", process)
    named = put(nowhere / "environment/libcudnn.so.9")
    monkeypatch.setenv("PYCUDNNRNN_LIBRARY", str(named))
    wins("PYCUDNNRNN_LIBRARY", named)
    context["path"] = put(nowhere / "argument/libcudnn.so.9")
    wins("argument", context["path"])


def test_relative_folders_and_wheels_outside_the_site_folders_do_not_count(nowhere, monkeypatch):
    put(nowhere / "toolkit/lib/libcudnn.so.9")
    install_wheel(nowhere / "elsewhere", "nvidia-cudnn-cu13")
    monkeypatch.chdir(nowhere)
    monkeypatch.syspath_prepend(nowhere / "elsewhere")
    monkeypatch.setenv("CUDNN_PATH", "toolkit")
    with pytest.raises(NotFoundError, match="CUDNN_PATH: not an absolute path: 'toolkit'"):
        find(Context())


NO_PATHS = [
    *((path, EngineError, "argument must be an absolute path") for path in ("", "libcudnn.so.9", "a/libcudnn.so.9")),
    *((path, NotFoundError, "argument names no file") for path in ("/gone", "/" + "a" * 5000, "/nul\0", "/\ud800")),
    (b"/lib/libcudnn.so.9", ArgumentTypeError, "Invalid path"),
    (None, EngineError, "PYCUDNNRNN_LIBRARY must be an absolute path"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), NO_PATHS, ids=lambda value: repr(value)[:20])
def test_a_path_that_cannot_be_one_is_refused(monkeypatch, wrong, error, text):
    monkeypatch.setenv("PYCUDNNRNN_LIBRARY", "planted/libcudnn.so.9")
    with pytest.raises(error, match=text) as caught:
        libcudnn.load(wrong)
    assert len(str(caught.value)) <= 2000


def test_a_library_without_its_parts_is_refused_and_the_error_says_what_was_tried_before(nowhere, monkeypatch):
    path = put(nowhere / "toolkit/lib/libcudnn.so.9")
    (path.parent / "libcudnn_graph.so.9").symlink_to("libcudnn_graph.so.9")  # a link to itself
    monkeypatch.setenv("CUDNN_PATH", str(nowhere / "toolkit"))
    with pytest.raises(EngineError, match=r"libcudnn_graph\.so\.9 is not in the same folder") as caught:
        libcudnn.load()
    assert [attempt.partition(":")[0] for attempt in caught.value.attempts] == STEPS[:-2]
    assert caught.value.attempts[-1] == f"CUDNN_PATH: {path}"


def test_a_library_by_two_names_is_one_and_knows_where_it_came_from(lib, tmp_path):
    link = tmp_path / Path(lib.path).name
    link.symlink_to(lib.path)
    assert libcudnn.load(link) is libcudnn.load(lib.path) is libcudnn.load()
    assert len(lib.parts) == {9: 3, 8: 4}[int(lib.path[-1])]
    assert str(lib.version)[0] == lib.path[-1]
    assert repr(lib) == f"<libcudnn {libcudnn.version_text(lib.version)} at {lib.path}, found via {lib.found_via}>"


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "ctypes.dlopen" and args[0] else None)
"""


def test_what_is_opened(forks, lib, tmp_path, compile_library):
    """Absolute resolved paths, the parts first; the library that is there is used, and two are never mixed."""
    foreign = tmp_path / Path(lib.parts[0]).name
    foreign.write_bytes(compile_library("int nothing;").read_bytes())
    link = tmp_path / Path(lib.path).name
    link.symlink_to(lib.path)
    for part in lib.parts[1:]:
        (tmp_path / Path(part).name).symlink_to(part)
    again = "lib = libcudnn.load(); print(lib.found_via, lib is libcudnn.load(lib.path), lib.path)"
    refused = f"try: libcudnn.load({lib.path!r})\nexcept errors.EngineError as error: print(error)"
    printed = forks(
        {
            "order": ({}, f"{OPENED}libcudnn.load(); print(*opened)"),
            "again": ({}, f"import ctypes; ctypes.CDLL({lib.path!r}); {again}"),
            "mixed": ({}, f"import ctypes; ctypes.CDLL({str(foreign)!r})\n{refused}"),
        }
    )
    assert printed["order"].split() == [os.path.realpath(path) for path in (*lib.parts, lib.path)]
    assert printed["again"] == f"already loaded True {lib.path}"
    assert f"{foreign} is already loaded in this process, and two of them would mix" in printed["mixed"]
