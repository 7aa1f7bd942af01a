"""The code blocks of the pages, and how each one is run.

    <!-- runs: shim -->      before a block: on the stand-in for the GPU, CuPy's arrays over host memory
    <!-- runs: names -->     before a block: it needs a real GPU; it is compiled, and its names and keywords looked up

Any other ```python block runs as it is. ```console blocks: `pycudnnrnn` commands run; `make` and `pip install` ones are
looked up.
"""

import ast
import builtins
import dataclasses
import importlib
import inspect
import re
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if path.parent != ROOT / "docs/reference"  # generated: docstrings
)
BLOCK = re.compile(
    r"^(?:<!-- runs: (?P<how>\w+) -->\n+)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of one page; `how` is "run", "shim" or "names"."""

    page: Path
    line: int
    language: str
    how: str
    code: str

    def compile(self):
        """Its code object, with the page's own line numbers."""
        return compile("\n" * self.line + self.code, str(self.page.relative_to(ROOT)), "exec")


def blocks(page):
    """A page's blocks, in order."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Block(page, line, match["language"], match["how"] or "run", match["code"])


def commands(block):
    """The command lines of a console block, without their comments."""
    return [re.split(r"\s+#\s", line[2:])[0].strip() for line in block.code.splitlines() if line.startswith("$ ")]


def check_names(code, names):
    """Refuse names that are not there, attributes that modules do not have, and keywords that functions do not take.

    `names` is what the page has defined so far. The block's own imports are made; nothing else of it is run.
    """
    tree = ast.parse(code)
    known = dict(names)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            exec(compile(ast.Module([node], []), "<import>", "exec"), known)
    assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in assigned | known.keys() | vars(builtins).keys():
            raise NameError(f"line {node.lineno}: {node.id}")
        if isinstance(node, ast.Call):
            _check_keywords(node, _value(node.func, known, assigned))
        elif isinstance(node, ast.Attribute):
            _value(node, known, assigned)


def _value(node, known, assigned):
    """What an expression of names and attributes of modules stands for; None where only running it would tell."""
    if isinstance(node, ast.Name):
        return None if node.id in assigned else known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, known, assigned)
        if isinstance(owner, (types.ModuleType, type)) and not hasattr(owner, node.attr):
            importlib.import_module(f"{owner.__name__}.{node.attr}")
        return getattr(owner, node.attr, None) if owner is not None else None
    return None


def _check_keywords(call, function):
    if not callable(function):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for keyword in call.keywords:
        if keyword.arg and not takes_any and keyword.arg not in signature.parameters:
            raise TypeError(f"line {call.lineno}: {ast.unparse(call.func)} takes no {keyword.arg}")
