"""What torch's own tests promise of its RNN modules when they are called, copied and moved, held by ours."""

import pickle

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

from pycudnnrnn.errors import ArgumentError  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from pycudnnrnn.testing import use_engine  # noqa: E402
from tests.helpers.layouts import ShuffledEngine  # noqa: E402
from tests.helpers.pairwise import pairwise  # noqa: E402
from tests.interop.pairs import (  # noqa: E402
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


def test_to_and_its_kin(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, dtype=torch.float32)
    for change in (lambda m: m.double(), lambda m: m.to(torch.float32), lambda m: m.cpu().double().share_memory()):
        change(theirs), change(mine)
        x = torch.randn(4, 2, 3, dtype=theirs.weight_ih_l0.dtype)
        assert mine.weight_hh_l1.dtype == x.dtype
        assert torch.allclose(mine(x)[0], theirs(x)[0], atol=1e-6)
    for dtype in (torch.float16, torch.bfloat16):
        y, _ = mine.to(dtype)(x.to(dtype))
        assert y.dtype == dtype
        assert torch.allclose(y.double(), theirs(x)[0], atol=0.1)
    with pytest.raises(ArgumentError, match="dtype"):
        mine.to(torch.float8_e5m2)(x.to(torch.float8_e5m2))


def test_meta_modules_tell_shapes_and_are_materialised_as_torchs(kind):
    theirs, mine = (build(library, kind, 3, 5, 2, device="meta", bidirectional=True) for library in (torch.nn, ours))
    x = torch.empty(4, 2, 3, device="meta")
    for context in (torch.enable_grad(), torch.no_grad()):
        with context:
            pairs = zip(tensors(mine(x)), tensors(theirs(x)), strict=True)
            assert all(a.shape == b.shape and a.device.type == "meta" for a, b in pairs)
    mine(x)[0].sum().backward()
    assert all(weight.grad.shape == weight.shape for weight in mine.parameters())
    for module in (theirs, mine):
        torch.manual_seed(2)
        module.to_empty(device="cpu").reset_parameters()
    assert worst(mine.state_dict(), theirs.state_dict())[0] == 0


def test_an_empty_batch_is_taken(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    x = torch.zeros(4, 0, 3, dtype=torch.float64, requires_grad=True)
    assert [t.shape for t in tensors(mine(x))] == [t.shape for t in tensors(theirs(x))]
    mine(x)[0].sum().backward()
    assert all((gradient == 0).all() for gradient in gradients(mine).values())


def test_a_default_device_elsewhere_changes_nothing():
    _, mine = make_pair("LSTM", 3, 5, 2, dropout=0.5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    for data, lengths in ((x, None), (x, [1, 0]), (pack_padded_sequence(x, [1, 4], enforce_sorted=False), None)):
        torch.manual_seed(1)
        expected = tensors(mine(data, lengths=lengths))
        torch.manual_seed(1)
        with torch.device("meta"):
            found = tensors(mine(data, lengths=lengths))
        assert all(map(torch.equal, found, expected))


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_integers_are_named_under_autocast_too(dtype):
    _, mine = make_pair("GRU", 3, 5, 2, dtype=dtype)
    x, h = torch.ones(4, 2, 3, dtype=dtype), torch.ones(2, 2, 5, dtype=torch.int64)
    with torch.autocast("cpu"):
        with pytest.raises(ArgumentError, match=r"Invalid input dtype: torch\.int64"):
            mine(x.long())
        with pytest.raises(ArgumentError, match=r"Invalid hx.*: .* of torch\.int64"):
            mine(x, h)
