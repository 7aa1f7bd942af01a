"""The reference explains: each parameter of each public callable, what it returns, and an example that runs."""

import doctest
import re

import pytest

from docs.api import callables, explained
from tests.api.public_api import modules

LEAST = 3
"""Words that explain a parameter."""

CALLABLES = list(callables())
MODULES = dict(modules())


@pytest.mark.parametrize("of", CALLABLES, ids=lambda of: of.name.removeprefix("pycudnnrnn."))
def test_a_public_callable_is_explained(of):
    assert of.doc.strip(), "no docstring"
    args = explained(of.doc)
    unexplained = [name for name in of.parameters if len(args.get(name, "").split()) < LEAST]
    assert not unexplained, "parameters without a description under Args"
    assert not set(args) - set(of.parameters), "Args that the callable does not have"
    if of.returns:
        assert re.search(r"^(Returns|Yields):", of.doc, re.MULTILINE) or of.doc.startswith(("Return", "Yield"))
    if of.needs_example:
        assert ">>> " in of.doc, "no example"


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name)
def test_examples_run(name):
    failed, _ = doctest.testmod(MODULES[name])
    assert not failed
