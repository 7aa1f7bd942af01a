"""Every public class: its objects copy rightly, or raise one sentence that names what to copy instead."""

import copy
import pickle

import numpy as np
import pytest

from pycudnnrnn import (
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
    Saver({"x": X}), OP.stream(PARAMS), built(CudnnLSTM).variables[0],
    *(getattr(ops, kind.__name__)(1, 3, 2) for kind in ALL), *map(built, ALL), *(built(kind).saveable for kind in ALL),
    *(called(getattr(cells, name)) for name in dir(cells) if name.startswith("CudnnCompatible")),
    *(getattr(saveable, name)(1, 3, 2) for name in CONVERTERS if hasattr(saveable, name)),
    saveable.RNNParamsSaveable(OP.params_to_canonical, OP.canonical_to_params, PARAMS),
    testing.LayoutEngine(OP.layout()),
]  # fmt: skip
REFUSING = {
    ops.Plan: "the op", ops.Graph: "the op", layers.LayerGraph: "the op", ops.Forward: "its results",
    layers.LayerForward: "its results", libcudnn.Library: "its path", libcudnn.Function: "its name",
}  # fmt: skip


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


class Labelled(ops.CudnnLSTM):
    """A user's subclass has arguments and attributes of its own."""

    def __init__(self, units, label):
        super().__init__(1, units, 2)
        self.label = label


@each_copy
def test_copies_of_a_users_op_keep_its_attributes(again):
    one = Labelled(3, label=["a"])
    twin = again(one)
    assert (type(twin), twin.label, twin.spec) == (Labelled, ["a"], one.spec)
    assert (twin.label is one.label) == (again is copy.copy)


def test_a_copied_saver_has_its_items_and_options_and_deletes_no_checkpoint_of_the_original(tmp_path):
    saver = Saver({"x": np.zeros(2)}, max_to_keep=1)
    path = saver.save(tmp_path / "m", 1)
    for number, again in enumerate(COPIES.values(), 2):
        twin = again(saver)
        assert (repr(twin), twin.last_checkpoints) == (repr(saver), [])
        assert twin.save(tmp_path / "n", number).exists()
    assert saver.last_checkpoints == [path]
