"""Check what `make dist` built: what is in the wheel and the sdist, and that the wheel works where nothing else is."""

import concurrent.futures
import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from tests.docs.instructions import INSTRUCTION, instructions

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
    with concurrent.futures.ThreadPoolExecutor() as pool:  # it waits for pip most of the time
        instructions_run = pool.submit(run_instructions, wheel)
        smokes = {version: pool.submit(smoke, python, wheel) for version in PYTHONS if (python := find(version))}
    for version in PYTHONS:
        if version in smokes:
            smokes[version].result()
        print(f"Python {version}: {'works by itself' if version in smokes else 'not run, it is not on this machine'}")
    print(f"{instructions_run.result()} instructions to install can be followed")


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


def run_instructions(wheel):
    """Follow every instruction to install that pages, examples and errors give; return how many there are.

    What names the checkout is resolved there, as it is typed, and once more by the package's name over the built wheel,
    as it will be when that is published. What an index has to have is asked of it, and not downloaded: some are large.
    Then a command that needs an extra runs, after what its error asks for has been installed.
    """
    required = sorted(set(instructions()))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [Path(folder, "bin", "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *build], check=True)
        resolve = [*pip, "install", "--quiet", "--dry-run", "--no-deps", "--no-build-isolation"]
        local = ["--no-index", "--find-links", wheel.parent]
        asked = set()
        for argument in sorted({argument for arguments in required for argument in arguments}):
            if not argument.startswith("."):
                needed = Requirement(argument)
                asked.add(needed.name)
                if needed.specifier:
                    subprocess.run([*resolve, argument], check=True)
                continue
            extras = set(re.findall(r"[a-z0-9]+", argument))
            assert extras <= set(metadata.get_all("Provides-Extra")), argument
            subprocess.run([*resolve, argument], check=True, cwd=ROOT)
            subprocess.run([*resolve, *local, f"pycudnnrnn{argument[1:]}"], check=True, cwd=folder)
            asked |= {
                needed.name
                for needed in map(Requirement, metadata.get_all("Requires-Dist"))
                if needed.marker and any(needed.marker.evaluate({"extra": extra}) for extra in extras)
            }
        for package in sorted(asked - {"pycudnnrnn"}):
            subprocess.run([*pip, "index", "-qq", "versions", package], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*pip, "install", "--quiet", wheel], check=True)
        program = Path(folder, "bin", "pycudnnrnn")
        command = [program, "layout", "lstm", "1", "4", "3", "--output", Path(folder, "a.png")]
        error = subprocess.run(command, capture_output=True, text=True, check=False)
        assert error.returncode == 1, error
        by_itself = INSTRUCTION.search(error.stderr)
        subprocess.run([*pip, "install", "--quiet", *by_itself[1].split()], check=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return len(required)


if __name__ == "__main__":
    main()
