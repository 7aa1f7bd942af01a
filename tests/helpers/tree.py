"""A copy of the tree, with a fault planted in it."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = (
    "pycudnnrnn", "tests", "benchmarks", "docs", "examples", "typing_tests", "pyproject.toml", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Makefile",
)  # fmt: skip
"""What a copy of the tree needs for its tests."""


def copy_tree(target: Path) -> Path:
    """Copy the tree into an empty folder and return the folder."""
    for name in KEPT:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target / name)
    return target


def plant(folder: Path, path: str, old: str, new: str) -> None:
    """Replace the first `old` in a file of the copy by `new`."""
    text = (folder / path).read_text()
    assert old in text, f"{path} no longer contains {old!r}: plant another fault"
    (folder / path).write_text(text.replace(old, new, 1))
