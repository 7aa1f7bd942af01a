"""What torch's own tests promise of its RNN modules when they are called, copied and moved, held by ours."""

import copy
import inspect
import io
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.api import explained
from tests.helpers.examples import examples
from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

from pycudnnrnn.errors import ArgumentError  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine  # noqa: E402
from tests.interop.pairs import KINDS, build, gradients, make_call, make_pair, tensors, worst  # noqa: E402

# torch says so of itself, and once a process: in whichever test comes first.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.mark.parametrize("name", ours.__all__)
def test_help_explains_every_argument_and_lists_torchs_weights_with_their_shapes(name):
    module, doc = getattr(ours, name), inspect.getdoc(getattr(ours, name))
    found, lstm = explained(doc), explained(inspect.getdoc(ours.LSTM)) | {"nonlinearity": None}
    assert list(found) == list(inspect.signature(module).parameters)
    assert {n for n in found if found[n] != lstm[n]} <= {"proj_size", "nonlinearity"}
    P = 3 * (name == "LSTM")
    sizes = {"U": 5, "I": 4, "D": 2, "S": P or 5, "P": P}
    theirs = getattr(torch.nn, name)(4, 5, 2, bidirectional=True, **({"proj_size": P} if P else {})).state_dict()
    listed = {}
    for names, first, above in re.findall(
        r"^- (`.*`): .*?, \[(.+?)\](?: \(above layer 0 \[(.+?)\]\))?", doc, re.MULTILINE
    ):
        for weight in re.findall(r"`(\w+_l)\[k\]`", names):
            for k, shape in enumerate((first, above or first)):
                listed |= dict.fromkeys((f"{weight}{k}", f"{weight}{k}_reverse"), eval(f"({shape},)", sizes))
    assert listed == {n: tuple(weight.shape) for n, weight in theirs.items()}


def copies(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]


def test_a_copy_computes_the_same_and_is_its_own(kind):
    _, mine = make_pair(kind, 3, 5, 2, dropout=0.5)
    call = make_call(mine, 4, 2)
    for twin in copies(mine.eval()):
        assert repr(twin) == repr(mine)
        assert worst(call(twin), call(mine))[0] == 0
        with torch.no_grad():
            twin.params.zero_()
        assert (mine.params != 0).any()


def test_a_copy_finds_the_layout_of_where_it_wakes_up():
    theirs, _ = make_pair("GRU", 3, 5, 2, bidirectional=True)
    with use_engine(PermutedLayoutEngine(seed=3)):
        _, mine = make_pair("GRU", 3, 5, 2, bidirectional=True)
        twins = mine, pickle.dumps(mine)
    moved = pickle.loads(twins[1])
    call = make_call(theirs, 4, 2)
    assert worst(call(moved), call(theirs))[0] <= 1e-10
    assert not torch.equal(moved.params, mine.params)


def test_moving_to_another_layout_takes_gradients_along():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    call = make_call(theirs, 4, 2)
    expected = call(theirs)
    call(mine)
    optimised = mine.params
    with use_engine(PermutedLayoutEngine(seed=3)):
        mine.double()
        assert worst(gradients(mine), gradients(theirs))[0] <= 1e-10
        assert worst(call(mine), expected)[0] <= 1e-10
    assert mine.params is optimised


def test_to_and_its_kin(kind):
    theirs, mine = build(torch.nn, kind, 3, 5, 2), build(ours, kind, 3, 5, 2)
    mine.load_state_dict(theirs.state_dict())
    for change in (lambda m: m.double(), lambda m: m.to(torch.float32), lambda m: m.cpu().double().share_memory()):
        change(theirs), change(mine)
        x = torch.randn(4, 2, 3, dtype=theirs.weight_ih_l0.dtype)
        assert mine.params.dtype == x.dtype
        assert torch.allclose(mine(x)[0], theirs(x)[0], atol=1e-6)
    for dtype in (torch.float16, torch.bfloat16):
        y, _ = mine.to(dtype)(x.to(dtype))
        assert y.dtype == dtype
        assert torch.allclose(y.double(), theirs(x)[0], atol=0.1)
    with pytest.raises(ArgumentError, match="dtype"):
        mine.to(torch.float8_e5m2)


def test_meta_modules_are_materialised_as_torchs(kind):
    mine = build(ours, kind, 3, 5, 2, device="meta")
    assert mine.params.is_meta
    torch.manual_seed(2)
    mine.to_empty(device="cpu").reset_parameters()
    torch.manual_seed(2)
    assert torch.equal(mine.params, build(ours, kind, 3, 5, 2).params)
    assert torch.nn.utils.skip_init(ours.GRU, 3, 5).params.device.type == "cpu"
    with torch.device("meta"):
        assert build(ours, kind, 3, 5).params.is_meta


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_is_padded_with_states_in_the_callers_order(kind, enforce_sorted):
    _, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    lengths = [5, 4, 4, 1] if enforce_sorted else [1, 4, 5, 4]
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    hx = make_call(mine, 1, 4).hx
    states = tuple(hx) if mine.mode == "LSTM" else hx[0]
    packed, final = mine(pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted), states)
    y, found = pad_packed_sequence(packed)
    assert found.tolist() == lengths
    final = final if mine.mode == "LSTM" else (final,)
    for b, length in enumerate(lengths):
        own = tuple(h[:, b : b + 1].contiguous() for h in hx)
        alone, last = mine(x[:length, b : b + 1], own if mine.mode == "LSTM" else own[0])
        assert torch.allclose(y[:length, b : b + 1], alone)
        assert (y[length:, b] == 0).all()
        for state, expected in zip(final, last if mine.mode == "LSTM" else (last,), strict=True):
            assert torch.allclose(state[:, b : b + 1], expected)


def test_a_packed_list_of_sequences_without_states():
    theirs, mine = make_pair("GRU", 3, 5)
    data = pack_sequence([torch.randn(n, 3, dtype=torch.float64) for n in (4, 2, 1)])
    assert torch.allclose(mine(data)[0].data, theirs(data)[0].data)
    assert torch.allclose(mine(data)[1], theirs(data)[1])


def test_what_is_not_contiguous_is_taken(kind):
    theirs, mine = make_pair(kind, 3, 5, 2)
    call = make_call(theirs, 4, 2)
    call.x = torch.randn(3, 2, 8, dtype=torch.float64).permute(2, 1, 0)[::2]
    call.hx = [torch.stack([h, h], -1)[..., 0] for h in call.hx]
    assert not call.x.is_contiguous()
    for module in (theirs, mine):
        states = tuple(call.hx) if module.mode == "LSTM" else call.hx[0]
        module(call.x, states)[0].transpose(0, 1).square().sum().backward()
    assert worst(gradients(mine), gradients(theirs))[0] <= 1e-10


def test_an_empty_batch_is_taken(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    x = torch.zeros(4, 0, 3, dtype=torch.float64, requires_grad=True)
    y = mine(x)[0]
    assert [t.shape for t in tensors(mine(x))] == [t.shape for t in tensors(theirs(x))]
    y.sum().backward()
    assert (mine.params.grad == 0).all()


def test_a_default_device_elsewhere_changes_nothing():
    _, mine = make_pair("LSTM", 3, 5, 2, dropout=0.5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    for data in (x, pack_padded_sequence(x, [1, 4], enforce_sorted=False)):
        torch.manual_seed(1)
        expected = tensors(mine(data))
        torch.manual_seed(1)
        with torch.device("meta"):
            found = tensors(mine(data))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@examples(50)
@given(st.sampled_from(list(KINDS)), st.booleans())
def test_outputs_are_the_callers_to_change(kind, packed):
    """Nothing of an earlier call, and no argument, changes with a later one."""
    _, mine = make_pair(kind, 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    data = pack_padded_sequence(x, [4, 2]) if packed else x
    with torch.no_grad():
        first = [tensor.clone() for tensor in tensors(mine(data))]
        kept = tensors(mine(data))
        for tensor in tensors(mine(data)):
            tensor.fill_(9)
        again = tensors(mine(data))
    assert all(torch.equal(a, b) for a, b in zip(kept + again, first + first, strict=True))


def test_autocast_runs_in_its_dtype_and_gives_gradients_in_the_weights(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, dtype=torch.float32)
    x = torch.randn(4, 2, 3)
    for dtype in (torch.bfloat16, torch.float16):
        mine.zero_grad()
        states = torch.zeros(2, 2, mine.proj_size or 5), torch.zeros(2, 2, 5)
        with torch.autocast("cpu", dtype):
            y, final = mine(x, states if mine.mode == "LSTM" else states[0])
        assert {t.dtype for t in (y, *(final if mine.mode == "LSTM" else [final]))} == {dtype}
        y.float().square().sum().backward()
        assert mine.params.grad.dtype == torch.float32
        assert torch.allclose(y.float(), theirs(x)[0], atol=0.05)
    double = mine.double()
    with torch.autocast("cpu"):
        assert double(x.double())[0].dtype == torch.float64


def test_training_goes_as_with_torch():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    x, goal = torch.randn(6, 4, 3, dtype=torch.float64), torch.randn(6, 4, 5, dtype=torch.float64)
    optimizers = [torch.optim.Adam(module.parameters(), 0.01) for module in (theirs, mine)]
    for _ in range(5):
        for module, optimizer in zip((theirs, mine), optimizers, strict=True):
            optimizer.zero_grad()
            (module(x)[0] - goal).square().mean().backward()
            optimizer.step()
    assert all(torch.allclose(getattr(mine, name), weight) for name, weight in theirs.named_parameters())


def test_shapes_are_told_where_there_are_no_numbers(kind):
    theirs, mine = (build(library, kind, 3, 5, 2, device="meta", bidirectional=True) for library in (torch.nn, ours))
    x = torch.empty(4, 2, 3, device="meta")
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            (y, states), (their_y, their_states) = mine(x), theirs(x)
        pairs = [(y, their_y), *zip(states, their_states, strict=True)]
        assert all(a.shape == b.shape and a.device.type == "meta" for a, b in pairs)
    mine(x)[0].sum().backward()
    assert mine.params.grad.shape == mine.params.shape


@pytest.mark.parametrize("form", ["padded", "packed"])
def test_an_output_may_be_changed_in_place_before_the_backward(kind, form):
    """On the CPU nothing reads it again; cuDNN does, for torch's module as for ours."""
    pair = make_pair(kind, 3, 5, 2, bidirectional=True)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    found = []
    for module in pair:
        leaf = x.clone().requires_grad_()
        y, _ = module(leaf if form == "padded" else pack_padded_sequence(leaf, [4, 2]))
        y = y if form == "padded" else y.data
        (y.relu_() if module.mode != "RNN_RELU" else y.mul_(2)).square().sum().backward()
        found.append(leaf.grad)
    assert torch.allclose(*found, rtol=0, atol=1e-12)
