"""The steps of one batch through time: pure arithmetic on T, B and the sequence lengths.

*Packed* rows are the valid steps of a padded batch [T, B, ...]: step by step, the longest sequence first, so that the
sequences still running at a step are a prefix of the batch. Packed row `offsets[t] + j` is step t of sequence
`order[j]`. Padding is never read, so its values do not matter.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _locks
from pycudnnrnn._checks import plain
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

Lengths = Sequence[int] | npt.NDArray[np.integer[Any]]
"""What `sequence_lengths` takes, in types."""

Step = tuple[int, int]
"""The packed rows [first, last) of one time step."""

LENGTHS_MAX: Final = 64
"""Most sets of lengths whose check is remembered."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """One batch: T and B, the sequences' lengths (None: all T), and how its arrays over time and batch are laid out.

    The arrays are padded, with time or batch as their first axis; or they are `packed`, as in torch's `PackedSequence`:
    they consist of the packed rows. Packed sequences are sorted, longest first, the first has T steps, and none is
    empty.
    """

    T: int
    B: int
    lengths: tuple[int, ...] | None = None
    time_major: bool = True
    packed: bool = False

    @property
    def data_axes(self) -> tuple[int, ...]:
        """The axes of an array over time and batch, without its last."""
        if self.packed:
            return (self.num_rows,)
        return (self.T, self.B) if self.time_major else (self.B, self.T)

    @property
    def is_ragged(self) -> bool:
        """Whether batches of this kind may have different lengths. Packed ones always may."""
        return self.packed or self.lengths is not None

    def longest_ragged(self) -> Schedule:
        """The ragged batch of this size that has the most steps: the last sequence is one step shorter.

        Packed sequences of one step, or a single one, have equal lengths only.
        """
        if self.packed and 1 in (self.T, self.B):
            return self
        return dataclasses.replace(self, lengths=(*[self.T] * (self.B - 1), self.T - 1))

    @_locks.cached_property
    def lengths_int32(self) -> npt.NDArray[np.int32]:
        """The lengths as C integers; all are T if `lengths` is None."""
        return np.full(self.B, self.T, np.int32) if self.lengths is None else np.array(self.lengths, np.int32)

    @property
    def has_empty(self) -> bool:
        """Whether a sequence has no step."""
        return self.lengths is not None and 0 in self.lengths

    @_locks.cached_property
    def order(self) -> npt.NDArray[np.intp]:
        """Sequences, longest first; equal lengths keep their order."""
        return np.argsort(-self.lengths_int32, kind="stable")

    @_locks.cached_property
    def is_sorted(self) -> bool:
        """Whether `order` changes nothing."""
        return bool(np.all(self.order[:-1] < self.order[1:]))

    @property
    def has_rows_in_order(self) -> bool:
        """Whether the caller's data consists of the packed rows, in their order."""
        return self.packed or (self.lengths is None and self.time_major)

    @_locks.cached_property
    def batch_sizes(self) -> list[int]:
        """Number of sequences still running at each step, without the steps that have none."""
        ended_at = np.bincount(self.lengths_int32, minlength=self.T + 1 if self.B else 1)
        running = self.B - np.cumsum(ended_at[:-1])
        sizes: list[int] = running[running > 0].tolist()
        return sizes

    @_locks.cached_property
    def offsets(self) -> list[int]:
        """First packed row of each step; at the end, the number of packed rows."""
        return list(itertools.accumulate(self.batch_sizes, initial=0))

    @property
    def num_rows(self) -> int:
        """Packed rows: the sum of the lengths."""
        return self.offsets[-1]

    @_locks.cached_property
    def steps(self) -> list[Step]:
        """The packed rows of each step, in time order; the backward direction walks them in reverse."""
        return list(itertools.pairwise(self.offsets))

    @_locks.cached_property
    def rows(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Step and sequence of each packed row."""
        sizes = np.array(self.batch_sizes, np.intp)
        step = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(self.num_rows) - np.repeat(np.array(self.offsets[:-1], np.intp), sizes)
        return step, self.order[place]


class Chunk(NamedTuple):
    """Steps of a batch, from `start` on, as a separate batch: of the sequences that still run, longest first."""

    start: int
    schedule: Schedule


def cut(schedule: Schedule, steps: int) -> list[Chunk]:
    """Cut a batch into chunks of at most `steps` steps, which follow one another in time.

    A sequence that has ended is in none of the later chunks. A batch without a valid step has no chunk.
    """
    lengths = schedule.lengths_int32[schedule.order]
    schedules: dict[Schedule, Schedule] = {}  # equal schedules are one object, whose properties are computed once
    chunks = []
    for start in range(0, lengths.max(initial=0), steps):
        stop = min(start + steps, schedule.T)
        within = tuple(np.minimum(lengths[lengths > start], stop).tolist())
        ragged = None if within[-1] == stop else tuple(length - start for length in within)
        chunk = Schedule(stop - start, len(within), ragged, schedule.time_major)
        chunks.append(Chunk(start, schedules.setdefault(chunk, chunk)))
    return chunks


def grouped(steps: Sequence[Step], rows: int) -> Iterator[Sequence[Step]]:
    """Cut consecutive steps into groups of about `rows` packed rows, each group at least one step."""
    start = 0
    count = 0
    for index, (first, last) in enumerate(steps):
        if count and count + last - first > rows:
            yield steps[start:index]
            start, count = index, 0
        count += last - first
    if count:
        yield steps[start:]


def check_lengths(lengths: Any, T: int, B: int, name: str = "sequence_lengths") -> tuple[int, ...] | None:
    """Return the lengths as ints, or None if all are T.

    Raises:
        ArgumentTypeError: not a list, tuple or NumPy array of integers. Arrays of other libraries raise it even on the
            CPU: on a device, reading them would synchronise each call.
        ArgumentError: not B of them, or one outside 0..T.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, (list, tuple, np.ndarray)):
        expected = f"host integers (a list or a NumPy array): {name}.tolist() makes them of an array of another library"
        why = "reading a device array here would synchronise each call"
        raise ArgumentTypeError(name, f"{expected}, and {why}", type(lengths))
    if isinstance(lengths, np.ndarray):
        array = plain(name, lengths)
    else:
        try:
            array = np.array(lengths)
        except ValueError:  # lists of different lengths in it
            raise ArgumentTypeError(name, "integers", "a list of lists") from None
    if array.size and array.dtype.kind not in "iu":
        raise ArgumentTypeError(name, "integers", array.dtype, aspect="dtype")
    if array.shape != (B,):
        raise ArgumentError(name, f"({B},), one per sequence", array.shape, aspect="shape")
    return _within(name, T, array.dtype, array.tobytes()) if B else None


@functools.lru_cache(maxsize=LENGTHS_MAX)
def _within(name: str, T: int, dtype: np.dtype[Any], lengths: bytes) -> tuple[int, ...] | None:
    """Check lengths, given as bytes, so that the same lengths are checked once."""
    array = np.frombuffer(lengths, dtype)
    bad = np.flatnonzero((array < 0) | (array > T))
    if bad.size:
        raise ArgumentError(f"{name}[{bad[0]}]", f"a length from 0 to T={T}", array[bad[0]])
    return None if (array == T).all() else tuple(array.tolist())
