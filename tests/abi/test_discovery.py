"""Where libcudnn is looked for, in which order, and what an error tells."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from pycudnnrnn import _discovery, libcudnn
from pycudnnrnn._discovery import Candidate, Context, NotFoundError, find
from pycudnnrnn.errors import ArgumentTypeError, EngineError


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No step finds anything, until a test puts something there."""
    monkeypatch.delenv("PYCUDNNRNN_LIBRARY", raising=False)
    monkeypatch.delenv("CUDNN_PATH", raising=False)
    monkeypatch.setattr(_discovery, "loaded_files", lambda pattern: [])
    monkeypatch.setattr(_discovery.site, "getsitepackages", lambda: [str(tmp_path / "site")])
    monkeypatch.setattr(_discovery.site, "ENABLE_USER_SITE", False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(_discovery, "SYSTEM_FOLDERS", (str(tmp_path / "system"),))
    return tmp_path


def put(folder, name="libcudnn.so.9"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return folder / name


def install_wheel(site, name):
    library = put(site / "nvidia" / "cudnn" / "lib")
    info = site / f"{name.replace('-', '_')}-9.28.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 9.28.0\n")
    (info / "RECORD").write_text("nvidia/cudnn/lib/libcudnn_ops.so.9,,\nnvidia/cudnn/lib/libcudnn.so.9,,\n")
    return library


def test_the_error_lists_every_place_and_the_line_that_allows_the_system(nowhere):
    with pytest.raises(NotFoundError) as caught:
        find(Context())
    steps = ["PYCUDNNRNN_LIBRARY", "already loaded", "wheel", "conda", "CUDNN_PATH", "system"]
    assert [attempt.partition(":")[0] for attempt in caught.value.attempts] == steps
    text = str(caught.value)
    assert text.startswith(f"{caught.value.reason}\nPlaces looked at:\n  - PYCUDNNRNN_LIBRARY: not set\n")
    assert str(NotFoundError("There is none.")) == "There is none.", "nothing is announced that does not come"
    assert all(attempt in text for attempt in caught.value.attempts)
    assert "pycudnnrnn.libcudnn.load(allow_system=True)" in text
    assert "pip install nvidia-cudnn-cu13" in text
    assert "pip install '.[cuda13]'" in text
    assert isinstance(caught.value, EngineError)


def test_the_order_is_argument_environment_process_wheel_conda_toolkit_system(nowhere, monkeypatch):
    """Each place that is filled, from the last resort to the first, wins over those filled before."""
    monkeypatch.setenv("CUDNN_PATH", str(nowhere / "toolkit"))
    context = {"allow_system": True}

    def wins(via, path):
        assert find(Context(**context))[0] == Candidate(path, via)

    wins("system", put(nowhere / "system"))
    wins("CUDNN_PATH", put(nowhere / "toolkit" / "lib"))
    (nowhere / "prefix" / "conda-meta").mkdir(parents=True)
    wins("conda", put(nowhere / "prefix" / "lib"))
    wins("wheel nvidia-cudnn-cu12", install_wheel(nowhere / "site", "nvidia-cudnn-cu12"))
    wins("wheel nvidia-cudnn-cu13", install_wheel(nowhere / "site", "nvidia-cudnn-cu13"))
    process = put(nowhere / "process")
    monkeypatch.setattr(_discovery, "loaded_files", lambda pattern: [process])
    wins("already loaded", process)
    named = put(nowhere / "environment")
    monkeypatch.setenv("PYCUDNNRNN_LIBRARY", str(named))
    wins("PYCUDNNRNN_LIBRARY", named)
    context["path"] = put(nowhere / "argument")
    wins("argument", context["path"])
    context["path"] = nowhere / "gone"
    with pytest.raises(NotFoundError, match="argument names no file"):
        find(Context(**context))


@pytest.mark.parametrize("path", ["/" + "a" * 5000, "/nul\0", "/half \ud800"])
def test_a_path_that_no_file_can_have_names_no_file_and_is_not_quoted_at_length(nowhere, path):
    with pytest.raises(NotFoundError, match="argument names no file") as caught:
        find(Context(path=path))
    assert len(str(caught.value)) <= 2000


def test_a_wheel_whose_file_is_gone_is_passed_by(nowhere):
    install_wheel(nowhere / "site", "nvidia-cudnn-cu13").unlink()
    with pytest.raises(NotFoundError, match=r"wheel: none of nvidia-cudnn-cu13, .* has libcudnn.so.9 or libcudnn.so.8"):
        find(Context())


def test_a_wheel_that_lists_no_libcudnn_is_passed_by(nowhere):
    library = install_wheel(nowhere / "site", "nvidia-cudnn-cu12")
    install_wheel(nowhere / "site", "nvidia-cudnn-cu13")
    (nowhere / "site" / "nvidia_cudnn_cu13-9.28.0.dist-info" / "RECORD").write_text("nvidia/cudnn/include/cudnn.h,,\n")
    assert find(Context())[0] == Candidate(library, "wheel nvidia-cudnn-cu12")


def test_cudnn_9_is_preferred_to_8_and_lib64_is_looked_at(nowhere, monkeypatch):
    monkeypatch.setenv("CUDNN_PATH", str(nowhere / "toolkit"))
    eight = put(nowhere / "toolkit" / "lib64", "libcudnn.so.8")
    assert find(Context())[0].path == eight
    nine = put(nowhere / "toolkit" / "lib64")
    assert find(Context())[0].path == nine


def test_the_system_is_not_looked_at_unasked(nowhere):
    put(nowhere / "system")
    with pytest.raises(NotFoundError):
        find(Context())


def test_a_relative_toolkit_root_is_refused(nowhere, monkeypatch):
    put(nowhere / "toolkit" / "lib")
    monkeypatch.chdir(nowhere)
    monkeypatch.setenv("CUDNN_PATH", "toolkit")
    with pytest.raises(NotFoundError, match="CUDNN_PATH: not an absolute path: 'toolkit'"):
        find(Context())


def test_a_wheel_outside_the_site_folders_does_not_count(nowhere, monkeypatch):
    install_wheel(nowhere / "elsewhere", "nvidia-cudnn-cu13")
    monkeypatch.syspath_prepend(nowhere / "elsewhere")
    with pytest.raises(NotFoundError):
        find(Context())


@pytest.mark.parametrize("wrong", ["", "lib/libcudnn.so.9", "libcudnn.so.9"])
def test_a_path_that_is_not_absolute_is_refused(wrong):
    with pytest.raises(EngineError, match="absolute"):
        libcudnn.load(wrong)


@pytest.mark.parametrize("wrong", [9, b"/lib/libcudnn.so.9", 1.5, ["/lib"]])
def test_a_path_of_another_type_is_refused(wrong):
    with pytest.raises(ArgumentTypeError, match="Invalid path"):
        libcudnn.load(wrong)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"!<arch>\n" * 20])
def test_what_is_no_library_is_refused(tmp_path, lib, content):
    path = put(tmp_path, Path(lib.path).name)
    path.write_bytes(content)
    for part in map(Path, lib.parts):
        (tmp_path / part.name).symlink_to(part)
    with pytest.raises(EngineError, match=r"cannot be used: the dynamic loader refused it: .*libcudnn\.so"):
        libcudnn.load(path)


def test_a_library_without_its_parts_is_refused(tmp_path):
    with pytest.raises(EngineError, match=r"libcudnn_graph\.so\.9 is not in the same folder") as caught:
        libcudnn.load(put(tmp_path))
    assert caught.value.attempts == (f"argument: {tmp_path / 'libcudnn.so.9'}",)


def test_an_error_about_a_file_that_was_found_says_where_else_was_looked_before(nowhere, monkeypatch):
    path = put(nowhere / "toolkit" / "lib")
    monkeypatch.setenv("CUDNN_PATH", str(nowhere / "toolkit"))
    with pytest.raises(EngineError, match="is not in the same folder") as caught:
        libcudnn.load()
    steps = ["PYCUDNNRNN_LIBRARY", "already loaded", "wheel", "conda", "CUDNN_PATH"]
    assert [attempt.partition(":")[0] for attempt in caught.value.attempts] == steps
    assert caught.value.attempts[-1] == f"CUDNN_PATH: {path}"


def test_a_part_that_links_to_itself_is_refused(tmp_path):
    path = put(tmp_path)
    (tmp_path / "libcudnn_graph.so.9").symlink_to("libcudnn_graph.so.9")
    with pytest.raises(EngineError, match=r"libcudnn_graph\.so\.9 is not in the same folder"):
        libcudnn.load(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path, lib, monkeypatch):
    path = put(tmp_path, Path(lib.path).name)
    for part in map(Path, lib.parts):
        (tmp_path / part.name).symlink_to(part)

    def deny(file):
        raise OSError(f"{file}: cannot open shared object file: Permission denied")

    monkeypatch.setattr(_discovery.ctypes, "CDLL", deny)
    with pytest.raises(EngineError, match=r"libcudnn\.so.* cannot be used: .*Permission denied"):
        libcudnn.load(path)


def test_missing_zlib_is_named_with_the_remedy(monkeypatch):
    def miss(path):
        raise OSError("libz.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(_discovery.ctypes, "CDLL", miss)
    with pytest.raises(EngineError, match=r"libz\.so\.1.*install the system package zlib1g or zlib"):
        _discovery._dlopen(Path("/lib/libcudnn_graph.so.9"))


def test_the_library_of_this_process_is_used_again(child, lib):
    code = f"""
    import ctypes
    ctypes.CDLL({lib.path!r})
    from pycudnnrnn import libcudnn
    lib = libcudnn.load()
    assert lib is libcudnn.load() is libcudnn.load(lib.path)
    print(lib.found_via, lib.path)
    """
    result = child(code, env={"PYCUDNNRNN_LIBRARY": ""})
    assert (result.stdout.split("\n")[0], result.stderr) == (f"already loaded {lib.path}", "")


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_libraries_the_one_that_was_taken_first_is_taken_again(monkeypatch, first):
    """Wherever they are in memory: that tells nothing."""
    paths = Path("/a/libcudnn.so.9"), Path("/b/libcudnn.so.9.28.0")
    monkeypatch.setattr(_discovery, "loaded_files", lambda pattern: [p for p in paths if re.fullmatch(pattern, p.name)])
    own = paths[first], Path("/c/libcudnn.so.9"), paths[1 - first]
    assert _discovery.already_loaded(Context(own=own)) == Candidate(paths[first], "already loaded")


def test_a_system_without_a_list_of_mapped_files_has_no_library_in_the_process(monkeypatch):
    def no_such_file(*_, **__):
        raise FileNotFoundError(2, "No such file or directory", "/proc/self/maps")

    monkeypatch.setattr(Path, "read_text", no_such_file)
    assert _discovery.already_loaded(Context()) == "already loaded: no libcudnn in this process"


def test_a_library_by_two_names_is_one(lib, tmp_path):
    link = tmp_path / Path(lib.path).name
    link.symlink_to(lib.path)
    assert libcudnn.load(link) is libcudnn.load(lib.path)


def test_a_second_library_of_one_major_version_is_refused(child, lib, tmp_path, compile_library):
    foreign = compile_library(tmp_path / "other" / Path(lib.parts[0]).name, "int nothing;")
    code = f"""
    import ctypes
    ctypes.CDLL({str(foreign)!r})
    from pycudnnrnn import errors, libcudnn
    try:
        libcudnn.load({lib.path!r})
    except errors.EngineError as error:
        print(error)
    """
    result = child(code)
    assert f"{foreign} is already loaded in this process, and two of them would mix" in result.stdout


def test_only_absolute_resolved_paths_are_opened_and_the_parts_come_first(child, lib):
    code = """
    import sys
    from pycudnnrnn import libcudnn
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "ctypes.dlopen" else None)
    libcudnn.load()
    print(*opened, sep="\\n")
    """
    opened = child(code).stdout.split()
    assert opened == [*lib.parts, lib.path]
    assert opened == [os.path.realpath(path) for path in opened]


@pytest.mark.long
def test_the_choice_does_not_change_from_run_to_run(child, lib):
    code = """
    from pycudnnrnn._discovery import Context, find
    print(len({find(Context())[0] for _ in range(100)}), find(Context())[0].path)
    """
    assert {child(code, env={"PYTHONHASHSEED": str(seed)}).stdout for seed in range(5)} == {f"1 {lib.path}\n"}


def test_importing_the_package_opens_nothing(child):
    code = """
    import sys
    from pathlib import Path
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args) if event == "ctypes.dlopen" and args[0] else None)
    import pycudnnrnn, pycudnnrnn.engines.cudnn.descriptors
    from pycudnnrnn import libcudnn
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    print(opened, [name for name in libraries if "libcuda" in name or "libcudnn" in name or "libcublas" in name])
    print({"cupy", "torch", "jax"} & sys.modules.keys())
    """
    assert child(code).stdout == "[] []\nset()\n"


def test_provenance_is_kept(lib):
    assert Path(lib.path).is_absolute()
    assert lib.found_via
    assert len(lib.parts) == {9: 3, 8: 4}[int(lib.path[-1])]
    assert str(lib.version)[0] == lib.path[-1]
    assert lib.path in repr(lib)
    assert lib.found_via in repr(lib)
