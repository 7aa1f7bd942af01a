"""The optimizers that torch's modules and ours are trained with, and the training."""

import torch


class LARS(torch.optim.Optimizer):
    """Source: You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks" (2017), algorithm 1."""

    def __init__(self, params, lr=1.0, trust=0.001, momentum=0.9, decay=0.001):
        super().__init__(params, {"lr": lr, "trust": trust, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                norm, size, decay = weight.norm(), weight.grad.norm(), group["decay"]
                rate = group["lr"] * group["trust"] * norm / (size + decay * norm)
                velocity = self.state[weight].setdefault("velocity", torch.zeros_like(weight))
                velocity.mul_(group["momentum"]).add_(rate * (weight.grad + decay * weight))
                weight.sub_(velocity)


class LAMB(torch.optim.Optimizer):
    """Source: You et al., "Large Batch Optimization for Deep Learning" (2020), algorithm 2."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.999), eps=1e-6, decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state, (b1, b2) = self.state[weight], group["betas"]
                m, v = (state.setdefault(name, torch.zeros_like(weight)) for name in "mv")
                count = state["count"] = state.get("count", 0) + 1
                m.mul_(b1).add_((1 - b1) * weight.grad)
                v.mul_(b2).add_((1 - b2) * weight.grad**2)
                update = m / (1 - b1**count) / ((v / (1 - b2**count)).sqrt() + group["eps"]) + group["decay"] * weight
                weight.sub_(group["lr"] * weight.norm() / update.norm() * update)


def grouped(module):
    matrices = [weight for weight in module.parameters() if weight.ndim == 2]
    biases = [weight for weight in module.parameters() if weight.ndim == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": biases, "weight_decay": 0.0}], 0.01)


OPTIMIZERS = {
    **{name: lambda module, kind=kind: kind(module.parameters(), lr=0.01) for name, kind in (
        ("SGD", torch.optim.SGD), ("Adam", torch.optim.Adam), ("Adamax", torch.optim.Adamax),
        ("NAdam", torch.optim.NAdam), ("RAdam", torch.optim.RAdam), ("RMSprop", torch.optim.RMSprop),
        ("Rprop", torch.optim.Rprop), ("Adagrad", torch.optim.Adagrad), ("Adadelta", torch.optim.Adadelta),
        ("ASGD", torch.optim.ASGD),
    )},
    "Adafactor": lambda module: torch.optim.Adafactor(module.parameters(), lr=0.05),
    "groups": grouped,
    "Muon": lambda module: torch.optim.Muon([weight for weight in module.parameters() if weight.ndim == 2]),
    "LARS": lambda module: LARS(module.parameters()),
    "LAMB": lambda module: LAMB(module.parameters()),
}  # fmt: skip


def train(module, optimizer, x, goal):
    """Train for 50 steps; return the weights and the output after it, by name."""
    optimizer = OPTIMIZERS[optimizer](module)
    for _ in range(50):
        optimizer.zero_grad()
        (module(x)[0] - goal).square().mean().backward()
        optimizer.step()
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    return weights | {"output": module(x)[0]}
