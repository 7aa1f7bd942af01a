"""The layout that cuDNN reports equals the one by arithmetic, or the difference is recorded."""

import collections
import dataclasses

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from pycudnnrnn.errors import CudnnError, LayoutError, VersionError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.spec import Algorithm, BiasMode, DType
from pycudnnrnn.testing.strategies import specs

DTYPES = ["float16", "bfloat16", "float32", "float64"]


@st.composite
def any_algorithm(draw):
    """A spec whose algorithm is one that the spec's other fields allow."""
    spec = draw(specs(dtypes=DTYPES, max_units=160, max_layers=3))
    plain = spec.num_proj is None and spec.bias_mode is BiasMode.DOUBLE
    double = spec.dtype is DType.FLOAT64
    legal = [Algorithm.STANDARD]
    if plain:
        legal += [Algorithm.PERSIST_DYNAMIC]
        legal += [] if double else [Algorithm.PERSIST_STATIC, Algorithm.PERSIST_STATIC_SMALL_H]
    return dataclasses.replace(spec, algo=draw(st.sampled_from(legal)))


def test_the_queried_layout_equals_arithmetic_on_drawn_specs(cuda, answer):
    counts, different = collections.Counter(), {}

    @seed(1)
    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(any_algorithm())
    def compare(spec):
        key = f"{spec.algo} {spec.dtype} bias={spec.bias_mode} {spec.input_mode} proj={bool(spec.num_proj)}"
        try:
            equal = cuda.engine.layout(spec) == arithmetic_layout(spec)
        except (CudnnError, VersionError, LayoutError) as error:
            counts[f"{key}: {type(error).__name__}"] += 1
            different.setdefault(key, f"{spec!r}: {error}")
            return
        counts[f"{key}: {'equal' if equal else 'different'}"] += 1
        if not equal:
            different.setdefault(key, repr(spec))

    compare()
    answer("layout", {"compared": sum(counts.values()), "counts": dict(counts), "first_differences": different})
    assert sum(counts.values()) >= 200
    assert not [key for key in different if key.startswith("standard")], different
