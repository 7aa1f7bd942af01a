"""The weights are torch's parameters in one buffer: drawn, saved, loaded, replaced and trained as torch's are."""

import copy
import functools
import pickle

import pytest
import safetensors.torch
import torch
from torch.nn.utils import prune

from pycudnnrnn.errors import ArgumentTypeError
from pycudnnrnn.interop import torch as ours
from pycudnnrnn.interop._torch_weights import Places
from tests.helpers.pairwise import pairwise
from tests.interop.pairs import (
    KINDS,
    TORCHS_WARNINGS,
    build,
    gradients,
    in_one_buffer,
    make_call,
    make_pair,
    worst,
)

pytestmark = TORCHS_WARNINGS

OPTIONS = {
    "plain": {},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"num_layers": 2, "bias": False, "batch_first": True},
    "dropout": {"num_layers": 3, "dropout": 0.25, "bidirectional": True, "bias": False},
}


@pytest.mark.parametrize(("kind", "case"), pairwise(KINDS, OPTIONS))
def test_it_is_drawn_shown_saved_and_loaded_as_torchs_module_is(kind, case):
    """One seed draws the same weights, and state dicts go both ways bit for bit."""
    options = OPTIONS[case]
    drawn = []
    for library in (torch.nn, ours):
        torch.manual_seed(5)
        module = build(library, kind, 3, 5, **options)
        module.reset_parameters()
        drawn.append((module, torch.rand(3)))
    (theirs, following), (mine, our_following) = drawn
    assert isinstance(mine, type(theirs))
    assert worst(dict(mine.named_parameters()), dict(theirs.named_parameters()))[0] == 0
    assert torch.equal(our_following, following)
    assert repr(mine) == repr(theirs)
    for library, target in ((torch.nn, mine), (ours, theirs)):
        source = build(library, kind, 3, 5, **options)
        assert str(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
        assert worst(target.state_dict(), source.state_dict())[0] == 0


def flattened(module):
    module.weight_hh_l0 = torch.nn.Parameter(module.weight_hh_l0.detach().clone())
    assert not in_one_buffer(module)
    module.flatten_parameters()
    return module


def assigned(module, **options):
    target = build(ours, "projected", 3, 5, 2, bidirectional=True, **options)
    target.load_state_dict({name: weight.clone() for name, weight in module.state_dict().items()}, assign=True)
    return target


MOVES = {
    "nothing": lambda module: module,
    "to": lambda module: module.float().to("cpu", torch.float64),
    "load_state_dict": lambda module: module.load_state_dict(module.state_dict()) and module,
    "assign": assigned,
    "assign to meta": functools.partial(assigned, device="meta"),
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "meta": lambda module: module.to("meta").to_empty(device="cpu"),
    "flatten_parameters": flattened,
}


@pytest.mark.parametrize("move", MOVES)
def test_weights_are_in_one_buffer_after_what_moves_them_and_a_call_copies_nothing(move, monkeypatch):
    theirs, mine = make_pair("projected", 3, 5, 2, bidirectional=True)
    moved = MOVES[move](mine)
    if move == "meta":
        moved.reset_parameters()
    theirs.load_state_dict(moved.state_dict())
    assert repr(moved) == repr(theirs)
    assert in_one_buffer(moved)
    monkeypatch.setattr(Places, "copy", lambda *_: pytest.fail("a call copies weights"))
    call = make_call(theirs, 4, 2)
    assert worst(call(moved), call(theirs))[0] <= 1e-10


@pytest.mark.parametrize("nbytes", [0, 1000])
def test_memory_that_something_else_has_stays_where_it_is(nbytes):
    """A part of a larger tensor, and memory that processes share."""
    _, mine = make_pair("GRU", 3, 5)
    if nbytes:
        mine.weight_hh_l0 = torch.nn.Parameter(torch.zeros(nbytes, dtype=torch.float64)[75:150].view(15, 5))
    else:
        mine.share_memory()
    before = mine.weight_hh_l0.data_ptr()
    mine.flatten_parameters()
    assert mine.weight_hh_l0.data_ptr() == before
    assert mine.bias_hh_l0.is_shared() == (not nbytes)


def test_every_weight_saves_alone_as_what_it_is(tmp_path):
    """It has its own storage: torch saves whole storages, and safetensors takes one storage for one weight."""
    theirs, mine = make_pair("LSTM", 3, 50, 2, bidirectional=True)
    assert all(weight.untyped_storage().nbytes() == weight.nbytes for weight in mine.state_dict().values())
    assert len(pickle.dumps(mine)) < 1.1 * len(pickle.dumps(theirs))
    safetensors.torch.save_model(mine, tmp_path / "m.safetensors")
    other, _ = make_pair("LSTM", 3, 50, 2, seed=1, bidirectional=True)
    assert safetensors.torch.load_model(other, tmp_path / "m.safetensors") == (set(), [])
    assert worst(other.state_dict(), theirs.state_dict())[0] == 0


TOOLS = {
    "weight_norm": lambda module: torch.nn.utils.weight_norm(module, "weight_hh_l0"),
    "spectral_norm": lambda module: torch.nn.utils.spectral_norm(module, "weight_hh_l0"),
    "prune": lambda module: prune.l1_unstructured(module, "weight_hh_l0", 0.5),
    "parametrize": lambda module: torch.nn.utils.parametrizations.weight_norm(module, "weight_hh_l0"),
    "freeze": lambda module: module.weight_hh_l0.requires_grad_(False),
    "hook": lambda module: module.weight_hh_l0.register_hook(lambda gradient: 3 * gradient),
}
"""What torch does to one weight of a module."""

CASES = list(zip(KINDS, ("SGD", "Adam", "RMSprop", "Adagrad", "Adafactor"), [None] * len(KINDS), strict=True))
CASES += [("LSTM", "SGD", tool) for tool in TOOLS]


@pytest.mark.parametrize(("kind", "optimizer", "tool"), CASES)
def test_a_tool_for_one_weight_and_an_optimizer_work_as_on_torchs_module(kind, optimizer, tool):
    x, goal = torch.randn(5, 3, 4, dtype=torch.float64), None
    trained = []
    for module in make_pair(kind, 4, 6, 2, bidirectional=True):
        goal = torch.randn_like(module(x)[0]) if goal is None else goal
        torch.manual_seed(1)
        if tool:
            TOOLS[tool](module)
        weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        stepping = getattr(torch.optim, optimizer)(weights.values(), lr=0.01)
        for _ in range(50):
            stepping.zero_grad()
            (module(x)[0] - goal).square().mean().backward()
            stepping.step()
        assert worst(weights, before)[0] > 1e-4
        trained.append(weights | {"output": module(x)[0]})
    assert worst(trained[1], trained[0])[0] <= 1e-9


# --- replace_rnns -----------------------------------------------------------------------------------------------------


class Other(torch.nn.LSTM):
    """A subclass that somebody wrote."""


def test_a_models_rnns_are_replaced_and_nothing_else_of_it_changes():
    model = torch.nn.ModuleDict(
        {"encoder": torch.nn.LSTM(3, 5, 2), "parts": torch.nn.Sequential(torch.nn.GRU(5, 4), torch.nn.RNN(4, 4)),
         "other": Other(3, 3), "done": ours.GRU(3, 3), "cell": torch.nn.LSTMCell(3, 3)}
    ).eval()  # fmt: skip
    calls, names, x = [], dict(model.named_parameters()), torch.randn(4, 2, 3)
    model["encoder"].register_forward_hook(lambda *_: calls.append(1))
    model["encoder"].weight_hh_l0.requires_grad_(False)
    before, expected = {**model.state_dict()}, model["encoder"](x)[0].detach()
    assert ours.replace_rnns(model) is model
    kinds = [type(module) for module in model.modules()][1:]
    assert kinds == [ours.LSTM, torch.nn.Sequential, ours.GRU, ours.RNN, Other, ours.GRU, torch.nn.LSTMCell]
    assert all(weight is names[name] for name, weight in model.named_parameters())
    assert worst(model.state_dict(), before)[0] == 0
    assert not any(module.training for module in model.modules())
    assert all(map(in_one_buffer, (model["encoder"], *model["parts"])))
    assert torch.allclose(model["encoder"](x)[0], expected, atol=1e-6)
    assert len(calls) == 2


def test_a_module_is_replaced_itself_and_what_is_no_module_is_refused():
    theirs, _ = make_pair("relu", 3, 5)
    call = make_call(theirs, 4, 2)
    expected = call(theirs)
    assert isinstance(ours.replace_rnns(theirs), ours.RNN)
    assert worst(call(theirs), expected)[0] <= 1e-10
    theirs.__class__ = torch.nn.RNN  # and back
    assert worst(call(theirs), expected)[0] == 0
    with pytest.raises(ArgumentTypeError, match=r"Invalid model: .*a torch\.nn\.Module"):
        ours.replace_rnns(torch.nn.LSTM)


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("lengths", [[4, 0, 2], [0, 0, 0]], ids=str)
def test_a_sequence_without_steps_keeps_its_states_and_passes_gradients_to_them(kind, lengths):
    """The other sequences are as without it, and padding is not read."""
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    call = make_call(mine, 4, 3)
    x, *initial = (tensor.clone().requires_grad_() for tensor in (call.x, *call.hx))
    x.data[lengths[2] :, 2] = float("nan")
    y, final = mine(x, tuple(initial) if kind == "LSTM" else initial[0], lengths=lengths)
    final = final if kind == "LSTM" else [final]
    (y.sum() + sum((3 * state[:, 1]).sum() for state in final)).backward()
    assert not y[:, 1].any()
    assert not x.grad[:, 1].any()
    for state, h in zip(final, initial, strict=True):
        assert torch.equal(state[:, 1], h[:, 1])
        assert (h.grad[:, 1] == 3).all()
    assert all(gradient.isfinite().all() for gradient in gradients(mine).values())
    if any(lengths):
        first = [h[:, :1] for h in call.hx]
        assert torch.allclose(y[:, :1], theirs(call.x[:, :1], first if kind == "LSTM" else first[0])[0])


def test_lengths_work_under_func_grad_and_tell_shapes_on_meta():
    """Torch's functions that pack and pad do neither."""
    _, mine = make_pair("LSTM", 3, 5, 2, bidirectional=True)
    x = torch.randn(4, 3, 3, dtype=torch.float64)

    def total(x):
        return mine(x, lengths=[4, 0, 2])[0].square().sum()

    expected = x.clone().requires_grad_()
    total(expected).backward()
    assert torch.allclose(torch.func.grad(total)(x), expected.grad, rtol=0, atol=1e-12)
    y, (h, c) = mine.to("meta")(x.to("meta"), lengths=[4, 0, 2])
    assert (y.shape, h.shape, c.shape) == ((4, 3, 10), (4, 3, 5), (4, 3, 5))


def test_a_weight_that_is_put_back_after_another_is_read_again():
    theirs, mine = make_pair("LSTM", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    former = mine.weight_hh_l0
    mine.weight_hh_l0 = torch.nn.Parameter(former.detach() * 2)
    mine(x)
    y = torch.func.functional_call(mine, {"weight_hh_l0": former}, (x,))[0]
    assert torch.allclose(y, theirs(x)[0], atol=1e-12)
    y.sum().backward()
    assert former.grad is not None


def test_a_backward_reads_the_memory_that_its_forward_read():
    """An EMA swap or vector_to_parameters sets each weight's `data` to other memory."""
    theirs, mine = make_pair("GRU", 3, 5)
    x, found = torch.randn(4, 2, 3, dtype=torch.float64), []
    for module in (theirs, mine):
        weights = list(module.parameters())
        loss = module(x)[0].square().sum()
        torch.nn.utils.vector_to_parameters(torch.zeros(sum(w.numel() for w in weights), dtype=torch.float64), weights)
        found.append(torch.autograd.grad(loss, weights))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*found, strict=True))


def test_weights_that_are_called_in_inference_mode_can_be_trained_afterwards():
    _, mine = make_pair("LSTM", 3, 5)
    for weight in mine.parameters():
        weight.data = weight.data.clone()
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    with torch.inference_mode():
        mine.flatten_parameters()
        mine(x)
    mine(x)[0].sum().backward()
    assert all(weight.grad is not None for weight in mine.parameters())
