"""Prepared calls, captured graphs, other streams and threads, as the tests and the triage use them."""

import contextlib
import threading

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import ARRAYS, put_params, run

LSTM = ops.CudnnLSTM(2, 12, 7, dtype="float64", direction="bidirectional")


class Prepared:
    """A plan with its buffers, and its three passes."""

    RESULTS = ("y", "hy", "cy", "dx", "dhx", "dcx", "d_params")

    def __init__(self, cuda, op=LSTM, lengths=None, seed=5):
        self.problem = p = make_problem(op, 6, 4, lengths, seed=seed)
        self.plan = op.prepare(6, 4, is_training=True, sequence_lengths=lengths, device="cuda")
        put, empty = cuda.put, lambda like: cuda.put(np.full_like(like, 77))
        self.x, self.hx, self.cx, self.params = put(p.x), put(p.hx), put(p.cx), put(p.params)
        self.dy, self.dhy, self.dcy = put(p.dy), put(p.dhy), put(p.dcy)
        self.y, self.hy, self.cy, self.dx = empty(p.dy), empty(p.hx), empty(p.cx), empty(p.x)
        self.dhx, self.dcx, self.d_params = empty(p.hx), empty(p.cx), empty(p.params)
        self.reserve = put(np.zeros(self.plan.reserve_nbytes, np.uint8))

    def forward(self):
        self.plan.forward(self.params, self.x, self.hx, self.cx, self.y, self.hy, self.cy, self.reserve)

    def backward_data(self):
        gradients = (self.dhy, self.dhx, self.cx, self.dcy, self.dcx, self.dx)
        self.plan.backward_data(self.params, self.y, self.dy, self.hx, *gradients, self.reserve)

    def backward_weights(self):
        self.plan.backward_weights(self.x, self.hx, self.y, self.d_params, self.reserve)

    def results(self, cuda):
        """Every result, on the host."""
        return {name: cuda.get(getattr(self, name)).copy() for name in self.RESULTS}


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


def run_all(cuda, work, count, barrier=None):
    """Run a function in threads, each with a number and a stream of its own."""
    failures = []

    def guarded(n):
        try:
            with use_engine(cuda.engine), contextlib.nullcontext() if cuda.on_shim else another_stream(cuda):
                work(n)
        except BaseException as error:  # noqa: BLE001  a thread's error is the test's
            failures.append(error)
            if barrier is not None:
                barrier.abort()  # or the others wait for it

    threads = [threading.Thread(target=guarded, args=[n]) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def in_threads(cuda):
    """Return the names of the results that differ between several threads and one; eight threads on a GPU."""
    count, rounds = (2, 10) if cuda.on_shim else (8, 300)
    problems = [make_problem(LSTM, 6, 4, [6, 2, 4, 1], seed=seed) for seed in range(count)]
    expected, wrong = [run(cuda, problem) for problem in problems], []

    def work(n):
        for _ in range(rounds):
            found = run(cuda, problems[n])
            wrong.extend(name for name in found if not np.array_equal(found[name], expected[n][name]))

    run_all(cuda, work, count)
    return wrong


def eager(cuda, problem, params):
    """Return every result by eager calls on params of the device, on the host, under a graph's names."""
    found = run(cuda, problem, params=params)
    return {"d_params" if name == "dparams" else name: array for name, array in found.items()}


def captured(cuda, problem, *, training=True, **keywords):
    T, B, _ = problem.x.shape
    plan = problem.op.prepare(T, B, is_training=training, sequence_lengths=problem.lengths, device="cuda")
    return plan.capture(put_params(cuda, problem), **keywords)


def fill(cuda, graph, problem):
    for name in ARRAYS:
        if getattr(graph, name) is not None:
            cuda.device.copy_into(getattr(graph, name), cuda.put(getattr(problem, name)))
