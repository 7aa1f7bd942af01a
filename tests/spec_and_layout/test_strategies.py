"""What the published strategies draw: valid, all that is possible, and small once shrunk."""

import dataclasses
import doctest
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from pycudnnrnn import ParamLayout, Region, RNNSpec, ops
from pycudnnrnn.errors import ArgumentError, LayoutError
from pycudnnrnn.layout import arithmetic_layout, differences
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode
from pycudnnrnn.testing import (
    LayoutEngine,
    converters,
    goldens,
    layout_engine,
    make_problem,
    reference,
    strategies,
    use_engine,
)
from pycudnnrnn.testing import problems as problems_module
from pycudnnrnn.testing.strategies import layouts, problems, sequence_lengths, specs

ROOT = Path(__file__).parents[2]
STEADY = settings(derandomize=True, database=None, max_examples=200, phases=(Phase.generate, Phase.shrink))
FIELDS = ("algo", "mode", "dtype", "bias_mode", "input_mode", "direction", "math_type")
LSTM = RNNSpec("lstm", 1, 2, 2, dtype="float64", num_proj=1)
CALL = {"op": ops.from_spec(LSTM), "T": 3, "B": 2, "lengths": None, "seed": 0}


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
    sizes = {"layers": {spec.num_layers for spec in found}, "units": {spec.num_units for spec in found}}
    types = {"dtypes": {(spec.dtype, spec.compute_dtype) for spec in found}}
    return seen | extremes | sizes | types | {"equal sizes": {spec.input_size == spec.num_units for spec in found}}


@pytest.mark.parametrize("algo", list(Algorithm))
def test_every_algorithms_specs_are_valid_and_reach_all_that_it_can_have(algo):
    free = algo in {"standard", "auto"}
    double = free or algo == "persist_dynamic"
    found = drawn(specs(algorithms=[algo], dtypes=list(DType)))
    assert {name: found[name] for name in (*FIELDS[:6], "num_proj", "cell_clip", "equal sizes")} == {
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


def test_numpys_integers_and_the_largest_sizes_are_limits_like_others():
    assert find(sequence_lengths(np.int64(3), np.int32(2), least=np.int8(3)), bool) == [3, 3]
    assert find(problems(LSTM, max_time=np.int64(2), max_batch=np.int32(2)), lambda problem: True).x.shape == (1, 1, 2)
    assert max(drawn(specs(min_units=2**31 - 1, max_units=2**31 - 1))["units"]) == 2**31 - 1


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
        (
            {"algorithms": ["persist_static"], "dtypes": ["float64"]},
            "Invalid algo: 'persist_static'",
        ),
        ({"algorithms": ["persist"]}, "Invalid algorithms: 'persist', expecting 'standard'"),
        ({"modes": ["gru", "lstmp"]}, "Invalid modes: 'lstmp'"),
        ({"bias_modes": ["double", "triple"]}, "Invalid bias_modes: 'triple'"),
        ({"directions": ["left"]}, "Invalid directions: 'left'"),
        ({"math_types": ["fast"]}, "Invalid math_types: 'fast'"),
        ({"compute_dtypes": ["float8"]}, "Invalid compute_dtypes: 'float8'"),
        (
            {"compute_dtypes": ["float16"], "dtypes": ["float32"]},
            "Invalid compute_dtype: 'float16'",
        ),
        ({"modes": ["gru"], "projection": True}, "Invalid num_proj: 1, expecting None for mode 'gru'"),
        ({"modes": ["gru", ["lstm"]]}, r"Invalid modes: \['lstm'\], expecting 'lstm'"),
        ({"modes": ["gru", None]}, "Invalid modes: None, expecting 'lstm'"),
        ({"modes": "lstm"}, "Invalid modes: 'lstm', expecting a list of words"),
        ({"modes": []}, "Invalid modes: .*, expecting at least one word"),
        ({"dtypes": np.float32}, "Invalid dtypes: .*, expecting a list of words"),
        ({"max_layers": 0}, "Invalid max_layers: 0"),
        ({"min_layers": 4}, "Invalid max_layers: 3, expecting an integer from 4"),
        ({"min_units": 0}, "Invalid min_units: 0"),
        ({"min_units": 6}, "Invalid max_units: 5, expecting an integer from 6"),
        ({"projection": True, "max_units": 1}, "Invalid max_units: 1, expecting an integer from 2"),
        ({"projection": "always"}, "Invalid projection: 'always'"),
    ],
)
def test_what_no_spec_can_have_is_named_at_the_call(words, message):
    with pytest.raises(ArgumentError, match=message):
        specs(**words)


@pytest.mark.parametrize(
    ("strategy", "arguments", "message"),
    [
        (sequence_lengths, {"T": 2, "B": 3, "least": 5}, "Invalid least: 5, expecting an integer from 0 to 2"),
        (sequence_lengths, {"T": 2.5, "B": 3}, "Invalid T: 2.5, expecting an integer"),
        (problems, {"spec": "lstm"}, "Invalid spec: 'lstm', expecting an RNNSpec or a strategy for one"),
        (problems, {"max_time": 0}, "Invalid max_time: 0, expecting an integer from 1"),
        (problems, {"max_batch": 0}, "Invalid max_batch: 0, expecting an integer from 1"),
        (layouts, {"spec": None}, "Invalid spec: None, expecting an RNNSpec or a strategy for one"),
        (layouts, {"spec": LSTM, "max_gap": -1}, "Invalid max_gap: -1, expecting an integer from 0"),
        (arithmetic_layout, {"spec": ops.from_spec(LSTM)}, "Invalid spec: .*CudnnLSTM.*, expecting an RNNSpec"),
        (make_problem, CALL | {"op": LSTM}, "Invalid op: .*RNNSpec.*, expecting an op"),
        (make_problem, CALL | {"T": -1}, "Invalid T: -1, expecting an integer from 0"),
        (make_problem, CALL | {"B": 2.5}, "Invalid B: 2.5, expecting an integer"),
        (make_problem, CALL | {"lengths": [1, 4]}, r"Invalid lengths\[1\]: 4, expecting a length from 0 to T=3"),
        (make_problem, CALL | {"seed": None}, "Invalid seed: None, expecting an integer"),
        (LayoutEngine, {"layout": 3}, "Invalid layout: .*, expecting a ParamLayout"),
        (lambda engine: use_engine(engine).__enter__(), {"engine": LayoutEngine}, "Invalid engine: .*LayoutEngine"),
        (lambda engine: use_engine(engine).__enter__(), {"engine": None}, "Invalid engine: None, expecting an engine"),
        (lambda mode: goldens.checksums("cpu", mode), {"mode": "lstmx"}, "Invalid mode: 'lstmx'"),
    ],
)
def test_a_bad_argument_is_named_at_the_call(strategy, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        strategy(**arguments)


def test_each_restriction_holds_and_leaves_all_the_rest():
    found = drawn(specs(directions=["bidirectional"], projection=True, clip=True, min_units=4, min_layers=2))
    assert found["direction"] == {"bidirectional"}
    assert (found["mode"], found["num_proj"], found["cell_clip"]) == ({"lstm"}, {True}, {True})
    assert (found["layers"], found["units"]) == ({2, 3}, {4, 5})
    assert found["bias_mode"] == {*map(str, BiasMode)}
    found = drawn(specs(dtypes=["float16", "float32"], math_types=[None, "default"], compute_dtypes=[None, "float16"]))
    assert found["math_type"] == {"tensor_op", "fma", "default"}
    assert {("float16", "float16"), ("float16", "float32"), ("float32", "float32")} == found["dtypes"]


DRAW = """
import sys
from hypothesis import find, given, settings, strategies as st

loaded = {name for name in sys.modules if name.partition(".")[0] in {"pycudnnrnn", "cupy", "torch", "jax", "ctypes"}}
assert "pycudnnrnn.spec" in loaded and not any(name.startswith("pycudnnrnn.testing") for name in loaded), loaded
assert not loaded & {"cupy", "torch", "jax", "pycudnnrnn.ops", "pycudnnrnn.engines", "pycudnnrnn.libcudnn"}, loaded

from pycudnnrnn import RNNSpec

assert find(st.from_type(RNNSpec), lambda spec: spec.num_layers > 1).num_layers == 2

@settings(max_examples=20, database=None, derandomize=True)
@given(...)
def drawn(spec: RNNSpec):
    assert spec.dtype == "float64"

drawn()
"""


def test_an_annotation_is_enough_to_draw_specs_where_the_package_is_installed(tmp_path):
    """By the entry point of pyproject.toml, which a folder of metadata declares here as an installed wheel does."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    folder = tmp_path / "pycudnnrnn-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pycudnnrnn\nVersion: 0.1.0\n")
    lines = ["[hypothesis]", *(f"{name} = {place}" for name, place in entry_points["hypothesis"].items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-c", DRAW]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- layouts


def test_half_of_the_layouts_have_the_size_of_the_arithmetic_one_and_nearly_all_another_order():
    spec, seen = RNNSpec("gru", 1, 3, 2), []

    @STEADY
    @given(layouts(spec))
    def draw(layout):
        seen.append(layout)

    draw()
    same_size = [layout.size == arithmetic_layout(spec).size for layout in seen]
    assert 0.35 < sum(same_size) / len(seen) < 0.75
    moved = [layout for layout, same in zip(seen, same_size, strict=True) if same and layout != arithmetic_layout(spec)]
    assert len(moved) > len(seen) / 4
    assert max(layout.size for layout in seen) <= arithmetic_layout(spec).size + 3 * 13
    assert {layout.size for layout in seen if layout.size < arithmetic_layout(spec).size} == set()


@pytest.mark.parametrize("same_size", [True, False])
def test_layouts_shrink_to_two_regions_that_have_changed_places_or_to_one_gap(same_size):
    predicted = arithmetic_layout(LSTM)

    def differs(layout):
        return layout != predicted and (layout.size == predicted.size) is same_size

    smallest = find(layouts(LSTM), differs, settings=STEADY)
    if same_size:
        moved = [key for key in differences(predicted, smallest) if predicted.region(*key).size]
        assert len(moved) == 2
    else:
        assert smallest.size == predicted.size + 1


def test_code_that_compares_sizes_and_then_assumes_the_order_is_found():
    """The mutant that a padded layout cannot find: its size check refuses all of these."""

    def first_matrix(op, params):
        if params.size != arithmetic_layout(op.spec).size:
            return None  # "another size: ask cuDNN"
        return params[:6].reshape(3, 2)

    @settings(STEADY, report_multiple_bugs=False)
    @given(layouts(RNNSpec("gru", 1, 3, 2, dtype="float64")))
    def reads(layout):
        op = ops.CudnnGRU(1, 3, 2, dtype="float64")
        with use_engine(LayoutEngine(layout)):
            params = op.init_params(seed=1)
            expected = op.params_to_canonical(params)[0][0]
        found = first_matrix(op, params)
        assert found is None or np.array_equal(found, expected)

    with pytest.raises(AssertionError):
        reads()


def test_a_layout_engine_is_for_the_rnns_that_its_layout_belongs_to():
    spec = RNNSpec("gru", 1, 3, 2)
    engine = LayoutEngine(arithmetic_layout(spec))
    assert engine.layout(spec.replace(dtype="float16", dropout=0.5, seed=3)) == arithmetic_layout(spec)
    for other in (spec.replace(num_units=4), spec.replace(mode="lstm"), spec.replace(num_layers=2),
                  spec.replace(bias_mode="none"), RNNSpec("gru", 1, 2, 3)):  # fmt: skip
        with pytest.raises(LayoutError, match="other regions than those of RNNSpec"):
            engine.layout(other)
    with pytest.raises(LayoutError):  # the same shapes, of two layers in one direction or of one in two
        LayoutEngine(arithmetic_layout(RNNSpec("gru", 1, 2, 2, direction="bidirectional"))).layout(
            RNNSpec("gru", 2, 2, 2)
        )


# --- what a failing example prints


def printed(*strategies_, test):
    """Return the arguments of a failing test as Hypothesis prints them, one a line."""
    names = [f"argument{i}" for i in range(len(strategies_))]
    space = {"test": test}
    exec(f"def failing({', '.join(names)}): test({', '.join(names)})", space)
    with pytest.raises(AssertionError) as caught:
        settings(STEADY, print_blob=False)(given(**dict(zip(names, strategies_, strict=True)))(space["failing"]))()
    text = "\n".join(caught.value.__notes__)
    lines = [line.split("#")[0].strip().rstrip(",") for line in text.splitlines() if "argument" in line]
    return [line.partition("=")[2] for line in lines]


NAMES = {
    "RNNSpec": RNNSpec, "ops": ops, "make_problem": make_problem, "ParamLayout": ParamLayout,
    "Region": Region,
}  # fmt: skip


def test_a_failing_spec_and_problem_print_one_line_each_that_can_be_pasted():
    """And the problem that comes of it is equal: its arrays are the ones that failed."""
    seen = []

    def fails(spec, problem, hard):
        seen.append((spec, problem, hard))
        assert spec.num_units < 2 or spec.mode != "gru" or np.isfinite(hard.x).all() or problem.lengths is None

    bad = problems(elements=st.just(float("inf")) | st.floats(-1, 1))
    lines = printed(specs(), problems(LSTM), bad, test=fails)
    spec, problem, hard = (eval(line, NAMES) for line in lines)
    assert (spec, problem, hard) == seen[-1]
    assert lines[0] == "RNNSpec('gru', 1, 2, 1, dtype='float64', bias_mode='none')"
    assert lines[1].startswith("make_problem(ops.CudnnLSTM(1, 2, 2, dtype='float64', num_proj=1), T=1, B=1, lengths=[")
    assert "values=[float('inf')]" in lines[2]


def test_a_failing_layout_prints_what_can_be_pasted():
    seen = []

    def fails(layout):
        seen.append(layout)
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        settings(STEADY, print_blob=False)(given(layout=layouts(LSTM))(fails))()
    text = "\n".join(caught.value.__notes__).partition("layout=")[2].rpartition("),\n)")[0] + ")"
    assert eval(re.sub(r"#.*", "", text), NAMES) == seen[-1]
    assert max(len(line) for line in text.splitlines() if "Region" in line) < 160
    assert text.count("\n") < 2 * len(seen[-1].regions)


# --- problems


def test_problems_compare_by_value_and_hash_alike():
    op = ops.from_spec(LSTM)
    one, other = (make_problem(ops.from_spec(LSTM), 3, 2, [3, 1], seed=1) for _ in range(2))
    assert (one, hash(one)) == (other, hash(other))
    nan = dataclasses.replace(one, x=np.full_like(one.x, np.nan))
    assert nan == dataclasses.replace(nan, x=nan.x.copy())
    for field in ("params", "x", "hx", "cx", "dy", "dhy", "dcy"):
        changed = getattr(one, field).copy()
        changed.flat[-1] += 1
        assert one != dataclasses.replace(one, **{field: changed})
        assert one != dataclasses.replace(one, **{field: getattr(one, field)[:-1]})
        assert one != dataclasses.replace(one, **{field: getattr(one, field).astype("float32")})
    assert one != dataclasses.replace(one, x=one.x.view("int64"))
    assert one != dataclasses.replace(one, x=one.x.reshape(2, 3, -1))
    assert one != dataclasses.replace(one, lengths=None)
    assert one != dataclasses.replace(one, op=ops.from_spec(LSTM.replace(cell_clip=1.0)))
    assert one != "a problem"
    assert repr(dataclasses.replace(one, lengths=None)).startswith(f"<Problem of {op!r} with T=3")


def test_a_problem_of_drawn_elements_has_no_other_numbers_and_shrinks_to_zeros():
    values = [0.0, -0.0, 1e300, float("nan"), -99.0]
    op = ops.CudnnLSTM(2, 3, 2, num_proj=2, dtype="float32")
    problem = make_problem(op, 4, 3, None, seed=2, values=values)
    arrays = [problem.params, problem.x, problem.hx, problem.cx, problem.dy, problem.dhy, problem.dcy]
    assert all(array.dtype == np.float32 for array in arrays)
    with np.errstate(over="ignore"):
        expected = {v.tobytes() for v in np.array(values).astype(np.float32)}
    assert {v.tobytes() for array in arrays for v in array.flat} == expected
    smallest = find(problems(LSTM, elements=st.floats(-1, 1)), lambda p: True, settings=STEADY)
    assert not any(array.any() for array in (smallest.params, smallest.x, smallest.dcy))
    assert eval(repr(problem), NAMES) == problem


def test_lengths_of_any_integers_print_as_a_list_that_can_be_pasted():
    expected = make_problem(**CALL | {"lengths": [3, 1]})
    for lengths in ((3, 1), np.array([3, 1]), [np.int64(3), 1]):
        problem = make_problem(**CALL | {"lengths": lengths})
        assert (problem, repr(problem)) == (expected, repr(expected)) == (eval(repr(problem), NAMES), repr(expected))


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


def test_the_reference_takes_none_where_a_problem_has_none():
    op = ops.CudnnGRU(1, 3, 2, dtype="float64")
    problem = make_problem(op, 3, 2, None, seed=1)
    arrays = op.params_to_canonical(problem.params)
    zeros = np.zeros((1, 2, 3))
    expected = reference.forward(op.spec, *arrays, problem.x, zeros, zeros, [3, 3])
    assert all(map(np.array_equal, reference.forward(op.spec, *arrays, problem.x), expected))
    upstream = (problem.dy, zeros, zeros)
    expected = reference.gradients(op.spec, (*arrays, problem.x, zeros, zeros), [3, 3], upstream)
    given_none = reference.gradients(
        op.spec, (*arrays, problem.x, None, None), problem.lengths, (problem.dy, None, None)
    )
    for one, other in zip(given_none, expected, strict=True):
        assert all(map(np.array_equal, one, other)) if isinstance(one, list) else np.array_equal(one, other)


@pytest.mark.parametrize("module", [converters, layout_engine, problems_module, strategies])
def test_the_examples_of_the_reference_run(module):
    """`testing.strategies` is not imported with `testing`, since it needs hypothesis."""
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 2) == (0, True)
