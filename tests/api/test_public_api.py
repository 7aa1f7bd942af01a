"""The public API changes on purpose or not at all."""

import difflib
import re
from pathlib import Path

import pytest

import pycudnnrnn
from tests.api.public_api import SNAPSHOT, lines, modules, public_names
from tests.docs.blocks import PAGES, ROOT

EXAMPLES = sorted(path for path in ROOT.glob("examples/*") if path.suffix in {".py", ".ipynb"})


def test_the_public_api_is_the_committed_one():
    before, now = SNAPSHOT.read_text().splitlines(), lines()
    changed = list(difflib.unified_diff(before, now, "committed", "now", lineterm="", n=0))
    assert not re.search(r" at 0x|<function|/home|/usr", SNAPSHOT.read_text()), "it depends on no machine"
    assert not changed, "\n".join(
        [*changed, "If that is meant: python -m tests.api.public_api, and a line in CHANGELOG.md."]
    )


def test_type_checkers_read_the_packages_public_names():
    imported = re.findall(r"^    from \S+ import (\w+) as \1$", Path(pycudnnrnn.__file__).read_text(), re.MULTILINE)
    assert sorted(imported) == dir(pycudnnrnn)


@pytest.mark.parametrize("name", ["pycudnnrnn", *dict(modules())])
def test_completion_offers_the_public_names_of_a_module_and_no_others(name):
    """What an editor or a shell lists after the dot: not the NumPy and the typing that the module itself imports."""
    module = {"pycudnnrnn": pycudnnrnn, **dict(modules())}[name]
    assert dir(module) == (sorted([*public_names(module), "plot"]) if module is pycudnnrnn else public_names(module))
    assert not [one for one in dir(module) if one.startswith("_")]


def test_what_a_public_module_defines_is_public_or_has_an_underscore():
    """So that a new function is in the reference; one is for types."""
    unlisted = {
        f"{name}.{member}"
        for name, module in modules()
        for member, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and member not in module.__all__ and member[0] != "_"
    }
    assert unlisted == {"pycudnnrnn.saveable.Saveable"}


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_pages_and_examples_import_is_public(path):
    """A reader builds on it, so that the reference has it and the promise of stability holds for it."""
    names = {"pycudnnrnn": dir(pycudnnrnn)} | {name: public_names(module) for name, module in modules()}
    for module, imported in re.findall(r"from (pycudnnrnn[\w.]*) import ([\w, ]+)", path.read_text()):
        assert module in names, f"{module} is not public"
        assert {name.split()[0] for name in imported.split(",")} <= set(names[module])
    for module in re.findall(r"^[ \"]*import (pycudnnrnn[\w.]*)", path.read_text(), re.MULTILINE):
        assert module in names
