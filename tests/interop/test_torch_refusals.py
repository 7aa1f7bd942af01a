"""What torch refuses is refused: where torch's tests name a type, with an error of that type too."""

import pickle

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence  # noqa: E402

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from pycudnnrnn.interop._torch_rules import TorchArgumentError  # noqa: E402
from tests.interop.pairs import TOOLS, TORCHS_WARNINGS, make_call, make_pair, worst  # noqa: E402

pytestmark = TORCHS_WARNINGS


def test_a_bad_value_for_the_constructor_is_named():
    """`tests/api/test_wrong_types.py` has what is no value."""
    wrong = {"input_size": 0, "hidden_size": 0, "num_layers": 0, "dropout": 1.5, "proj_size": 5}
    for module, name, value in (
        *((ours.LSTM, name, value) for name, value in wrong.items()),
        (ours.LSTM, "proj_size", -1),
        (ours.LSTM, "dtype", torch.complex64),
        (ours.GRU, "proj_size", 2),
        (ours.RNN, "proj_size", 2),
        (ours.RNN, "nonlinearity", "gelu"),
    ):
        with pytest.raises(ArgumentError, match=f"Invalid {name}"):
            module(**{"input_size": 3, "hidden_size": 5, name: value})


def test_arguments_by_place_are_torchs_and_dropout_with_one_layer_warns():
    module = ours.RNN(3, 5, 2, "relu", False, True)
    assert (module.nonlinearity, module.bias, module.batch_first) == ("relu", False, True)
    with pytest.warns(UserWarning, match="no effect with one layer"):
        ours.GRU(3, 5, dropout=0.5)


BAD_INPUTS = {
    "narrow": (lambda x: x[..., :2], "shape"),
    "one axis": (lambda x: x[0, 0], "shape"),
    "no step": (lambda x: x[:0], "shape: .*at least one step"),
    "float32": (lambda x: x.float(), "dtype"),
    "elsewhere": (lambda x: x.to("meta"), "device"),
    "narrow, packed": (lambda x: pack_padded_sequence(x[..., :2], [4, 2]), "shape"),
}
BAD_STATES = {
    "one layer": (lambda h: h[:1], "shape"),
    "narrow": (lambda h: h[..., :1], "shape"),
    "float32": (lambda h: h.float(), "dtype"),
    "elsewhere": (lambda h: h.to("meta"), "device"),
}


@pytest.fixture(params=["LSTM", "GRU"])
def called(request):
    """A module and a call of it."""
    _, mine = make_pair(request.param, 3, 5, 2, bidirectional=True)
    return mine, make_call(mine, 4, 2)


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_a_bad_input_is_named(called, case):
    mine, call = called
    change, text = BAD_INPUTS[case]
    with pytest.raises(TorchArgumentError, match=f"Invalid input {text}"):
        mine(change(call.x))


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_bad_state_is_named(called, case):
    mine, call = called
    change, aspect = BAD_STATES[case]
    for place in range(len(call.hx)):
        states = [change(h) if n == place else h for n, h in enumerate(call.hx)]
        name = rf"hx\[{place}\]" if len(call.hx) == 2 else "hx"
        for data in (call.x, pack_padded_sequence(call.x, [4, 2])):
            with pytest.raises(TorchArgumentError, match=f"^Invalid {name} {aspect}: "):
                mine(data, tuple(states) if len(states) == 2 else states[0])


def test_what_is_no_input_no_state_and_no_pair_of_states_is_named(called):
    mine, call = called
    wrong = [(call.x.numpy(), None, "Invalid input: <class 'numpy.ndarray'>"), (call.x, 3, "Invalid hx")]
    wrong += [(call.x, call.hx[0], "Invalid hx: .*a pair")] if mine.mode == "LSTM" else []
    for data, hx, text in wrong:
        with pytest.raises(ArgumentTypeError, match=text):
            mine(data, hx)


def test_params_of_another_size_are_named():
    _, mine = make_pair("GRU", 3, 5)
    size = mine.params.numel()
    for shape in ((size - 1,), (1, size)):
        with pytest.raises(TorchArgumentError, match=rf"Invalid params shape: .*expecting \({size},\)"):
            torch.func.functional_call(mine, {"params": torch.zeros(shape).double()}, (torch.zeros(2, 2, 3).double(),))


def test_batch_sizes_that_are_not_those_of_the_data_are_named_before_memory_is_read_by_them(called):
    """Rising, too few or too many rows, negative, beyond the data, of a step that no sequence has, and none."""
    mine, call = called
    hx = tuple(call.hx) if mine.mode == "LSTM" else call.hx[0]
    whole = [
        torch.tensor(sizes) for sizes in ([1, 2], [2], [2, 2], [2, -1, 2], [-1, 4], [3, 2, 1], [2, 1, 0], [[2, 1]])
    ]
    for sizes in (*whole, torch.tensor([], dtype=torch.int64), torch.tensor([2.0, 1.0])):
        packed = PackedSequence(torch.randn(3, 3, dtype=torch.float64), sizes)
        with pytest.raises(TorchArgumentError, match="Invalid batch_sizes: "):
            mine(packed)
        with pytest.raises(TorchArgumentError, match=r"Invalid batch_sizes: |Invalid hx"):
            mine(packed, hx)


def test_batch_sizes_that_were_right_before_are_compared_with_other_data_and_orders():
    _, mine = make_pair("GRU", 3, 5)
    data, sizes = torch.randn(4, 3, dtype=torch.float64), torch.tensor([2, 1])
    mine(PackedSequence(data[:3], sizes))
    wrong = [PackedSequence(data[:rows], sizes) for rows in (2, 4)]
    wrong += [PackedSequence(data[:3], sizes, order, order) for order in (torch.tensor([0]), torch.tensor([0, 1, 2]))]
    for packed in wrong:
        with pytest.raises(TorchArgumentError, match="batch_sizes"):
            mine(packed)


def test_a_symbolic_trace_has_the_module_as_a_leaf_as_it_has_torchs():
    theirs, mine = make_pair("LSTM", 3, 5, 2, bidirectional=True)
    traces = [torch.fx.symbolic_trace(torch.nn.Sequential(rnn, torch.nn.Identity())) for rnn in (theirs, mine)]
    nodes = [[(node.op, str(node.target)) for node in trace.graph.nodes] for trace in traces]
    assert nodes[0] == nodes[1]
    assert dict(traces[1].named_modules())["0"] is mine
    with pytest.raises(TorchArgumentError, match="expecting one that has this one inside"):
        torch.fx.symbolic_trace(mine)


@pytest.mark.parametrize("what", ["weight_norm", "spectral_norm", "prune"])
def test_what_wants_one_weight_as_a_parameter_is_answered_with_what_to_use(what):
    """`test_torch_weights` uses it."""
    _, mine = make_pair("GRU", 3, 5)
    for module in (mine, pickle.loads(pickle.dumps(mine))):
        before = module.state_dict()
        with pytest.raises(TorchArgumentError) as caught:
            TOOLS[what](module)
        assert str(caught.value).startswith("Invalid weight_hh_l0: a part of the parameter 'params', expecting a whole")
        assert "GRU(..., flat=False), which takes this module's state dict" in str(caught.value)
        assert worst(module.state_dict(), before)[0] == 0


def test_the_whole_parameter_is_pruned_and_nothing_else_is_assigned():
    _, mine = make_pair("GRU", 3, 5)
    before = mine.params.detach().clone()
    for value in (torch.zeros(15, 3), torch.nn.Parameter(torch.zeros(15, 3))):
        with pytest.raises(TypeError, match=r"weight_ih_l0.*copy_\(values\)"):
            mine.weight_ih_l0 = value
    for name, text in {"weight_ih_l7": "weight_ih_l7", "_flat_weights": r"'params', and in named_weights\(\)"}.items():
        with pytest.raises(AttributeError, match=text):
            getattr(mine, name)
    assert torch.equal(mine.params, before)
    prune.l1_unstructured(mine, "params", 0.5)
    mine(make_call(mine, 4, 2).x)
    assert (mine.params == 0).sum() >= mine.params.numel() // 2
