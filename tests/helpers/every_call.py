"""A model on a device with everything made that a call can be made on, and those calls by name."""

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.testing.strategies import make_problem


class Model:
    """`device` stands for a `CudaDevice`; the engine is whoever runs on "cuda"."""

    def __init__(self, device):
        self.op = op = ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=3)
        problem = make_problem(op, 3, 2, None, seed=5)
        self.x, self.hx, self.params, self.dy = (
            device.from_host(array) for array in (problem.x, problem.hx, problem.params, problem.dy)
        )
        self.fwd, self.data = self.forward(), self.forward()
        self.data.backward_data(self.dy)
        self.plan = op.prepare(3, 2, is_training=True, device="cuda")
        self.graph = self.plan.capture(self.params)
        self.y, self.hy = device.copy(self.dy), device.copy(self.hx)
        self.reserve = device.empty((self.plan.reserve_nbytes,), np.dtype(np.uint8))

    def forward(self, **keywords):
        return self.op.forward(self.x, self.hx, self.params, **keywords)


CALLS = {
    "an eager forward": Model.forward,
    "a forward of another kind": lambda m: m.forward(is_training=False),
    "a forward of parts": lambda m: m.forward(sequence_lengths=[3, 0]),
    "a forward that recomputes": lambda m: m.forward(checkpoint_every=1),
    "a backward": lambda m: m.fwd.backward(m.dy, retain=True),
    "a backward of weights": lambda m: m.data.backward_weights(),
    "a prepared forward": lambda m: m.plan.forward(m.params, m.x, m.hx, None, m.y, m.hy, None, m.reserve),
    "preparing": lambda m: m.op.prepare(5, 2, device="cuda"),
    "capturing": lambda m: m.plan.capture(m.params),
    "replaying": lambda m: m.graph.replay(),
    "a layout": lambda _: ops.CudnnGRU(1, 5, 4).layout("cuda"),
    "params": lambda m: m.op.init_params(device="cuda"),
    "dropout states": lambda m: m.op.dropout_state("cuda"),
    "memory told": lambda m: m.op.memory(9, 2, True, device="cuda"),
}
