"""A copy of the tree."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = (
    ".ci", "pycudnnrnn", "tests", "benchmarks", "docs", "examples", "typing_tests", "pyproject.toml", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Makefile",
)  # fmt: skip
"""What a copy of the tree needs for its tests."""


def copy_tree(target: Path) -> Path:
    """Copy the tree into an empty folder and return the folder."""
    for name in PARTS:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target / name)
    return target
