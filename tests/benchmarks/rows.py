"""Rows that are quick to run."""

from benchmarks.problems import GROUPS, Row


def smoke(cell="lstm", which="infer", dtype="float32"):
    (problem,) = (p for p in GROUPS["smoke"].problems if p.cell == cell)
    return Row("smoke", problem, which, dtype)
