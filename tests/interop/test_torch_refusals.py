"""What torch refuses is refused: where torch's tests name a type, with an error of that type too."""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence  # noqa: E402

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from pycudnnrnn.interop._torch_rules import TorchArgumentError  # noqa: E402
from tests.interop.pairs import KINDS, make_call, make_pair  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


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
def test_a_bad_argument_of_the_constructor_is_named(change, type_, named):
    with pytest.raises(type_, match=f"Invalid {named}") as caught:
        ours.LSTM(**{"input_size": 3, "hidden_size": 5} | change)
    assert isinstance(caught.value, ArgumentError)


def test_projections_and_nonlinearities_that_do_not_exist_are_refused():
    for module in (ours.GRU, ours.RNN):
        with pytest.raises(ValueError, match="proj_size"):
            module(3, 5, proj_size=2)
    with pytest.raises(ValueError, match="'tanh' or 'relu'"):
        ours.RNN(3, 5, nonlinearity="gelu")
    assert ours.RNN(3, 5, 1, "relu").nonlinearity == "relu"
    assert ours.RNN(3, 5, 2, "relu", False, True).batch_first


def test_dropout_with_one_layer_warns():
    with pytest.warns(UserWarning, match="no effect with one layer"):
        ours.GRU(3, 5, dropout=0.5)


def test_bad_inputs_and_states_are_named(kind):
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


def test_params_of_another_size_are_named(kind):
    _, mine = make_pair(kind, 3, 5)
    size = mine.params.numel()
    for shape in ((size - 1,), (size + 1,), (1, size)):
        with pytest.raises(TorchArgumentError, match=rf"Invalid params shape: .*expecting \({size},\)"):
            torch.func.functional_call(mine, {"params": torch.zeros(shape).double()}, (torch.zeros(2, 2, 3).double(),))


BATCH_SIZES = {
    "rising": [1, 2],
    "too few rows": [2],
    "too many rows": [2, 2],
    "negative": [2, -1, 2],
    "negative at first": [-2, 5],
    "beyond the data": [3, 2, 1],
    "a step that no sequence has": [2, 1, 0],
    "none": [],
    "floats": torch.tensor([2.0, 1.0]),
    "narrow": torch.tensor([2, 1], dtype=torch.int32),
    "two axes": torch.tensor([[2, 1]]),
}


@pytest.mark.parametrize("case", BATCH_SIZES)
@pytest.mark.parametrize("states", [False, True])
def test_batch_sizes_that_are_not_those_of_the_data_are_named_before_memory_is_read_by_them(kind, case, states):
    _, mine = make_pair(kind, 3, 5, 2)
    sizes = BATCH_SIZES[case]
    sizes = sizes if isinstance(sizes, torch.Tensor) else torch.tensor(sizes, dtype=torch.int64)
    packed = PackedSequence(torch.randn(3, 3, dtype=torch.float64), sizes)
    hx = make_call(mine, 4, 2).hx if states else None
    hx = hx if hx is None or mine.mode == "LSTM" else hx[0]
    expected = "Invalid batch_sizes: |Invalid hx" if states else "Invalid batch_sizes: "
    with pytest.raises(TorchArgumentError, match=expected):
        mine(packed, hx)


def test_batch_sizes_that_were_right_before_are_compared_with_other_data():
    _, mine = make_pair("GRU", 3, 5)
    sizes = torch.tensor([2, 1])
    mine(PackedSequence(torch.randn(3, 3, dtype=torch.float64), sizes))
    for rows in (2, 4):
        with pytest.raises(TorchArgumentError, match="batch_sizes"):
            mine(PackedSequence(torch.randn(rows, 3, dtype=torch.float64), sizes))


def test_an_order_that_is_not_of_the_batch_is_refused():
    _, mine = make_pair("GRU", 3, 5)
    data, sizes = torch.randn(3, 3, dtype=torch.float64), torch.tensor([2, 1])
    for order in (torch.tensor([0]), torch.tensor([0, 1, 2])):
        with pytest.raises(TorchArgumentError, match="batch_sizes"):
            mine(PackedSequence(data, sizes, order, order))


def test_a_device_without_an_engine_is_refused_in_words():
    _, mine = make_pair("GRU", 3, 5)
    with pytest.raises(TorchArgumentError, match="device"):
        mine(torch.zeros(2, 2, 3, dtype=torch.float64, device="meta"))


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
    assert "pip install torch, or," in done.stdout


class Model(torch.nn.Module):
    """A model with an LSTM in it, as TorchScript takes one."""

    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm

    def forward(self, x):
        return self.lstm(x)[0]


def quantized(model):
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM})


def onnx_of(model, x):
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=False)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore")  # torch's own, of what it has given up
def test_what_torch_made_for_its_own_module_refuses_ours_and_takes_torchs_with_our_weights(tmp_path):
    """What docs/how-to/torch.md says of TorchScript, its ONNX export and quantization."""
    x = torch.randn(3, 2, 4)
    mine, theirs = Model(ours.LSTM(4, 5)).eval(), Model(torch.nn.LSTM(4, 5)).eval()
    theirs.load_state_dict(mine.state_dict())
    with pytest.raises(torch.jit.frontend.UnsupportedNodeError, match="Lambda aren't supported"):
        torch.jit.script(mine)
    with pytest.raises(torch.jit.TracingCheckError, match="Tracing failed sanity checks"):
        torch.jit.trace(mine, (x,))
    with pytest.raises(RuntimeError, match="Cannot insert a Tensor that requires grad as a constant"):
        onnx_of(mine, x)
    frozen = torch.jit.trace(Model(ours.LSTM(4, 5)).eval().requires_grad_(False), (x,))
    with pytest.raises(RuntimeError, match="Could not export Python function call"):
        frozen.save(tmp_path / "m.pt")
    assert type(quantized(mine).lstm) is ours.LSTM
    assert not isinstance(mine.lstm, torch.nn.RNNBase)

    assert onnx_of(theirs, x)
    assert type(quantized(theirs).lstm) is torch.ao.nn.quantized.dynamic.LSTM
    for made in (torch.jit.script(theirs), torch.jit.trace(theirs, (x,))):
        made.save(tmp_path / "m.pt")
        assert torch.allclose(torch.jit.load(tmp_path / "m.pt")(x), mine(x), atol=1e-6)


class Net(torch.nn.Module):
    """A model with a recurrent module inside, as one is written for torch's."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn
        self.head = torch.nn.LazyLinear(2, dtype=torch.float64)

    def forward(self, x, hx):
        y, states = self.rnn(x, hx)
        return self.head(y), states


def test_a_symbolic_trace_has_the_module_as_a_leaf_as_it_has_torchs(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    call = make_call(mine, 4, 2)
    hx = tuple(call.hx) if mine.mode == "LSTM" else call.hx[0]
    traces = [torch.fx.symbolic_trace(Net(rnn)) for rnn in (theirs, mine)]
    nodes = [[(node.op, str(node.target), str(node.args)) for node in trace.graph.nodes] for trace in traces]
    assert nodes[0] == nodes[1]
    assert dict(traces[1].named_modules())["rnn"] is mine
    y, states = traces[1](call.x, hx)
    expected, theirs_states = Net.forward(traces[1], call.x, hx)
    assert torch.equal(y, expected)
    assert all(map(torch.equal, states, theirs_states))
    y.sum().backward()
    assert mine.params.grad is not None


def test_a_symbolic_trace_of_nothing_but_the_module_is_refused_by_name(kind):
    _, mine = make_pair(kind, 3, 5)
    with pytest.raises(TorchArgumentError, match="expecting one that has this one inside"):
        torch.fx.symbolic_trace(mine)


ONE_WEIGHT = {
    "weight_norm": lambda rnn: torch.nn.utils.weight_norm(rnn, "weight_hh_l0"),
    "spectral_norm": lambda rnn: torch.nn.utils.spectral_norm(rnn, "weight_hh_l0"),
    "prune": lambda rnn: prune.l1_unstructured(rnn, "weight_hh_l0", 0.5),
}


@pytest.mark.parametrize("what", ONE_WEIGHT)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_what_wants_one_weight_as_a_parameter_is_answered_with_what_to_use(kind, what):
    _, mine = make_pair(kind, 3, 5)
    for module in (mine, copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        before = module.state_dict()
        with pytest.raises(TorchArgumentError) as caught:
            ONE_WEIGHT[what](module)
        assert str(caught.value).startswith("Invalid weight_hh_l0: a part of the parameter 'params', expecting a whole")
        assert f"on {type(mine).__name__}(..., flat=False), which takes this module's state dict" in str(caught.value)
        assert all(map(torch.equal, before.values(), module.state_dict().values()))
        with pytest.raises(KeyError, match="gamma"):
            module._parameters["gamma"]


def test_what_the_answer_names_works(kind):
    _, mine = make_pair(kind, 3, 5)
    x = make_call(mine, 4, 2).x
    usual = mine(x)[0]
    prune.l1_unstructured(mine, "params", 0.5)
    assert not torch.equal(mine(x)[0], usual)
    prune.remove(mine, "params")
    assert (mine.params == 0).sum() >= mine.params.numel() // 2


@pytest.mark.parametrize("name", ["_flat_weights", "_flat_weights_names"])
def test_torchs_private_list_of_weights_is_answered_with_the_public_one(kind, name):
    _, mine = make_pair(kind, 3, 5)
    with pytest.raises(AttributeError, match=r"'params', and in named_weights\(\)"):
        getattr(mine, name)
    assert not hasattr(mine, name)
