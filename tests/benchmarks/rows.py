"""Rows that are quick to run, and a competitor that says what it is told."""

from typing import ClassVar

from benchmarks.adapters import COMPETITORS
from benchmarks.hosts import Local
from benchmarks.problems import GROUPS, Row
from benchmarks.runner import Asked, Part, Results, run
from benchmarks.timing import Sample

ODD = ({"P": 4, "U": 7}, {"D": 2, "L": 2, "B": 3}, {"T": 9, "B": 5, "lengths": "sorted"}, {"carried": True},
       {"T": 9, "B": 5, "D": 2, "L": 2, "lengths": "ragged"}, {"input": "skip", "I": 8})  # fmt: skip
"""What problems are out of the ordinary by."""


def smoke(cell="lstm", which="infer", dtype="float32"):
    (problem,) = (p for p in GROUPS["smoke"].problems if p.cell == cell)
    return Row("smoke", problem, which, dtype)


def odd(rows):
    """Return each row with each kind of problem of `ODD`."""
    return [row._replace(problem=row.problem.replace(**sizes)) for row in rows for sizes in ODD]


def local(name):
    return Local(COMPETITORS[name])


def ran(path, rows, hosts, settings, **options):
    """Run competitors, each with two threads, and return the results, which are written to `path` if it is given."""
    results = Results(path, {"versions": {}})
    run([Part(rows, [Asked(host.name, 2, host) for host in hosts])], results, settings, **options)
    return results


class Fake:
    """A competitor that answers with what it is given, and logs its turns."""

    log: ClassVar = []

    def __init__(self, name, sample=lambda: [5.0], results=None):
        self.name, self._sample, self.results = name, sample, results or local("numpy").results

    def start(self):
        Fake.log.append(f"{self.name} started")

    def versions(self):
        return {self.name: "1"}

    def prepare(self, row):
        return {"algo": "standard"}

    def sample(self, seconds):
        Fake.log.append(self.name)
        return Sample(self._sample())

    def peak(self, dtype):
        return {"gflops": 2.0, "gbytes_per_s": 1.0}

    def libraries(self):
        return [f"lib{self.name}.so"]

    def release(self):
        pass

    def close(self):
        Fake.log.append(f"{self.name} closed")
