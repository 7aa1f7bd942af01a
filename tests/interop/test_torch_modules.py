"""What torch's own tests promise of its RNN modules when they are called, copied and moved, held by ours."""

import pickle

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from pycudnnrnn.interop import torch as ours
from pycudnnrnn.testing import use_engine
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.pairwise import pairwise
from tests.interop.pairs import (
    KINDS,
    TORCHS_WARNINGS,
    build,
    gradients,
    make_call,
    make_pair,
    tensors,
    worst,
)

pytestmark = TORCHS_WARNINGS


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_moving_or_waking_up_in_another_layout_takes_weights_and_gradients_along(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    call = make_call(theirs, 4, 2, "packed unsorted")
    expected = call(theirs)
    call(mine)
    pickled = pickle.dumps(mine)
    with use_engine(ShuffledEngine(seed=3)):
        mine.double()
        assert worst(gradients(mine), gradients(theirs))[0] <= 1e-10
        for module in (mine, pickle.loads(pickled)):
            assert worst(call(module), expected)[0] <= 1e-10
            assert worst(module.state_dict(), theirs.state_dict())[0] == 0


def test_meta_modules_tell_shapes(kind):
    theirs, mine = (build(library, kind, 3, 5, 2, device="meta", bidirectional=True) for library in (torch.nn, ours))
    x = torch.empty(4, 2, 3, device="meta")
    for context in (torch.enable_grad(), torch.no_grad()):
        with context:
            pairs = zip(tensors(mine(x)), tensors(theirs(x)), strict=True)
            assert all(a.shape == b.shape and a.device.type == "meta" for a, b in pairs)
    mine(x)[0].sum().backward()
    assert all(weight.grad.shape == weight.shape for weight in mine.parameters())


def test_an_empty_batch_is_taken(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    x = torch.zeros(4, 0, 3, dtype=torch.float64, requires_grad=True)
    assert [t.shape for t in tensors(mine(x))] == [t.shape for t in tensors(theirs(x))]
    mine(x)[0].sum().backward()
    assert all((gradient == 0).all() for gradient in gradients(mine).values())


@pytest.mark.parametrize(("packed", "kind"), pairwise([False, True], KINDS)[:5])
def test_outputs_are_the_callers_to_change(kind, packed):
    """No backward on the CPU reads an output again."""
    x, found = torch.randn(4, 2, 3, dtype=torch.float64), []
    for module in make_pair(kind, 3, 5, 2, bidirectional=True):
        leaf = x.clone().requires_grad_()
        y, *_ = tensors(module(pack_padded_sequence(leaf, [4, 2]) if packed else leaf))
        (y.relu_() if module.mode != "RNN_RELU" else y.mul_(2)).square().sum().backward()
        found.append(leaf.grad)
    assert torch.allclose(*found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_runs_in_its_dtype_and_gives_gradients_in_the_weights(kind, dtype):
    theirs, mine = make_pair(kind, 3, 5, 2, dtype=torch.float32)
    x, states = torch.randn(4, 2, 3), (torch.zeros(2, 2, mine.proj_size or 5), torch.zeros(2, 2, 5))
    hx = states if mine.mode == "LSTM" else states[0]
    with torch.autocast("cpu", dtype):
        results, ragged = tensors(mine(x, hx)), tensors(mine(x, hx, lengths=[0, 4]))
        assert mine.double()(x.double())[0].dtype == torch.float64
    mine.float()
    assert {tensor.dtype for tensor in (*results, *ragged)} == {dtype}
    results[0].float().square().sum().backward()
    assert all(gradient.dtype == torch.float32 for gradient in gradients(mine).values())
    assert torch.allclose(results[0].float(), theirs(x)[0], atol=0.05)
    assert torch.allclose(ragged[0][:, 1], results[0][:, 1], atol=0.05)
    assert not any(tensor[:, 0].any() for tensor in ragged)
