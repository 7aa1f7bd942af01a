"""RNNSpec: what it accepts, what it resolves, what it refuses, and its two written forms."""

import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, PycudnnrnnError
from pycudnnrnn.spec import (
    INT32_MAX,
    SEED_MAX,
    DType,
)
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples

every_kind_of_spec = specs(dtypes=["float16", "float32", "float64", "bfloat16"])


@examples(2000)
@given(every_kind_of_spec)
def test_the_repr_builds_an_equal_spec(spec):
    assert eval(repr(spec), {"RNNSpec": RNNSpec}) == spec


@examples(2000)
@given(every_kind_of_spec)
def test_json_gives_the_spec_back(spec):
    text = spec.to_json()
    json.loads(text)
    assert RNNSpec.from_json(text) == spec


def test_the_repr_is_short_where_the_defaults_hold():
    assert repr(RNNSpec("lstm", 2, 8, 4)) == "RNNSpec('lstm', 2, 8, 4)"
    full = RNNSpec("lstm", 2, 8, 4, dtype="float16", math_type="fma", compute_dtype="float16", dropout=0.5, seed=3)
    assert eval(repr(full)) == full


@pytest.mark.parametrize("clip", [(-math.inf, 1), (-1, math.inf)])
def test_an_infinite_clip_bound_survives_repr_and_json(clip):
    spec = RNNSpec("lstm", 1, 2, 3, cell_clip=clip)
    assert eval(repr(spec)) == spec
    assert RNNSpec.from_json(spec.to_json()) == spec


def test_a_pickled_spec_is_found_among_equal_ones_in_a_process_with_other_hashes():
    """The hash is kept with the spec, and strings hash differently in each process."""
    spec = RNNSpec("lstm", 2, 5, 7, dropout=0.5)
    assert hash(spec) == hash(RNNSpec("lstm", 2, 5, 7, dropout=0.5))
    assert hash(spec) != hash(spec.replace(seed=1))
    program = (
        "import pickle, sys; from pycudnnrnn import RNNSpec; "
        f"spec = pickle.loads(bytes.fromhex('{pickle.dumps(spec).hex()}')); "
        "sys.exit(spec not in {RNNSpec('lstm', 2, 5, 7, dropout=0.5)})"
    )
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, check=True)


def test_a_spec_is_frozen_hashable_and_pickles():
    spec = RNNSpec("gru", 1, 2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.num_units = 5
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert len({spec, RNNSpec("gru", 1, 2, 3)}) == 1


@pytest.mark.parametrize(("inputs", "mode"), [(8, "skip_input"), (4, "linear_input")])
def test_auto_select_is_skip_where_the_sizes_are_equal_and_linear_otherwise(inputs, mode):
    assert RNNSpec("lstm", 1, 8, inputs, "auto_select").input_mode == mode


@pytest.mark.parametrize(
    ("dtype", "math_type", "compute"),
    [
        ("float64", "fma", "float64"),
        ("float32", "fma", "float32"),
        ("float16", "tensor_op", "float32"),
        ("bfloat16", "tensor_op", "float32"),
    ],
)
def test_what_is_left_open_is_resolved_by_dtype(dtype, math_type, compute):
    spec = RNNSpec("lstm", 1, 8, 4, dtype=dtype)
    assert (spec.math_type, spec.compute_dtype) == (math_type, compute)
    assert RNNSpec("lstm", 1, 8, 4).replace(dtype=dtype) == spec


def test_replace_validates_anew():
    with pytest.raises(ArgumentError, match="num_units"):
        RNNSpec("lstm", 1, 8, 4).replace(num_units=0)


def test_replace_resolves_what_a_dtype_decides_unless_it_is_given():
    kept = RNNSpec("lstm", 1, 8, 4, dtype="float16", math_type="default", compute_dtype="float16")
    assert kept.replace(num_units=9).math_type == "default"
    assert kept.replace(dtype="float16") == RNNSpec("lstm", 1, 8, 4, dtype="float16")
    assert kept.replace(dtype="float16", math_type="default", compute_dtype="float16") == kept


def test_dropout_and_its_seed_do_not_decide_the_params():
    plain = RNNSpec("lstm", 2, 8, 4, num_proj=3)
    assert plain.without_dropout is plain
    for changes in ({"seed": 5}, {"dropout": 0.5}, {"seed": 5, "dropout": 0.5}):
        assert plain.replace(**changes).without_dropout == plain


def test_a_clip_given_as_one_bound_is_symmetric_and_two_may_be_equal():
    assert RNNSpec("lstm", 1, 8, 4, cell_clip=2).cell_clip == (-2.0, 2.0)
    assert RNNSpec("lstm", 1, 8, 4, cell_clip=[0.5, 0.5]).cell_clip == (0.5, 0.5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_clip_bounds_are_floats_whatever_the_dtype(dtype):
    """So that it is no matter whether cuDNN clips doubles with floats or with doubles."""
    spec = RNNSpec("lstm", 1, 8, 4, cell_clip=0.3, dtype=dtype)
    assert spec.cell_clip == (-float(np.float32(0.3)), float(np.float32(0.3))) != (-0.3, 0.3)
    assert spec == RNNSpec("lstm", 1, 8, 4, cell_clip=spec.cell_clip, dtype=dtype)
    assert "cell_clip=(-0.3, 0.3)" in repr(spec)
    assert RNNSpec.from_json(spec.to_json()) == spec
    assert RNNSpec("lstm", 1, 8, 4, cell_clip=(-1e300, 0.25), dtype=dtype).cell_clip == (-math.inf, 0.25)
    with pytest.raises(ArgumentError, match="cell_clip: 1e-60, expecting one positive bound"):
        RNNSpec("lstm", 1, 8, 4, cell_clip=1e-60, dtype=dtype)


def test_num_proj_zero_is_tensorflows_no_projection():
    assert RNNSpec("lstm", 1, 8, 4, num_proj=0).num_proj is None
    assert RNNSpec("gru", 1, 8, 4, num_proj=0).num_proj is None


@pytest.mark.parametrize(
    "dtype",
    ["float32", np.float32, np.dtype("float32"), torch.float32, DType.FLOAT32],
    ids=str,
)
def test_a_dtype_is_read_from_any_library(dtype):
    assert RNNSpec("lstm", 1, 8, 4, dtype=dtype).dtype is DType.FLOAT32


def test_bfloat16_is_read_from_torch_and_ml_dtypes():
    assert RNNSpec("lstm", 1, 8, 4, dtype=torch.bfloat16).dtype is DType.BFLOAT16
    assert RNNSpec("lstm", 1, 8, 4, dtype=DType.BFLOAT16.numpy).dtype is DType.BFLOAT16


BASE = {"mode": "lstm", "num_layers": 1, "num_units": 8, "input_size": 4}

REFUSED = [
    # changed arguments, the argument that the error names, a part of its text
    ({"mode": "LSTM"}, "mode", "'lstm', 'gru', 'rnn_tanh' or 'rnn_relu'"),
    ({"num_layers": 0}, "num_layers", "0"),
    ({"num_units": -1}, "num_units", "-1"),
    ({"input_size": 0}, "input_size", "0"),
    ({"num_units": INT32_MAX + 1}, "num_units", str(INT32_MAX)),
    ({"num_units": 2**32 + 16}, "num_units", "4294967312"),
    ({"input_mode": "auto"}, "input_mode", "'linear_input', 'skip_input' or 'auto_select'"),
    ({"input_mode": "skip_input"}, "input_mode", "input_size=4 and num_units=8"),
    ({"direction": "up"}, "direction", "'unidirectional' or 'bidirectional'"),
    ({"dtype": "int8"}, "dtype", "'float16', 'bfloat16', 'float32' or 'float64'"),
    ({"dropout": 1.5}, "dropout", "from 0 to 1"),
    ({"dropout": -0.1}, "dropout", "-0.1"),
    ({"dropout": math.nan}, "dropout", "nan"),
    ({"seed": -1}, "seed", "-1"),
    ({"seed": SEED_MAX + 1}, "seed", str(SEED_MAX)),
    ({"num_proj": 8}, "num_proj", "less than num_units=8"),
    ({"num_proj": 9}, "num_proj", "9"),
    ({"num_proj": -1}, "num_proj", "-1"),
    ({"mode": "gru", "num_proj": 4}, "num_proj", "only the LSTM projects"),
    ({"mode": "gru", "cell_clip": 1.0}, "cell_clip", "only the LSTM has a cell"),
    ({"cell_clip": 0}, "cell_clip", "one positive bound"),
    ({"cell_clip": (1, -1)}, "cell_clip", "low <= high"),
    ({"cell_clip": (1, 2, 3)}, "cell_clip", "(1, 2, 3)"),
    ({"cell_clip": (math.nan, 1)}, "cell_clip", "nan"),
    ({"bias_mode": "both"}, "bias_mode", "'both'"),
    ({"algo": "fast"}, "algo", "'fast'"),
    ({"math_type": "tf32"}, "math_type", "'tf32'"),
    ({"compute_dtype": "float64"}, "compute_dtype", "'float32' for dtype 'float32'"),
    ({"dtype": "bfloat16", "compute_dtype": "bfloat16"}, "compute_dtype", "'bfloat16'"),
    ({"dtype": "float64", "algo": "persist_static"}, "algo", "dtype 'float64'"),
    ({"dtype": "float64", "algo": "persist_static_small_h"}, "algo", "dtype 'float64'"),
    ({"num_proj": 4, "algo": "persist_static"}, "algo", "with num_proj"),
    ({"bias_mode": "none", "algo": "persist_dynamic"}, "algo", "with bias_mode 'none'"),
    ({"dtype": "float16", "compute_dtype": "float16", "algo": "persist_static"}, "algo", "compute_dtype 'float16'"),
]


TAKEN = [
    {"dtype": "float64", "algo": "persist_dynamic"},
    {"dtype": "float64", "algo": "auto"},
    {"dtype": "float16", "algo": "persist_static_small_h"},
    {"num_proj": 4, "algo": "auto"},
    {"bias_mode": "none", "algo": "auto"},
    {"dtype": "float16", "compute_dtype": "float16", "algo": "auto"},
    {"dropout": 1},
    {"seed": SEED_MAX, "num_layers": INT32_MAX},
    {"num_proj": 7},
]


@pytest.mark.parametrize("changes", TAKEN, ids=str)
def test_what_cudnn_accepts_at_its_limits_is_taken_as_it_is(changes):
    spec = RNNSpec(**(BASE | changes))
    assert {name: getattr(spec, name) for name in changes} == changes


@pytest.mark.parametrize(("changes", "argument", "text"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_no_rnn_can_be_is_refused_by_name(changes, argument, text):
    with pytest.raises(ArgumentError) as caught:
        RNNSpec(**(BASE | changes))
    assert caught.value.argument == argument
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PycudnnrnnError)


@pytest.mark.parametrize("name", ["num_layers", "num_units", "input_size", "seed", "num_proj"])
@pytest.mark.parametrize("value", [True, 3.0, "3", None, np.float32(3), np.True_])
def test_only_integers_are_integers(name, value):
    if name == "num_proj" and value is None:
        return
    with pytest.raises(ArgumentTypeError) as caught:
        RNNSpec(**(BASE | {name: value}))
    assert caught.value.argument == name
    assert isinstance(caught.value, TypeError)


def test_numpy_integers_are_integers():
    assert RNNSpec("lstm", np.int8(1), np.uint64(8), np.int32(4)) == RNNSpec(**BASE)


@pytest.mark.parametrize("value", [None, 1.5, True, object()])
def test_what_is_no_dtype_is_refused(value):
    with pytest.raises(ArgumentError, match="dtype"):
        RNNSpec(**(BASE | {"dtype": value}))


@pytest.mark.parametrize(
    ("name", "value"), [("dropout", True), ("dropout", "0.5"), ("dropout", b"0.5"), ("cell_clip", "1"), ("dropout", [])]
)
def test_what_is_no_number_is_refused(name, value):
    with pytest.raises(ArgumentTypeError, match=name):
        RNNSpec(**(BASE | {name: value}))


WRITTEN = json.loads(RNNSpec(**BASE).to_json())

BAD_JSON = {
    "not json": "{",
    "not an object": "[]",
    "too deep": "[" * 100_000,
    "missing field": json.dumps({k: v for k, v in WRITTEN.items() if k != "seed"}),
    "unknown field": json.dumps(WRITTEN | {"hidden": 1}),
    "repeated field": json.dumps(WRITTEN)[:-1] + ', "seed": 1}',
    "another schema": json.dumps(WRITTEN | {"schema": 2}),
    "a schema that is true": json.dumps(WRITTEN | {"schema": True}),
    "a schema that is no integer": json.dumps(WRITTEN | {"schema": 1.0}),
    "a math type left open": json.dumps(WRITTEN | {"math_type": None}),
    "a compute dtype left open": json.dumps(WRITTEN | {"compute_dtype": None}),
    "an input mode left open": json.dumps(WRITTEN | {"input_mode": "auto_select"}),
    "TF's no projection": json.dumps(WRITTEN | {"num_proj": 0}),
    "NaN": json.dumps(WRITTEN | {"dropout": math.nan}),
    "a bad value": json.dumps(WRITTEN | {"num_units": "8"}),
    "a float for an integer": json.dumps(WRITTEN | {"num_units": 8.0}),
    "half a clip": json.dumps(WRITTEN | {"cell_clip": [1]}),
    "a clip that is not a list": json.dumps(WRITTEN | {"cell_clip": 1}),
    "an impossible pair": json.dumps(WRITTEN | {"mode": "gru", "num_proj": 2}),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_json_that_is_no_spec_is_refused(case):
    with pytest.raises(ArgumentError):
        RNNSpec.from_json(BAD_JSON[case])


@examples(2000)
@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_text_gets_another_error_out_of_from_json(text):
    with pytest.raises(ArgumentError):
        RNNSpec.from_json(text)


@examples(2000)
@given(
    st.sampled_from(sorted(WRITTEN)),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_a_changed_field_gives_a_valid_spec_or_our_error(name, value):
    try:
        spec = RNNSpec.from_json(json.dumps(WRITTEN | {name: value}))
    except ArgumentError:
        return
    assert RNNSpec.from_json(spec.to_json()) == spec
