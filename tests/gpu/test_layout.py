"""The layout that cuDNN reports equals the one by arithmetic, or the difference is recorded."""

import collections

from hypothesis import HealthCheck, given, seed, settings

from pycudnnrnn.errors import EngineError, LayoutError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.spec import Algorithm
from pycudnnrnn.testing.strategies import specs
from tests.gpu.numbers import DTYPES

ALGORITHMS = [algo for algo in Algorithm if algo is not Algorithm.AUTO]


def order_of(layout):
    regions = sorted(layout.regions, key=lambda region: region.offset)
    return [f"{region.pseudo_layer}.{region.lin_layer_id}.{region.kind}" for region in regions]


def test_the_queried_layout_equals_arithmetic_on_drawn_specs(cuda, answer):
    """Of the first that differs of each kind, its regions in their order, or cuDNN's error, are recorded."""
    counts, different, examples = collections.Counter(), {}, 30 if cuda.on_shim else 300

    @seed(1)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(specs(algorithms=ALGORITHMS, dtypes=DTYPES, max_units=160, max_layers=3))
    def compare(spec):
        key = f"{spec.algo} {spec.dtype} bias={spec.bias_mode} {spec.input_mode} proj={bool(spec.num_proj)}"
        try:
            asked = cuda.engine.layout(spec)
            kind, seen = ("equal", "") if asked == arithmetic_layout(spec) else ("different", order_of(asked))
        except (EngineError, LayoutError) as error:
            kind, seen = type(error).__name__, str(error)
        counts[f"{key}: {kind}"] += 1
        if kind != "equal":
            different.setdefault(key, {"spec": repr(spec), "found": seen})

    compare()
    answer("layout", {"compared": sum(counts.values()), "counts": dict(counts), "first_differences": different})
    assert sum(counts.values()) >= 2 * examples // 3
    assert not [key for key in different if key.startswith("standard")], different
