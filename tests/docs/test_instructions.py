"""Instructions to install can be followed with nothing but the checkout; `make dist` runs each of them."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.docs.instructions import ROOT, instructions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {extra: [Requirement(text) for text in needed] for extra, needed in PROJECT["optional-dependencies"].items()}


def test_an_instruction_names_the_checkout_or_what_an_extra_needs():
    """A package that is not published is not asked of an index, and the text says that the checkout is meant."""
    found = list(instructions())
    assert len(found) > 20
    for one in found:
        for argument in one.arguments:
            if re.fullmatch(r"\.(\[[a-z0-9,]+\])?", argument):
                assert "checkout" in one.around, one.place
                assert set(re.findall(r"[a-z0-9]+", argument)) <= EXTRAS.keys(), one.place
                continue
            wanted = Requirement(argument)  # any version, or just those that an extra asks for
            same = [needed.specifier for needs in EXTRAS.values() for needed in needs if needed.name == wanted.name]
            assert wanted.specifier in {SpecifierSet(), *same}, one.place
            assert same, one.place
