"""A model on a device with everything made that a call can be made on, and those calls by name."""

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.testing.strategies import make_problem

CALLS = (
    "an eager forward", "a forward of another kind", "a forward of parts", "a forward that recomputes", "a backward",
    "a backward of weights", "a prepared forward", "preparing", "capturing", "replaying", "a layout", "params",
    "dropout states", "memory told",
)  # fmt: skip


class EveryCall:
    """`device` stands for a `CudaDevice`; the engine is whoever runs on "cuda"."""

    def __init__(self, device):
        self.device = device
        self.op = op = ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=3)
        self.problem = make_problem(op, 3, 2, None, seed=5)
        names = ("x", "hx", "params", "dy")
        self.arrays = a = {name: device.from_host(getattr(self.problem, name)) for name in names}
        self.fwd, self.data = self.forward(), self.forward()
        self.data.backward_data(a["dy"])
        self.plan = op.prepare(3, 2, is_training=True, device="cuda")
        self.graph = self.plan.capture(a["params"])
        y, hy = device.copy(a["dy"]), device.copy(a["hx"])
        reserve = device.empty((self.plan.reserve_nbytes,), np.dtype(np.uint8))
        self.calls = {
            "an eager forward": self.forward,
            "a forward of another kind": lambda: self.forward(is_training=False),
            "a forward of parts": lambda: self.forward(sequence_lengths=[3, 0]),
            "a forward that recomputes": lambda: self.forward(checkpoint_every=1),
            "a backward": lambda: self.fwd.backward(a["dy"], retain=True),
            "a backward of weights": self.data.backward_weights,
            "a prepared forward": lambda: self.plan.forward(a["params"], a["x"], a["hx"], None, y, hy, None, reserve),
            "preparing": lambda: op.prepare(5, 2, device="cuda"),
            "capturing": lambda: self.plan.capture(a["params"]),
            "replaying": self.graph.replay,
            "a layout": lambda: ops.CudnnGRU(1, 5, 4).layout("cuda"),
            "params": lambda: op.init_params(device="cuda"),
            "dropout states": lambda: op.dropout_state("cuda"),
            "memory told": lambda: op.memory(9, 2, True, device="cuda"),
        }
        assert tuple(self.calls) == CALLS

    def forward(self, **keywords):
        return self.op.forward(self.arrays["x"], self.arrays["hx"], self.arrays["params"], **keywords)
