"""Check what `make dist` built: what is in the wheel and the sdist, and that the wheel works where nothing else is."""

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
"""Where the wheel is tried; one that is not on this machine is said to be."""


def main():
    (wheel,), (sdist,) = (ROOT / "dist").glob("*.whl"), (ROOT / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        check_wheel({name: archive.read(name) for name in archive.namelist()})
    with tarfile.open(sdist) as archive:
        check_sdist({member.name.partition("/")[2] for member in archive if member.isfile()})
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
    for version in PYTHONS:
        python = find(version)
        if python:
            smoke(python, wheel)
        print(f"Python {version}: {'works by itself' if python else 'not run, it is not on this machine'}")


def check_wheel(files):
    """The package as it is in the tree, byte for byte, its metadata, and nothing else; it was made from the sdist."""
    packaged = {name: data for name, data in files.items() if name.startswith("pycudnnrnn/")}
    tree = {str(p.relative_to(ROOT)): p.read_bytes() for p in (ROOT / "pycudnnrnn").rglob("*") if tracked(p)}
    assert packaged.keys() == tree.keys(), packaged.keys() ^ tree.keys()
    assert [name for name in tree if packaged[name] != tree[name]] == []
    assert "pycudnnrnn/py.typed" in packaged
    others = {name.partition("/")[2]: data for name, data in files.items() if name not in packaged}
    assert others.keys() == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}, others.keys()
    assert others["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    metadata = email.message_from_bytes(others["METADATA"])
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert [line.partition(">")[0] for line in needed] == ["click", "filelock", "numpy", "rich", "safetensors"], needed
    pages = [p for what in ("*.md", "docs/**/*.md", "examples/*.py", "pycudnnrnn/**/*.py") for p in ROOT.glob(what)]
    extras = re.findall(r"(?:pip install '?\.|pycudnnrnn)\[([a-z0-9]+)\]", "".join(p.read_text("utf-8") for p in pages))
    assert {*extras} <= {*metadata.get_all("Provides-Extra")}, "what a reader is told to install"
    assert "Root-Is-Purelib: true" in others["WHEEL"].decode()


def check_sdist(names):
    """Everything that is needed to build, test and document; nothing that was built."""
    required = {"pyproject.toml", "Makefile", "LICENSE", "SECURITY.md", "tests/stand_in/shim.c", "docs/index.md"}
    assert required <= names, required - names
    built = [n for n in names if n.startswith(("dist/", "build/", ".venv/")) or n.endswith((".pyc", ".so"))]
    assert not built, built


def tracked(path):
    return path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts


def find(version):
    """An interpreter of this version: this one, one of pyenv's (whose shims on PATH may lead nowhere), or on PATH."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(pyenv[-1]) if pyenv else shutil.which(f"python{version}")


def smoke(python, wheel):
    """Install the wheel into an empty environment and use it there, with no way back to the repository."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = Path(folder, "bin", "python")
        pip = [inside, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", wheel], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
        script = shutil.copy(Path(__file__).with_name("smoke.py"), folder)
        subprocess.run([inside, "-I", "-W", "error", script], check=True, cwd=folder)


if __name__ == "__main__":
    main()
