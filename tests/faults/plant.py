"""Faults, and where they are planted.

A fault names a definition (`at`: the end of its dotted name, as `ParamLayout.region` or `schedule.cut`) and an edit:
what is written there once (`old`: an expression, or statements) and what replaces it (`new`). Both are compared and
written as Python's own `ast` writes them. So layout, comments and the place within the definition or the package do not
matter.
"""

import ast
import functools
import itertools
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent


class Fault(NamedTuple):
    """One edit of one definition, and the tests that should notice it. `at` is empty where nothing is edited."""

    what: str
    at: str
    old: str
    new: str
    tests: tuple[str, ...]
    kernels: str = "numpy"


def faults_of(path):
    """Read one table."""
    table = tomllib.loads(path.read_text())
    tests = table.pop("tests")
    rows = [{"what": what, "tests": tests} | row for what, row in table.items()]
    return [Fault(**row | {"tests": tuple(row["tests"].split())}) for row in rows]


@functools.cache
def definitions():
    """List (dotted name with a dot before it, file, node) of each module, class and function of the package."""
    names = []
    for path in sorted((ROOT / "pycudnnrnn").rglob("*.py")):
        file = path.relative_to(ROOT)
        pending = [("." + ".".join(file.with_suffix("").parts).removesuffix(".__init__"), ast.parse(path.read_bytes()))]
        while pending:
            name, node = pending.pop()
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                names.append((name, file, node))
            for child in ast.iter_child_nodes(node):
                named = isinstance(child, ast.ClassDef | ast.FunctionDef)
                pending += [(f"{name}.{child.name}" if named else name, child)]
    return names


def plant(fault):
    """Return the file of a fault, below the root, and its text with the fault; ValueError where it has no one place."""
    old, new = (ast.parse(text).body for text in (fault.old, fault.new))
    if all(len(nodes) == 1 and isinstance(nodes[0], ast.Expr) for nodes in (old, new)):
        old, new = [old[0].value], [new[0].value]
    if ast.unparse(old) == ast.unparse(new):
        raise ValueError(f"{fault.what}: the edit changes nothing")
    named = [(file, node) for name, file, node in definitions() if name.endswith(f".{fault.at}")]
    places = {(file, *place) for file, node in named for place in places_of(node, old)}
    if len(places) != 1:
        raise ValueError(f"{fault.what}: {fault.at} has this {len(places)} times: {fault.old}")
    ((file, (line, column), last),) = places
    before = (ROOT / file).read_bytes()
    starts = [0, *itertools.accumulate(map(len, before.splitlines(keepends=True)))]
    start, end = starts[line - 1] + column, starts[last[0] - 1] + last[1]
    here, edited = before[start:end].decode(), ast.unparse(new).strip()
    if isinstance(new[0], ast.stmt):
        here, edited = textwrap.dedent(column * " " + here), edited.replace("\n", "\n" + column * " ")
    else:
        here, edited = f"({here})", f"({edited})"
    if ast.unparse(ast.parse(here)).strip() != ast.unparse(old).strip():  # until Python 3.12, `ast` has no places there
        raise ValueError(f"{fault.what}: no fault can be planted in an f-string")
    after = before[:start] + edited.encode() + before[end:]
    compile(after, fault.what, "exec")  # a syntax error would be killed by any test
    return file, after


def places_of(definition, old):
    """Yield where a definition has these nodes: the line and column, in bytes, of their start and of their end."""
    kind = ast.stmt if isinstance(old[0], ast.stmt) else ast.expr
    texts = [ast.unparse(node) for node in old]
    for parent in ast.walk(definition):
        for _, value in ast.iter_fields(parent):
            nodes = value if isinstance(value, list) else [value]
            for index, node in enumerate(nodes):
                run = nodes[index : index + len(texts)]
                if isinstance(node, kind) and [ast.unparse(n) for n in run] == texts:
                    yield (node.lineno, node.col_offset), (run[-1].end_lineno, run[-1].end_col_offset)
