"""ParamLayout by hand: worked examples, what is refused and how it is named. The laws are in test_properties.py."""

import dataclasses
import itertools

import numpy as np
import pytest

from pycudnnrnn import ParamLayout, Region, RNNSpec, ops
from pycudnnrnn.errors import ArgumentError, LayoutError
from pycudnnrnn.layout import arithmetic_layout, differences


def _region(offset, size, i=0):
    return Region(0, i, "reset", "bias", offset, (size,))


def _changed(place, **changes):
    """Return the regions of a GRU, one of them changed."""
    regions = list(arithmetic_layout(RNNSpec("gru", 1, 3, 2)).regions)
    regions[place] = dataclasses.replace(regions[place], **changes)
    return regions


@pytest.mark.parametrize(
    ("regions", "text"),
    [
        ([_region(0, 5), _region(4, 4, 1)], f"{_region(4, 4, 1)} overlaps {_region(0, 5)}"),
        ([_region(0, 100)], "ends at 100, past the buffer's 99 elements"),
        (arithmetic_layout(RNNSpec("gru", 1, 3, 2)).regions[::-1], "is not in canonical order: all weights, then"),
        ([_region(0, 2, 1), _region(2, 2, 0)], "is not in canonical order"),
        ([_region(0, 2, 1), _region(2, 2, 1)], "is listed twice"),
        (_changed(0, kind="weights"), "has a kind, a gate or a num_dirs that no RNN has"),
        (_changed(0, gate="input gate"), "has a kind, a gate or a num_dirs that no RNN has"),
        (_changed(3, num_dirs=3), "has a kind, a gate or a num_dirs that no RNN has"),
        (_changed(0, shape=(-3, -2)), "a number that is not an integer from 0"),
        (_changed(1, pseudo_layer=-1), "a number that is not an integer from 0"),
        (_changed(0, offset=0.0), "a number that is not an integer from 0"),
        (_changed(0, shape=(6,)), "must have two widths as a weight"),
        (_changed(11, shape=(1, 3)), "one as a bias"),
        (_changed(3, num_dirs=2), "must all have the same num_dirs"),
        (_changed(0, shape=(3, 0), offset=7), "offset 0 without elements"),
    ],
)
def test_a_layout_keeps_its_promises(regions, text):
    """Order, one region a matrix or bias, words, numbers and shapes: a user's own kernel may have any of them wrong."""
    with pytest.raises(LayoutError) as caught:
        ParamLayout(99, tuple(regions))
    assert text in str(caught.value)


def test_a_layout_takes_a_list_of_regions_with_padding_and_names_a_size_or_a_region_that_is_none():
    assert ParamLayout(10, [_region(0, 0), _region(3, 4, 1), _region(8, 1, 2)]).size == 10
    for size, regions, name in ((8.0, (), "size"), (-8, (), "size"), (8, ("W",), "regions"), (0, None, "regions")):
        with pytest.raises(ArgumentError) as caught:
            ParamLayout(size, regions)
        assert caught.value.argument == name
    with pytest.raises(ArgumentError, match=r"Invalid other: .*NoneType.*, expecting a ParamLayout"):
        differences(ParamLayout(0, ()), None)


def test_differences_see_a_missing_region_and_another_shape_from_both_sides():
    layout = arithmetic_layout(RNNSpec("gru", 1, 3, 2))
    first, *rest = layout.regions
    turned = dataclasses.replace(first, shape=first.shape[::-1])
    for regions, pair in ((rest, (first, None)), ([turned, *rest], (first, turned))):
        other = ParamLayout(layout.size, regions)
        assert differences(layout, other) == {first.key: pair}
        assert differences(other, layout) == {first.key: pair[::-1]}


def test_too_many_elements_or_regions_are_refused_before_they_are_listed():
    with pytest.raises(ArgumentError, match="Invalid size: 36893488113059364872"):
        arithmetic_layout(RNNSpec("lstm", 1, 2**31 - 1, 2**31 - 1, bias_mode="none"))
    with pytest.raises(LayoutError, match="2147483647 layers have 73014443998 regions"):
        arithmetic_layout(RNNSpec("lstm", 2**31 - 1, 4, 3, direction="bidirectional", num_proj=2))


OP = ops.CudnnLSTM(2, 4, 3, dtype="float64")


def canonical():
    return OP.params_to_canonical(np.random.default_rng(0).normal(size=OP.params_size()))


def test_views_are_views_and_copies_are_copies_and_both_can_be_written_back_or_flat_arrays():
    weights, biases = canonical()
    params = OP.canonical_to_params([w.reshape(-1) for w in weights], biases)
    copied, _ = OP.params_to_canonical(params)
    copied[0] += 1
    weights, biases = OP.params_to_canonical(params, copy=False)
    assert not np.array_equal(copied[0], weights[0])
    swapped = [[arrays[1], arrays[0], *arrays[2:]] for arrays in (weights, biases)]
    expected = [array.copy() for array in itertools.chain(*swapped)]
    OP.canonical_to_params(*swapped, out=params)
    assert all(map(np.array_equal, itertools.chain(weights, biases), expected))


BAD_CANONICAL = {
    "too few weights": (lambda w, b: w.pop(), "weights"),
    "too many biases": (lambda w, b: b.append(b[0]), "biases"),
    "a transposed matrix": (lambda w, b: w.__setitem__(0, w[0].T), "weights[0]"),
    "a short bias": (lambda w, b: b.__setitem__(3, b[3][:-1]), "biases[3]"),
    "another dtype": (lambda w, b: w.__setitem__(2, w[2].astype("float32")), "weights[2]"),
    "a list for an array": (lambda w, b: b.__setitem__(1, [0.0] * 4), "biases[1]"),
}


@pytest.mark.parametrize("case", BAD_CANONICAL)
def test_wrong_canonical_arrays_are_named_and_nothing_is_written(case):
    """ops/test_array_refusals.py has the buffers that they cannot be written to."""
    change, argument = BAD_CANONICAL[case]
    out = np.full(OP.params_size(), 7.0)
    change(*(arrays := canonical()))
    with pytest.raises(ArgumentError) as caught:
        OP.canonical_to_params(*arrays, out=out)
    assert caught.value.argument == argument
    assert (out == 7).all()
