"""The torch modules on a GPU, over cuDNN: torch's own modules in float64 on the CPU are the oracle."""

import copy
import functools

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.gpu.numbers import ALLOWED, EPS, LENGTHS, largest  # noqa: E402
from tests.gpu.prepared import OnTorch, captured_by_torch, wrong_in_a_callers_graph  # noqa: E402
from tests.interop.pairs import KINDS, gradients, make_pair, one_graph, tensors, worst  # noqa: E402


@pytest.fixture(autouse=True)
def _on_a_gpu(cuda):
    if cuda.on_shim:
        pytest.skip("CUDA tensors are torch's own, and the shim has none")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")


def step(module, device, dtype, *, packed):
    """Every result and gradient of a training step, on the host in float64."""
    x = torch.randn(12, 5, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    x.requires_grad_()
    data = pack_padded_sequence(x, [3, 12, 1, 12, 7], enforce_sorted=False) if packed else x
    results = tensors(module.to(device, dtype)(data))
    sum(result.square().sum() for result in results).backward()
    every = dict(zip(("y", "h", "c"), results, strict=False)) | {"dx": x.grad} | gradients(module)
    return {name: tensor.detach().double().cpu() for name, tensor in every.items()}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_those_of_torchs_own_module_on_the_cpu(answer, kind, packed):
    """In float32 without TF32 ours are as near as `numbers.worst` has it; torch's on the device are recorded beside."""
    theirs, ours = make_pair(kind, 17, 24, 2, bidirectional=True)
    expected, errors = step(theirs, "cpu", torch.float64, packed=packed), {}
    assert worst(step(ours, "cuda", torch.float64, packed=packed), expected)[0] <= 1e-9
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for name, module in zip(("torch", "ours"), make_pair(kind, 17, 24, 2, bidirectional=True), strict=True):
            rounded = step(module, "cuda", torch.float32, packed=packed)
            errors[name] = max(largest(rounded[n], e) / max(1.0, float(e.abs().max())) for n, e in expected.items())
    answer(f"torch {kind}, {'packed' if packed else 'padded'}: largest errors in float32", errors)
    assert errors["ours"] <= ALLOWED["float32"] * EPS["float32"] * (12 * 24 * 2) ** 0.5


@pytest.fixture
def dropping():
    """A module with dropout on the device, and an input."""
    _, mine = make_pair("LSTM", 64, 128, 2, dropout=0.5)
    return mine.cuda(), torch.randn(50, 16, 64, dtype=torch.float64, device="cuda", requires_grad=True)


def test_a_module_goes_to_the_device_and_back_bit_for_bit_and_its_weights_fit_torchs(dropping):
    mine, x = dropping
    theirs = torch.nn.LSTM(64, 128, 2, dtype=torch.float64, device="cuda")
    theirs.load_state_dict(mine.state_dict())
    assert torch.allclose(theirs(x)[0], mine.eval()(x)[0])
    before = {name: weight.cpu() for name, weight in mine.state_dict().items()}
    assert all(torch.equal(weight, before[name]) for name, weight in copy.deepcopy(mine).cpu().state_dict().items())


def test_work_goes_to_torchs_current_stream(dropping):
    mine, x = dropping[0].eval(), dropping[1]
    expected = mine(x)[0].detach()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(x)
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        y = mine(late)[0].detach().clone()
    stream.synchronize()
    assert torch.allclose(y, expected)


def test_gradients_are_those_of_the_masks_and_of_evaluation():
    _, mine = make_pair("LSTM", 3, 6, 2, dropout=0.5)
    x = torch.randn(5, 2, 3, dtype=torch.float64, device="cuda", requires_grad=True)

    def loss(z):
        torch.manual_seed(7)
        return mine(z)[0].square().sum()

    for module in (mine.cuda(), mine.eval()):
        assert torch.autograd.gradcheck(loss, x), module


def test_masks_come_again_with_the_seed_and_in_a_checkpoint(dropping):
    """Over more forwards than are kept; what torch itself drops after the RNN comes again with it."""
    mine, x = dropping

    def run(z):
        return torch.nn.functional.dropout(mine(z)[0])

    def steps(through):
        torch.manual_seed(7)
        return [torch.autograd.grad(through(x).square().sum(), [x, *mine.parameters()]) for _ in range(20)]

    expected = steps(run)
    assert not torch.equal(expected[0][0], expected[1][0])
    for through in (run, functools.partial(checkpoint, run, use_reentrant=False)):
        for gradients_of_step, first in zip(steps(through), expected, strict=True):
            assert all(map(torch.equal, gradients_of_step, first))


@LENGTHS
def test_prepared_calls_run_in_a_graph_that_torch_captures(lengths):
    assert wrong_in_a_callers_graph(OnTorch, captured_by_torch, lengths) == []


@pytest.mark.parametrize(
    ("kind", "width", "units", "dtype", "autocast", "within"),
    [
        ("LSTM", 40, 96, torch.float32, None, 1e-4),  # small H
        ("GRU", 40, 160, torch.float32, None, 1e-4),  # small H forward, the standard algorithm backward
        ("LSTM", 256, 256, torch.float16, None, 2e-2),  # static
        ("tanh", 128, 384, torch.float16, None, 2e-2),  # small H forward, static backward
        ("tanh", 40, 96, torch.bfloat16, None, 1e-1),
        ("GRU", 40, 96, torch.float32, torch.float16, 2e-2),
        ("GRU", 40, 96, torch.float32, torch.bfloat16, 1e-1),
    ],
)
def test_by_torchs_algorithms_results_and_gradients_are_torchs(
    monkeypatch, answer, kind, width, units, dtype, autocast, within
):
    """Batch first, and under autocast. Torch's own module is known to give float16 in bfloat16's place there."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    x, results = torch.randn(16, 16, width, device="cuda", dtype=dtype), []
    for name, module in zip(
        ("torch", "ours"), make_pair(kind, width, units, dtype=dtype, batch_first=True), strict=True
    ):
        leaf = x.detach().requires_grad_()
        with torch.autocast("cuda", autocast or torch.float16, enabled=autocast is not None):
            y, _ = module.cuda()(leaf)
        answer(f"{kind} {dtype} autocast {autocast}: dtype of {name}", y.dtype)
        assert name == "torch" or y.dtype == (autocast or dtype)
        y.float().square().sum().backward()
        results.append({"y": y.detach(), "dx": leaf.grad} | gradients(module))
    for name, expected in results[0].items():
        error = largest(results[1][name].double().cpu(), expected.double().cpu())
        assert error <= within * float(expected.abs().max()), name


def test_a_compiler_that_makes_cuda_graphs_leaves_the_operators_out_of_them(dropping):
    mine, x = dropping[0].eval(), dropping[1]
    compiled = one_graph(torch.compile(mine, mode="reduce-overhead"))
    for scale in range(1, 5):  # one to warm up, one to capture, two to replay
        steps = [
            torch.autograd.grad(run(scale * x)[0].square().sum(), [x, *mine.parameters()]) for run in (compiled, mine)
        ]
        for ours, expected in zip(*steps, strict=True):
            assert torch.allclose(ours, expected)
