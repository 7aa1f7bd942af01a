"""What torch's own tests promise of its RNN modules, held by ours."""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

from pycudnnrnn import convert, ops  # noqa: E402
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, TorchArgumentError  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine  # noqa: E402
from tests.interop.pairs import KINDS, gradients, make_call, make_pair, tensors, worst  # noqa: E402

ROOT = Path(__file__).parents[2]
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


def build(library, kind, *sizes, **options):
    name, keywords = KINDS[kind]
    return getattr(library, name)(*sizes, **keywords, **options)


class TestWeights:
    def test_a_seed_draws_the_weights_that_it_draws_in_torch(self, kind, options):
        found = []
        for library in (torch.nn, ours):
            torch.manual_seed(5)
            module = build(library, kind, 3, 5, **options)
            module.reset_parameters()
            found.append(module.state_dict() | {"next": torch.rand(3)})
        theirs, mine = found
        assert list(mine) == list(theirs)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)

    def test_state_dicts_go_both_ways_bit_for_bit(self, kind, options):
        theirs, mine = build(torch.nn, kind, 3, 5, **options), build(ours, kind, 3, 5, **options)
        state = theirs.state_dict()
        assert str(mine.load_state_dict(state)) == "<All keys matched successfully>"
        saved = mine.state_dict()
        assert list(saved) == list(state)
        assert all(
            a.shape == b.shape and torch.equal(a, b) for a, b in zip(saved.values(), state.values(), strict=True)
        )
        other = build(torch.nn, kind, 3, 5, **options)
        other.load_state_dict(saved)
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), theirs.parameters(), strict=True))

    def test_a_file_of_either_is_read_by_the_other(self, kind, tmp_path):
        theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
        for source, target in ((theirs, make_pair(kind, 3, 5, 2, seed=1, bidirectional=True)[1]), (mine, theirs)):
            torch.save({"rnn": source.state_dict()}, tmp_path / "m.pt")
            expected = {name: weight.clone() for name, weight in source.state_dict().items()}
            target.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True)["rnn"])
            assert all(torch.equal(weight, expected[name]) for name, weight in target.state_dict().items())

    def test_they_are_torchs_attributes_over_one_buffer(self, kind):
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

    def test_a_term_of_one_weight_gives_that_weight_its_gradient(self):
        theirs, mine = make_pair("LSTM", 3, 5, 2)
        for module in (theirs, mine):
            (module.weight_hh_l1.square().sum() + module.bias_ih_l0.sum() + 0 * module.weight_hh_l0.sum()).backward()
        expected = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in theirs.named_parameters()}
        assert worst(gradients(mine), expected)[0] == 0

    def test_assigning_one_is_refused_with_the_way_to_do_it(self):
        _, mine = make_pair("GRU", 3, 5)
        before = mine.params.detach().clone()
        for value in (torch.zeros(15, 3), torch.nn.Parameter(torch.zeros(15, 3))):
            with pytest.raises(TypeError, match=r"weight_ih_l0.*copy_\(values\)"):
                mine.weight_ih_l0 = value
        with pytest.raises(AttributeError, match="weight_ih_l7"):
            mine.weight_ih_l7  # noqa: B018
        assert torch.equal(mine.params, before)

    def test_a_state_dict_that_does_not_fit_is_refused_in_torchs_words_and_changes_nothing(self):
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

    def test_a_state_dict_is_alive(self):
        _, mine = make_pair("LSTM", 3, 5, 2)
        state = mine.state_dict()
        mine.load_state_dict({name: torch.full_like(weight, 3) for name, weight in state.items()})
        assert all((weight == 3).all() and not weight.requires_grad for weight in state.values())
        state["weight_hh_l1"].zero_()
        assert (mine.weight_hh_l1 == 0).all()
        assert all(weight.grad_fn for weight in mine.state_dict(keep_vars=True).values())

    def test_a_part_of_a_model_keeps_its_prefix_and_what_a_subclass_adds(self):
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

    def test_loading_by_assignment_takes_dtype_and_device_and_works_from_meta(self, kind):
        theirs, _ = make_pair(kind, 3, 5, 2)
        mine = build(ours, kind, 3, 5, 2, device="meta")
        mine.load_state_dict(theirs.state_dict(), assign=True)
        assert (mine.params.dtype, mine.params.device.type) == (torch.float64, "cpu")
        call = make_call(theirs, 4, 2)
        assert worst(call(mine), call(theirs))[0] <= 1e-10
        half = build(ours, kind, 3, 5, 2)
        some = dict(list(theirs.state_dict().items())[:1])
        with pytest.raises(RuntimeError, match="takes every weight"):
            half.load_state_dict(some, assign=True, strict=False)

    def test_an_op_of_ours_runs_them_as_they_are(self):
        """The flat parameter is the op's params, and the converter's names are the state dict's."""
        _, mine = make_pair("LSTM", 3, 5, 2, bidirectional=True)
        c = convert.pytorch.to_canonical(mine.state_dict())
        op = ops.from_spec(c.spec)
        x = torch.randn(4, 2, 3, dtype=torch.float64)
        assert (op.canonical_to_params(c.weights, c.biases) == mine.params.detach().numpy()).all()
        assert torch.equal(op(x, None, None, mine.params.detach(), is_training=False)[0], mine(x)[0])

    def test_two_modules_may_share_the_buffer(self):
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


class TestCopies:
    def copies(self, module):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]

    def test_a_copy_computes_the_same_and_is_its_own(self, kind):
        _, mine = make_pair(kind, 3, 5, 2, dropout=0.5)
        call = make_call(mine, 4, 2)
        for twin in self.copies(mine.eval()):
            assert repr(twin) == repr(mine)
            assert worst(call(twin), call(mine))[0] == 0
            with torch.no_grad():
                twin.params.zero_()
            assert (mine.params != 0).any()

    def test_a_copy_finds_the_layout_of_where_it_wakes_up(self):
        theirs, _ = make_pair("GRU", 3, 5, 2, bidirectional=True)
        with use_engine(PermutedLayoutEngine(seed=3)):
            _, mine = make_pair("GRU", 3, 5, 2, bidirectional=True)
            twins = mine, pickle.dumps(mine)
        moved = pickle.loads(twins[1])
        call = make_call(theirs, 4, 2)
        assert worst(call(moved), call(theirs))[0] <= 1e-10
        assert not torch.equal(moved.params, mine.params)

    def test_moving_to_another_layout_takes_gradients_along(self):
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

    @pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")  # torch, of its own
    def test_to_and_its_kin(self, kind):
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

    def test_meta_modules_are_materialised_as_torchs(self, kind):
        mine = build(ours, kind, 3, 5, 2, device="meta")
        assert mine.params.is_meta
        torch.manual_seed(2)
        mine.to_empty(device="cpu").reset_parameters()
        torch.manual_seed(2)
        assert torch.equal(mine.params, build(ours, kind, 3, 5, 2).params)
        assert torch.nn.utils.skip_init(ours.GRU, 3, 5).params.device.type == "cpu"
        with torch.device("meta"):
            assert build(ours, kind, 3, 5).params.is_meta


class TestForward:
    @pytest.mark.parametrize("enforce_sorted", [True, False])
    def test_packed_is_padded_with_states_in_the_callers_order(self, kind, enforce_sorted):
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

    def test_a_packed_list_of_sequences_without_states(self):
        theirs, mine = make_pair("GRU", 3, 5)
        data = pack_sequence([torch.randn(n, 3, dtype=torch.float64) for n in (4, 2, 1)])
        assert torch.allclose(mine(data)[0].data, theirs(data)[0].data)
        assert torch.allclose(mine(data)[1], theirs(data)[1])

    def test_what_is_not_contiguous_is_taken(self, kind):
        theirs, mine = make_pair(kind, 3, 5, 2)
        call = make_call(theirs, 4, 2)
        call.x = torch.randn(3, 2, 8, dtype=torch.float64).permute(2, 1, 0)[::2]
        call.hx = [torch.stack([h, h], -1)[..., 0] for h in call.hx]
        assert not call.x.is_contiguous()
        for module in (theirs, mine):
            states = tuple(call.hx) if module.mode == "LSTM" else call.hx[0]
            module(call.x, states)[0].transpose(0, 1).square().sum().backward()
        assert worst(gradients(mine), gradients(theirs))[0] <= 1e-10

    def test_an_empty_batch_is_taken(self, kind):
        theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
        x = torch.zeros(4, 0, 3, dtype=torch.float64, requires_grad=True)
        y = mine(x)[0]
        assert [t.shape for t in tensors(mine(x))] == [t.shape for t in tensors(theirs(x))]
        y.sum().backward()
        assert (mine.params.grad == 0).all()

    def test_a_default_device_elsewhere_changes_nothing(self):
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
    def test_outputs_are_the_callers_to_change(self, kind, packed):
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

    def test_autocast_runs_in_its_dtype_and_gives_gradients_in_the_weights(self, kind):
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

    def test_training_goes_as_with_torch(self):
        theirs, mine = make_pair("LSTM", 3, 5, 2)
        x, goal = torch.randn(6, 4, 3, dtype=torch.float64), torch.randn(6, 4, 5, dtype=torch.float64)
        optimizers = [torch.optim.Adam(module.parameters(), 0.01) for module in (theirs, mine)]
        for _ in range(5):
            for module, optimizer in zip((theirs, mine), optimizers, strict=True):
                optimizer.zero_grad()
                (module(x)[0] - goal).square().mean().backward()
                optimizer.step()
        assert all(torch.allclose(getattr(mine, name), weight) for name, weight in theirs.named_parameters())


class TestRefusals:
    """Where torch's tests name a type, the error is of that type too; it names argument, expected and got."""

    @pytest.mark.parametrize(
        ("change", "type_", "named"),
        [
            ({"input_size": 0}, ValueError, "input_size"),
            ({"input_size": 3.0}, TypeError, "input_size"),
            ({"hidden_size": 0}, ValueError, "hidden_size"),
            ({"hidden_size": "5"}, TypeError, "hidden_size"),
            ({"num_layers": 0}, ValueError, "num_layers"),
            ({"bias": 1}, TypeError, "bias"),
            ({"batch_first": 0}, TypeError, "batch_first"),
            ({"bidirectional": None}, TypeError, "bidirectional"),
            ({"dropout": 1.5}, ValueError, "dropout"),
            ({"dropout": True}, ValueError, "dropout"),
            ({"proj_size": -1}, ValueError, "proj_size"),
            ({"proj_size": 5}, ValueError, "proj_size"),
            ({"dtype": torch.complex64}, ValueError, "dtype"),
        ],
        ids=str,
    )
    def test_of_the_constructor(self, change, type_, named):
        with pytest.raises(type_, match=f"Invalid {named}") as caught:
            ours.LSTM(**{"input_size": 3, "hidden_size": 5} | change)
        assert isinstance(caught.value, ArgumentError)

    def test_of_projections_and_nonlinearities_that_do_not_exist(self):
        for module in (ours.GRU, ours.RNN):
            with pytest.raises(ValueError, match="proj_size"):
                module(3, 5, proj_size=2)
        with pytest.raises(ValueError, match="'tanh' or 'relu'"):
            ours.RNN(3, 5, nonlinearity="gelu")
        assert ours.RNN(3, 5, 1, "relu").nonlinearity == "relu"
        assert ours.RNN(3, 5, 2, "relu", False, True).batch_first

    def test_dropout_with_one_layer_warns(self):
        with pytest.warns(UserWarning, match="no effect with one layer"):
            ours.GRU(3, 5, dropout=0.5)

    def test_of_inputs_and_states(self, kind):
        _, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
        call = make_call(mine, 4, 2)
        good = tuple(call.hx)
        lstm = mine.mode == "LSTM"

        def states(*changed):
            return (*changed, *good[len(changed) :]) if lstm else changed[0]

        bad_inputs = [
            (call.x[..., :2], "input shape"),
            (call.x[None], "input shape"),
            (call.x[0, 0], "input shape"),
            (call.x[:0], "input shape"),
            (call.x.float(), "input dtype"),
            (call.x.long(), "input dtype"),
            (call.x.to("meta"), "input device"),
            (pack_padded_sequence(call.x[..., :2], [4, 2]), "input shape"),
        ]
        for bad, named in bad_inputs:
            with pytest.raises(TorchArgumentError, match=f"Invalid {named}"):
                mine(bad)
        h = "hx[0]" if lstm else "hx"
        bad_states = [
            (good[0][:1], "shape"), (good[0][:, :1], "shape"), (good[0][..., :1], "shape"), (good[0][0], "shape"),
            (good[0].float(), "dtype"), (good[0].to("meta"), "device"),
        ]  # fmt: skip
        for bad, aspect in bad_states:
            with pytest.raises(RuntimeError) as caught:
                mine(call.x, states(bad))
            assert str(caught.value).startswith(f"Invalid {h} {aspect}: ")
            with pytest.raises(ValueError):
                mine(pack_padded_sequence(call.x, [4, 2]), states(bad))
        with pytest.raises(RuntimeError, match="shape"):
            mine(call.x[:, 0], states(*good))
        for nonsense in (call.x.numpy(), None, [1.0]):
            with pytest.raises(ArgumentTypeError, match="input"):
                mine(nonsense)
        with pytest.raises(ArgumentTypeError, match="hx"):
            mine(call.x, 3)
        if lstm:
            with pytest.raises(RuntimeError, match=r"hx\[1\] shape"):
                mine(call.x, (good[0], good[1][:, :1]))
            with pytest.raises(ArgumentTypeError, match="a pair"):
                mine(call.x, good[0])

    def test_a_device_without_an_engine_is_refused_in_words(self):
        _, mine = make_pair("GRU", 3, 5)
        with pytest.raises(TorchArgumentError, match="device"):
            mine(torch.zeros(2, 2, 3, dtype=torch.float64, device="meta"))


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


def test_a_missing_torch_is_named_and_importing_the_package_needs_none():
    code = """
import sys
sys.modules["torch"] = None
import pycudnnrnn.interop
try:
    import pycudnnrnn.interop.torch
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.startswith("MissingDependencyError"), done.stderr
    assert "pip install 'pycudnnrnn[torch]'" in done.stdout
