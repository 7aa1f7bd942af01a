"""Instructions to install can be followed with nothing but the checkout; `make dist` runs each of them."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.docs import instructions as collected
from tests.docs.instructions import ROOT, Instruction, instructions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {extra: [Requirement(text) for text in needed] for extra, needed in PROJECT["optional-dependencies"].items()}
FOUND = list(instructions())


def is_checkout(argument):
    return re.fullmatch(r"\.(\[[a-z0-9,]+\])?", argument)


@pytest.mark.parametrize("found", FOUND, ids=lambda found: f"{found.place} {' '.join(found.arguments)}")
def test_an_instruction_names_the_checkout_or_what_an_extra_needs(found):
    """A package that is not published is not asked of an index, and the text says that the checkout is meant."""
    needed = {requirement.name for requirements in EXTRAS.values() for requirement in requirements}
    for argument in found.arguments:
        if is_checkout(argument):
            assert "checkout" in found.around
            assert set(re.findall(r"[a-z0-9]+", argument)) <= EXTRAS.keys()
        else:
            assert Requirement(argument).name in needed - {PROJECT["name"]}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_first_page_says_how_to_install_before_it_imports(page):
    before, code, _ = (ROOT / page).read_text().partition("```python")
    assert code
    assert any(found.arguments == (".",) for found in collected._in_text(page, before))


def test_what_is_missing_can_be_installed_by_itself_or_with_the_extra_that_has_it():
    makers = [found for found in FOUND if found.place.startswith("pycudnnrnn/")]
    pairs = list(zip(makers[::2], makers[1::2], strict=True))
    assert len(pairs) >= 10
    for by_itself, whole in pairs:
        (extra,) = re.findall(r"^\.\[([a-z0-9]+)\]$", whole.arguments[0])
        for wanted in map(Requirement, by_itself.arguments):  # any version, or just those that the extra asks for
            (same,) = [requirement for requirement in EXTRAS[extra] if requirement.name == wanted.name]
            assert wanted.specifier in (SpecifierSet(), same.specifier), by_itself


def collect(monkeypatch, tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    monkeypatch.setattr(collected, "ROOT", tmp_path)
    monkeypatch.setattr(collected, "TEXTS", [path])
    return list(instructions())


def test_a_new_instruction_is_collected_wherever_it_stands(monkeypatch, tmp_path):
    text = """raise X("no y: pip install y, or in a checkout pip install '.[z]'")\n"""
    made = """raise MissingDependencyError("Q", "z", "q", "q2")\n"""
    found = collect(monkeypatch, tmp_path, "a.py", text + made)
    assert [one.arguments for one in found] == [("y",), (".[z]",), ("q2",), (".[z]",)]
    (one,) = collect(monkeypatch, tmp_path, "a.md", "Say `pip install '.[plot]' numpy`.")
    assert one == Instruction("a.md:1", "Say `pip install '.[plot]' numpy`.", (".[plot]", "numpy"))


def test_what_the_collector_cannot_read_is_an_error(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"a\.py:2: no instruction, and not known to be none"):
        collect(monkeypatch, tmp_path, "a.py", '\nhint = f"pip install {package}"')
