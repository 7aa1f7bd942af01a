"""Every `pip install` that a reader meets: in pages, examples, docstrings, errors and hints; `make dist` runs them.

A text that is put together when it is raised has its parts in the source; it is made here as it would be there.
"""

import ast
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
WORD = r"""(?:'[^'\n{]+'|[A-Za-z0-9.][A-Za-z0-9._\[\]<>=!~-]*)"""
INSTRUCTION = re.compile(rf"pip install ({WORD}(?: {WORD})*)")
MAKERS = {
    "install_text": install_text,
    "MissingDependencyError": MissingDependencyError,
    "needs": MissingDependencyError,
}
"""What makes a text with the command in it, from words in the source."""


def instructions():
    """Yield the arguments of every instruction, in the order of files and lines."""
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        texts = _texts(ast.parse(text)) if path.suffix == ".py" and path.name not in ("errors.py", "_checks.py") else []
        for match in INSTRUCTION.finditer("\n".join([text, *texts])):
            yield tuple(word.rstrip(".") or word for word in shlex.split(match[1]))


def _texts(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
            # a part that is not a literal is what is missing: it is named, and not in the command
            parts = [part.value if isinstance(part, ast.Constant) else "it" for part in node.args]
            yield str(MAKERS[node.func.id](*parts))
