"""One flat parameter under torch's names: drawn, saved, loaded and shared as torch's weights are; and separate ones."""

import contextlib

import pytest

from tests.helpers.oracles import need

need("torch")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

from pycudnnrnn import convert, ops  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from tests.helpers.pairwise import pairwise  # noqa: E402
from tests.interop.pairs import KINDS, TOOLS, TORCHS_WARNINGS, build, gradients, make_call, make_pair, worst  # noqa: E402

pytestmark = TORCHS_WARNINGS

OPTIONS = {
    "plain": {},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"num_layers": 2, "bias": False, "batch_first": True},
    "dropout": {"num_layers": 3, "dropout": 0.25, "bidirectional": True, "bias": False},
}
MEMBERS = ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional", "proj_size")


@pytest.mark.parametrize(("kind", "case", "flat"), pairwise(KINDS, OPTIONS, [True, False]))
def test_it_is_drawn_shown_saved_and_loaded_as_torchs_module_is(kind, case, flat):
    """One seed draws the same weights, and state dicts go both ways bit for bit."""
    options = OPTIONS[case]
    drawn = []
    for library, more in ((torch.nn, {}), (ours, {"flat": flat})):
        torch.manual_seed(5)
        module = build(library, kind, 3, 5, **options, **more)
        module.reset_parameters()
        drawn.append((module, torch.rand(3)))
    (theirs, following), (mine, our_following) = drawn
    assert worst(mine.state_dict(), theirs.state_dict())[0] == 0
    assert torch.equal(our_following, following)
    assert repr(mine).replace(", flat=False", "") == repr(theirs)
    assert [getattr(mine, name) for name in MEMBERS] == [getattr(theirs, name) for name in MEMBERS]
    assert mine.flatten_parameters() is None
    assert flat or [name for name, _ in mine.named_parameters()] == list(theirs.state_dict())
    for library, target in ((torch.nn, mine), (ours, theirs)):
        source = build(library, kind, 3, 5, **options)
        assert str(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
        assert worst(target.state_dict(), source.state_dict())[0] == 0


def test_they_are_torchs_attributes_over_one_buffer():
    theirs, mine = make_pair("projected", 3, 5, 2, bidirectional=True)
    assert [name for name, _ in mine.named_parameters()] == ["params"]
    for name, weight in theirs.named_parameters():
        assert torch.equal(getattr(mine, name), weight)
        assert name in dir(mine)
    for group, expected in zip(mine.all_weights, theirs.all_weights, strict=True):
        assert all(map(torch.equal, group, expected))
    with torch.no_grad():
        torch.nn.init.constant_(mine.weight_ih_l0, 2)
    assert (mine.state_dict()["weight_ih_l0"] == 2).all()


def test_a_term_of_one_weight_gives_that_weight_its_gradient():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    for module in (theirs, mine):
        (module.weight_hh_l1.square().sum() + module.bias_ih_l0.sum() + 0 * module.weight_hh_l0.sum()).backward()
    expected = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in theirs.named_parameters()}
    assert worst(gradients(mine), expected)[0] == 0


def test_a_state_dict_that_does_not_fit_is_refused_in_torchs_words_and_changes_nothing():
    theirs, mine = make_pair("GRU", 3, 5, 2)
    before = mine.params.detach().clone()
    wrong = torch.nn.GRU(3, 5, 2).double().state_dict() | {"weight_hh_l1": torch.zeros(18, 6), "other": torch.zeros(1)}
    del wrong["bias_ih_l0"]
    messages = []
    for module in (theirs, mine):
        with pytest.raises(RuntimeError) as caught:
            module.load_state_dict(wrong)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert torch.equal(mine.params, before)
    result = mine.load_state_dict({"bias_ih_l0": torch.ones(15), "more": torch.zeros(1)}, strict=False)
    assert (result.unexpected_keys, len(result.missing_keys)) == (["more"], 7)
    assert (mine.bias_ih_l0 == 1).all()
    assert torch.equal(mine.weight_ih_l0.flatten(), before[: 15 * 3])


def test_a_state_dict_is_taken_while_the_device_of_the_weights_is_current(monkeypatch):
    """From another one torch exports no CUDA tensor."""
    current, export = [], torch.Tensor.__dlpack__

    @contextlib.contextmanager
    def device_of(tensor):
        current.append(tensor)
        yield
        current.pop()

    def export_from_its_device(tensor, **keywords):
        assert current[-1] is tensor
        return export(tensor, **keywords)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(torch.Tensor, "__dlpack__", export_from_its_device)
    assert ours.GRU(3, 5).state_dict().keys() == torch.nn.GRU(3, 5).state_dict().keys()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_state_dict_is_alive(dtype):
    _, mine = make_pair("LSTM", 3, 5, 2, dtype=dtype)
    state = mine.state_dict()
    mine.load_state_dict({name: torch.full_like(weight, 3) for name, weight in state.items()})
    assert all((weight == 3).all() and not weight.requires_grad and weight.dtype is dtype for weight in state.values())
    state["weight_hh_l1"].zero_()
    assert (mine.weight_hh_l1 == 0).all()
    assert all(weight.grad_fn for weight in mine.state_dict(keep_vars=True).values())


def test_every_weight_of_a_state_dict_saves_alone_as_what_it_is(tmp_path):
    """It has a storage of its own: torch saves whole storages, and safetensors takes one storage for one weight."""
    _, mine = make_pair("LSTM", 3, 50, 2, bidirectional=True)
    assert all(weight.untyped_storage().nbytes() == weight.nbytes for weight in mine.state_dict().values())
    safetensors.torch.save_model(mine, tmp_path / "m.safetensors")
    torch.save(mine.state_dict(), tmp_path / "m.pt")
    for module in make_pair("LSTM", 3, 50, 2, seed=1, bidirectional=True):
        assert safetensors.torch.load_model(module, tmp_path / "m.safetensors") == (set(), [])
        assert worst(module.state_dict(), mine.state_dict())[0] == 0
        module.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))


def test_a_part_of_a_model_keeps_its_prefix_and_what_a_subclass_adds():
    class Scaled(ours.GRU):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.register_buffer("count", torch.tensor(3))

    model, twin = (torch.nn.Sequential(torch.nn.Linear(2, 3), Scaled(3, 5)) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "count"]
    assert [*twin.state_dict()] == ["0.weight", "0.bias", *(f"1.{name}" for name in names)]
    assert worst(twin.state_dict(), model.state_dict())[0] == 0


def test_loading_by_assignment_takes_dtype_and_device_and_works_from_meta():
    theirs, _ = make_pair("GRU", 3, 5, 2)
    call, state = make_call(theirs, 4, 2), theirs.state_dict()
    for flat in (True, False):
        mine, frozen, half = (
            build(ours, "GRU", 3, 5, 2, device=device, flat=flat) for device in ("meta", "meta", "cpu")
        )
        mine.load_state_dict(state, assign=True)
        assert {(p.dtype, p.device.type, p.requires_grad) for p in mine.parameters()} == {(torch.float64, "cpu", True)}
        assert worst(call(mine), call(theirs))[0] <= 1e-10
        frozen.requires_grad_(False).load_state_dict(state, assign=True)
        assert not any(parameter.requires_grad for parameter in frozen.parameters())
        if flat:
            with pytest.raises(RuntimeError, match="takes every weight"):
                half.load_state_dict(dict([*state.items()][:1]), assign=True, strict=False)
        half.register_parameter("scale", torch.nn.Parameter(torch.zeros(2)))
        half.load_state_dict(state | {"scale": torch.ones(2)}, assign=True)
        assert (half.weight_ih_l0.dtype, half.scale.tolist()) == (torch.float64, [1, 1])


def test_an_op_of_ours_runs_them_as_they_are():
    """The flat parameter is the op's params, and the converter's names are the state dict's."""
    _, mine = make_pair("LSTM", 3, 5, 2, bidirectional=True)
    c = convert.pytorch.to_canonical(mine.state_dict())
    op = ops.from_spec(c.spec)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    assert (op.canonical_to_params(c.weights, c.biases) == mine.params.detach().numpy()).all()
    assert torch.equal(op(x, None, None, mine.params.detach(), is_training=False)[0], mine(x)[0])


# --- flat=False: each weight is a parameter, for every optimizer and tool --------------------------------------------


def grouped(module):
    matrices = [weight for weight in module.parameters() if weight.ndim == 2]
    biases = [weight for weight in module.parameters() if weight.ndim == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": biases, "weight_decay": 0.0}], 0.01)


OPTIMIZERS = {
    "Adafactor": lambda module: torch.optim.Adafactor(module.parameters(), lr=0.05),
    "groups": grouped,
    "Muon": lambda module: torch.optim.Muon([weight for weight in module.parameters() if weight.ndim == 2]),
}
CASES = [(None, "Adafactor", "projected"), (None, "groups", "GRU"), (None, "Muon", "LSTM")]
CASES += [(tool, "SGD", "LSTM") for tool in TOOLS]


@pytest.mark.parametrize(("tool", "optimizer", "kind"), CASES)
def test_a_tool_for_one_weight_and_an_optimizer_work_as_on_torchs_module(tool, optimizer, kind):
    x, goal, found = torch.randn(5, 3, 4, dtype=torch.float64), None, []
    for module in make_pair(kind, 4, 6, 2, bidirectional=True, flat=False):
        goal = torch.randn_like(module(x)[0]) if goal is None else goal
        torch.manual_seed(1)
        if tool:
            TOOLS[tool](module)
        trained = OPTIMIZERS.get(optimizer, lambda module: torch.optim.SGD(module.parameters(), 0.1))(module)
        before = {name: weight.detach().clone() for name, weight in module.named_parameters() if weight.requires_grad}
        for _ in range(30):
            trained.zero_grad()
            (module(x)[0] - goal).square().mean().backward()
            trained.step()
        found.append({name: weight for name, weight in module.named_parameters() if weight.requires_grad})
        assert worst(found[-1], before)[0] > 1e-2
        found[-1]["output"] = module(x)[0]
    assert worst(found[1], found[0])[0] <= 1e-9


def test_there_is_no_flat_parameter_and_autocast_leaves_gradients_in_the_weights_dtype():
    _, mine = make_pair("GRU", 3, 5, 2, dtype=torch.float32, flat=False)
    with torch.autocast("cpu", torch.bfloat16):
        mine(torch.randn(4, 2, 3))[0].float().sum().backward()
    assert all(gradient.dtype == torch.float32 for gradient in gradients(mine).values())
    with pytest.raises(AttributeError, match="params"):
        mine.params  # noqa: B018


def test_functional_call_takes_single_weights():
    pair = make_pair("GRU", 3, 5, 2, flat=False)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    other = {"weight_ih_l1": 2 * pair[0].weight_ih_l1.detach()}
    assert torch.allclose(*(torch.func.functional_call(module, other, (x,))[0] for module in pair))
