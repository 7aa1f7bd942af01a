"""`make test`, `make test-long` and `make gpu-check` share the tests out: each is in one of them, and in one only."""

import json
import re
import shlex
import subprocess
import sys

import pytest
from _pytest.mark.expression import Expression

from tests.helpers.tree import ROOT

COLLECT = """
import json, os, sys
import pytest

class Marks:
    def pytest_collection_finish(self, session):
        self.marks = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items}

found = Marks()
sys.stdout = sys.stderr
status = pytest.main(["--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"], [found])
print(json.dumps(found.marks), file=sys.__stdout__)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def marks():
    """The marks of every test in the tree, by its name."""
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: set(found) for name, found in json.loads(done.stdout).items()}


def chosen_by(target, pytestconfig):
    """The expression by which a target of the Makefile chooses tests: the last `-m` counts, as it does for pytest."""
    recipe = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = re.findall(r"-m pytest .*", recipe)
    words = [*pytestconfig.getini("addopts"), *shlex.split(command)[2:]]
    return Expression.compile(words[len(words) - words[::-1].index("-m")])


@pytest.mark.long
def test_each_test_is_in_one_target_and_in_one_only(marks, pytestconfig):
    expressions = {name: chosen_by(name, pytestconfig) for name in ("test", "test-long")}
    shares = {
        test: [name for name, chosen in expressions.items() if chosen.evaluate(found.__contains__)]
        + ["gpu-check"] * test.startswith("tests/gpu/")
        for test, found in marks.items()
    }
    assert {test: share for test, share in shares.items() if len(share) != 1} == {}
    assert {name for share in shares.values() for name in share} == {*expressions, "gpu-check"}


def test_what_lands_has_passed_them_all():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("make test")] == [
        "test", "test-compiled", "test-long",
    ]  # fmt: skip
