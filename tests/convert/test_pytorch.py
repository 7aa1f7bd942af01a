"""PyTorch's state dicts, against torch itself in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import convert
from pycudnnrnn.cli.convert.runners import run_pytorch
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import (
    check_both_directions,
    equal_models,
    need,
    random_call,
    random_canonical,
    run_ours,
    worst,
)

need("torch")
import torch  # noqa: E402

seeds = st.integers(0, 2**31)


def reading(spec):
    return {"nonlinearity": "relu"} if spec.mode == "rnn_relu" else {}


@examples(300)
@given(specs(input_modes=["linear_input"], clip=False), seeds)
def test_any_model_computes_the_same_in_torch_and_comes_back(spec, seed):
    check_both_directions("pytorch", spec, seed, read=reading(spec), tolerance=1e-10)


@examples(50)
@given(specs(input_modes=["skip_input"], clip=False), seeds)
def test_skip_input_becomes_identity_matrices(spec, seed):
    c = random_canonical(spec, seed)
    call = random_call(spec, seed)
    assert worst(run_ours(c, *call), run_pytorch(convert.pytorch.from_canonical(c), spec, *call)) <= 1e-10


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("LSTM", {"proj_size": 2}),
        *((kind, extra) for kind in ("LSTM", "GRU", "RNN") for extra in ({}, {"bias": False}, {"bidirectional": True})),
    ],
)
def test_a_module_of_torchs_own_is_read_by_its_state_dict(kind, extra):
    module = getattr(torch.nn, kind)(3, 5, num_layers=2, dtype=torch.float64, **extra)
    c = convert.pytorch.to_canonical(module.state_dict())
    call = random_call(c.spec, 7)
    x, hx, cx, lengths = call
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), lengths, enforce_sorted=False)
    with torch.no_grad():
        y, states = module(packed, (torch.tensor(hx), torch.tensor(cx)) if kind == "LSTM" else torch.tensor(hx))
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
    hy, cy = states if kind == "LSTM" else (states, None)
    assert worst(run_ours(c, *call), (y.numpy(), hy.numpy(), None if cy is None else cy.numpy())) <= 1e-12
    assert (c.spec.input_size, c.spec.num_units, c.spec.num_layers) == (3, 5, 2)
    assert c.spec.bias_mode == ("none" if "bias" in extra else "double")
    assert c.spec.num_proj == extra.get("proj_size")
    module.load_state_dict({k: torch.from_numpy(v) for k, v in convert.pytorch.from_canonical(c).items()})
    equal_models(convert.pytorch.to_canonical(module.state_dict()), c)


@pytest.mark.parametrize("prefix", ["encoder.lstm.", "encoder.lstm"])
def test_a_prefix_picks_one_module_out_of_a_model(prefix):
    lstm = torch.nn.LSTM(3, 4)
    model = torch.nn.ModuleDict({"encoder": torch.nn.ModuleDict({"lstm": lstm}), "head": torch.nn.Linear(4, 2)})
    equal_models(
        convert.pytorch.to_canonical(model.state_dict(), prefix=prefix),
        convert.pytorch.to_canonical(lstm.state_dict()),
    )
    written = convert.pytorch.from_canonical(convert.pytorch.to_canonical(lstm.state_dict()), prefix="encoder.lstm.")
    assert list(written) == [key for key in model.state_dict() if key.startswith("encoder")]


def test_parameters_that_want_gradients_are_read_and_left_alone():
    module = torch.nn.LSTM(3, 4)
    parameters = dict(module.named_parameters())
    c = convert.pytorch.to_canonical(parameters)
    c.weights[0][:] = 7
    equal_models(convert.pytorch.to_canonical(module.state_dict()), convert.pytorch.to_canonical(parameters))
    assert not (module.weight_ih_l0 == 7).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype_goes_through_bit_for_bit(dtype):
    module = torch.nn.GRU(3, 4, dtype=getattr(torch, dtype))
    c = convert.pytorch.to_canonical(module.state_dict())
    assert c.spec.dtype == dtype
    for name, array in convert.pytorch.from_canonical(c).items():
        bits = torch.int64 if dtype == "float64" else torch.int32 if dtype == "float32" else torch.int16
        theirs = module.state_dict()[name].view(bits).numpy()
        assert np.array_equal(array.view(theirs.dtype), theirs), name


def test_numbers_in_the_other_byte_order_are_read_as_numbers():
    arrays = {name: t.numpy() for name, t in torch.nn.LSTM(3, 4).state_dict().items()}
    swapped = {name: a.astype(a.dtype.newbyteorder()) for name, a in arrays.items()}
    equal_models(convert.pytorch.to_canonical(swapped), convert.pytorch.to_canonical(arrays))
