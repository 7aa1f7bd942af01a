"""ParamLayout: the arithmetic, what it refuses, and canonical form through any layout."""

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ParamLayout, Region, RNNSpec, ops
from pycudnnrnn.errors import ArgumentError, LayoutError
from pycudnnrnn.layout import arithmetic_layout, differences
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples


def dense_size(spec):
    """Worked out from the formula in TF's own size test, extended to projection, bias modes and skip input."""
    G, U, P, D = spec.num_gates, spec.num_units, spec.state_size, spec.num_dirs
    biases = {"none": 0, "single_input": 1, "double": 2, "single_recurrent": 1}[spec.bias_mode]
    total = 0
    for layer in range(spec.num_layers):
        first = 0 if spec.input_mode == "skip_input" else spec.input_size
        columns = D * P if layer else first
        total += D * (G * U * columns + G * U * P + biases * G * U + (U * P if spec.num_proj else 0))
    return total


@examples(2000)
@given(specs())
def test_regions_partition_the_buffer(spec):
    layout = arithmetic_layout(spec)
    covered = np.zeros(layout.size, int)
    for region in layout.regions:
        covered[region.slice] += 1
    assert (covered == 1).all()
    assert layout.size == dense_size(spec)


@examples(2000)
@given(specs())
def test_regions_are_in_canonical_order_with_the_counts_tensorflow_has(spec):
    layout = arithmetic_layout(spec)
    assert list(layout.regions) == [*layout.weights, *layout.biases]
    for regions in (layout.weights, layout.biases):
        keys = [(r.pseudo_layer, r.lin_layer_id) for r in regions]
        assert keys == sorted(keys)
        assert len(keys) == len(set(keys))
    pseudo_layers = spec.num_layers * spec.num_dirs
    assert len(layout.weights) == pseudo_layers * (2 * spec.num_gates + bool(spec.num_proj))
    sets = {"none": 0, "single_input": 1, "double": 2, "single_recurrent": 1}[spec.bias_mode]
    assert len(layout.biases) == pseudo_layers * sets * spec.num_gates


def words_of(spec, region):
    """A region in words, worked out from cuDNN's numbers as its reference gives them."""
    layer, backward = divmod(region.pseudo_layer, 1 + (spec.direction == "bidirectional"))
    side = "projection" if region.lin_layer_id == 8 else ("input", "recurrent")[region.lin_layer_id // spec.num_gates]
    return {
        "layer": layer, "direction": ("forward", "backward")[backward], "gate": region.gate, "kind": region.kind,
        "side": side,
    }  # fmt: skip


@examples(500)
@given(specs(), st.integers(0, 2**16))
def test_every_region_tells_its_place_in_words_and_is_found_by_them_in_any_layout(spec, seed):
    layout = PermutedLayoutEngine(seed).layout(spec)
    for region in layout.regions:
        words = words_of(spec, region)
        assert {name: getattr(region, name) for name in words} == words
        letter = {"input": "W", "recurrent": "R", "projection": "P"}[region.side]
        assert region.symbol == ("b" if region.kind == "bias" else "") + letter
        assert layout.region(**words) is region
        assert layout.region(*region.key) is region
        assert layout.region(region.pseudo_layer, lin_layer_id=region.lin_layer_id, **words) is region


@examples(2000)
@given(specs(), st.integers(0, 2**16))
def test_canonical_round_trip_is_bit_for_bit_in_any_layout(spec, seed):
    op = ops.from_spec(spec)
    rng = np.random.default_rng(seed)
    with use_engine(PermutedLayoutEngine(seed)):
        weights, biases = op.params_to_canonical(rng.normal(size=op.params_size()))
        params = op.canonical_to_params(weights, biases)
        again = op.params_to_canonical(params)
    for before, after in zip([*weights, *biases], [*again[0], *again[1]], strict=True):
        assert np.array_equal(before, after)
    plain = op.canonical_to_params(weights, biases)
    dense = [a.reshape(-1) for a in (*weights, *biases)]
    assert np.array_equal(plain, np.concatenate(dense))


@examples(2000)
@given(specs(), st.integers(0, 2**16))
def test_a_permuted_layout_holds_every_element_once_and_pads_with_zeros(spec, seed):
    op = ops.from_spec(spec)
    with use_engine(PermutedLayoutEngine(seed)):
        size = op.params_size()
        weights, biases = op.params_to_canonical(np.arange(1.0, size + 1))
        out = np.full(size, -1.0)
        assert op.canonical_to_params(weights, biases, out=out) is out
    values = np.concatenate([a.reshape(-1) for a in (*weights, *biases)])
    assert len(set(values)) == len(values) == dense_size(spec)
    assert sorted(out[out != 0]) == sorted(values)


def test_permuted_layouts_differ_in_order_and_have_padding_before_and_between_regions():
    layouts = [PermutedLayoutEngine(seed).layout(RNNSpec("gru", 1, 3, 2)) for seed in range(20)]
    assert len(set(layouts)) == 20
    by_place = [sorted(layout.regions, key=lambda region: region.offset) for layout in layouts]
    assert any(regions[0].offset for regions in by_place)
    gaps = [[b.offset - a.slice.stop for a, b in itertools.pairwise(regions)] for regions in by_place]
    assert all(max(found) > 0 for found in gaps)
    assert {found.index(max(found)) for found in gaps} != {0}


def test_the_worked_example():
    """A bidirectional LSTM layer with projection, every offset by hand."""
    layout = ops.CudnnLSTM(1, 4, 3, direction="bidirectional", num_proj=2).layout()
    found = {(r.pseudo_layer, r.lin_layer_id, r.kind): (r.gate, r.offset, r.shape) for r in layout.regions}
    assert found[0, 0, "weight"] == ("input", 0, (4, 3))
    assert found[0, 1, "weight"] == ("forget", 12, (4, 3))
    assert found[0, 2, "weight"] == ("new", 24, (4, 3))
    assert found[0, 3, "weight"] == ("output", 36, (4, 3))
    assert found[0, 4, "weight"] == ("input", 48, (4, 2))
    assert found[0, 7, "weight"] == ("output", 72, (4, 2))
    assert found[0, 8, "weight"] == ("projection", 80, (2, 4))
    assert found[1, 0, "weight"] == ("input", 88, (4, 3))
    assert found[0, 0, "bias"] == ("input", 176, (4,))
    assert found[1, 7, "bias"] == ("output", 236, (4,))
    assert layout.size == 240
    assert layout.region(0, 8, "weight").size == 8


@pytest.mark.parametrize(
    ("mode", "gates"),
    [
        ("lstm", ["input", "forget", "new", "output"]),
        ("gru", ["reset", "update", "new"]),
        ("rnn_tanh", ["hidden"]),
        ("rnn_relu", ["hidden"]),
    ],
)
def test_gates_have_cudnns_ids(mode, gates):
    layout = arithmetic_layout(RNNSpec(mode, 1, 2, 3))
    assert [r.gate for r in layout.weights] == gates * 2
    assert [r.gate for r in layout.biases] == gates * 2


def test_skip_input_leaves_layer_0_without_input_matrices():
    layout = arithmetic_layout(RNNSpec("gru", 2, 3, 3, "skip_input", "bidirectional"))
    for p in range(2):
        found = [layout.region(p, i, "weight") for i in range(3)]
        assert [(region.shape, region.offset) for region in found] == [((3, 0), 0)] * 3
        assert [layout.region(2 + p, i, "weight").shape for i in range(3)] == [(3, 6)] * 3


def test_equal_layouts_are_equal_and_a_moved_region_makes_another():
    one, two = (arithmetic_layout(RNNSpec("gru", 1, 3, 2)) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    moved = (one.regions[1], one.regions[0], *one.regions[2:])
    swapped = (
        dataclasses.replace(moved[1], offset=moved[0].offset),
        dataclasses.replace(moved[0], offset=moved[1].offset),
        *one.regions[2:],
    )
    assert ParamLayout(one.size, swapped) != one


def _region(offset, size):
    return Region(0, 0, "hidden", "bias", offset, (size,))


@pytest.mark.parametrize(
    ("size", "regions"),
    [
        (8, [_region(0, 5), _region(4, 4)]),
        (8, [_region(0, 9)]),
        (8, [_region(-1, 4)]),
        (4, [_region(2, 4)]),
    ],
)
def test_an_impossible_layout_is_refused(size, regions):
    with pytest.raises(LayoutError):
        ParamLayout(size, tuple(regions))


def test_padding_and_empty_regions_are_possible():
    layout = ParamLayout(10, (_region(0, 0), _region(3, 4), _region(8, 1)))
    assert layout.size == 10


def test_a_region_that_is_not_there_is_named():
    with pytest.raises(ArgumentError, match=r"\(0, 8, 'weight'\)"):
        arithmetic_layout(RNNSpec("lstm", 1, 2, 3)).region(0, 8, "weight")


@pytest.mark.parametrize("word", [{"layer": 1}, {"direction": "backward"}, {"gate": "new"}, {"side": "recurrent"}])
def test_a_word_that_cudnns_numbers_contradict_is_refused(word):
    layout = arithmetic_layout(RNNSpec("lstm", 2, 2, 3, direction="bidirectional"))
    with pytest.raises(ArgumentError) as caught:
        layout.region(0, 0, "weight", **word)
    assert caught.value.argument in word


def test_huge_sizes_are_exact():
    spec = RNNSpec("lstm", 3, 2**31 - 1, 2**31 - 1, direction="bidirectional")
    assert arithmetic_layout(spec).size == dense_size(spec) > 2**64


OP = ops.CudnnLSTM(2, 4, 3, dtype="float64")


def canonical(op=OP):
    return op.params_to_canonical(np.random.default_rng(0).normal(size=op.params_size()))


def test_views_are_views_and_copies_are_copies():
    params = np.zeros(OP.params_size())
    weights, biases = OP.params_to_canonical(params, copy=False)
    for array in (*weights, *biases):
        array[:] = 1
    assert (params == 1).all()
    copied, _ = OP.params_to_canonical(params)
    copied[0] += 1
    assert (params == 1).all()


def test_flat_arrays_of_the_right_size_are_taken_as_tensorflow_takes_them():
    weights, biases = canonical()
    flat = OP.canonical_to_params([w.reshape(-1) for w in weights], biases)
    assert np.array_equal(flat, OP.canonical_to_params(weights, biases))


def test_a_buffers_own_views_can_be_written_back_in_another_order():
    params = np.arange(float(OP.params_size()))
    weights, biases = OP.params_to_canonical(params, copy=False)
    swapped = [[arrays[1], arrays[0], *arrays[2:]] for arrays in (weights, biases)]
    expected = [[array.copy() for array in arrays] for arrays in swapped]
    OP.canonical_to_params(*swapped, out=params)
    for found, arrays in zip(OP.params_to_canonical(params), expected, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(found, arrays, strict=True))


def _spoilt(change):
    weights, biases = canonical()
    change(weights, biases)
    return weights, biases


BAD_CANONICAL = {
    "too few weights": (lambda w, b: w.pop(), "weights"),
    "too many biases": (lambda w, b: b.append(b[0]), "biases"),
    "no weights": (lambda w, b: w.clear(), "weights"),
    "a transposed matrix": (lambda w, b: w.__setitem__(0, w[0].T), "weights[0]"),
    "a short bias": (lambda w, b: b.__setitem__(3, b[3][:-1]), "biases[3]"),
    "another dtype": (lambda w, b: w.__setitem__(2, w[2].astype("float32")), "weights[2]"),
    "a list for an array": (lambda w, b: b.__setitem__(1, [0.0] * 4), "biases[1]"),
}


@pytest.mark.parametrize("case", BAD_CANONICAL)
def test_wrong_canonical_arrays_are_named_and_nothing_is_written(case):
    change, argument = BAD_CANONICAL[case]
    out = np.full(OP.params_size(), 7.0)
    with pytest.raises(ArgumentError) as caught:
        OP.canonical_to_params(*_spoilt(change), out=out)
    assert caught.value.argument == argument
    assert (out == 7).all()


@pytest.mark.parametrize(
    "out",
    [
        np.zeros(3),
        np.zeros((2, OP.params_size() // 2)),
        np.zeros(OP.params_size(), "float32"),
        np.zeros(2 * OP.params_size())[::2],
        np.broadcast_to(np.zeros(()), OP.params_size()),
    ],
    ids=["short", "two axes", "dtype", "strided", "read-only"],
)
def test_a_buffer_that_cannot_hold_the_params_is_refused(out):
    with pytest.raises(ArgumentError, match="out"):
        OP.canonical_to_params(*canonical(), out=out)


def test_differences_are_the_regions_that_the_other_layout_has_elsewhere_in_another_shape_or_not_at_all():
    layout = arithmetic_layout(RNNSpec("gru", 1, 3, 2))
    moved = dataclasses.replace(layout.regions[-1], offset=layout.size)
    other = ParamLayout(layout.size + 3, (*layout.regions[:3], *layout.regions[4:-1], moved))
    assert differences(layout, layout) == {}
    assert differences(layout, other) == {layout.regions[3].key: None, moved.key: moved}
    turned = dataclasses.replace(layout.regions[0], shape=layout.regions[0].shape[::-1])
    assert differences(layout, ParamLayout(layout.size, (turned, *layout.regions[1:]))) == {turned.key: turned}


def test_the_size_of_any_depth_is_known_without_its_regions_and_too_many_are_refused(monkeypatch):
    deep = RNNSpec("lstm", 2**31 - 1, 4, 3, direction="bidirectional", num_proj=2)
    per_layer = [arithmetic_layout(deep.replace(num_layers=n)).size for n in (1, 2, 3)]
    assert per_layer[2] - per_layer[1] == per_layer[1] - per_layer[0]
    layout = arithmetic_layout(deep)
    assert layout.size == per_layer[0] + (2**31 - 2) * (per_layer[1] - per_layer[0])
    assert ops.CudnnLSTM(100_000, 4, 4).params_size() == 16_000_000
    with pytest.raises(LayoutError, match="at most 262144 are listed"):
        _ = arithmetic_layout(RNNSpec("lstm", 20_000, 1, 1)).regions
    monkeypatch.setattr("pycudnnrnn.layout.REGIONS_MAX", 32)
    assert len(arithmetic_layout(RNNSpec("lstm", 2, 1, 1)).regions) == 32
    with pytest.raises(LayoutError, match="3 layers have 48 regions"):
        _ = arithmetic_layout(RNNSpec("lstm", 3, 1, 1)).regions
    with pytest.raises(AttributeError):
        _ = layout.nothing


@examples(100)
@given(specs())
def test_a_size_by_arithmetic_is_that_of_its_regions_and_layouts_are_values(spec):
    layout = arithmetic_layout(spec)
    made = ParamLayout(layout.size, tuple(layout.regions))
    assert layout.size == sum(region.size for region in layout.regions)
    assert (layout, hash(layout), repr(layout)) == (made, hash(made), repr(made))
    assert pickle.loads(pickle.dumps(arithmetic_layout(spec))) == layout
    assert dataclasses.replace(arithmetic_layout(spec), size=layout.size + 1).regions == layout.regions


@examples(100)
@given(specs())
def test_a_layout_prints_a_row_for_each_region_and_leaves_out_the_middle_of_many(spec):
    layout = arithmetic_layout(spec)
    title, head, *lines = str(layout).splitlines()
    assert title == f"ParamLayout: {layout.size:,} elements, {len(layout.regions):,} regions"
    assert head.split()[:3] == ["pseudo-layer", "layer", "direction"]
    shown = layout.regions
    if len(shown) > 40:
        assert lines.pop(20) == f"... {len(shown) - 40:,} more regions ..."
        shown = shown[:20] + shown[-20:]
    for line, region in zip(lines, shown, strict=True):
        place = [str(region.pseudo_layer), str(region.layer), region.direction, region.kind, str(region.lin_layer_id)]
        end = [f"{region.offset:,}", f"{region.offset + region.size:,}"]
        assert line.split() == [*place, region.symbol, region.gate, *" x ".join(map(str, region.shape)).split(), *end]
    assert len({len(line) for line in (head, *lines)}) == 1


def test_a_layout_of_too_many_regions_prints_its_size():
    assert repr(arithmetic_layout(RNNSpec("lstm", 20_000, 1, 1))).startswith(
        "ParamLayout: 320,000 elements; 20000 layers"
    )
