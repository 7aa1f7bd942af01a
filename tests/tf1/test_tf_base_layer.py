"""What TF's reference documents of every base layer, held by a layer (`CudnnLSTM` r1.9) and by a cell (r1.4).

`test_layer_copies.py` has their deep copies.
"""

import gc
import types

import numpy as np
import pytest

import pycudnnrnn as package
from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from tests.helpers.tf_pages import B, I, T, U, normal

LAYER = types.SimpleNamespace(
    size=ops.CudnnLSTM(2, U, I, direction="bidirectional").params_size(),
    fresh=lambda: package.CudnnLSTM(2, U, direction="bidirectional", seed=1, dtype="float64", name="enc"),
    arguments=lambda more=0: (normal(T + more, B, I),),
    outputs=lambda result: [result[0], *result[1]],
)
CELL = types.SimpleNamespace(
    size=2 * U * (I + U + 1) + U * (I + U + 2),
    fresh=lambda: package.CudnnCompatibleGRUCell(U, seed=1),
    arguments=lambda more=0: (normal(B + more, I), normal(B + more, U)),
    outputs=list,
)
"""How each is made and called, with `more` on input of another shape."""


@pytest.fixture(params=[LAYER, CELL], ids=["layer", "cell"])
def kind(request):
    return request.param


@pytest.fixture
def called(kind):
    """A layer or cell that was called once; with its arguments, which keep their record alive, and its outputs."""
    layer, arguments = kind.fresh(), kind.arguments()
    return layer, arguments, kind.outputs(layer(*arguments))


def test_an_activity_regularizer_adds_a_loss_at_each_call(kind):
    layer, arguments = kind.fresh(), kind.arguments()
    assert layer.activity_regularizer is None
    layer.activity_regularizer = lambda y: float((y**2).sum())
    output = layer(*arguments)[0]
    assert layer.losses == layer.get_losses_for(arguments[0]) == [pytest.approx((output**2).sum())]
    with pytest.raises(TypeError):
        layer.activity_regularizer = 3


def test_losses_belong_to_inputs_or_to_none(called):
    layer, (x, *_), _ = called
    other = normal(1)
    layer.add_loss(1.5)
    layer.add_loss([2.5, 3.5], inputs=x)
    layer.add_loss(4.5, inputs=other)
    layer.add_loss(4.5, inputs=[x, other])
    assert layer.losses == [1.5, 2.5, 3.5, 4.5, 4.5], "each as often as it was added"
    assert layer.get_losses_for(None) == [1.5]
    assert layer.get_losses_for(x) == [2.5, 3.5, 4.5]
    assert layer.get_losses_for([x, other]) == [2.5, 3.5, 4.5, 4.5]
    del other
    gc.collect()
    assert layer.losses == [1.5, 2.5, 3.5, 4.5], "what belongs to two arrays goes with the last of them"


def test_there_is_no_graph_and_updates_are_ignored_as_in_eager_mode(called):
    layer, (x, *_), _ = called
    assert layer.graph is None
    assert layer.add_update(lambda: None) is None
    assert layer.add_update([lambda: None], inputs=x) is None
    assert layer.updates == layer.get_updates_for(None) == layer.get_updates_for(x) == []


def test_add_weight_creates_a_variable_or_returns_it_and_add_variable_is_the_same(called):
    layer = called[0]
    variable = layer.add_weight("v", [3], initializer=lambda s, dtype: np.full(s, 2, dtype), regularizer=sum)
    assert layer.add_variable("v", [3]) is variable
    for other in ({"shape": [4]}, {"shape": [3], "dtype": "float32"}):
        with pytest.raises(ArgumentError, match="Invalid v: "):
            layer.add_variable("v", **other)
    assert (variable.name, variable.dtype, variable.trainable) == (f"{layer.scope_name}/v", "float64", True)
    assert layer.losses == layer.get_losses_for(None) == [6]
    assert variable.assign_add(2).assign_sub(3).numpy().tolist() == [1, 1, 1]
    variable.numpy().fill(9)
    assert layer.losses == [3], "regularizers see the variable as it is"
    frozen = layer.add_weight("f", (2, 3), "float32", "ones", None, False, abs, use_resource=True, partitioner=None)
    assert (frozen.shape, frozen.dtype, frozen.trainable, frozen.constraint) == ((2, 3), "float32", False, abs)
    assert len({layer.add_weight(name, ()).numpy().item() for name in "abc"}) == 3, "each is drawn by itself"
    with pytest.raises(RuntimeError, match="regularizer"):
        layer.add_weight("t", (2,), regularizer=abs, partitioner=object())


def test_variables_are_listed_trainable_first_and_counted_once_built(kind, called):
    layer = called[0]
    assert layer.count_params() == kind.size
    names = [v.name for v in layer.variables]
    layer.add_weight("frozen", (1,), trainable=False)
    layer.add_weight("more", (1,))
    trainable, frozen = [*names, f"{layer.scope_name}/more"], [f"{layer.scope_name}/frozen"]
    for word in ("variables", "weights"):
        assert [v.name for v in getattr(layer, word)] == trainable + frozen
        assert [v.name for v in getattr(layer, f"trainable_{word}")] == trainable
        assert [v.name for v in getattr(layer, f"non_trainable_{word}")] == frozen
    with pytest.raises(ValueError):
        kind.fresh().count_params()


def test_a_subclass_that_changes_a_member_changes_its_other_name():
    class Frozen(package.CudnnGRU):
        trainable_weights, non_trainable_weights = [], ["all"]

        def add_weight(self, name):
            return name

    layer = Frozen(1, 2)
    assert (layer.add_variable("v"), layer.variables) == ("v", ["all"])
    assert (layer.trainable_variables, layer.non_trainable_variables) == ([], ["all"])


def test_a_call_of_a_subclass_has_to_return_a_result():
    silent = type("Silent", (package.CudnnGRU,), {"call": lambda *_: None})(1, 2)
    with pytest.raises(ValueError, match="None, expecting a result"):
        silent(normal(T, B, I))


def recorded(member, arguments, outputs):
    """What a member gives for one call."""
    arrays = list(arguments[:1]) if member.startswith("input") else outputs
    actual = [a.shape for a in arrays] if member.endswith("shape") else arrays
    return None if member.endswith("mask") else actual[0] if len(actual) == 1 else actual


@pytest.mark.parametrize("member", ["input", "output", "input_shape", "output_shape", "input_mask", "output_mask"])
def test_the_only_call_is_on_record_and_several_are_numbered(kind, member):
    layer = kind.fresh()
    ask = getattr(layer, f"get_{member}_at")
    with pytest.raises(RuntimeError):
        ask(0)
    with pytest.raises(AttributeError):
        getattr(layer, member)
    calls = []
    for more in (0, 1):
        arguments = kind.arguments(more)
        calls.append((arguments, kind.outputs(layer(*arguments))))
        if not more:
            assert_same(getattr(layer, member), recorded(member, *calls[0]))
    with pytest.raises(AttributeError):
        getattr(layer, member)
    for index, call in enumerate(calls):
        assert_same(ask(index), recorded(member, *call))
    for index in (2, -1):
        with pytest.raises(ValueError, match="node_index"):
            ask(index)
    lasting = member.endswith(("shape", "mask"))
    expected = recorded(member, *calls[0]) if lasting else None
    del arguments, calls, call
    gc.collect()
    if lasting:
        assert ask(0) == expected
    else:
        with pytest.raises(AttributeError, match="gone"):  # so that hasattr(layer, "output") works
            ask(0)


def assert_same(actual, expected):
    """Assert that both are the same arrays, or equal shapes."""
    if isinstance(expected, list) and isinstance(expected[0], np.ndarray):
        assert all(a is b for a, b in zip(actual, expected, strict=True))
    else:
        assert actual is expected or actual == expected
