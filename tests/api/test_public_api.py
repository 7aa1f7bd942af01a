"""The public API changes on purpose or not at all."""

import difflib
import re

from tests.api.public_api import SNAPSHOT, lines


def test_the_public_api_is_the_committed_one():
    before, now = SNAPSHOT.read_text().splitlines(), lines()
    changed = list(difflib.unified_diff(before, now, "committed", "now", lineterm="", n=0))
    assert not changed, "\n".join([*changed, "If that is meant: make api-snapshot, and a line in CHANGELOG.md."])


def test_the_snapshot_depends_on_no_machine():
    assert not re.search(r" at 0x|<function|/home|/usr", SNAPSHOT.read_text())
