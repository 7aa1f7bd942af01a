"""What TF's reference documents of every base layer, held by a layer (`CudnnLSTM` r1.9) and by a cell (r1.4)."""

import copy
import gc

import numpy as np
import pytest

import pycudnnrnn as package
from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from tests.helpers.tf_pages import B, I, T, U, normal


class Layer:
    """A layer, and how it is called."""

    variables = ("enc/opaque_kernel",)
    size = ops.CudnnLSTM(2, U, I, direction="bidirectional").params_size()

    @staticmethod
    def fresh():
        return package.CudnnLSTM(2, U, direction="bidirectional", seed=1, dtype="float64", name="enc")

    @staticmethod
    def arguments(more=0):
        """Input, and what comes after it; with `more` of another shape."""
        return (normal(T + more, B, I),)

    @staticmethod
    def outputs(result):
        output, states = result
        return [output, *states]


class Cell:
    """The same of a cell."""

    variables = tuple(
        f"cudnn_compatible_gru_cell/{name}"
        for name in (
            "gates/kernel", "candidate/input_projection/kernel", "candidate/hidden_projection/kernel", "gates/bias",
            "candidate/input_projection/bias", "candidate/hidden_projection/bias",
        )
    )  # fmt: skip
    size = 2 * U * (I + U + 1) + U * (I + U + 2)

    @staticmethod
    def fresh():
        return package.CudnnCompatibleGRUCell(U, seed=1)

    @staticmethod
    def arguments(more=0):
        return normal(B + more, I), normal(B + more, U)

    @staticmethod
    def outputs(result):
        return list(result)


@pytest.fixture(params=[Layer, Cell], ids=["layer", "cell"])
def kind(request):
    return request.param


@pytest.fixture
def called(kind):
    """A layer or cell that was called once; with its arguments, which keep their record alive, and its outputs."""
    made, arguments = kind.fresh(), kind.arguments()
    return made, arguments, kind.outputs(made(*arguments))


def test_an_activity_regularizer_adds_a_loss_at_each_call(kind):
    made, arguments = kind.fresh(), kind.arguments()
    assert made.activity_regularizer is None
    made.activity_regularizer = lambda y: float((y**2).sum())
    output = made(*arguments)[0]
    assert made.losses == made.get_losses_for(arguments[0]) == [pytest.approx((output**2).sum())]
    with pytest.raises(TypeError):
        made.activity_regularizer = 3


def test_there_is_no_graph(called):
    assert called[0].graph is None


def test_losses_belong_to_inputs_or_to_none(called):
    made, (x, *_), _ = called
    other = normal(1)
    made.add_loss(1.5)
    made.add_loss([2.5, 3.5], inputs=x)
    made.add_loss(4.5, inputs=other)
    made.add_loss(4.5, inputs=[x, other])
    assert made.losses == [1.5, 2.5, 3.5, 4.5, 4.5], "each as often as it was added"
    assert made.get_losses_for(None) == [1.5]
    assert made.get_losses_for(x) == [2.5, 3.5, 4.5]
    assert made.get_losses_for([x, other]) == [2.5, 3.5, 4.5, 4.5]
    del other
    gc.collect()
    assert made.losses == [1.5, 2.5, 3.5, 4.5], "what belongs to two arrays goes with the last of them"


def test_updates_are_ignored_as_in_eager_mode(called):
    made, (x, *_), _ = called
    assert made.add_update(lambda: None) is None
    assert made.add_update([lambda: None], inputs=x) is None
    assert made.updates == made.get_updates_for(None) == made.get_updates_for(x) == []


def test_add_variable_is_add_weight(called):
    made = called[0]
    variable = made.add_variable("v", [3], initializer=lambda s, dtype: np.full(s, 2, dtype), regularizer=sum)
    assert made.add_variable("v", [3]) is variable
    for other in ({"shape": [4]}, {"shape": [3], "dtype": "float32"}):
        with pytest.raises(ArgumentError, match="Invalid v: "):
            made.add_variable("v", **other)
    assert variable.dtype == "float64"
    assert made.losses == [6]
    assert variable.assign_sub(1).numpy().tolist() == [1, 1, 1]
    assert made.losses == [3], "regularizers see the variable as it is"


@pytest.mark.parametrize(
    "member", ["variables", "weights", "trainable_variables", "trainable_weights", "non_trainable_variables",
               "non_trainable_weights"],
)  # fmt: skip
def test_variables_are_listed_trainable_first(kind, called, member):
    made = called[0]
    made.add_weight("frozen", (1,), trainable=False)
    made.add_weight("more", (1,))
    trainable, frozen = [*kind.variables, f"{made.scope_name}/more"], [f"{made.scope_name}/frozen"]
    expected = {"non": frozen, "tra": trainable}.get(member[:3], trainable + frozen)
    assert [v.name for v in getattr(made, member)] == expected


def test_count_params_needs_a_build(kind, called):
    assert called[0].count_params() == kind.size
    with pytest.raises(ValueError):
        kind.fresh().count_params()


def test_a_deep_copy_shares_nothing(called):
    made, arguments, (output, *_) = called
    twin, before = copy.deepcopy(made), output.copy()
    assert np.array_equal(twin(*arguments)[0], before)
    for variable in twin.variables:
        variable.assign(variable.value + 1)
    assert np.array_equal(made(*arguments)[0], before)
    assert not np.allclose(twin(*arguments)[0], before)


@pytest.mark.parametrize("member", ["input", "output", "input_shape", "output_shape"])
def test_the_only_call_is_on_record(kind, called, member):
    made, (x, *_), outputs = called
    found = getattr(made, member)
    if member.endswith("shape"):
        assert found == (x.shape if member == "input_shape" else [a.shape for a in outputs])
    elif member == "input":
        assert found is x
    else:
        assert all(a is b for a, b in zip(found, outputs, strict=True))
    with pytest.raises(AttributeError):
        getattr(kind.fresh(), member)
    for more in (1, 0):
        made(*kind.arguments(more))
        with pytest.raises(AttributeError):
            getattr(made, member)


@pytest.mark.parametrize("member", ["get_input_at", "get_output_at", "get_input_shape_at", "get_output_shape_at"])
def test_calls_are_numbered(kind, member):
    made = kind.fresh()
    ask = getattr(made, member)
    with pytest.raises(RuntimeError):
        ask(0)
    given = [kind.arguments(more) for more in (0, 1)]
    results = [kind.outputs(made(*arguments)) for arguments in given]
    for index in range(2):
        expected = [given[index][0]] if "input" in member else results[index]
        found = ask(index) if "output" in member else [ask(index)]
        if "shape" in member:
            assert found == [a.shape for a in expected]
        else:
            assert all(a is b for a, b in zip(found, expected, strict=True))
    for index in (2, -1):
        with pytest.raises(ValueError, match="node_index"):
            ask(index)
    kept = ask(0)
    del given, results, expected, found
    gc.collect()
    if "shape" in member:
        assert ask(0) == kept
    else:
        del kept
        gc.collect()
        with pytest.raises(RuntimeError, match="gone"):
            ask(0)
