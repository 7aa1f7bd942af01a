"""The table is what its results say, and a row counts only with a red fault."""

import json
import subprocess
import sys

import pytest

from docs.generate import gpu_results
from tests.reliability import load
from tests.reliability.__main__ import ROOT, counts_of, measure
from tests.reliability.report import DOCUMENT, RESULTS, document
from tests.reliability.rows import ROWS, Fault, Row


def test_the_document_is_made_from_the_results():
    assert DOCUMENT.read_text() == document(json.loads(RESULTS.read_text()), gpu_results())


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


def gpu_run(date="2030-01-02T03:04:05+00:00", failed=(), **rows):
    rows = {name: {"tests": 1, "measured": measured, "failed": list(failed)} for name, measured in rows.items()}
    return {"date": date, "commit": "0123456789", "gpu": "NVIDIA X", "on_shim": False, "reliability": rows}


def row_of(page, name):
    return next(line for line in page.splitlines() if line.startswith(f"| {name} |"))


def test_a_row_that_needs_a_gpu_has_what_a_results_file_of_one_measured():
    red = {"R18": {"status": "not run: it needs a GPU", "red": "tests.gpu.test_lost::test_it", "fault": "a -> b"}}
    older = gpu_run("2029-01-01T00:00:00+00:00", R18={"worst_ms": 9.0}, R3={"cycles": 10_000, "bytes_drifted": 0})
    page = document(red, [gpu_run(R18={"calls_refused": 30, "worst_ms": 0.1}), older])
    assert "| 30 calls refused, 0.1 worst ms, 1 test | met | 2030-01-02, 0123456, NVIDIA X |" in row_of(page, "R18")
    assert "10,000 cycles, 0 bytes drifted" in row_of(page, "R3"), "of an older run, where the newest has none"
    assert "not counted: no fault was seen" in row_of(page, "R3")
    assert "| - | not run | - |" in row_of(page, "R19")
    failed = document(red, [gpu_run(failed=["test_lost.py::test_it"], R18={"calls_refused": 3})])
    assert "| failed |" in row_of(failed, "R18")
    assert "| - | not run: it needs a GPU | - |" in row_of(document(red, []), "R18")


def test_a_row_that_needs_no_gpu_is_not_taken_from_one():
    page = document({"R9": {"status": "met"}}, [gpu_run(R9={"statuses_injected": 1})])
    assert "| - | met | - |" in row_of(page, "R9")


def test_a_fault_that_is_not_the_rows_any_more_says_which_commit_it_is_of():
    row = next(row for row in ROWS if row.name == "R1")
    known = {"status": "met", "red": "tests.abi::test_it", "commit": "0123456789", "fault": str(row.fault)}
    _, faults = document({"R1": known}, []).split("| | fault planted |")
    assert f"{row.fault} |" in row_of(faults, "R1")
    _, faults = document({"R1": known | {"fault": "pycudnnrnn/gone.py: `a` -> `b`"}}, []).split("| | fault planted |")
    assert "| pycudnnrnn/gone.py: `a` -> `b` (as of 0123456) |" in row_of(faults, "R1")


@pytest.mark.long
def test_a_row_whose_fault_stays_green_does_not_count():
    """Its tests measure: what they say of it must not turn them red either."""
    harmless = Fault(
        "pycudnnrnn/layout/__init__.py", "in canonical order, without padding", "without padding, in canonical order"
    )
    row = Row("R1", "", "", ("tests/abi/test_enums.py", "-k", "of_9_0"), harmless)
    found = measure(row, "dev")
    assert found["measured"]["constants"] > 50
    assert (found["red"], found["status"]) == ("", "not counted: its fault stayed green")


@pytest.mark.long
def test_the_load_run_finds_nothing_wrong_and_would_find_a_wrong_result(monkeypatch):
    assert load.run(3000)["wrong"] == []
    monkeypatch.setattr(load, "SAMPLE", 5)
    right = load.reference.forward
    monkeypatch.setattr(load.reference, "forward", lambda *given: (right(*given)[0] + 1e-6, None, None))
    assert "an eager call" in load.run(1000)["wrong"]
