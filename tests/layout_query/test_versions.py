"""The layout that each libcudnn reports is the one by arithmetic, asked of the real library without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from pycudnnrnn import testing
from pycudnnrnn.errors import ArgumentError, EngineError, version_text
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.spec import Algorithm, DType
from pycudnnrnn.testing.queried import query
from pycudnnrnn.testing.strategies import specs
from tests.helpers.libraries import BUFFERS, VERSIONS, library_of

ROOT = Path(__file__).parents[2]
ALGORITHMS = [algo for algo in Algorithm if algo is not Algorithm.AUTO]


@pytest.fixture(params=VERSIONS)
def library(request, lib):
    return library_of(request.param)


def test_the_reported_layout_is_the_arithmetic_one_on_300_drawn_specs(library):
    """All cells, dtypes, bias modes and algorithms, up to 4 layers and 300 units; of 8.9.7 both queries are asked."""
    same, refused = {}, []

    @settings(max_examples=700, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(specs(algorithms=ALGORITHMS, dtypes=[*DType], max_layers=4, max_units=300))
    def compare(spec):
        try:
            same[spec] = testing.queried_layout(spec, library) == arithmetic_layout(spec)
        except EngineError as error:
            refused.append((spec.dtype, str(error).partition(";")[0]))

    compare()
    assert {*refused} <= {("bfloat16", "bfloat16 needs cuDNN 9.13.0 or newer")}
    assert len(same) >= 300
    assert not [spec for spec, equal in same.items() if not equal]
    assert {spec.mode for spec in same} == {"lstm", "gru", "rnn_tanh", "rnn_relu"}
    assert {spec.algo for spec in same} == {*ALGORITHMS}


UNCHECKED = """
import json, sys
from pycudnnrnn import RNNSpec, libcudnn
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.engines.cudnn.layout_query import NoHandle, query_without_gpu, weight_space_nbytes
from pycudnnrnn.errors import CudnnError
from pycudnnrnn.layout import arithmetic_layout

library = libcudnn.load(sys.argv[1])
for spec in map(RNNSpec.from_json, json.load(sys.stdin)):
    try:
        print("equal" if query_without_gpu(library, spec) == arithmetic_layout(spec) else "different")
    except CudnnError as error:
        with RNNDescriptor(library, spec, algo=spec.untuned_algo) as rnn:
            overflowed = weight_space_nbytes(NoHandle(library), rnn) > 2**62
        print(error.function if overflowed else "a right size")
"""


def test_the_limit_of_all_weights_and_of_all_biases_is_cudnns_own(library):
    """Up to 2**31 - 1 elements it reports a layout, one above none and a wrong size; asked in a child, unchecked."""
    asked = json.dumps([spec.to_json() for pair in BUFFERS for spec in pair])
    command = [sys.executable, "-c", UNCHECKED, str(library)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["cudnnGetRNNWeightParams", "equal"] * len(BUFFERS)
    for above, most in BUFFERS:
        assert testing.queried_layout(most, library) == arithmetic_layout(most)
        with pytest.raises(ArgumentError, match="at most 2147483647 elements of all"):
            testing.queried_layout(above, library)


def test_the_page_lists_the_versions_that_are_asked(library):
    page = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    version = query(BUFFERS[0][1], library)[1]
    assert f"\n| {version_text(version)}" in page
