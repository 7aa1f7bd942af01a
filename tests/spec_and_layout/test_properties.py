"""The promises of layouts, for every RNN and in every order of the regions. Read this file first.

A layout says where each matrix and each bias of an RNN is in its one flat buffer. `specs()` draws any RNN that cuDNN
has, `layouts()` any order of its regions, with padding between them or without, as another cuDNN might choose. Nothing
here needs cuDNN: what it reports itself is compared with the arithmetic in tests/layout_query and tests/gpu.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.layout import arithmetic_layout, differences
from pycudnnrnn.testing import LayoutEngine, use_engine
from pycudnnrnn.testing.strategies import layouts, specs
from tests.helpers.examples import examples

LAID_OUT = specs().flatmap(lambda spec: st.tuples(st.just(spec), layouts(spec)))
"""An RNN, and any layout of its params."""


@examples(2000)
@given(specs())
def test_regions_cover_the_buffer_once_in_canonical_order(spec):
    """Which regions these are, a real libcudnn says in tests/layout_query."""
    layout = arithmetic_layout(spec)
    assert list(layout.regions) == [*layout.weights, *layout.biases]
    for regions in (layout.weights, layout.biases):
        keys = [(r.pseudo_layer, r.lin_layer_id) for r in regions]
        assert keys == sorted(set(keys))
    ends = [0, *(r.slice.stop for r in layout.regions if r.size)]
    assert [r.offset for r in layout.regions if r.size] == ends[:-1]
    assert layout.size == ends[-1]


@examples(500)
@given(LAID_OUT)
def test_every_region_knows_its_place_in_words_and_is_found_by_them(laid_out):
    spec, layout = laid_out
    for region in layout.regions:
        layer, backward = divmod(region.pseudo_layer, 1 + (spec.direction == "bidirectional"))
        side = (
            "projection" if region.lin_layer_id == 8 else ("input", "recurrent")[region.lin_layer_id // spec.num_gates]
        )
        words = {
            "layer": layer, "direction": ("forward", "backward")[backward], "gate": region.gate, "kind": region.kind,
            "side": side,
        }  # fmt: skip
        assert {name: getattr(region, name) for name in words} == words
        letter = {"input": "W", "recurrent": "R", "projection": "P"}[side]
        assert region.symbol == ("b" if region.kind == "bias" else "") + letter
        assert layout.region(**words) is region
        assert layout.region(*region.key) is region
        assert layout.region(region.pseudo_layer, lin_layer_id=region.lin_layer_id, **words) is region


@examples(1000)
@given(LAID_OUT)
def test_canonical_arrays_go_through_any_layout_bit_for_bit(laid_out):
    """Every element is in the buffer once, and padding is 0; without padding the buffer is the arrays in a row."""
    spec, layout = laid_out
    op = ops.from_spec(spec)
    with use_engine(LayoutEngine(layout)):
        size = op.params_size()
        weights, biases = op.params_to_canonical(np.arange(1.0, size + 1))
        out = np.full(size, -1.0)
        assert op.canonical_to_params(weights, biases, out=out) is out
        again = op.params_to_canonical(out)
    arrays = [*weights, *biases]
    for before, after in zip(arrays, [*again[0], *again[1]], strict=True):
        assert np.array_equal(before, after)
    values = np.concatenate([a.reshape(-1) for a in arrays])
    assert len(set(values)) == len(values) == arithmetic_layout(spec).size
    assert sorted(out[out != 0]) == sorted(values)
    assert np.array_equal(op.canonical_to_params(weights, biases), values)


@examples(500)
@given(LAID_OUT)
def test_differences_are_the_size_and_the_regions_that_are_elsewhere_seen_from_both_sides(laid_out):
    layout, other = arithmetic_layout(laid_out[0]), laid_out[1]
    elsewhere = {r.key: (r, o) for r, o in zip(layout.regions, other.regions, strict=True) if r.offset != o.offset}
    sizes = {} if layout.size == other.size else {"size": (layout.size, other.size)}
    assert differences(layout, other) == sizes | elsewhere
    assert differences(other, layout) == {key: pair[::-1] for key, pair in (sizes | elsewhere).items()}
    assert (differences(layout, other) == {}) is (layout == other)
    assert differences(other, other) == {}


@examples(100)
@given(LAID_OUT)
def test_a_layout_prints_a_row_for_each_region(laid_out):
    _, layout = laid_out
    shown = layout.regions
    title, head, *lines = str(layout).splitlines()
    assert title == f"ParamLayout: {layout.size:,} elements, {len(shown):,} regions"
    if len(shown) > 40:
        assert lines.pop(20) == f"... {len(shown) - 40:,} more regions ..."
        shown = shown[:20] + shown[-20:]
    assert [line.split() for line in lines] == [" ".join(region.cells).split() for region in shown]
    assert len({len(line) for line in (head, *lines)}) == 1
    assert [region.cells[-2:] for region in shown] == [[f"{n:,}" for n in (r.offset, r.slice.stop)] for r in shown]
