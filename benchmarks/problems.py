"""The problems: any that a line of text describes, and the named groups of problems.toml with their sources."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

CELLS: Final = {"relu": "rnn_relu", "tanh": "rnn_tanh", "gru": "gru", "lstm": "lstm"}
"""Short names, and those of `RNNMode`."""

PASSES: Final = {
    "infer": "a forward in evaluation",
    "train": "a forward in training",
    "backward-data": "the gradients of inputs, after a forward that is not timed",
    "backward-weights": "the gradients of weights, after a forward and a backward-data that are not timed",
    "step": "a forward in training and all gradients",
}

GPU_DTYPES: Final = ("float16", "bfloat16", "tf32", "float32")
"""The arithmetic on a GPU; tf32 is float32 with TF32 allowed, which float32 is without."""

DTYPES: Final = (*GPU_DTYPES, "float64")

LETTERS: Final = tuple("TBIULP")  # those of `Problem`

MARKS: Final[dict[str, dict[str, Any]]] = {
    "bidirectional": {"D": 2},
    "skip": {"input": "skip"},
    "ragged": {"lengths": "ragged"},
    "sorted": {"lengths": "sorted"},
    "carried": {"carried": True},
}
"""Words of a problem. Lengths are uniform in [T/4, T], in any order or sorted; carried states are those that the last
call left."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One RNN and one batch: T steps, B sequences, I inputs, U units, L layers, D directions, P units of projection.

    `lengths` is "full", "ragged" or "sorted". `passes` and `dtypes` are what a group times of it; `tag` is its name
    where it was published.
    """

    cell: str
    T: int
    B: int
    I: int
    U: int
    L: int = 1
    D: int = 1
    P: int | None = None
    input: str = "linear"
    lengths: str = "full"
    carried: bool = False
    passes: tuple[str, ...] = ("infer", "step")
    dtypes: tuple[str, ...] = GPU_DTYPES
    tag: str = ""

    @property
    def name(self) -> str:
        """The text that `parse` reads; unique in a group."""
        sizes = [f"T={self.T} B={self.B}", *([f"I={self.I}"] if self.I != self.U else []), f"U={self.U}"]
        sizes += [f"L={self.L}"] if self.L > 1 else []
        sizes += [f"P={self.P}"] if self.P else []
        marks = [word for word, mark in MARKS.items() if all(getattr(self, k) == v for k, v in mark.items())]
        return " ".join([self.cell, *sizes, *marks])

    @property
    def gates(self) -> int:
        return {"lstm": 4, "gru": 3}.get(self.cell, 1)

    @property
    def drawn_lengths(self) -> list[int] | None:
        """The number of steps of each sequence, the same in every run; None where all have T."""
        if self.lengths == "full":
            return None
        rng = np.random.default_rng(0)
        lengths = rng.integers(math.ceil(self.T / 4), self.T, self.B, endpoint=True).tolist()
        return sorted(lengths, reverse=True) if self.lengths == "sorted" else lengths

    def replace(self, **changes: Any) -> Problem:
        return dataclasses.replace(self, **changes)


def parse(text: str) -> list[Problem]:
    """Read "lstm T=37 B=5 I=80 U=320 L=3 bidirectional ragged"; "U=64,128" and "U=16:1024:*2" give several problems.

    Of a letter, the last counts.

    Raises:
        ValueError: a word that is none of these, or no T, B or U.
    """
    cell, *words = text.split() or [""]
    sizes: dict[str, list[int]] = {}
    marks: dict[str, Any] = {}
    for word in words:
        letter, _, numbers = word.partition("=")
        if word in MARKS:
            marks |= MARKS[word]
        elif letter in LETTERS and all((values := _sizes(numbers)) or [0]):
            sizes[letter] = values
        else:
            expected = f"{', '.join(LETTERS)} with a size, sizes (8,32) or a range (16:1024:*2, 10:50:+10)"
            raise ValueError(f"{word!r} in {text!r}: expecting {expected}, or {', '.join(MARKS)}")
    if cell not in CELLS or not {"T", "B", "U"} <= sizes.keys():
        raise ValueError(f"{text!r}: expecting a cell ({', '.join(CELLS)}) and at least T=, B= and U=")
    chosen = (dict(zip(sizes, values, strict=True)) for values in itertools.product(*sizes.values()))
    return [Problem(cell, **({"I": sizes["U"]} | sizes | marks)) for sizes in chosen]


def _sizes(text: str) -> list[int]:
    """Return the numbers of "8", "8,32", "16:64:*2" or "10:30:+10"; none where it is something else."""
    if re.fullmatch(r"\d+(,\d+)*", text):
        return [int(number) for number in text.split(",")]
    if not (ends := re.fullmatch(r"(\d+):(\d+):([*+])(\d+)", text)):
        return []
    number, last, by = int(ends[1]), int(ends[2]), int(ends[4])
    if by < (2 if ends[3] == "*" else 1) or not 0 < number <= last:
        return []  # it never comes to its end
    sizes = [number]
    while sizes[-1] < (larger := sizes[-1] * by if ends[3] == "*" else sizes[-1] + by) <= last:
        sizes.append(larger)
    return sizes


class Row(NamedTuple):
    """One figure of a report: a problem, what is run of it, in which arithmetic, and with warm or cold caches."""

    group: str
    problem: Problem
    which: str
    dtype: str
    caches: str = "warm"


@dataclasses.dataclass(frozen=True)
class Group:
    """Problems that belong together, why they are measured, and where they are from.

    `goals` are ratios of our time to another library's, by its name, that this group should not exceed.
    """

    name: str
    why: str
    source: str
    problems: tuple[Problem, ...]
    goals: dict[str, float]

    @classmethod
    def read(cls, name: str, entry: dict[str, Any]) -> Group:
        """Read a group of problems.toml."""
        problems: list[Problem] = []
        marks = {key: tuple(entry[key]) for key in ("passes", "dtypes") if key in entry}
        for line in entry["problems"].strip().splitlines():
            text, _, tag = line.partition("#")
            problems += [p.replace(tag=tag.strip(), **marks) for p in parse(text)]
        return cls(name, entry["why"], entry["source"], tuple(problems), entry.get("goals", {}))


def rows_of_problems(group: str, problems: Iterable[Problem], caches: str = "warm") -> Iterator[Row]:
    """Yield every row: problem by problem, in each type and each pass."""
    for problem in problems:
        for dtype, which in itertools.product(problem.dtypes, problem.passes):
            yield Row(group, problem, which, dtype, caches)


GROUPS: Final = {
    name: Group.read(name, entry)
    for name, entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


def named(name: str) -> list[Problem]:
    """Return the published problems of this name, such as "LSTM_A"."""
    return [p for group in GROUPS.values() for p in group.problems if p.tag.lower() == name.lower() != ""]


def rows_of(groups: Iterable[str], keep: Callable[[Row], bool] = lambda _: True) -> list[Row]:
    """List the rows of groups, in their order."""
    return [row for group in groups for row in rows_of_problems(group, GROUPS[group].problems) if keep(row)]
