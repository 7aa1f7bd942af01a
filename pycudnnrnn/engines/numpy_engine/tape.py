"""What one direction of one layer remembers for its backward, and how its steps are walked."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pycudnnrnn.engines.numpy_engine.weights import Array
from pycudnnrnn.schedule import Step

SPREAD_STEPS = 4
"""Steps that make up for spreading a vector: a broadcast costs each of them more than its sums."""


class Tape(dict[str, Array]):
    """What one direction of one layer remembers for its backward: arrays with a row for each packed row.

    "gates" and "h_before" (the state each step started from) are in every cell's; the rest is the cell's own.
    """

    def rows(self, first: int, last: int) -> Tape:
        """A view of some rows."""
        return Tape({name: array[first:last] for name, array in self.items()})

    def copy(self) -> Tape:
        return Tape({name: array.copy() for name, array in self.items()})


@dataclasses.dataclass(frozen=True)
class Run:
    """Consecutive steps with the same number of sequences, in the order in which they are walked.

    A step is worked on as [features, sequences]: gates are contiguous then, and R @ h is the product that BLAS does
    fastest with R as it lies in params. `across` sees rows that way; `blocks` sees the same memory with each step's
    [features, sequences] contiguous. Both are [steps, features, sequences], or None at each step where there is no
    array.
    """

    rows: slice
    sequences: int
    order: int

    def across(self, array: Array | None) -> Any:
        if array is None:
            return itertools.repeat(None)
        return array[self.rows].reshape(-1, self.sequences, array.shape[1]).transpose(0, 2, 1)[:: self.order]

    def blocks(self, array: Array | None) -> Any:
        if array is None:
            return itertools.repeat(None)
        return array[self.rows].reshape(-1, array.shape[1], self.sequences)[:: self.order]

    def spread(self, vector: Array | None) -> Any:
        """The same [features] for each sequence: of full shape in a run worth it, and else to be broadcast."""
        if vector is None:
            return None
        num_steps = (self.rows.stop - self.rows.start) // self.sequences
        if num_steps < SPREAD_STEPS:
            return vector[:, None]
        return np.broadcast_to(vector[:, None], (len(vector), self.sequences)).copy()

    def take(self, state: Array) -> Array:
        """The running sequences' state, as a new [features, sequences]."""
        return state[: self.sequences].T.copy()

    def put(self, state: Array, now: Array) -> None:
        state[: self.sequences] = now.T


def runs(steps: Sequence[Step], most_rows: int = sys.maxsize) -> Iterator[Run]:
    """Cut steps, walked upwards or downwards, into runs of at most this many rows, but at least one step."""
    for sequences, group in itertools.groupby(steps, lambda step: step[1] - step[0]):
        alike = list(group)
        most = max(1, most_rows // sequences)
        for start in range(0, len(alike), most):
            ends = alike[start], alike[min(start + most, len(alike)) - 1]
            yield Run(slice(min(ends)[0], max(ends)[1]), sequences, 1 if ends[0] <= ends[1] else -1)
