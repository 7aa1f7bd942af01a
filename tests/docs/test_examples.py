"""Examples run, too, where a public module offers a name that another one defines: doctest leaves those out."""

import doctest

import pytest

from docs.api import callables
from tests.api.public_api import modules

SEEN = {module.__name__ for _, module in modules()}
ELSEWHERE = [of for of in callables() if ">>> " in of.doc and of.value.__module__ not in SEEN]


@pytest.mark.parametrize("of", ELSEWHERE, ids=lambda of: of.name.removeprefix("pycudnnrnn."))
def test_an_example_runs(of):
    example = doctest.DocTestParser().get_doctest(of.doc, {}, of.name, None, None)
    assert not doctest.DocTestRunner().run(example).failed
