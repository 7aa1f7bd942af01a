"""Prepared calls, captured graphs, other streams and threads, as the tests use them."""

import concurrent.futures
import contextlib
import types

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import ARRAYS, differ, relaid

RESULTS = {"y": "y", "hy": "hy", "cy": "cy", "dx": "dx", "dhx": "dhx", "dcx": "dcx", "dparams": "d_params"}
"""By the names that a problem's results have, those of a plan's and a graph's arrays."""

ON_HOST = types.SimpleNamespace(put=np.copy, get=np.asarray)
"""The way to and from the device for NumPy's arrays."""

LSTM = ops.CudnnLSTM(2, 12, 7, dtype="float64", direction="bidirectional")


class Prepared:
    """A plan with its buffers, filled with 77 where they are written, and its three passes.

    `way` is to and from the device for arrays of the caller's kind.
    """

    def __init__(self, way, op=LSTM, lengths=None, seed=5, *, problem=None, device="cuda", time_major=True):
        self.problem = p = problem or relaid(make_problem(op, 6, 4, lengths, seed=seed))
        self.keywords = {"sequence_lengths": p.lengths, "device": device, "time_major": time_major}
        self.prepare()
        for name in (*ARRAYS, "params"):
            setattr(self, name, way.put(getattr(p, name)))
        likes = {"y": p.dy, "hy": p.hx, "cy": p.cx, "dx": p.x, "dhx": p.hx, "dcx": p.cx, "d_params": p.params}
        for name, like in likes.items():
            setattr(self, name, way.put(np.full_like(like, 77)))
        if not p.spec.has_cell_state:
            self.cx = self.cy = self.dcx = self.dcy = None
        self.reserve = way.put(np.full(self.plan.reserve_nbytes, 77, np.uint8))

    def prepare(self):
        """Make the plan, or another one for another stream."""
        x = self.problem.x
        sizes = x.shape[:2] if self.keywords["time_major"] else x.shape[1::-1]
        self.plan = self.problem.op.prepare(*sizes, is_training=True, **self.keywords)

    def forward(self):
        self.plan.forward(self.params, self.x, self.hx, self.cx, self.y, self.hy, self.cy, self.reserve)

    def backward_data(self):
        gradients = (self.dhy, self.dhx, self.cx, self.dcy, self.dcx, self.dx)
        self.plan.backward_data(self.params, self.y, self.dy, self.hx, *gradients, self.reserve)

    def backward_weights(self, *, accumulate=False):
        self.plan.backward_weights(self.x, self.hx, self.y, self.d_params, self.reserve, accumulate)

    def step(self):
        """A forward, and both backward passes."""
        self.forward()
        self.backward_data()
        self.backward_weights()

    def results(self, way):
        """Every result, on the host, by the names that a problem's have."""
        arrays = {name: getattr(self, attribute) for name, attribute in RESULTS.items()}
        return {name: way.get(array).copy() for name, array in arrays.items() if array is not None}


@contextlib.contextmanager
def another_stream(cuda):
    if cuda.on_shim:
        from tests.stand_in.host_device import Stream

        before, cuda.device.current = cuda.device.current, Stream()
        yield
        cuda.device.current = before
    else:
        with cuda.device.xp.cuda.Stream(non_blocking=True) as stream:
            yield
        stream.synchronize()


def run_all(cuda, work, count):
    """Run a function in threads, each with a number and a stream of its own."""

    def on_a_stream(n):
        with use_engine(cuda.engine), contextlib.nullcontext() if cuda.on_shim else another_stream(cuda):
            work(n)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(on_a_stream, range(count)))


def captured(problem, *, training=True, **keywords):
    T, B, _ = problem.x.shape
    plan = problem.op.prepare(T, B, is_training=training, sequence_lengths=problem.lengths, device="cuda")
    return plan.capture(problem.op.move_params(problem.params, "cuda"), **keywords)


class OnTorch:
    """The way to and from the device for tensors of torch's."""

    @staticmethod
    def put(array):
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).cuda()

    @staticmethod
    def get(tensor):
        return tensor.cpu().numpy()

    @staticmethod
    def copy_into(target, values):
        target.copy_(values)


def captured_by_cupy(cuda, work):
    """Capture work as a caller does, on a stream of the caller's own; return what replays it and waits."""
    if cuda.on_shim:
        from tests.stand_in.host_device import Stream

        stream = Stream()
        cuda.device.streams[stream.ptr] = stream
        with cuda.device.using(stream), cuda.device.recording(stream) as recorded:
            work()
        return lambda: [each() for each in recorded]
    runtime, stream = cuda.device.xp.cuda.runtime, cuda.device.xp.cuda.Stream(non_blocking=True)
    runtime.deviceSynchronize()
    with stream:
        stream.begin_capture(runtime.streamCaptureModeThreadLocal)
        try:
            work()
        finally:
            graph = stream.end_capture()

    def replay():
        graph.launch(stream)
        stream.synchronize()

    return replay


def captured_by_torch(work):
    """The same, by torch."""
    import torch

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def replay():
        graph.replay()
        torch.cuda.synchronize()

    return replay


def wrong_in_a_callers_graph(way, capture, lengths):
    """What of a prepared training step is wrong where a caller has captured it: what ran at once, and what differs."""
    b = Prepared(way, lengths=lengths)
    b.step()
    expected = b.results(way)
    for name, attribute in RESULTS.items():
        way.copy_into(getattr(b, attribute), way.put(np.full_like(expected[name], 77)))
    b.prepare()  # the caller's capture has a stream of its own
    replay = capture(b.step)
    wrong = [f"{name} was written at once" for name, array in b.results(way).items() if (array != 77).any()]
    replay()
    return wrong + differ(b.results(way), expected)
