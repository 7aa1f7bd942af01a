"""The reference: every public name on one page, each parameter explained, and examples that run."""

import doctest
import re

import pytest

from docs import api_pages
from docs.api import callables, explained
from pycudnnrnn import libcudnn
from tests.api.public_api import modules, public_names
from tests.helpers.oracles import need

LEAST = 3
"""Words that explain a parameter."""

CALLABLES = list(callables())
MODULES = dict(modules())
SEEN = {module.__name__ for module in MODULES.values()}
ELSEWHERE = [of for of in CALLABLES if ">>> " in of.doc and of.value.__module__ not in SEEN]
"""Where a public module offers a name that another one defines: doctest leaves it out."""

PAGES = {path.stem: text for path, text in api_pages.api_pages().items()}
ENTRIES = re.compile(r"^ *\.\. (?:auto\w+|py:data):: (\S+)(?:\n +:module: (\S+))?", re.MULTILINE)


def test_every_public_name_is_explained_once():
    names = [
        f"{module}.{name}" if module else name for page in PAGES.values() for name, module in ENTRIES.findall(page)
    ]
    explained_names = [name for name in names if name not in MODULES]
    assert len(explained_names) == len(set(explained_names))
    values = {id(getattr(module, key)): f"{name}.{key}" for name, module in modules() for key in public_names(module)}
    missing = set(values.values()) - set(explained_names) - MODULES.keys()
    assert missing <= {"pycudnnrnn.libcudnn.version_text"}, "errors has it"
    listed = re.findall(r"^\.\. c:function:: \w+ (\w+)\(", PAGES["libcudnn"], re.MULTILINE)
    assert listed == list(libcudnn.PROTOTYPES)


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


NEEDED = {"pycudnnrnn.distributed": "mpi4py", "pycudnnrnn.convert.onnx": "onnxruntime"}


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name)
def test_examples_run(name):
    need(*[NEEDED[name]] if name in NEEDED else [])
    failed, _ = doctest.testmod(MODULES[name])
    assert not failed


@pytest.mark.parametrize("of", ELSEWHERE, ids=lambda of: of.name.removeprefix("pycudnnrnn."))
def test_an_example_of_another_module_runs(of):
    example = doctest.DocTestParser().get_doctest(of.doc, {}, of.name, None, None)
    assert not doctest.DocTestRunner().run(example).failed
