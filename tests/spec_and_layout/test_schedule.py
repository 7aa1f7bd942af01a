"""The walk through a ragged batch, compared with a walk written out step by step; and the lengths that are accepted."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.schedule import Schedule, check_lengths, cut
from pycudnnrnn.testing.strategies import sequence_lengths
from tests.helpers.examples import examples

batches = st.tuples(st.integers(0, 7), st.integers(0, 6)).flatmap(
    lambda TB: st.tuples(st.just(TB[0]), st.just(TB[1]), sequence_lengths(*TB))
)


def schedule_of(batch, *, time_major=True):
    """A batch's schedule, and its lengths with None spelt out."""
    T, B, lengths = batch
    return Schedule(T, B, check_lengths(lengths, T, B), time_major), [T] * B if lengths is None else lengths


@examples(2000)
@given(batches)
def test_packed_rows_are_the_valid_steps_longest_sequence_first(batch):
    schedule, full = schedule_of(batch)
    T, B = schedule.T, schedule.B
    order = sorted(range(B), key=lambda b: -full[b])
    step, sequence = schedule.rows
    expected = [(t, b) for t in range(T) for b in order if t < full[b]]
    assert list(zip(step.tolist(), sequence.tolist(), strict=True)) == expected
    assert (schedule.num_rows, schedule.order.tolist()) == (sum(full), order)
    assert schedule.is_sorted == (order == list(range(B)))
    running = [sum(n > t for n in full) for t in range(T)]
    assert [last - first for first, last in schedule.steps] == [n for n in running if n]
    axes = [dataclasses.replace(schedule, **kind).data_axes for kind in ({}, {"time_major": False}, {"packed": True})]
    assert axes == [(T, B), (B, T), (sum(full),)]


def test_a_batch_without_sequences_has_no_steps_however_many_it_could_have():
    assert Schedule(2**31 - 1, 0).steps == []


@examples(2000)
@given(batches, st.integers(1, 8), st.booleans())
def test_chunks_have_every_valid_step_once_and_nothing_that_cudnn_refuses(batch, limit, time_major):
    schedule, full = schedule_of(batch, time_major=time_major)
    seen = []
    for start, part in cut(schedule, limit):
        running = [b for b in schedule.order.tolist() if full[b] > start]
        within = [min(full[b], start + part.T) - start for b in running]
        assert 1 <= part.T <= limit
        assert (part.B, part.time_major, part.is_sorted) == (len(running), time_major, True)
        assert part.lengths == (None if set(within) == {part.T} else tuple(within))
        seen += [(start + t, b) for b, length in zip(running, within, strict=True) for t in range(length)]
    assert sorted(seen) == [(t, b) for t in range(schedule.T) for b in range(schedule.B) if t < full[b]]


@pytest.mark.parametrize("packed", [False, True])
def test_the_ragged_batch_with_the_most_steps_is_one_step_short(packed):
    """Memory is planned for it."""
    longest = Schedule(4, 3, None, packed=packed).longest_ragged()
    assert (longest.lengths, longest.num_rows, longest.is_ragged, longest.packed) == ((4, 4, 3), 11, True, packed)
    assert Schedule(4, 1, None, packed=packed).longest_ragged().lengths == (None if packed else (3,))


def test_lengths_are_any_host_integers_and_none_if_they_say_no_more_than_t():
    for lengths in (None, [4, 4, 4], (4, 4, 4), np.array([4, 4, 4])):
        assert check_lengths(lengths, 4, 3) is None
    for dtype in ("int8", "uint16", "int64", ">i4", "<u2"):
        assert check_lengths(np.array([1, 0, 4], dtype), 4, 3) == (1, 0, 4)
    assert [Schedule(4, 3, lengths).has_empty for lengths in ((1, 0, 4), (1, 2, 4))] == [True, False]


@pytest.mark.parametrize(
    ("lengths", "error", "text"),
    [
        *((no, ArgumentTypeError, "integers") for no in ([1.0, 2.0, 3.0], [True, False, True], [2**70, 1, 1], 3)),
        (np.array([1.5, 2, 3]), ArgumentTypeError, "integers"),
        ([1, -1, 5], ArgumentError, r"sequence_lengths\[1\]: -1, expecting a length from 0 to T=4"),
        ([1, 5, 2], ArgumentError, r"sequence_lengths\[1\]: 5"),
        ([1, 2], ArgumentError, r"shape: \(2,\), expecting \(3,\), one per sequence"),
        ([[1, 2, 3]], ArgumentError, r"\(3,\), one per sequence"),
    ],
    ids=str,
)
def test_only_host_integers_from_0_to_t_one_a_sequence_are_lengths(lengths, error, text):
    with pytest.raises(error, match=text):
        check_lengths(lengths, 4, 3)


def test_a_check_of_lengths_that_is_remembered_is_of_this_number_of_steps_and_this_type():
    """Equal bytes mean other lengths for another type, and the same lengths are too long for fewer steps."""
    lengths = np.array([255, 9], "uint8")
    assert check_lengths(lengths, 255, 2) == (255, 9)
    for array, T, bad in ((lengths, 254, 255), (lengths.view("int8"), 255, -1)):
        with pytest.raises(ArgumentError, match=rf"sequence_lengths\[0\]: {bad}"):
            check_lengths(array, T, 2)
