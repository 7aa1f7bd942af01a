"""The walk through a ragged batch, against a walk written out step by step."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.schedule import Schedule, check_lengths, cut, grouped
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
    order = sorted(range(schedule.B), key=lambda b: -full[b])
    expected = [(t, b) for t in range(schedule.T) for b in order if t < full[b]]
    step, sequence = schedule.rows
    assert list(zip(step.tolist(), sequence.tolist(), strict=True)) == expected
    assert schedule.num_rows == sum(full)
    assert schedule.order.tolist() == order
    assert schedule.is_sorted == (order == list(range(schedule.B)))


@examples(500)
@given(batches)
def test_data_has_the_axes_that_its_layout_says(batch):
    schedule, full = schedule_of(batch)
    T, B, layouts = schedule.T, schedule.B, ({}, {"time_major": False}, {"packed": True})
    found = [dataclasses.replace(schedule, **layout).data_shape(3) for layout in layouts]
    assert found == [(T, B, 3), (B, T, 3), (sum(full), 3)]


@examples(2000)
@given(batches)
def test_the_rows_running_at_a_step_are_a_prefix_that_never_grows(batch):
    schedule, full = schedule_of(batch)
    running = [sum(n > t for n in full) for t in range(schedule.T)]
    assert [last - first for first, last in schedule.steps] == [n for n in running if n]
    assert schedule.batch_sizes == sorted(schedule.batch_sizes, reverse=True)


@examples(500)
@given(st.lists(st.integers(1, 5), max_size=20), st.integers(0, 12))
def test_groups_are_all_steps_in_order_and_only_a_single_step_exceeds_the_limit(sizes, limit):
    ends = np.cumsum([0, *sizes]).tolist()
    steps = list(itertools.pairwise(ends))
    groups = list(grouped(steps, limit))
    assert [step for group in groups for step in group] == steps
    for group in groups:
        assert len(group) == 1 or sum(last - first for first, last in group) <= limit
    for group, following in itertools.pairwise(groups):  # and none could have taken one step more
        assert sum(last - first for first, last in [*group, following[0]]) > limit


@examples(500)
@given(batches, st.integers(1, 4), st.booleans())
def test_a_chunk_is_a_batch_of_its_own_with_the_sequences_that_still_run(batch, limit, time_major):
    schedule, full = schedule_of(batch, time_major=time_major)
    for chunk in cut(schedule, limit):
        part, stop = chunk.schedule, chunk.start + chunk.schedule.T
        expected = [min(full[b], stop) - chunk.start for b in schedule.order if full[b] > chunk.start]
        assert (part.B, part.time_major) == (len(expected), time_major)
        assert part.lengths == (None if set(expected) == {part.T} else tuple(expected))
        assert part.is_sorted


@pytest.mark.parametrize("lengths", [None, [4, 4, 4], (4, 4, 4), np.array([4, 4, 4])])
def test_lengths_that_say_no_more_than_t_are_dropped(lengths):
    assert check_lengths(lengths, 4, 3) is None


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", ">i4", "<u2"])
def test_numpy_lengths_of_any_integer_type_are_taken(dtype):
    assert check_lengths(np.array([1, 0, 4], dtype), 4, 3) == (1, 0, 4)


class DeviceArray:
    """Stands for an array of another library: it could be read, at the price of a synchronise."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2, 3])

    def __dlpack_device__(self):
        return 2, 0

    def tolist(self):
        return [1, 2, 3]


@pytest.mark.parametrize("lengths", [DeviceArray(), 3, "123", {1, 2, 3}, iter([1, 2, 3])])
def test_only_host_integers_are_lengths(lengths):
    with pytest.raises(ArgumentTypeError, match=r"host integers") as caught:
        check_lengths(lengths, 4, 3)
    assert ("would synchronise" in str(caught.value)) is isinstance(lengths, DeviceArray)


@pytest.mark.parametrize(
    "lengths",
    [
        [1.0, 2.0, 3.0],
        [True, False, True],
        [1, np.True_, 3],
        np.array([1.5, 2, 3]),
        ["1", "2", "3"],
        [2**70, 1, 1],
        [1, [2], 3],
    ],
)
def test_lengths_that_are_no_integers_are_refused(lengths):
    with pytest.raises(ArgumentTypeError, match="integers"):
        check_lengths(lengths, 4, 3)


@pytest.mark.parametrize(("lengths", "place"), [([1, -1, 2], 1), ([1, 2, 5], 2)])
def test_a_length_out_of_range_is_named(lengths, place):
    with pytest.raises(ArgumentError) as caught:
        check_lengths(lengths, 4, 3)
    assert caught.value.argument == f"sequence_lengths[{place}]"


@pytest.mark.parametrize("lengths", [[1, 2], [1, 2, 3, 4], [], [[1, 2, 3]]])
def test_one_length_a_sequence_is_wanted(lengths):
    with pytest.raises(ArgumentError, match=r"\(3,\), one per sequence"):
        check_lengths(lengths, 4, 3)


@examples(2000)
@given(batches, st.integers(1, 8))
def test_chunks_hold_every_valid_step_once_and_nothing_that_cudnn_refuses(batch, limit):
    schedule, full = schedule_of(batch)
    T, B = schedule.T, schedule.B
    seen = []
    for start, part in cut(schedule, limit):
        within = [part.T] * part.B if part.lengths is None else part.lengths
        assert 1 <= part.T <= limit
        assert all(1 <= length <= part.T for length in within)
        seen += [
            (start + t, b) for b, length in zip(schedule.order[: part.B], within, strict=True) for t in range(length)
        ]
    assert sorted(seen) == [(t, b) for t in range(T) for b in range(B) if t < full[b]]


def test_steps_are_grouped_by_about_so_many_rows():
    steps = [(0, 4), (4, 8), (8, 10), (10, 12)]
    assert [list(group) for group in grouped(steps, 6)] == [[(0, 4)], [(4, 8), (8, 10)], [(10, 12)]]
    assert [list(group) for group in grouped(steps, 1)] == [[step] for step in steps]
    assert [list(group) for group in grouped(steps, 12)] == [steps]
