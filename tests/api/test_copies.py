"""Every public class: its objects copy rightly, or raise one sentence that names what to copy instead."""

import copy
import ctypes
import dataclasses
import enum
import inspect
import pickle

import numpy as np
import pytest

from pycudnnrnn import (
    CudnnCompatibleGRUCell,
    CudnnGRU,
    CudnnLSTM,
    Saver,
    cells,
    layers,
    libcudnn,
    ops,
    saveable,
    testing,
)
from pycudnnrnn.errors import ArgumentTypeError
from tests.api.public_api import modules
from tests.helpers.layers import ALL, built

COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda one: pickle.loads(pickle.dumps(one))}
each_copy = pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)

OP = ops.CudnnLSTM(1, 3, 2)
PARAMS = OP.init_params(seed=1)
X = np.random.default_rng(0).normal(size=(2, 4, 2)).astype("float32")


def called(kind):
    cell = kind(3)
    cell(X[0], cell.zero_state(4, "float32"))
    return cell


CONVERTERS = [f"CudnnParamsFormatConverter{cell}" for cell in ("LSTM", "GRU", "Basic", "Tanh", "Relu")]
COPYING = [
    Saver({"x": X}), OP.stream(PARAMS), built(CudnnLSTM).variables[0], cells.CellStack(OP.spec),
    *(getattr(ops, kind.__name__)(1, 3, 2) for kind in ALL), *map(built, ALL), *(built(kind).saveable for kind in ALL),
    *(called(getattr(cells, name)) for name in dir(cells) if name.startswith("CudnnCompatible")),
    *(getattr(saveable, name)(1, 3, 2) for name in CONVERTERS if hasattr(saveable, name)),
    saveable.RNNParamsSaveable(OP, OP.params_to_canonical, OP.canonical_to_params, PARAMS),
    testing.LayoutEngine(OP.layout()),
]  # fmt: skip
REFUSING = {
    ops.Plan: "the op", ops.Graph: "the op", layers.LayerGraph: "the op", ops.Forward: "its results",
    layers.LayerForward: "its results", libcudnn.Library: "its path", libcudnn.Function: "its name",
}  # fmt: skip
BASES = {
    testing.reference.Step,
    layers.RNNLayer,
    ops.CudnnRNN,
    saveable.CudnnOpaqueParamsSaveable,
    saveable.CudnnParamsFormatConverter,
}


def test_no_public_class_is_missing_here():
    """Data classes, named tuples and enumerations copy as Python's do; torch's modules have tests of their own."""
    members = {m for _, module in modules() for m in vars(module).values() if inspect.isclass(m)}
    pythons = (Exception, enum.Enum, tuple, ctypes.c_void_p, ctypes._Pointer)
    classes = {
        m for m in members
        if m.__module__.startswith("pycudnnrnn.") and "torch" not in m.__module__ and not m.__name__.startswith("_")
        and not issubclass(m, pythons) and not dataclasses.is_dataclass(m) and not getattr(m, "_is_protocol", False)
    }  # fmt: skip
    exported = {m for m in classes if any(m.__name__ in getattr(module, "__all__", ()) for _, module in modules())}
    assert exported - {type(one) for one in COPYING} - REFUSING.keys() - BASES == set()


@each_copy
@pytest.mark.parametrize("one", COPYING, ids=lambda one: type(one).__name__)
def test_objects_copy(one, again):
    twin = again(one)
    assert type(twin) is type(one)
    assert vars(twin).keys() == vars(one).keys()


@pytest.mark.parametrize("kind", REFUSING, ids=lambda kind: kind.__name__)
def test_what_belongs_to_a_process_names_what_to_copy_instead(kind):
    one = object.__new__(kind)
    for again in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentTypeError, match=f"^Invalid object to pickle: .*expecting {REFUSING[kind]}"):
            again(one)


class Labelled:
    """A user's subclass has arguments and attributes of its own."""

    def __init__(self, units, label):
        if issubclass(type(self), ops.CudnnRNN):
            super().__init__(1, units, 2)
        elif issubclass(type(self), layers.RNNLayer):
            super().__init__(1, units)
        else:
            super().__init__(units)
        self.label = label


class MyOp(Labelled, ops.CudnnLSTM):
    pass


class MyLayer(Labelled, CudnnGRU):
    pass


class MyCell(Labelled, CudnnCompatibleGRUCell):
    pass


@each_copy
@pytest.mark.parametrize("kind", [MyOp, MyLayer, MyCell])
def test_copies_of_a_users_subclass_keep_its_attributes(kind, again):
    one = kind(3, label=["a"])
    if kind is not MyOp:
        one(X, training=False) if kind is MyLayer else one(X[0], one.zero_state(4, "float32"))
    twin = again(one)
    assert (type(twin), twin.label) == (kind, ["a"])
    assert (twin.label is one.label) == (again is copy.copy)
    if kind is MyOp:
        assert twin.spec == one.spec
    else:
        assert all(map(np.array_equal, twin.get_weights(), one.get_weights()))


def test_a_copied_saver_has_its_items_and_options_and_deletes_no_checkpoint_of_the_original(tmp_path):
    saver = Saver({"x": np.zeros(2)}, max_to_keep=1)
    path = saver.save(tmp_path / "m", 1)
    for number, again in enumerate(COPIES.values(), 2):
        twin = again(saver)
        assert (repr(twin), twin.last_checkpoints) == (repr(saver), [])
        assert twin.save(tmp_path / "n", number).exists()
    assert saver.last_checkpoints == [path]


@each_copy
def test_a_copied_stream_continues_where_the_original_was_and_apart_from_it(again):
    expected = OP(np.concatenate([X] * 3), None, None, PARAMS, is_training=False)[0]
    stream = OP.stream(PARAMS)
    stream(X)
    twin = again(stream)
    for one in (stream, twin):
        assert np.allclose(one(X), expected[2:4], atol=1e-6)
    assert np.allclose(twin(X), expected[4:], atol=1e-6)


def test_gradients_are_equal_to_themselves_alone_and_can_be_keys():
    fwd = OP.forward(X, None, None, PARAMS)
    grads = fwd.backward(fwd.output)
    assert grads != copy.copy(grads)
    assert {grads: 1}[grads] == 1
