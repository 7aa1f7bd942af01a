"""Each integer that a user can give, at its limits, beyond them and where C would wrap; a refusal calls nothing."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, libcudnn, ops
from pycudnnrnn.engines.cudnn.checks import check_sizes
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import INT32_MAX, SEED_MAX, TIME_MAX

WRAPPING = (2**31 - 1, 2**31, 2**32 + 16, 2**63, 2**64 + 16, -1, -(2**31), -(2**31) - 1)


@dataclasses.dataclass(frozen=True)
class Row:
    """One parameter: what it is called with, its limits, and the name in the error."""

    name: str
    low: int
    high: int
    call: Callable
    huge: int | None = None  # above this a right value takes memory that no test has
    reaches: bool = False  # whether a right value makes a native call

    def __str__(self):
        return self.name


LSTM = {"mode": "lstm", "num_layers": 1, "num_units": 8, "input_size": 4}


def prepare(*, lengths=None, **sizes):
    sizes = {"T": 3, "B": 2} | sizes
    return ops.CudnnLSTM(1, 8, 4).prepare(**sizes, sequence_lengths=lengths, device="cuda:0")


def forward(lengths):
    x = np.zeros((3, 2, 4), "f4")
    op = ops.CudnnLSTM(1, 8, 4)
    return op.forward(x, None, None, op.init_params(), sequence_lengths=lengths)


ROWS = [
    *(
        Row(name, 1, INT32_MAX, lambda v, name=name: RNNSpec(**LSTM | {name: v}))
        for name in ("num_layers", "num_units", "input_size")
    ),
    Row("num_proj", 0, 7, lambda v: RNNSpec(**LSTM, num_proj=v)),  # TF's 0 is no projection
    Row("seed", 0, SEED_MAX, lambda v: RNNSpec(**LSTM, seed=v)),
    Row("seed", 0, SEED_MAX, lambda v: ops.CudnnLSTM(1, 8, 4).init_params(seed=v)),
    Row("T", 1, TIME_MAX, lambda v: prepare(T=v), reaches=True),
    Row("B", 1, INT32_MAX // 3 // 8, lambda v: prepare(B=v), huge=100, reaches=True),
    Row("sequence_lengths[1]", 1, 3, lambda v: prepare(lengths=[3, v]), reaches=True),
    Row("sequence_lengths[1]", 0, 3, lambda v: forward([2, v])),
]


@pytest.fixture
def called(play, monkeypatch):
    """The native functions called since the test cleared the list, but for releases: the collector makes those."""
    _, engine, _ = play()

    class Calls(list):
        def clear(self):
            super().clear()
            engine.runtime.compiled.clear()  # or passes would be found, and nothing asked

    names = Calls()
    call = libcudnn.Function.__call__

    def counted(function, *arguments):
        if "Destroy" not in function.prototype.name:
            names.append(function.prototype.name)
        return call(function, *arguments)

    prepare()  # the handle, the layout and the dropout states are there before anything is counted
    monkeypatch.setattr(libcudnn.Function, "__call__", counted)
    return names


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_integer_passes_within_its_limits_and_is_refused_by_name_beyond_them(called, row):
    values = {row.low - 1, row.low, row.low + 1, row.high - 1, row.high, row.high + 1, *WRAPPING}
    for value in sorted(values):
        for given in [value, np.int64(value)] if -(2**63) <= value < 2**63 else [value]:
            called.clear()
            if row.low <= value <= row.high:
                if row.huge is None or value <= row.huge:
                    row.call(given)
                    assert bool(called) == row.reaches
                continue
            with pytest.raises(ArgumentError) as caught:
                row.call(given)
            assert row.name.partition("[")[0] in str(caught.value), (given, caught.value)
            assert not called, (given, called)


PRODUCTS = [
    # name in the error, spec, T, the largest batch that passes
    ("input_data", RNNSpec("gru", 1, 2, 8), 4, INT32_MAX // 32),
    ("output", RNNSpec("gru", 1, 8, 2, direction="bidirectional"), 4, INT32_MAX // 64),
    ("output", RNNSpec("lstm", 1, 8, 2, direction="bidirectional", num_proj=6), 4, INT32_MAX // 48),
    ("gates", RNNSpec("lstm", 1, 8, 2, num_proj=4), 4, INT32_MAX // 32),
    ("input_h", RNNSpec("gru", 3, 8, 2, direction="bidirectional"), 1, INT32_MAX // 48),
]


@pytest.mark.parametrize(("name", "spec", "T", "most"), PRODUCTS, ids=str)
def test_a_product_of_sizes_passes_up_to_its_limit_and_is_refused_beyond_it(called, name, spec, T, most):
    """No memory is needed to see it: cuDNN takes such batches silently, and its kernels index with 32 bits."""
    for batch in (1, most - 1, most):
        check_sizes(CallConfig(spec, Schedule(T, batch)))
    for batch in (most + 1, INT32_MAX, 2**31, 2**32 + 16):
        with pytest.raises(ArgumentError) as caught:
            check_sizes(CallConfig(spec, Schedule(T, batch)))
        assert caught.value.argument == name or batch > most + 1  # far beyond, another product is too large first
    op = ops.from_spec(spec)
    with pytest.raises(ArgumentError):
        op.prepare(T, most + 1, device="cuda:0")
    assert not called


MATRICES = [
    # spec one above the limit of 2**31 - 1 elements in one matrix, and the largest that passes
    (RNNSpec("gru", 1, 46341, 8), RNNSpec("gru", 1, 46340, 8)),
    (RNNSpec("rnn_tanh", 1, 2**16, 2**15), RNNSpec("rnn_tanh", 1, 2**15, 2**16 - 1)),
    tuple(RNNSpec("rnn_relu", 2, units, 8, direction="bidirectional") for units in (32768, 32767)),
    (RNNSpec("lstm", 1, 2**21, 8, num_proj=1024), RNNSpec("lstm", 1, 2**21 - 1, 8, num_proj=1024)),
]  # fmt: skip


@pytest.mark.parametrize(("above", "most"), MATRICES, ids=lambda v: repr(v)[:50])
def test_a_matrix_has_up_to_2_31_minus_1_elements(called, above, most):
    check_sizes(CallConfig(most, Schedule(1, 1)))
    for ask in (lambda op: op.prepare(1, 1, device="cuda:0"), lambda op: op.layout("cuda:0")):
        with pytest.raises(ArgumentError) as caught:
            ask(ops.from_spec(above))
        assert caught.value.argument == "params"
    assert not called
