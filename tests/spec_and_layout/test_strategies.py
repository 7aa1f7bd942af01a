"""What the published strategies draw: valid, all that is possible, and small once shrunk."""

import doctest

import pytest
from hypothesis import Phase, find, given, settings

from pycudnnrnn import RNNSpec
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode
from pycudnnrnn.testing import permuted, strategies
from pycudnnrnn.testing import problems as problems_module
from pycudnnrnn.testing.strategies import specs

STEADY = settings(derandomize=True, database=None, max_examples=200, phases=(Phase.generate, Phase.shrink))
FIELDS = ("algo", "mode", "dtype", "bias_mode", "input_mode", "direction")


def drawn(strategy):
    """Return what each field of a steady sample of specs had, and whether some projected and some clipped."""
    found = []

    @STEADY
    @given(strategy)
    def draw(spec):
        found.append(spec)

    draw()
    seen = {field: {str(getattr(spec, field)) for spec in found} for field in FIELDS}
    extremes = {field: {getattr(spec, field) is not None for spec in found} for field in ("num_proj", "cell_clip")}
    return seen | extremes | {"equal sizes": {spec.input_size == spec.num_units for spec in found}}


@pytest.mark.parametrize("algo", list(Algorithm))
def test_every_algorithms_specs_are_valid_and_reach_all_that_it_can_have(algo):
    free = algo in {"standard", "auto"}
    double = free or algo == "persist_dynamic"
    assert drawn(specs(algorithms=[algo], dtypes=list(DType))) == {
        "algo": {algo},
        "mode": {*map(str, RNNMode)},
        "dtype": {*map(str, DType)} - (set() if double else {"float64"}),
        "bias_mode": {*map(str, BiasMode)} if free else {"double"},
        "input_mode": {*map(str, InputMode)},
        "direction": {*map(str, Direction)},
        "num_proj": {False, True} if free else {False},
        "cell_clip": {False, True},
        "equal sizes": {False, True},
    }


def test_the_dtype_that_is_not_asked_for_is_the_algorithms_widest():
    assert drawn(specs())["dtype"] == {"float64"}
    assert drawn(specs(algorithms=["persist_static"]))["dtype"] == {"float32"}
    assert drawn(specs(algorithms=["persist_static"], dtypes=["float64", "float16"]))["dtype"] == {"float16"}


def test_what_is_turned_off_is_not_drawn():
    found = drawn(specs(clip=False, projection=False))
    assert (found["num_proj"], found["cell_clip"]) == ({False}, {False})
    assert drawn(specs(max_units=1))["num_proj"] == {False}


def test_specs_shrink_to_the_smallest_that_will_do():
    smallest = RNNSpec("lstm", 1, 1, 1, dtype="float64", bias_mode="none")
    wanted = {
        smallest: lambda spec: spec,
        smallest.replace(mode="gru"): lambda spec: spec.mode == "gru",
        smallest.replace(num_units=2, num_proj=1): lambda spec: spec.num_proj,
        RNNSpec("lstm", 1, 1, 1, dtype="float64", algo="persist_dynamic"): lambda spec: spec.algo == "persist_dynamic",
    }
    for expected, condition in wanted.items():
        assert find(specs(algorithms=list(Algorithm)), condition, settings=STEADY) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"algorithms": ["persist_static"], "dtypes": ["float64"]}, "Invalid algorithms: .*'persist_static'"),
        ({"algorithms": ["persist"]}, "Invalid algo: 'persist', expecting 'standard'"),
        ({"modes": ["gru", "lstmp"]}, "Invalid mode: 'lstmp'"),
        ({"bias_modes": ["double", "triple"]}, "Invalid bias_mode: 'triple'"),
    ],
)
def test_words_that_no_spec_can_have_are_named(words, message):
    with pytest.raises(ArgumentError, match=message):
        drawn(specs(**words))


@pytest.mark.parametrize("module", [permuted, problems_module, strategies])
def test_the_examples_of_the_reference_run(module):
    """`testing.strategies` is not imported with `testing`, since it needs hypothesis."""
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 3) == (0, True)
