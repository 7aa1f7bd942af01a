"""What the published strategies draw: valid, all that is possible, and small once shrunk."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from pycudnnrnn import ParamLayout, Region, RNNSpec, ops
from pycudnnrnn.errors import ArgumentError, LayoutError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode
from pycudnnrnn.testing import LayoutEngine, goldens, make_problem, use_engine
from pycudnnrnn.testing.strategies import layouts, problems, sequence_lengths, specs

STEADY = settings(derandomize=True, database=None, max_examples=200, phases=(Phase.generate, Phase.shrink))
FIELDS = ("algo", "mode", "dtype", "bias_mode", "input_mode", "direction", "math_type")
LSTM = RNNSpec("lstm", 1, 2, 2, dtype="float64", num_proj=1)
CALL = {"op": ops.from_spec(LSTM), "T": 3, "B": 2, "lengths": None, "seed": 0}


def sample(strategy):
    """Return 200 values of a strategy, the same in each run."""
    values = []

    @STEADY
    @given(strategy)
    def draw(value):
        values.append(value)

    draw()
    return values


def drawn(strategy):
    """Return what each field of a steady sample of specs had, and whether some projected and some clipped."""
    values = sample(strategy)
    seen = {field: {str(getattr(spec, field)) for spec in values} for field in FIELDS}
    extremes = {field: {getattr(spec, field) is not None for spec in values} for field in ("num_proj", "cell_clip")}
    sizes = {"layers": {spec.num_layers for spec in values}, "units": {spec.num_units for spec in values}}
    types = {"dtypes": {(spec.dtype, spec.compute_dtype) for spec in values}}
    return seen | extremes | sizes | types | {"equal sizes": {spec.input_size == spec.num_units for spec in values}}


@pytest.mark.parametrize("algo", list(Algorithm))
def test_every_algorithms_specs_are_valid_and_reach_all_that_it_can_have(algo):
    free = algo in {"standard", "auto"}
    double = free or algo == "persist_dynamic"
    seen = drawn(specs(algorithms=[algo], dtypes=list(DType)))
    assert {name: seen[name] for name in (*FIELDS[:6], "num_proj", "cell_clip", "equal sizes")} == {
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


@pytest.mark.parametrize(
    ("strategy", "arguments", "message"),
    [
        (specs, {"algorithms": ["persist_static"], "dtypes": ["float64"]}, "Invalid algo: 'persist_static'"),
        (specs, {"modes": ["gru", "lstmp"]}, "Invalid modes: 'lstmp', expecting 'lstm'"),
        (specs, {"modes": ["gru"], "projection": True}, "Invalid num_proj: 1, expecting None for mode 'gru'"),
        (specs, {"modes": ["gru", None]}, "Invalid modes: None, expecting 'lstm'"),
        (specs, {"modes": "lstm"}, "Invalid modes: 'lstm', expecting a list of words"),
        (specs, {"modes": []}, "Invalid modes: .*, expecting at least one word"),
        (specs, {"min_layers": 4}, "Invalid max_layers: 3, expecting an integer from 4"),
        (specs, {"projection": True, "max_units": 1}, "Invalid max_units: 1, expecting an integer from 2"),
        (specs, {"projection": "always"}, "Invalid projection: 'always'"),
        (sequence_lengths, {"T": 2, "B": 3, "least": 5}, "Invalid least: 5, expecting an integer from 0 to 2"),
        (problems, {"spec": "lstm"}, "Invalid spec: .*str.*, expecting an RNNSpec or a strategy for one"),
        (problems, {"max_time": 0}, "Invalid max_time: 0, expecting an integer from 1"),
        (layouts, {"spec": LSTM, "max_gap": -1}, "Invalid max_gap: -1, expecting an integer from 0"),
        (arithmetic_layout, {"spec": ops.from_spec(LSTM)}, "Invalid spec: .*CudnnLSTM.*, expecting an RNNSpec"),
        (make_problem, CALL | {"op": LSTM}, "Invalid op: .*RNNSpec.*, expecting an op"),
        (make_problem, CALL | {"lengths": [1, 4]}, r"Invalid lengths\[1\]: 4, expecting a length from 0 to T=3"),
        (LayoutEngine, {"layout": 3}, "Invalid layout: .*, expecting a ParamLayout"),
        (lambda engine: use_engine(engine).__enter__(), {"engine": LayoutEngine}, "Invalid engine: .*LayoutEngine"),
        (lambda mode: goldens.checksums("cpu", mode), {"mode": "lstmx"}, "Invalid mode: 'lstmx'"),
    ],
)
def test_a_bad_argument_is_named_at_the_call(strategy, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        strategy(**arguments)


def test_each_restriction_holds_and_leaves_all_the_rest():
    seen = drawn(specs(directions=["bidirectional"], projection=True, clip=True, min_units=4, min_layers=2))
    assert seen["direction"] == {"bidirectional"}
    assert (seen["mode"], seen["num_proj"], seen["cell_clip"]) == ({"lstm"}, {True}, {True})
    assert (seen["layers"], seen["units"]) == ({2, 3}, {4, 5})
    assert seen["bias_mode"] == {*map(str, BiasMode)}
    seen = drawn(specs(dtypes=["float16", "float32"], math_types=[None, "default"], compute_dtypes=[None, "float16"]))
    assert seen["math_type"] == {"tensor_op", "fma", "default"}
    assert {("float16", "float16"), ("float16", "float32"), ("float32", "float32")} == seen["dtypes"]
    seen = drawn(specs(clip=False, projection=False))
    assert (seen["num_proj"], seen["cell_clip"], seen["dtype"]) == ({False}, {False}, {"float64"})
    assert drawn(specs(algorithms=["persist_static"]))["dtype"] == {"float32"}
    assert drawn(specs(max_units=1))["num_proj"] == {False}
    assert max(drawn(specs(min_units=2**31 - 1, max_units=2**31 - 1))["units"]) == 2**31 - 1


DRAW = """
import sys
from hypothesis import find, strategies as st

loaded = {".".join(name.split(".")[:2]) for name in sys.modules}
assert not loaded & {"cupy", "torch", "jax", "pycudnnrnn.testing", "pycudnnrnn.ops", "pycudnnrnn.engines"}

from pycudnnrnn import RNNSpec

assert find(st.from_type(RNNSpec), lambda spec: spec.num_layers > 1).num_layers == 2
"""


def test_an_annotation_is_enough_to_draw_specs_and_importing_hypothesis_loads_little():
    """By the entry point that pip installs."""
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- layouts


def test_a_layout_engine_is_for_the_rnns_that_its_layout_belongs_to():
    spec = RNNSpec("gru", 1, 2, 2, direction="bidirectional")
    engine = LayoutEngine(arithmetic_layout(spec))
    assert engine.layout(spec.replace(dtype="float16", dropout=0.5, seed=3)) == arithmetic_layout(spec)
    same_shapes = RNNSpec("gru", 2, 2, 2)
    for other in (spec.replace(num_units=4), spec.replace(mode="lstm"), spec.replace(bias_mode="none"), same_shapes):
        with pytest.raises(LayoutError, match="other regions than those of RNNSpec"):
            engine.layout(other)


# --- what a failing example prints


NAMES = {"RNNSpec": RNNSpec, "ops": ops, "make_problem": make_problem, "ParamLayout": ParamLayout, "Region": Region}
# --- problems


def test_a_problem_of_drawn_elements_has_no_other_numbers_and_shrinks_to_zeros():
    values = [0.0, -0.0, 1e300, float("nan"), -99.0]
    op = ops.CudnnLSTM(2, 3, 2, num_proj=2, dtype="float32")
    problem = make_problem(op, 4, 3, [4, 2, 0], seed=2, values=values)
    arrays = [problem.params, problem.x, problem.hx, problem.cx, problem.dy, problem.dhy, problem.dcy]
    assert all(array.dtype == np.float32 for array in arrays)
    with np.errstate(over="ignore"):
        expected = {v.tobytes() for v in np.array(values).astype(np.float32)}
    assert {v.tobytes() for array in arrays for v in array.flat} == expected
    smallest = find(problems(LSTM, elements=st.floats(-1, 1)), lambda p: True, settings=STEADY)
    assert not any(array.any() for array in (smallest.params, smallest.x, smallest.dcy))
    assert eval(repr(problem), NAMES) == problem


def test_a_problem_moves_to_a_device_params_through_its_layout():
    problem = make_problem(ops.from_spec(LSTM), 3, 2, None, seed=1)
    with use_engine(LayoutEngine(ParamLayout(999, arithmetic_layout(LSTM).regions))):
        moved = dataclasses.replace(problem, params=problem.op.init_params(seed=1)).to("cpu")
        assert moved.params.size == 999
    assert problem.to("cpu") == problem
    assert repr(problem.to("cpu")) == f"{problem!r}.to('cpu')"
    assert repr(dataclasses.replace(problem, lengths=[1, 2]).to("cpu")).startswith("<Problem of")
    with pytest.raises(ArgumentError, match="device"):
        problem.to("tpu")
