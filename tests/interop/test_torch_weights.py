"""One flat parameter under torch's names: drawn, saved, loaded and shared as torch's own weights are."""

import pytest

from tests.helpers.oracles import need

need("torch")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

from pycudnnrnn import convert, ops  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from tests.interop.pairs import KINDS, build, gradients, make_call, make_pair, worst  # noqa: E402

OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "bias": False, "batch_first": True},
    {"num_layers": 3, "dropout": 0.25, "bidirectional": True, "bias": False},
]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=OPTIONS, ids=str)
def options(request):
    return request.param


def test_a_seed_draws_the_weights_that_it_draws_in_torch(kind, options):
    found = []
    for library in (torch.nn, ours):
        torch.manual_seed(5)
        module = build(library, kind, 3, 5, **options)
        module.reset_parameters()
        found.append(module.state_dict() | {"next": torch.rand(3)})
    theirs, mine = found
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_state_dicts_go_both_ways_bit_for_bit(kind, options):
    theirs, mine = build(torch.nn, kind, 3, 5, **options), build(ours, kind, 3, 5, **options)
    state = theirs.state_dict()
    assert str(mine.load_state_dict(state)) == "<All keys matched successfully>"
    saved = mine.state_dict()
    assert list(saved) == list(state)
    assert all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(saved.values(), state.values(), strict=True))
    other = build(torch.nn, kind, 3, 5, **options)
    other.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), theirs.parameters(), strict=True))


def test_a_file_of_either_is_read_by_the_other(kind, tmp_path):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    for source, target in ((theirs, make_pair(kind, 3, 5, 2, seed=1, bidirectional=True)[1]), (mine, theirs)):
        torch.save({"rnn": source.state_dict()}, tmp_path / "m.pt")
        expected = {name: weight.clone() for name, weight in source.state_dict().items()}
        target.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True)["rnn"])
        assert all(torch.equal(weight, expected[name]) for name, weight in target.state_dict().items())


def test_they_are_torchs_attributes_over_one_buffer(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    assert [name for name, _ in mine.named_parameters()] == ["params"]
    for name, weight in theirs.named_parameters():
        assert torch.equal(getattr(mine, name), weight)
        assert name in dir(mine)
        assert getattr(mine, name).data_ptr() - mine.params.data_ptr() < mine.params.nbytes
    assert [[tuple(w.shape) for w in group] for group in mine.all_weights] == [
        [tuple(w.shape) for w in group] for group in theirs.all_weights
    ]
    assert sum(w.numel() for group in mine.all_weights for w in group) == mine.params.numel()
    with torch.no_grad():
        mine.weight_hh_l1.zero_()
        torch.nn.init.constant_(mine.weight_ih_l0, 2)
    assert (mine.state_dict()["weight_hh_l1"] == 0).all()
    assert (mine.weight_ih_l0 == 2).all()


def test_a_term_of_one_weight_gives_that_weight_its_gradient():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    for module in (theirs, mine):
        (module.weight_hh_l1.square().sum() + module.bias_ih_l0.sum() + 0 * module.weight_hh_l0.sum()).backward()
    expected = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in theirs.named_parameters()}
    assert worst(gradients(mine), expected)[0] == 0


def test_assigning_one_is_refused_with_the_way_to_do_it():
    _, mine = make_pair("GRU", 3, 5)
    before = mine.params.detach().clone()
    for value in (torch.zeros(15, 3), torch.nn.Parameter(torch.zeros(15, 3))):
        with pytest.raises(TypeError, match=r"weight_ih_l0.*copy_\(values\)"):
            mine.weight_ih_l0 = value
    with pytest.raises(AttributeError, match="weight_ih_l7"):
        mine.weight_ih_l7  # noqa: B018
    assert torch.equal(mine.params, before)


def test_a_state_dict_that_does_not_fit_is_refused_in_torchs_words_and_changes_nothing():
    theirs, mine = make_pair("GRU", 3, 5, 2)
    before = mine.params.detach().clone()
    wrong = torch.nn.GRU(3, 5, 2).double().state_dict() | {"weight_hh_l1": torch.zeros(18, 6)}
    del wrong["bias_ih_l0"]
    wrong["other"] = torch.zeros(1)
    messages = []
    for module in (theirs, mine):
        with pytest.raises(RuntimeError) as caught:
            module.load_state_dict(wrong)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert torch.equal(mine.params, before)
    result = mine.load_state_dict({"bias_ih_l0": torch.ones(15), "more": torch.zeros(1)}, strict=False)
    assert result.unexpected_keys == ["more"]
    assert len(result.missing_keys) == 7
    assert (mine.bias_ih_l0 == 1).all()
    assert torch.equal(mine.weight_ih_l0.flatten(), before[: 15 * 3])


def test_a_state_dict_is_taken_while_the_device_of_the_weights_is_current(monkeypatch):
    """From another one torch exports no CUDA tensor, and raises this."""
    current, export = [], torch.Tensor.__dlpack__

    class DeviceOf:
        def __init__(self, tensor):
            self.tensor = tensor

        def __enter__(self):
            current.append(self.tensor)

        def __exit__(self, *_):
            current.pop()

    def export_from_its_device(tensor, **keywords):
        if not current or current[-1] is not tensor:
            raise BufferError("Can't export tensors on a different CUDA device index.")
        return export(tensor, **keywords)

    monkeypatch.setattr(torch.cuda, "device_of", DeviceOf)
    monkeypatch.setattr(torch.Tensor, "__dlpack__", export_from_its_device)
    mine = ours.GRU(3, 5)
    assert mine.state_dict().keys() == torch.nn.GRU(3, 5).state_dict().keys()
    assert current == []


def test_a_state_dict_is_alive():
    _, mine = make_pair("LSTM", 3, 5, 2)
    state = mine.state_dict()
    mine.load_state_dict({name: torch.full_like(weight, 3) for name, weight in state.items()})
    assert all((weight == 3).all() and not weight.requires_grad for weight in state.values())
    state["weight_hh_l1"].zero_()
    assert (mine.weight_hh_l1 == 0).all()
    assert all(weight.grad_fn for weight in mine.state_dict(keep_vars=True).values())


def test_every_weight_of_a_state_dict_saves_alone_as_what_it_is(kind, tmp_path):
    """It has a storage of its own: torch saves whole storages, and safetensors takes one storage for one weight."""
    theirs, mine = make_pair(kind, 3, 50, 2, bidirectional=True)
    for name, weight in mine.state_dict().items():
        assert weight.untyped_storage().nbytes() == weight.nbytes
        torch.save(weight, tmp_path / "ours.pt")
        torch.save(theirs.state_dict()[name], tmp_path / "theirs.pt")
        assert (tmp_path / "ours.pt").stat().st_size <= (tmp_path / "theirs.pt").stat().st_size + 64
    safetensors.torch.save_model(mine, tmp_path / "m.safetensors")
    again = make_pair(kind, 3, 50, 2, seed=1, bidirectional=True)
    for module in again:
        assert safetensors.torch.load_model(module, tmp_path / "m.safetensors") == (set(), [])
        assert all(torch.equal(weight, mine.state_dict()[name]) for name, weight in module.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_state_dict_of_any_dtype_is_alive(dtype):
    _, mine = make_pair("GRU", 3, 5, dtype=dtype)
    state = mine.state_dict()
    assert all(weight.dtype is dtype for weight in state.values())
    state["bias_hh_l0"].fill_(2)
    assert (mine.bias_hh_l0 == 2).all()


def test_a_part_of_a_model_keeps_its_prefix_and_what_a_subclass_adds():
    class Scaled(ours.GRU):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.scale = torch.nn.Parameter(torch.rand(2))
            self.register_buffer("count", torch.tensor(3))

    model, twin = (torch.nn.Sequential(torch.nn.Linear(2, 3), Scaled(3, 5)) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    assert [name for name in twin.state_dict() if name.startswith("1.")] == [
        f"1.{name}" for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "scale", "count")
    ]
    assert torch.equal(twin[1].scale, model[1].scale)
    assert torch.equal(twin[1].params, model[1].params)


def test_loading_by_assignment_takes_dtype_and_device_and_works_from_meta(kind):
    theirs, _ = make_pair(kind, 3, 5, 2)
    mine = build(ours, kind, 3, 5, 2, device="meta")
    mine.load_state_dict(theirs.state_dict(), assign=True)
    assert (mine.params.dtype, mine.params.device.type) == (torch.float64, "cpu")
    call = make_call(theirs, 4, 2)
    assert worst(call(mine), call(theirs))[0] <= 1e-10
    frozen = build(ours, kind, 3, 5, 2, device="meta").requires_grad_(False)
    frozen.load_state_dict(theirs.state_dict(), assign=True)
    assert not frozen.params.requires_grad
    half = build(ours, kind, 3, 5, 2)
    some = dict(list(theirs.state_dict().items())[:1])
    with pytest.raises(RuntimeError, match="takes every weight"):
        half.load_state_dict(some, assign=True, strict=False)


def test_an_op_of_ours_runs_them_as_they_are():
    """The flat parameter is the op's params, and the converter's names are the state dict's."""
    _, mine = make_pair("LSTM", 3, 5, 2, bidirectional=True)
    c = convert.pytorch.to_canonical(mine.state_dict())
    op = ops.from_spec(c.spec)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    assert (op.canonical_to_params(c.weights, c.biases) == mine.params.detach().numpy()).all()
    assert torch.equal(op(x, None, None, mine.params.detach(), is_training=False)[0], mine(x)[0])


def test_two_modules_may_share_the_buffer():
    _, mine = make_pair("LSTM", 3, 5)
    twin = ours.LSTM(3, 5, dtype=torch.float64)
    twin.params = mine.params
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    (mine(x)[0].sum() + twin(x)[0].sum()).backward()
    both = mine.params.grad.clone()
    mine.zero_grad()
    mine(x)[0].sum().backward()
    assert torch.allclose(both, 2 * mine.params.grad)
    assert len(list(torch.nn.ModuleList([mine, twin]).parameters())) == 1


def test_repr_is_torchs(kind, options):
    theirs, mine = build(torch.nn, kind, 3, 5, **options), build(ours, kind, 3, 5, **options)
    assert repr(mine) == repr(theirs)
    assert mine.flatten_parameters() is None
    for name in (
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "bidirectional",
        "proj_size",
    ):
        assert getattr(mine, name) == getattr(theirs, name)
