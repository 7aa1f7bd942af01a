"""The table is what its results say, and a row counts only with a red fault."""

import json
import subprocess
import sys

import pytest

from tests.reliability import load
from tests.reliability.__main__ import ROOT, counts_of, measure
from tests.reliability.report import DOCUMENT, RESULTS, document
from tests.reliability.rows import ROWS, Fault, Row


def test_the_document_is_made_from_the_results():
    assert DOCUMENT.read_text() == document(json.loads(RESULTS.read_text()))


def test_all_twenty_rows_are_there_in_order():
    assert [row.name for row in ROWS] == [f"R{number}" for number in range(1, 21)]


@pytest.mark.parametrize("row", [row for row in ROWS if row.fault], ids=lambda row: row.name)
def test_each_fault_can_still_be_planted(row):
    assert row.fault.old in (ROOT / row.fault.path).read_text()
    assert row.fault.old != row.fault.new


def test_numbers_are_summed_the_worst_is_kept_and_failures_are_named(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import json\n"
        "def test_a(record_property):\n    record_property('R1', json.dumps({'calls': 2, 'worst_ms': 5}))\n"
        "def test_b(record_property):\n    record_property('R1', json.dumps({'calls': 3, 'worst_ms': 4}))\n"
        "    raise AssertionError\n"
    )
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "test_it.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    counts, measured, failed = counts_of(report)
    assert counts == {"tests": 2, "failures": 1, "errors": 0, "skipped": 0}
    assert measured == {"R1": {"calls": 5, "worst_ms": 5}}
    assert failed == ["test_it::test_b"]


def test_a_row_whose_fault_stays_green_does_not_count():
    """Its tests measure: what they say of it must not turn them red either."""
    harmless = Fault("pycudnnrnn/layout/__init__.py", "tightly packed", "packed tightly")
    row = Row("R1", "", "", ("tests/abi/test_enums.py", "-k", "of_9_0"), harmless)
    found = measure(row, "dev")
    assert found["measured"]["constants"] > 50
    assert (found["red"], found["status"]) == ("", "not counted: its fault stayed green")


def test_the_load_run_finds_nothing_wrong_and_would_find_a_wrong_result(monkeypatch):
    assert load.run(3000)["wrong"] == []
    monkeypatch.setattr(load, "SAMPLE", 5)
    right = load.reference.forward
    monkeypatch.setattr(load.reference, "forward", lambda *given: (right(*given)[0] + 1e-6, None, None))
    assert "an eager call" in load.run(1000)["wrong"]
