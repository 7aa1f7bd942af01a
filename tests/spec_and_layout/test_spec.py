"""RNNSpec: what it accepts, what it resolves, what it refuses, and its two written forms."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import DType
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples

BASE = {"mode": "lstm", "num_layers": 1, "num_units": 8, "input_size": 4}


@examples(2000)
@given(specs(dtypes=["float16", "float32", "float64", "bfloat16"]), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_a_spec_comes_back_from_its_repr_its_json_and_a_pickle(spec, dropout, seed):
    spec = spec.replace(dropout=dropout, seed=seed)
    again = [eval(repr(spec)), RNNSpec.from_json(spec.to_json()), pickle.loads(pickle.dumps(spec))]
    assert again == [spec] * 3
    assert {spec, *again} == {spec}


def test_the_repr_is_short_where_the_defaults_hold():
    assert repr(RNNSpec("lstm", 2, 8, 4, cell_clip=0.3)) == "RNNSpec('lstm', 2, 8, 4, cell_clip=(-0.3, 0.3))"


def test_a_spec_keeps_its_hash_but_in_a_pickle_for_a_process_with_other_hashes():
    spec = RNNSpec("lstm", 2, 5, 7, dropout=0.5)
    before = pickle.dumps(spec)
    assert hash(spec) != hash(spec.replace(seed=1))
    assert pickle.dumps(spec) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.num_units = 5


def test_none_is_resolved_by_dtype_and_again_with_a_new_one():
    usual = {"float64": ("fma", "float64"), "float32": ("fma", "float32"), "float16": ("tensor_op", "float32")}
    for dtype, expected in (usual | {"bfloat16": usual["float16"]}).items():
        spec = RNNSpec(**BASE, dtype=dtype)
        assert (spec.math_type, spec.compute_dtype) == expected
        assert RNNSpec(**BASE).replace(dtype=dtype) == spec
    half = RNNSpec(**BASE, dtype="float16", math_type="default", compute_dtype="float16")
    assert half.replace(num_units=9).math_type == "default"
    assert half.replace(dtype="float16") == RNNSpec(**BASE, dtype="float16")
    assert half.replace(dtype="float16", math_type="default", compute_dtype="float16") == half
    with pytest.raises(ArgumentError, match="num_units"):
        half.replace(num_units=0)


def test_dropout_and_its_seed_do_not_decide_the_params():
    plain = RNNSpec("lstm", 2, 8, 4, num_proj=3)
    assert plain.without_dropout is plain
    for changes in ({"seed": 5}, {"dropout": 0.5}, {"seed": 5, "dropout": 0.5}):
        assert plain.replace(**changes).without_dropout == plain


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("clip", "bounds"),
    [
        (2, (-2.0, 2.0)),
        ([0.5, 0.5], (0.5, 0.5)),
        (0.3, (-float(np.float32(0.3)), float(np.float32(0.3)))),
        ((-1e300, 0.25), (-math.inf, 0.25)),
        ((-1, math.inf), (-1, math.inf)),
    ],
)
def test_clip_bounds_are_float32_for_every_dtype(clip, bounds, dtype):
    """So that it does not matter whether cuDNN clips doubles with floats or with doubles."""
    spec = RNNSpec(**BASE, cell_clip=clip, dtype=dtype)
    assert spec.cell_clip == bounds
    assert RNNSpec.from_json(spec.to_json()) == eval(repr(spec)) == spec


@pytest.mark.parametrize(
    "dtype", ["float32", np.float32, np.dtype("float32"), torch.float32, DType.FLOAT32, torch.bfloat16], ids=str
)
def test_a_dtype_is_read_from_any_library(dtype):
    expected = "bfloat16" if dtype is torch.bfloat16 else "float32"
    assert RNNSpec(**BASE, dtype=dtype).dtype == expected
    assert RNNSpec(**BASE, dtype=DType(expected).numpy).dtype == expected


TAKEN = [
    # changed arguments, and what differs from them in the spec
    ({"dtype": "float16", "compute_dtype": "float16", "algo": "auto"}, {}),
    ({"dropout": 1, "seed": 2**64 - 1, "num_layers": 2**31 - 1}, {}),
    ({"input_mode": "auto_select"}, {"input_mode": "linear_input"}),
    ({"input_mode": "auto_select", "input_size": 8}, {"input_mode": "skip_input"}),
    ({"num_proj": 0, "mode": "gru"}, {"num_proj": None}),
    ({"num_units": np.int32(8), "seed": np.uint64(1)}, {}),
]
REFUSED = [
    # changed arguments, the argument that the error names, a part of its text
    ({"dtype": None}, "dtype", "expecting 'float16'"),
    ({"cell_clip": "1"}, "cell_clip", "a real number"),
    ({"mode": "LSTM"}, "mode", "'lstm', 'gru', 'rnn_tanh' or 'rnn_relu'"),
    ({"num_units": 2**31}, "num_units", "2147483647"),
    ({"input_mode": "auto"}, "input_mode", "'linear_input', 'skip_input' or 'auto_select'"),
    ({"input_mode": "skip_input"}, "input_mode", "input_size=4 and num_units=8"),
    ({"direction": "up"}, "direction", "'unidirectional' or 'bidirectional'"),
    ({"dtype": "int8"}, "dtype", "'float16', 'bfloat16', 'float32' or 'float64'"),
    ({"dropout": 1.5}, "dropout", "from 0 to 1"),
    ({"seed": 2**64}, "seed", str(2**64 - 1)),
    ({"num_proj": 8}, "num_proj", "less than num_units=8"),
    ({"mode": "gru", "num_proj": 4}, "num_proj", "only the LSTM projects"),
    ({"mode": "gru", "cell_clip": 1.0}, "cell_clip", "only the LSTM has a cell"),
    ({"cell_clip": 0}, "cell_clip", "one positive bound"),
    ({"cell_clip": (1, -1)}, "cell_clip", "low <= high"),
    ({"compute_dtype": "float64"}, "compute_dtype", "'float32' for dtype 'float32'"),
    ({"dtype": "float64", "algo": "persist_static"}, "algo", "dtype 'float64'"),
    ({"num_proj": 4, "algo": "persist_static"}, "algo", "with num_proj"),
    ({"bias_mode": "single_input", "algo": "persist_dynamic"}, "algo", "with bias_mode 'single_input'"),
    ({"dtype": "float16", "compute_dtype": "float16", "algo": "persist_static"}, "algo", "compute_dtype 'float16'"),
]


@pytest.mark.parametrize(("changes", "resolved"), TAKEN, ids=str)
def test_what_cudnn_accepts_at_its_limits_is_taken(changes, resolved):
    spec = RNNSpec(**(BASE | changes))
    assert {name: getattr(spec, name) for name in changes} == changes | resolved


@pytest.mark.parametrize(("changes", "argument", "text"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_no_rnn_can_be_is_refused_by_name(changes, argument, text):
    with pytest.raises(ArgumentError) as caught:
        RNNSpec(**(BASE | changes))
    assert caught.value.argument == argument
    assert text in str(caught.value)


WRITTEN = json.loads(RNNSpec(**BASE).to_json())
BAD_JSON = {
    "not json": "{",
    "not an object": "[]",
    "too deep": "[" * 100_000,
    "missing field": json.dumps({k: v for k, v in WRITTEN.items() if k != "seed"}),
    "unknown field": json.dumps(WRITTEN | {"hidden": 1}),
    "another schema": json.dumps(WRITTEN | {"schema": 2}),
    "a math type that is to be chosen": json.dumps(WRITTEN | {"math_type": None}),
    "half a clip": json.dumps(WRITTEN | {"cell_clip": [1]}),
    "an impossible pair": json.dumps(WRITTEN | {"mode": "gru", "num_proj": 2}),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_json_of_no_spec_is_refused(case):
    with pytest.raises(ArgumentError):
        RNNSpec.from_json(BAD_JSON[case])
