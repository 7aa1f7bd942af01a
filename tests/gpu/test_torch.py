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


def largest_share(found, expected):
    """The largest difference of equally named tensors, as a share of the largest number of each, if that is above 1."""
    assert found.keys() == expected.keys()
    return max(
        largest(found[name].double().cpu(), wanted.double().cpu()) / max(1.0, float(wanted.abs().max()))
        for name, wanted in expected.items()
    )


def step(module, device, dtype, *, packed):
    """Every result and gradient of a training step, on the host in float64."""
    x = torch.randn(12, 5, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    x.requires_grad_()
    data = pack_padded_sequence(x, [3, 12, 1, 12, 7], enforce_sorted=False) if packed else x
    results = tensors(module.to(device, dtype)(data))
    sum(result.square().sum() for result in results).backward()
    found = dict(zip(("y", "h", "c"), results, strict=False)) | {"dx": x.grad} | gradients(module)
    return {name: tensor.detach().double().cpu() for name, tensor in found.items()}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_those_of_torchs_own_module_on_the_cpu(answer, kind, packed):
    """In float32 without TF32 ours are as near as `numbers.worst` has it; torch's on the device are recorded beside."""
    theirs, ours = make_pair(kind, 17, 24, 2, bidirectional=True)
    expected = step(theirs, "cpu", torch.float64, packed=packed)
    assert worst(step(ours, "cuda", torch.float64, packed=packed), expected)[0] <= 1e-9
    errors = {}
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for name, module in zip(("torch", "ours"), make_pair(kind, 17, 24, 2, bidirectional=True), strict=True):
            found = step(module, "cuda", torch.float32, packed=packed)
            errors[name] = largest_share(found, expected)
    answer(f"torch {kind}, {'packed' if packed else 'padded'}: largest errors in float32", errors)
    assert errors["ours"] <= ALLOWED["float32"] * EPS["float32"] * (12 * 24 * 2) ** 0.5


def test_work_goes_to_torchs_current_stream():
    _, mine = make_pair("LSTM", 64, 128, 2)
    mine.cuda()
    x = torch.randn(50, 16, 64, dtype=torch.float64, device="cuda")
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


def test_a_module_goes_to_the_device_and_back_bit_for_bit():
    _, mine = make_pair("LSTM", 3, 6, 2, bidirectional=True)
    before = {name: weight.clone() for name, weight in mine.state_dict().items()}
    mine.cuda()
    assert all(torch.equal(weight.cpu(), before[name]) for name, weight in mine.state_dict().items())
    twin = copy.deepcopy(mine).cpu()
    assert all(torch.equal(weight, before[name]) for name, weight in twin.state_dict().items())
    theirs = torch.nn.LSTM(3, 6, 2, bidirectional=True, dtype=torch.float64).cuda()
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(5, 2, 3, dtype=torch.float64, device="cuda")
    assert torch.allclose(theirs(x)[0], mine(x)[0])


def test_a_seed_draws_on_the_device_what_it_draws_in_torch():
    from pycudnnrnn.interop import torch as ours

    found = []
    for library in (torch.nn, ours):
        torch.manual_seed(5)
        found.append(library.GRU(3, 6, 2, device="cuda").state_dict())
    assert all(torch.equal(found[1][name], weight) for name, weight in found[0].items())


def test_evaluation_gives_gradients_and_dropout_comes_again():
    _, mine = make_pair("LSTM", 3, 6, 2, dropout=0.5)
    mine.cuda()
    x = torch.randn(5, 2, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    mine.eval()(x)[0].sum().backward()
    assert x.grad.abs().sum() > 0
    mine.train()

    def loss(z):
        torch.manual_seed(7)
        return mine(z)[0].square().sum()

    assert torch.autograd.gradcheck(loss, x)


def test_masks_come_again_with_the_seed_and_in_a_checkpoint():
    """Over more forwards than are kept; what torch itself drops after the RNN comes again with it."""
    _, mine = make_pair("LSTM", 3, 6, 2, dropout=0.5)
    drops = torch.nn.Dropout(0.5)
    mine.cuda()
    x = torch.randn(5, 2, 3, dtype=torch.float64, device="cuda", requires_grad=True)

    def run(z):
        return drops(mine(z)[0])

    def steps(through):
        torch.manual_seed(7)
        return [torch.autograd.grad(through(x).square().sum(), [x, *mine.parameters()]) for _ in range(20)]

    expected = steps(run)
    assert not torch.equal(expected[0][0], expected[1][0])
    for through in (run, functools.partial(checkpoint, run, use_reentrant=False)):
        for found, wanted in zip(steps(through), expected, strict=True):
            assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_runs_in_its_half_precision(dtype, answer):
    """The numbers are compared with torch's own module. That is known to give float16 in bfloat16's place."""
    pair, found = make_pair("GRU", 8, 16, 2, dtype=torch.float32), {}
    x = torch.randn(5, 4, 8, device="cuda")
    for name, module in zip(("torch", "ours"), pair, strict=True):
        module.cuda()
        with torch.autocast("cuda", dtype):
            y, _ = module(x)
        y.float().square().sum().backward()
        answer(f"autocast {dtype}: dtype of {name}", y.dtype)
        assert name == "torch" or y.dtype == dtype
        assert all(gradient.dtype == torch.float32 for gradient in gradients(module).values())
        found[name] = {"y": y.detach()} | gradients(module)
    difference = largest_share(found["ours"], found["torch"])
    answer(f"autocast {dtype}: largest difference from torch's module", difference)
    assert difference <= (2e-2 if dtype == torch.float16 else 1e-1)


@LENGTHS
def test_prepared_calls_run_in_a_graph_that_torch_captures(lengths):
    assert wrong_in_a_callers_graph(OnTorch, captured_by_torch, lengths) == []


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("kind", "width", "units", "dtype", "within"),
    [
        ("LSTM", 40, 96, torch.float32, 1e-4),  # small H
        ("GRU", 40, 160, torch.float32, 1e-4),  # small H forward, the standard algorithm backward
        ("LSTM", 256, 256, torch.float16, 2e-2),  # static
        ("tanh", 128, 384, torch.float16, 2e-2),  # small H forward, static backward
        ("tanh", 40, 96, torch.bfloat16, 1e-1),
    ],
)
def test_by_torchs_algorithms_results_and_gradients_are_torchs(
    monkeypatch, kind, width, units, dtype, within, batch_first
):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    x = torch.randn(16, 16, width, device="cuda", dtype=dtype)
    found = []
    for module in make_pair(kind, width, units, dtype=dtype, batch_first=batch_first):
        leaf = x.detach().requires_grad_()
        y, _ = module.cuda()(leaf)
        y.float().square().sum().backward()
        found.append({"y": y.detach(), "dx": leaf.grad} | gradients(module))
    for name, expected in found[0].items():
        assert largest(found[1][name].double().cpu(), expected.double().cpu()) <= within * float(expected.abs().max())


def test_a_compiler_that_makes_cuda_graphs_leaves_the_operators_out_of_them():
    _, mine = make_pair("LSTM", 3, 6, 2)
    mine.cuda()
    compiled = one_graph(torch.compile(mine, mode="reduce-overhead"))
    for _ in range(4):  # one to warm up, one to capture, two to replay
        x = torch.randn(5, 2, 3, dtype=torch.float64, device="cuda")
        found = []
        for module in (compiled, mine):
            mine.zero_grad()
            y, _ = module(x)
            y.square().sum().backward()
            found.append((y.detach().clone(), *(gradient.clone() for gradient in gradients(mine).values())))
        for ours, expected in zip(*found, strict=True):
            assert torch.allclose(ours, expected)


def test_streams_at_once_drop_by_their_own_seeds():
    _, mine = make_pair("LSTM", 64, 128, 2, dropout=0.5)
    mine.cuda()
    x = torch.randn(50, 16, 64, dtype=torch.float64, device="cuda")

    def run(seed):
        torch.manual_seed(seed)
        return mine(x)[0].detach()

    expected = [run(seed) for seed in range(4)]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    found = []
    for seed in range(4):
        with torch.cuda.stream(streams[seed % 2]):
            found.append(run(seed))
    torch.cuda.synchronize()
    assert all(map(torch.equal, found, expected))
