"""Places where libcudnn is searched, with nothing in them, and files put there."""

import sys

from pycudnnrnn import _discovery


def empty_places(monkeypatch, folder):
    """Let the search look in folders of this one."""
    for name in ("PYCUDNNRNN_LIBRARY", "CUDNN_PATH", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_discovery.site, "getsitepackages", lambda: [str(folder / "site")])
    monkeypatch.setattr(_discovery.site, "getusersitepackages", lambda: str(folder / "user"))
    monkeypatch.setattr(_discovery.site, "ENABLE_USER_SITE", False)
    monkeypatch.setattr(sys, "prefix", str(folder / "prefix"))


def put(path):
    """Make an empty file; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def install_wheel(site, name, library="nvidia/cudnn/lib/libcudnn.so.9"):
    """Make a library and the wheel that lists it; return the library's path."""
    info = site / f"{name.replace('-', '_')}-9.28.0.dist-info"
    put(info / "METADATA").write_text(f"Name: {name}\nVersion: 9.28.0\n")
    put(info / "RECORD").write_text(f"nvidia/cudnn/lib/libcudnn_ops.so.9,,\n{library},,\n")
    return put(site / library)
