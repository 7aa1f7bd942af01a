"""The layout that cuDNN reports equals the one by arithmetic, or the difference is recorded."""

import collections

from hypothesis import HealthCheck, given, seed, settings

from pycudnnrnn.errors import EngineError, LayoutError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.testing.strategies import specs
from tests.gpu.asked import ALGORITHMS, DTYPES, GRID


def test_the_order_of_the_regions_is_that_of_the_arithmetic(cuda, answer):
    """Per (algorithm, dtype, bias mode, skip, projection): equal, or the order in which cuDNN has its regions."""
    orders = {}
    for spec in GRID[:: 5 if cuda.on_shim else 1]:
        key = f"{spec.mode} {spec.algo} {spec.dtype} bias={spec.bias_mode} {spec.input_mode} proj={spec.num_proj}"
        try:
            found, expected = cuda.engine.layout(spec), arithmetic_layout(spec)
        except (EngineError, LayoutError) as error:
            orders[key] = f"refused: {error}"
            continue
        regions = sorted(found.regions, key=lambda region: region.offset)
        order = [f"{r.pseudo_layer}.{r.lin_layer_id}.{r.kind}" for r in regions]
        orders[key] = "equal" if found == expected else {"size": [found.size, expected.size], "order": order}
    different = {key: order for key, order in orders.items() if order != "equal"}
    answer("layout order", {"compared": len(orders), "equal": len(orders) - len(different), "not equal": different})
    assert not [key for key in different if " standard " in key and "bfloat16" not in key]


def test_the_queried_layout_equals_arithmetic_on_drawn_specs(cuda, answer):
    counts, different, examples = collections.Counter(), {}, 30 if cuda.on_shim else 300

    @seed(1)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(specs(algorithms=ALGORITHMS, dtypes=DTYPES, max_units=160, max_layers=3))
    def compare(spec):
        key = f"{spec.algo} {spec.dtype} bias={spec.bias_mode} {spec.input_mode} proj={bool(spec.num_proj)}"
        try:
            equal = cuda.engine.layout(spec) == arithmetic_layout(spec)
        except (EngineError, LayoutError) as error:
            counts[f"{key}: {type(error).__name__}"] += 1
            different.setdefault(key, f"{spec!r}: {error}")
            return
        counts[f"{key}: {'equal' if equal else 'different'}"] += 1
        if not equal:
            different.setdefault(key, repr(spec))

    compare()
    answer("layout", {"compared": sum(counts.values()), "counts": dict(counts), "first_differences": different})
    assert sum(counts.values()) >= 2 * examples // 3
    assert not [key for key in different if key.startswith("standard")], different
