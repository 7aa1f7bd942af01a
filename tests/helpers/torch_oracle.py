"""torch's RNN modules on the CPU in float64, as the oracle of a `Problem`."""

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pycudnnrnn.testing.strategies import Problem
from tests.helpers.cells import run_cells

torch.set_num_threads(1)


def torch_module(spec, weights, biases):
    """Return the nn.LSTM, nn.GRU or nn.RNN that holds canonical weights and double biases."""
    kind, more = {
        "lstm": (torch.nn.LSTM, {"proj_size": spec.num_proj or 0}),
        "gru": (torch.nn.GRU, {}),
    }.get(spec.mode, (torch.nn.RNN, {"nonlinearity": spec.mode.removeprefix("rnn_")}))
    keywords = {"num_layers": spec.num_layers, "bidirectional": spec.num_dirs == 2, "dtype": torch.float64}
    module = kind(spec.input_size, spec.num_units, **keywords, **more)
    arrays = torch_arrays(spec, weights, biases)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return module


def torch_arrays(spec, weights, biases):
    """Return canonical weights and biases under torch's parameter names."""
    gates = spec.num_gates
    of_layer = len(weights) // spec.num_pseudo_layers
    results = {}
    for p in range(spec.num_pseudo_layers):
        layer, direction = divmod(p, spec.num_dirs)
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        w, b = weights[p * of_layer : (p + 1) * of_layer], biases[p * 2 * gates : (p + 1) * 2 * gates]
        results["weight_ih" + suffix] = np.concatenate(w[:gates])
        results["weight_hh" + suffix] = np.concatenate(w[gates : 2 * gates])
        results["bias_ih" + suffix] = np.concatenate(b[:gates])
        results["bias_hh" + suffix] = np.concatenate(b[gates:])
        if spec.num_proj:
            results["weight_hr" + suffix] = w[2 * gates]
    return results


def run_torch(problem: Problem) -> dict[str, np.ndarray]:
    """Return every result and every gradient of a problem, as torch computes them, by name."""
    spec, lstm = problem.spec, problem.spec.has_cell_state
    module = torch_module(spec, *problem.op.params_to_canonical(problem.params))
    x, hx, cx = (torch.tensor(a, requires_grad=True) for a in (problem.x, problem.hx, problem.cx))
    data = x if problem.lengths is None else pack_padded_sequence(x, problem.lengths, enforce_sorted=False)
    y, states = module(data, (hx, cx) if lstm else hx)
    if problem.lengths is not None:
        y, _ = pad_packed_sequence(y, total_length=len(x))
    hy, cy = states if lstm else (states, None)
    loss = (y * torch.tensor(problem.dy)).sum() + (hy * torch.tensor(problem.dhy)).sum()
    if lstm:
        loss = loss + (cy * torch.tensor(problem.dcy)).sum()
    loss.backward()
    results = {"y": y, "hy": hy, "dx": x.grad, "dhx": hx.grad}
    if lstm:
        results |= {"cy": cy, "dcx": cx.grad}
    results |= {f"d_{name}": parameter.grad for name, parameter in module.named_parameters()}
    return {name: tensor.detach().numpy() for name, tensor in results.items()}


@torch.no_grad()
def run_torch_cells(cells, spec, x, hx, cx, lengths):
    """Return (output, h, c or None) of a stack of torch's cells, in cuDNN's order."""
    lstm = spec.has_cell_state
    steps = [lambda x, h, *c, cell=cell: cell(x, (h, *c)) if c else (cell(x, h),) for cell in cells]
    states = [torch.tensor(state) for state in ((hx, cx) if lstm else (hx,))]
    results = run_cells(steps, torch.tensor(x), states, lengths, num_dirs=spec.num_dirs, xp=torch)
    return [result if result is None else result.numpy() for result in results]


def run_ours(problem: Problem, **keywords) -> dict[str, np.ndarray]:
    """Return the same from our op, under the same names."""
    results = problem.results(**keywords)
    named = torch_arrays(problem.spec, *problem.op.params_to_canonical(results.pop("dparams")))
    return results | {f"d_{name}": value for name, value in named.items()}


def worst_error(ours: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> tuple[float, str]:
    """Return the largest absolute difference, and where it is; there is none where there is a NaN."""
    assert ours.keys() == expected.keys()
    for name, array in ours.items():
        assert array.shape == expected[name].shape, name
        assert not np.isnan(array - expected[name]).any(), name
    return max((float(np.abs(array - expected[name]).max(initial=0)), name) for name, array in ours.items())
