"""What the triage asks of the torch modules and of the JAX function, with torch's and JAX's own arrays on the device.

On the stand-in their arrays are the CPU's, and the NumPy engine computes: that shows that the checks run.
"""

import threading
import time

from tests.gpu import asked, children
from tests.gpu.checks import say
from tests.gpu.numbers import run_numpy, worst


def jax(cuda):
    """Values and gradients under jit, what a callback's thread keeps, and a process that leaves while XLA works."""
    import jax

    backend = jax.default_backend()
    missing = backend != "gpu" and not cuda.on_shim
    say(mend="this JAX has no CUDA" if missing else "", backend=backend, devices=[str(d) for d in jax.devices()])
    for dtype in ("float32", "bfloat16"):
        for lengths in (None, asked.RAGGED):
            problem = asked.problem_of(asked.lstm(dtype), lengths)
            ratio = round(worst(by_jax(problem), run_numpy(problem), problem)[0], 3)
            say(mend="" if ratio <= 1 else f"JAX, {dtype}: wrong numbers", dtype=dtype, lengths=lengths, ratio=ratio)
    say(this_thread=threading.get_native_id(), callbacks=callbacks_of_jax())
    said, code, err = children.child(children.jax_process, "in flight", timeout_s=60)
    say(mend=children.left_in_flight(said, code, err), in_flight={"said": said, "code": code, "stderr": err[-600:]})


def by_jax(problem):
    """Every result and gradient of a jitted call, on the host."""
    import jax
    import numpy as np

    from pycudnnrnn.interop.jax import rnn

    given = [jax.numpy.asarray(array) for array in (problem.params, problem.x, problem.hx, problem.cx)]
    upstream = tuple(jax.numpy.asarray(array) for array in (problem.dy, problem.dhy, problem.dcy))

    @jax.jit
    def both(*given):
        run = lambda *a: rnn(*a, spec=problem.op, sequence_lengths=problem.lengths)  # noqa: E731
        results, pullback = jax.vjp(run, *given)
        return *results, *pullback(upstream)

    names = ("y", "hy", "cy", "dparams", "dx", "dhx", "dcx")
    return {name: np.asarray(array) for name, array in zip(names, both(*given), strict=True)}


def callbacks_of_jax(calls=3):
    """The thread that each call of XLA's came on, and what a thread-local had kept of the calls before."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    kept, seen = threading.local(), []

    def called(context, out, given):
        kept.calls = getattr(kept, "calls", 0) + 1
        seen.append({"thread": threading.get_native_id(), "ident": threading.get_ident(), "calls_kept": kept.calls})

    shape = jax.ShapeDtypeStruct((4,), "float32")
    run = jax.jit(buffer_callback(called, shape, has_side_effect=True))
    for _ in range(calls):
        jax.block_until_ready(run(jax.numpy.zeros(4)))
    return seen


def torch_more(cuda):
    """Our modules beside torch's own: packed, batch first, dropout, autocast, and a prepared call in torch's graph."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    from tests.interop.pairs import make_pair

    if not cuda.on_shim and not torch.cuda.is_available():
        say(mend="this torch has no CUDA")
        return
    device = "cpu" if cuda.on_shim else "cuda"
    say(device=device, torch=torch.__version__, cudnn=torch.backends.cudnn.version())
    x = torch.randn(7, 4, 3, dtype=torch.float64, device=device)
    packed = pack_padded_sequence(x, [3, 7, 1, 5], enforce_sorted=False)
    for name, data, options in (("packed", packed, {}), ("batch_first", x, {"batch_first": True})):
        pair = [module.to(device) for module in make_pair("LSTM", 3, 6, 2, bidirectional=True, **options)]
        off = largest_difference(*(step_of(module, data) for module in pair))
        say(mend="" if off[0] <= 1e-9 else f"the torch module, {name}", case=name, largest_difference=off)
    for dtype in (torch.bfloat16, torch.float16):
        off = autocast_difference(device, dtype)
        mend = "" if off[0] <= 2e-2 else f"the torch module under autocast to {dtype}"
        say(mend, case=f"autocast {dtype}", largest_difference=off)
    module, found = make_pair("LSTM", 3, 6, 2, dropout=0.5)[1].to(device), []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        found.append(module(x)[0].detach())
    same, other = torch.equal(found[0], found[1]), torch.equal(found[0], found[2])
    say(mend="" if same and not other else "dropout does not follow torch's seed", same_seed=same, other_seed=other)
    if cuda.on_shim:
        say(skipped="torch.cuda.graph: CUDA tensors are torch's own")
        return
    from tests.gpu.prepared import OnTorch, captured_by_torch, wrong_in_a_callers_graph

    for lengths in (None, asked.RAGGED):
        wrong = wrong_in_a_callers_graph(OnTorch, captured_by_torch, lengths)
        mend = f"a prepared call in a graph of torch's: {', '.join(wrong)}" if wrong else ""
        say(mend, lengths=lengths, wrong_in_torchs_graph=wrong)


def step_of(module, data):
    """The results and gradients of one step, by name, in float64."""
    from tests.interop.pairs import gradients, tensors

    module.zero_grad()
    results = tensors(module(data))
    sum(result.double().square().sum() for result in results).backward()
    named = {f"result {i}": result for i, result in enumerate(results)} | gradients(module)
    return {name: tensor.detach().double() for name, tensor in named.items()}


def largest_difference(found, expected):
    """The largest difference, as a share of the largest number of its tensor, or of 1 where that is less; and where."""
    return max(
        (asked.largest(found[name].cpu(), tensor.cpu()) / max(1.0, float(tensor.abs().max())), name)
        for name, tensor in expected.items()
    )


def autocast_difference(device, dtype):
    """How far our GRU's step under autocast is off torch's own under the same, with the same weights."""
    import torch

    from tests.interop.pairs import make_pair

    theirs, mine = (module.to(device) for module in make_pair("GRU", 8, 16, 2, dtype=torch.float32))
    x, found = torch.randn(5, 4, 8, device=device), []
    for module in (mine, theirs):
        with torch.autocast(device, dtype):
            found.append(step_of(module, x))
    return largest_difference(*found)


def torch_step(cuda):
    """A training step of our module beside torch's, and what each costs the host."""
    if cuda.on_shim:
        say(skipped="CUDA tensors are torch's own")
        return
    import torch

    from pycudnnrnn.interop import torch as ours

    torch.backends.cudnn.allow_tf32 = False
    theirs, mine = (library.LSTM(64, 128, 2).cuda() for library in (torch.nn, ours))
    mine.load_state_dict(theirs.state_dict())
    x, sums = torch.randn(50, 16, 64, device="cuda", requires_grad=True), {}
    torch.cuda.synchronize()  # the copies are on another stream than the steps
    for name, module in (("torch", theirs), ("ours", mine)):
        with torch.cuda.stream(torch.cuda.Stream()):
            y = module(x)[0]
            sums[name] = [float(y.double().sum()), float(torch.autograd.grad(y.sum(), [x])[0].double().sum())]
        torch.cuda.synchronize()
        times = []
        for _ in range(20):
            started = time.perf_counter()
            module(x)[0].sum().backward()
            times.append(time.perf_counter() - started)
            torch.cuda.synchronize()
        say(module=name, sums=sums[name], host_us_of_a_step=round(sorted(times)[10] * 1e6))
    off = asked.largest(sums["ours"], sums["torch"]) / max(1.0, *map(abs, sums["torch"]))
    say(mend="" if off <= 1e-4 else "the torch module's numbers", sums_differ_by=off)
