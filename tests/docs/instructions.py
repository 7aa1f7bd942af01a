"""Every `pip install` that a reader meets: in pages, examples, docstrings, errors and hints.

What is collected is what the text says, to the letter. A text that is put together when it is raised has its parts in
the source; it is made here as it would be there.
"""

import ast
import dataclasses
import re
import shlex
from pathlib import Path

from pycudnnrnn.errors import MissingDependencyError, install_text

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*", "pycudnnrnn/**/*.py", "benchmarks/**/*.py", "docs/*.py")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.parent != ROOT / "docs/reference"  # generated: docstrings
)
COMMAND = "pip install"
WORD = r"""(?:'[^'\n]+'|[A-Za-z0-9.][A-Za-z0-9._\[\]<>=!~-]*)"""
INSTRUCTION = re.compile(rf"{COMMAND} ({WORD}(?: {WORD})*)")
MAKERS = {"install_text": install_text, "MissingDependencyError": MissingDependencyError}
"""What makes a text with the command in it, from words in the source."""

ABOUT = {
    ("CONTRIBUTING.md", "`pip install` that a text contains"),
    ("docs/errors.md", "`pip install` commands in the message"),
    ("pycudnnrnn/errors.py", "pip install {packages}, or"),
    ("pycudnnrnn/errors.py", "'pip install h5py'"),
    ("pycudnnrnn/errors.py", "pip install '.[{extra}]'"),
}
"""Where the command is spoken about, or is the template that `MAKERS` fill, and nothing is to be typed."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One command, where it stands, and the text around it."""

    place: str
    around: str
    arguments: tuple[str, ...]


def instructions():
    """Every instruction, in the order of files and lines.

    Raises:
        ValueError: the command stands somewhere and is neither an instruction nor known to be none.
    """
    for path in TEXTS:
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        yield from _in_text(name, text)
        if path.suffix == ".py":
            yield from _made(name, ast.parse(text))


def _in_text(name, text):
    for match in re.finditer(re.escape(COMMAND), text):
        start = match.start()
        place = f"{name}:{text.count(chr(10), 0, start) + 1}"
        if any(name == file and text.startswith(words, start - words.index(COMMAND)) for file, words in ABOUT):
            continue
        found = INSTRUCTION.match(text, start)
        if not found:
            raise ValueError(f"{place}: no instruction, and not known to be none: {text[start : start + 60]!r}")
        around = text[max(0, start - 200) : found.end() + 40]
        yield Instruction(place, around, tuple(word.rstrip(".") or word for word in shlex.split(found[1])))


def _made(name, tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
            if name == "pycudnnrnn/errors.py":
                continue  # the template, whose parts are the callers'
            # a part that is not a literal is what is missing: it is named, and not in the command
            parts = [part.value if isinstance(part, ast.Constant) else "it" for part in node.args]
            yield from _in_text(f"{name}:{node.lineno}", str(MAKERS[node.func.id](*parts)))
