"""The code blocks of the pages, and how each one is run.

    <!-- runs: shim -->      before a block: on the stand-in for the GPU, CuPy's arrays over host memory

Any other ```python block runs as it is. ```console blocks: `pycudnnrnn` commands run; `make` ones are looked up.
"""

import dataclasses
import re
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
    """A block of one page; `how` is "run" or "shim"."""

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
