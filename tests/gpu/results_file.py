"""Results of the GPU suite: a line of JSON for each thing as soon as it is known, so that what is killed leaves them.

Several processes, one after another, may write to one file; what began in it is not begun again.
"""

import contextlib
import datetime as dt
import json
import os
from pathlib import Path

SCHEMA = 3

OUTCOMES = ("passed", "failed", "skipped", "error", "ended")
"""How a case came out; `ended`: with its process, which crashed or was stopped in it."""


class ResultsFile:
    """One results file; without a path nothing is written and nothing is read."""

    def __init__(self, path=None):
        self.path = Path(path) if path else None

    def start(self, command, environment):
        """Say what was called, and where; a process says it again when it has found the GPU."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self.add(run={"schema": SCHEMA, "date": now, "command": command, **environment})

    def add(self, **line):
        """Write a line, and see it on the disk: the machine may be taken away.

        It begins with a line's end, too, since a process that was killed may have left half of one.
        """
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(line, default=str)}\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self):
        """Every whole line; a test that hangs leaves its traceback between them."""
        if self.path is None or not self.path.is_file():
            return []
        lines = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return lines

    def begun(self):
        """The cases that began, in their order."""
        return [line["begin"] for line in self.lines() if "begin" in line]

    def complete(self):
        """Whether the last process came to its end."""
        return any("complete" in line for line in self.lines()[-1:])


def load(path):
    """What a file says: of the machine, how many cases came out how, and the answers.

    Raises:
        ValueError: it does not say where it was made.
    """
    head, cases, why, questions = {}, {}, {}, {}
    for line in ResultsFile(path).lines():
        head |= line.get("run", {})
        if "begin" in line:
            cases[line["begin"]] = "ended"
        if "end" in line:
            cases[line["end"]], why[line["end"]] = line["outcome"], line["why"]
        if "question" in line:
            questions[line["question"]] = line["answer"]
    if "on_shim" not in head:
        raise ValueError(f"{path}: no line says where it was made")
    bad = [case for case, outcome in cases.items() if outcome not in {"passed", "skipped"}]
    return head | {
        "collected": len(cases),
        **{name: sum(outcome == name for outcome in cases.values()) for name in OUTCOMES},
        "failures": {case: why.get(case, "its process ended") for case in bad},
        "cases": cases,
        "questions": questions,
    }
