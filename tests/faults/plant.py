"""Faults, and where they are planted.

A fault names a definition (`at`: the end of its dotted name, as `ParamLayout.region` or `schedule.cut`) and an edit:
what is written there once (`old`: an expression, or statements) and what replaces it (`new`). Both are compared and
written as Python's own `ast` writes them. So layout, comments and the place within the definition or the package do not
matter.
"""

import ast
import functools
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
    """Return (dotted name, file) of each module, class and function of the package, and the tree of each file."""
    names, trees = [], {}
    for path in sorted((ROOT / "pycudnnrnn").rglob("*.py")):
        file = path.relative_to(ROOT)
        trees[file] = ast.parse(path.read_text())
        pending = [(".".join(file.with_suffix("").parts).removesuffix(".__init__"), trees[file])]
        while pending:
            name, node = pending.pop()
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                names.append((f".{name}", file, node))
            for child in ast.iter_child_nodes(node):
                named = isinstance(child, ast.ClassDef | ast.FunctionDef)
                pending.append((f"{name}.{child.name}" if named else name, child))
    return names, trees


def plant(fault):
    """Return the file of a fault, below the root, and its text with the fault; ValueError where it has no one place."""
    old, new = (ast.parse(text).body for text in (fault.old, fault.new))
    if all(len(nodes) == 1 and isinstance(nodes[0], ast.Expr) for nodes in (old, new)):
        old, new = [old[0].value], [new[0].value]
    if ast.unparse(old) == ast.unparse(new):
        raise ValueError(f"{fault.what}: the edit changes nothing")
    names, trees = definitions()
    named = [(file, node) for name, file, node in names if name.endswith(f".{fault.at}")]
    places = {key: (file, *place) for file, node in named for key, place in places_of(node, old)}
    if len(places) != 1:
        raise ValueError(f"{fault.what}: {fault.at} has this {len(places)} times: {fault.old}")
    ((file, parent, field, value, index),) = places.values()
    planted = [*value[:index], *new, *value[index + len(old) :]] if isinstance(value, list) else new[0]
    setattr(parent, field, planted)
    try:
        text = ast.unparse(ast.fix_missing_locations(trees[file]))
    finally:
        setattr(parent, field, value)
    compile(text, fault.what, "exec")  # a syntax error would be killed by any test
    return file, text


def places_of(definition, old):
    """Yield where a definition has these nodes: a key, and (parent, field, its value, index)."""
    kind = ast.stmt if isinstance(old[0], ast.stmt) else ast.expr
    texts = [ast.unparse(node) for node in old]
    for parent in ast.walk(definition):
        for field, value in ast.iter_fields(parent):
            nodes = value if isinstance(value, list) else [value]
            for index, node in enumerate(nodes):
                if isinstance(node, kind) and [ast.unparse(n) for n in nodes[index : index + len(texts)]] == texts:
                    yield (id(parent), field, index), (parent, field, value, index)
