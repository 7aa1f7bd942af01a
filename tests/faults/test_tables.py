"""The tables: each fault has one place in the package as it is, and tests that are there."""

import pytest

from tests.faults.plant import ROOT, TABLES, faults_of, plant

FAULTS = [(path.stem, fault) for path in sorted(TABLES.glob("*.toml")) for fault in faults_of(path)]


@pytest.mark.parametrize("fault", [pytest.param(fault, id=f"{table}: {fault.what}") for table, fault in FAULTS])
def test_a_fault_can_be_planted(fault):
    plant(fault)
    assert all((ROOT / "tests" / name).exists() for name in fault.tests)


def test_there_are_few():
    assert len(FAULTS) <= 200
    assert sum(len(path.read_text().splitlines()) for path in TABLES.iterdir() if path.is_file()) <= 1500
