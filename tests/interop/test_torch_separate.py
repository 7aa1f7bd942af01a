"""`flat=False`: each weight is a parameter under torch's name, for every optimizer and tool, as in torch's module."""

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402

from tests.interop.pairs import TOOLS, gradients, make_pair, worst  # noqa: E402

pytestmark = [  # torch's own, of itself
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:.*torch.autograd.function.Function.* should not be instantiated"),
]


def grouped(module):
    matrices = [weight for weight in module.parameters() if weight.ndim == 2]
    biases = [weight for weight in module.parameters() if weight.ndim == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": biases, "weight_decay": 0.0}], 0.01)


OPTIMIZERS = {
    "Adafactor": lambda module: torch.optim.Adafactor(module.parameters(), lr=0.05),
    "groups": grouped,
    "Muon": lambda module: torch.optim.Muon([weight for weight in module.parameters() if weight.ndim == 2]),
}


@pytest.mark.parametrize(("optimizer", "kind"), list(zip(OPTIMIZERS, ["projected", "GRU", "LSTM"], strict=True)))
def test_an_optimizer_trains_it_as_it_trains_torchs_module(optimizer, kind):
    theirs, mine = make_pair(kind, 4, 6, 2, bidirectional=True, flat=False)
    before = mine.weight_hh_l1.detach().clone()
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    goal = torch.randn_like(theirs(x)[0])
    for module in (theirs, mine):
        trained = OPTIMIZERS[optimizer](module)
        for _ in range(30):
            trained.zero_grad()
            (module(x)[0] - goal).square().mean().backward()
            trained.step()
    assert worst(mine.state_dict(), theirs.state_dict())[0] <= 1e-9
    assert (mine.weight_hh_l1 - before).abs().max() > 1e-2


def test_there_is_no_flat_parameter_and_autocast_leaves_gradients_in_the_weights_dtype():
    _, mine = make_pair("GRU", 3, 5, 2, dtype=torch.float32, flat=False)
    with torch.autocast("cpu", torch.bfloat16):
        mine(torch.randn(4, 2, 3))[0].float().sum().backward()
    assert all(gradient.dtype == torch.float32 for gradient in gradients(mine).values())
    with pytest.raises(AttributeError, match="params"):
        mine.params  # noqa: B018


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_a_tool_for_one_weight_works_as_on_torchs_module(tool):
    pair = make_pair("LSTM", 3, 5, 2, flat=False)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    found = []
    for module in pair:
        torch.manual_seed(1)
        TOOLS[tool](module)
        module(x)[0].square().sum().backward()
        torch.optim.SGD(module.parameters(), 0.1).step()
        weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        found.append(weights | {"output": module(x)[0]})
    assert worst(found[1], found[0])[0] <= 1e-10


def test_functional_call_takes_single_weights_and_a_compiler_makes_one_graph():
    theirs, mine = make_pair("GRU", 3, 5, 2, flat=False)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    other = {"weight_ih_l1": 2 * theirs.weight_ih_l1.detach()}
    outputs = [torch.func.functional_call(module, other, (x,))[0] for module in (theirs, mine)]
    assert torch.allclose(*outputs)
    torch.compiler.reset()
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    for run, module in ((theirs, theirs), (compiled, mine)):
        module.zero_grad()
        run(x)[0].square().sum().backward()
    assert worst(gradients(mine), gradients(theirs))[0] <= 1e-10
    torch.compiler.reset()
