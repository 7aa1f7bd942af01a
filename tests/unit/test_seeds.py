"""Every member that five pages of TF 1.x's API reference document: one row a member, which calls it and checks.

000: r1.2 CudnnRNNRelu (op); 001: CudnnRNNReluSaveable; 002: r1.4 CudnnLSTM (op); 003: r1.9 CudnnLSTM (layer); 004: r1.4
CudnnCompatibleGRUCell. Where a page documents errors, its rows raise them.
"""

import copy
import gc

import numpy as np
import pytest

import pycudnnrnn as package
from pycudnnrnn import RNNSpec, ops
from pycudnnrnn.testing import reference

PROPERTIES_003 = """
activity_regularizer canonical_bias_shapes canonical_weight_shapes direction dtype graph
inbound_nodes input input_mask input_mode input_shape input_size losses name non_trainable_variables
non_trainable_weights num_dirs num_layers num_units outbound_nodes output output_mask output_shape
rnn_mode saveable scope_name trainable_variables trainable_weights updates variables weights
"""
METHODS_003 = """
__init__ __call__ __deepcopy__ add_loss add_update add_variable add_weight apply build call
compute_mask compute_output_shape count_params from_config get_config get_input_at get_input_mask_at
get_input_shape_at get_losses_for get_output_at get_output_mask_at get_output_shape_at
get_updates_for get_weights set_weights state_shape
"""
PROPERTIES_004 = """
activity_regularizer dtype graph input input_shape losses name non_trainable_variables
non_trainable_weights output output_shape output_size scope_name state_size trainable_variables
trainable_weights updates variables weights
"""
METHODS_004 = """
__init__ __call__ __deepcopy__ add_loss add_update add_variable apply build call count_params
get_input_at get_input_shape_at get_losses_for get_output_at get_output_shape_at get_updates_for
zero_state
"""
DOCUMENTED = {
    "000": "__init__ __call__ canonical_to_params params_size params_to_canonical",
    "001": "__init__ restore",
    "002": """direction input_mode input_size num_layers num_units rnn_mode __init__ __call__ canonical_to_params
        params_size params_to_canonical""",
    "003": f"{PROPERTIES_003} {METHODS_003}",
    "004": f"{PROPERTIES_004} {METHODS_004}",
}

ROWS = {}


def row(seed, *members):
    """Register a check for members of one page."""

    def register(function):
        for member in members:
            assert (seed, member) not in ROWS
            ROWS[seed, member] = function
        return function

    return register


RNG = np.random.default_rng(0)
T, B, I, U = 4, 3, 5, 2


def normal(*shape):
    return RNG.normal(size=shape)


# --- 000 and 002: ops -------------------------------------------------------------------------------------------------


@row("000", "__init__")
def relu_op_takes_r12s_arguments():
    op = ops.CudnnRNNRelu(2, U, U, "auto_select", "bidirectional", 0.5, 9)
    assert (op.spec.dropout, op.spec.seed, op.input_mode) == (0.5, 9, "skip_input")
    with pytest.raises(ValueError, match="Invalid direction"):
        ops.CudnnRNNRelu(2, U, U, "auto_select", "both")


@row("000", "__call__")
def relu_op_computes_relu_by_hand():
    op = ops.CudnnRNNRelu(1, U, I, "linear_input", "unidirectional", 0.0, 0)
    params = normal(op.params_size()).astype("f4")
    (W, R), (bW, bR) = op.params_to_canonical(params)
    x, h0 = normal(T, B, I).astype("f4"), normal(1, B, U).astype("f4")
    output, output_h = op(input_data=x, input_h=h0, params=params, is_training=True)
    h = h0[0]
    for t in range(T):
        h = np.maximum(x[t] @ W.T + h @ R.T + bW + bR, 0)
        assert np.allclose(output[t], h, atol=1e-5)
    assert np.allclose(output_h[0], h, atol=1e-5)


def lstm_op():
    return ops.CudnnLSTM(2, U, I, "linear_input", "bidirectional", "float64", 0.0, 3)


def either_op(seed):
    return ops.CudnnRNNRelu(2, U, I) if seed == "000" else lstm_op()


for SEED in ("000", "002"):

    @row(SEED, "params_size")
    def size_is_the_dense_sum(_, seed=SEED):
        op = either_op(seed)
        gates, dirs = (1, 1) if seed == "000" else (4, 2)
        expected = sum(dirs * gates * U * (cols + U + 2) for cols in (I, dirs * U))
        assert op.params_size() == expected

    @row(SEED, "params_to_canonical", "canonical_to_params")
    def canonical_form_goes_both_ways(_, seed=SEED):
        op = either_op(seed)
        params = normal(op.params_size()).astype(op.dtype)
        weights, biases = op.params_to_canonical(params)
        gates, dirs = (1, 1) if seed == "000" else (4, 2)
        assert [w.shape for w in weights[: 2 * gates]] == [(U, I)] * gates + [(U, U)] * gates
        assert len(weights) == len(biases) == 2 * 2 * gates * dirs
        assert np.array_equal(op.canonical_to_params(weights, biases), params)


@row("002", "direction", "input_mode", "input_size", "num_layers", "num_units", "rnn_mode")
def lstm_op_says_what_it_is(member):
    expected = {"direction": "bidirectional", "input_mode": "linear_input", "input_size": I, "num_layers": 2,
                "num_units": U, "rnn_mode": "lstm"}  # fmt: skip
    assert getattr(lstm_op(), member) == expected[member]


@row("002", "__init__")
def lstm_op_takes_r14s_arguments():
    op = ops.CudnnLSTM(3, U, I, "linear_input", "unidirectional", "float64", 0.25, 7)
    assert (op.spec.dtype, op.spec.dropout, op.spec.seed) == ("float64", 0.25, 7)


@row("002", "__call__")
def lstm_op_agrees_with_the_equations():
    op = lstm_op()
    params = normal(op.params_size())
    x, h, c = normal(T, B, I), normal(4, B, U), normal(4, B, U)
    expected = reference.forward(op.spec, *op.params_to_canonical(params), x, h, c, [T] * B)
    for ours, theirs in zip(op(x, h, c, params, is_training=False), expected, strict=True):
        assert np.allclose(ours, theirs, atol=1e-12, rtol=0)


# --- 001: saveable ----------------------------------------------------------------------------------------------------


def relu_saveable(params):
    return package.CudnnRNNReluSaveable(params, 2, U, I, "linear_input", "bidirectional", "m", "saveable")


@row("001", "__init__")
def saveable_has_layers_weights_before_biases_forward_before_backward():
    size = ops.CudnnRNNRelu(2, U, I, direction="bidirectional").params_size()
    names = [spec.name for spec in relu_saveable(np.zeros(size, "f4")).specs][:8]
    assert names == [
        f"m/stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{direction}/basic_rnn_cell/{kind}"
        for kind in ("kernel", "bias")
        for layer in (0, 1)
        for direction in ("fw", "bw")
    ]
    with pytest.raises(ValueError, match="Invalid direction"):
        package.CudnnRNNReluSaveable(np.zeros(size, "f4"), 2, U, I, direction="both")


@row("001", "restore")
def saveable_restores_from_the_list_of_its_tensors():
    op = ops.CudnnRNNRelu(2, U, I, direction="bidirectional")
    params = normal(op.params_size()).astype("f4")
    saveable, before = relu_saveable(params), params.copy()
    tensors = [spec.tensor for spec in saveable.specs]
    params[:] = 0
    restored = saveable.restore(restored_tensors=tensors, restored_shapes=None)
    assert restored is params
    assert np.array_equal(params, before)


# --- 003: layer -------------------------------------------------------------------------------------------------------


def layer(**keywords):
    return package.CudnnLSTM(2, U, direction="bidirectional", seed=1, dtype="float64", name="enc", **keywords)


def called(n=1, **keywords):
    made = layer(**keywords)
    xs = [normal(T, B, I) for _ in range(n)]
    results = [made(x) for x in xs]
    return made, xs, results


@row("003", "__init__")
def layer_takes_r19s_arguments_and_refuses_as_documented():
    made = package.CudnnLSTM(
        2, U, "linear_input", "unidirectional", 0.5, 3, "float16", lambda s, _: np.ones(s), "ones", "n"
    )
    made.build((None, None, I))
    assert np.array_equal(made.params, np.ones_like(made.params))
    for arguments, text in (
        ({"direction": "both"}, "Invalid direction: both, expecting unidirectional or bidirectional"),
        ({"dtype": "int32"}, "Only support float16, float32, float64, provided int32"),
        ({"input_mode": "x"}, "Invalid input_mode: x, expect one of"),
    ):
        with pytest.raises(ValueError) as raised:
            package.CudnnLSTM(2, U, **arguments)
        assert str(raised.value).startswith(text)


@row("003", "num_layers", "num_units", "num_dirs", "direction", "input_mode", "rnn_mode", "dtype", "name", "scope_name")
def layer_says_what_it_is(member):
    expected = {"num_layers": 2, "num_units": U, "num_dirs": 2, "direction": "bidirectional", "rnn_mode": "lstm",
                "input_mode": "linear_input", "dtype": "float64", "name": "enc", "scope_name": "enc"}  # fmt: skip
    assert getattr(layer(), member) == expected[member]
    assert getattr(package.CudnnLSTM(1, 3, "auto_select"), "input_mode") == "auto_select"  # noqa: B009


@row("003", "input_size")
def input_size_is_known_once_built():
    with pytest.raises(ValueError, match="'input_size' is unknown since layer has not been built"):
        _ = layer().input_size
    assert called()[0].input_size == I


@row("003", "canonical_weight_shapes", "canonical_bias_shapes")
def canonical_shapes_are_those_of_the_canonical_lists():
    with pytest.raises(RuntimeError, match=r"CudnnLSTM\.canonical_weight_shapes invoked before input shape is known"):
        _ = layer().canonical_weight_shapes
    made = called()[0]
    assert made.canonical_weight_shapes == ([(U, I)] * 4 + [(U, U)] * 4) * 2 + ([(U, 2 * U)] * 4 + [(U, U)] * 4) * 2
    assert made.canonical_bias_shapes == [(U,)] * 32


@row("003", "saveable")
def saveable_is_named_after_the_variable():
    assert layer().saveable is None
    made = called()[0]
    assert isinstance(made.saveable, package.CudnnLSTMSaveable)
    assert made.saveable.name == "enc/opaque_kernel_saveable"
    with pytest.raises(RuntimeError, match="Cudnn saveable already created"):
        made._create_saveable()


@row("003", "state_shape")
def state_shape_is_a_tuple_of_lists():
    assert layer().state_shape(7) == ([4, 7, U], [4, 7, U])
    assert package.CudnnGRU(3, U).state_shape(7) == ([3, 7, U],)


@row("003", "build")
def build_refuses_as_documented():
    for shape, text in (
        ([T, B], "Expecting input_shape with 3 dims, got 2"),
        ([T, B, None], "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`."),
    ):
        with pytest.raises(ValueError) as raised:
            layer().build(shape)
        assert str(raised.value) == text
    made = layer()
    made.build([None, None, I])
    params = made.params
    made.build([None, None, I])
    assert made.params is params


@row("003", "call", "__call__", "apply")
def calls_return_outputs_and_a_tuple_of_states(member):
    made = layer()
    x, h, c = normal(T, B, I), normal(4, B, U), normal(4, B, U)
    output, states = getattr(made, member)(x, (h, c), training=False)
    weights, biases = made.op.params_to_canonical(made.params)
    expected = reference.forward(made.spec, weights, biases, x, h, c, [T] * B)
    assert isinstance(states, tuple)
    for ours, theirs in zip((output, *states), expected, strict=True):
        assert np.allclose(ours, theirs, atol=1e-12, rtol=0)
    for error in (TypeError, ValueError):
        with pytest.raises(error, match="Invalid initial_state type: "):
            made.call(x, [h, c])
    with pytest.raises(ValueError):
        made.call(x, (h,))
    assert len(made.inbound_nodes) == (member != "call")


@row("003", "compute_output_shape")
def output_shape_for_an_input_shape():
    assert layer().compute_output_shape((None, B, I)) == (None, B, 2 * U)
    with pytest.raises(ValueError, match="3 dims"):
        layer().compute_output_shape((B, I))


@row("003", "compute_mask")
def there_are_no_masks():
    assert layer().compute_mask(normal(T, B, I)) is None
    with pytest.raises(TypeError, match="sequence_lengths"):
        layer().compute_mask(normal(T, B, I), np.ones((B, T)))


@row("003", "get_config", "from_config")
def a_config_makes_an_equal_layer_without_weights():
    made = called(num_proj=1, bias_mode="single_input")[0]
    config = made.get_config()
    twin = package.CudnnLSTM.from_config(config)
    assert not twin.built
    assert twin.get_config() == config
    assert (config["num_units"], config["direction"], config["num_proj"]) == (U, "bidirectional", 1)
    twin.build((None, None, I))
    assert np.array_equal(twin.params, made.params)


@row("003", "get_weights", "set_weights")
def weights_come_out_and_go_in_as_numpy_arrays():
    made, twin = called()[0], called()[0]
    (value,) = made.get_weights()
    value += 1
    assert not np.array_equal(value, made.params)
    twin.set_weights([value])
    assert np.array_equal(twin.params, value)
    for wrong in ([], [value[:-1]], [value, value]):
        with pytest.raises(ValueError):
            twin.set_weights(wrong)


@row("003", "add_weight")
def add_weight_makes_a_variable_or_gets_it():
    made = called()[0]
    kept = made.add_weight(
        "s", (2, 3), "float32", "ones", lambda v: 10 * v.sum(), trainable=False, constraint=abs, use_resource=True,
        partitioner=None,
    )  # fmt: skip
    assert (kept.name, kept.shape, kept.dtype, kept.trainable) == ("enc/s", (2, 3), "float32", False)
    assert kept.numpy().tolist() == [[1] * 3] * 2
    assert made.add_weight("s", (2, 3), "float32") is kept
    assert kept.constraint(-2) == 2
    assert made.losses == [60]
    with pytest.raises(RuntimeError, match="regularizer"):
        made.add_weight("t", (2,), regularizer=abs, partitioner=object())
    with pytest.raises(ValueError, match="Invalid s"):
        made.add_weight("s", (3, 3))


CALLED_CELL_WEIGHTS = 6


def called_cell(n=1):
    cell = package.CudnnCompatibleGRUCell(U)
    xs = [normal(B, I) for _ in range(n)]
    return cell, xs, [cell(x, normal(B, U)) for x in xs]


def outputs_of(seed, result):
    output, states = result
    return [output, *states] if seed == "003" else [output, states]


CELLS = {"003": called, "004": called_cell}

for SEED in ("003", "004"):

    @row(SEED, "activity_regularizer")
    def activity_regularizer_adds_a_loss_at_each_call(_, seed=SEED):
        made = layer() if seed == "003" else package.CudnnCompatibleGRUCell(U)
        assert made.activity_regularizer is None
        made.activity_regularizer = lambda y: float((y**2).sum())
        x = normal(T, B, I) if seed == "003" else normal(B, I)
        output = (made(x) if seed == "003" else made(x, normal(B, U)))[0]
        assert made.losses == made.get_losses_for(x) == [pytest.approx((output**2).sum())]
        with pytest.raises(TypeError):
            made.activity_regularizer = 3

    @row(SEED, "graph")
    def there_is_no_graph(_, seed=SEED):
        assert CELLS[seed]()[0].graph is None

    @row(SEED, "losses", "add_loss", "get_losses_for")
    def losses_belong_to_inputs_or_to_none(_, seed=SEED):
        made, (x,), _ = CELLS[seed]()
        other = normal(1)
        made.add_loss(1.5)
        made.add_loss([2.5, 3.5], inputs=x)
        made.add_loss(4.5, inputs=other)
        assert made.losses == [1.5, 2.5, 3.5, 4.5]
        assert made.get_losses_for(None) == [1.5]
        assert made.get_losses_for(x) == [2.5, 3.5]
        assert made.get_losses_for([x, other]) == [2.5, 3.5, 4.5]
        del other
        gc.collect()
        assert made.losses == [1.5, 2.5, 3.5]

    @row(SEED, "updates", "add_update", "get_updates_for")
    def updates_are_ignored_as_in_eager_mode(_, seed=SEED):
        made, (x,), _ = CELLS[seed]()
        assert made.add_update(lambda: None) is None
        assert made.add_update([lambda: None], inputs=x) is None
        assert made.updates == made.get_updates_for(None) == made.get_updates_for(x) == []

    @row(SEED, "add_variable")
    def add_variable_is_add_weight(_, seed=SEED):
        made = CELLS[seed]()[0]
        variable = made.add_variable("v", [3], initializer=lambda s, dtype: np.full(s, 2, dtype), regularizer=sum)
        assert made.add_variable("v", [3]) is variable
        assert variable.dtype == "float64"
        assert made.losses == [6]
        assert variable.assign_sub(1).numpy().tolist() == [1, 1, 1]
        assert made.losses == [3], "regularizers see the variable as it is"

    @row(SEED, "variables", "weights", "trainable_variables", "trainable_weights", "non_trainable_variables",
         "non_trainable_weights")  # fmt: skip
    def variables_are_listed_trainable_first(member, seed=SEED):
        made = CELLS[seed]()[0]
        own = ["enc/opaque_kernel"] if seed == "003" else [
            f"cudnn_compatible_gru_cell/{name}" for name in (
                "gates/kernel", "candidate/input_projection/kernel", "candidate/hidden_projection/kernel", "gates/bias",
                "candidate/input_projection/bias", "candidate/hidden_projection/bias",
            )
        ]  # fmt: skip
        made.add_weight("frozen", (1,), trainable=False)
        made.add_weight("more", (1,))
        trainable = [*own, f"{made.scope_name}/more"]
        expected = {"non": [f"{made.scope_name}/frozen"], "tra": trainable}.get(member[:3])
        assert [v.name for v in getattr(made, member)] == (expected or [*trainable, f"{made.scope_name}/frozen"])

    @row(SEED, "count_params")
    def count_params_needs_a_build(_, seed=SEED):
        made = CELLS[seed]()[0]
        size = lstm_op().params_size() if seed == "003" else 2 * U * (I + U + 1) + U * (I + U + 2)
        assert made.count_params() == size
        with pytest.raises(ValueError):
            (layer() if seed == "003" else package.CudnnCompatibleGRUCell(U)).count_params()

    @row(SEED, "__deepcopy__")
    def a_deep_copy_shares_nothing(_, seed=SEED):
        made, (x,), _ = CELLS[seed]()
        twin = copy.deepcopy(made)
        state = () if seed == "003" else (np.zeros((B, U)),)
        before = made(x, *state)[0].copy()
        assert np.array_equal(twin(x, *state)[0], before)
        for variable in twin.variables:
            variable.assign(variable.value + 1)
        assert np.array_equal(made(x, *state)[0], before)
        assert not np.allclose(twin(x, *state)[0], before)

    @row(SEED, "input", "output", "input_shape", "output_shape")
    def the_only_call_is_on_record(member, seed=SEED):
        made, (x,), results = CELLS[seed]()
        outputs = outputs_of(seed, results[0])
        expected = {"input": x, "output": outputs, "input_shape": x.shape, "output_shape": [a.shape for a in outputs]}
        found = getattr(made, member)
        if member.endswith("shape"):
            assert found == expected[member]
        else:
            same = [found] if member == "input" else found
            assert all(a is b for a, b in zip(same, [x] if member == "input" else outputs, strict=True))
        fresh = layer() if seed == "003" else package.CudnnCompatibleGRUCell(U)
        with pytest.raises(AttributeError):
            getattr(fresh, member)
        wider = normal(T + 1, B, I) if seed == "003" else normal(B + 1, I)
        made(wider) if seed == "003" else made(wider, normal(B + 1, U))
        with pytest.raises(AttributeError):
            getattr(made, member)

    @row(SEED, "get_input_at", "get_output_at", "get_input_shape_at", "get_output_shape_at")
    def calls_are_numbered(member, seed=SEED):
        made = layer() if seed == "003" else package.CudnnCompatibleGRUCell(U)
        ask = getattr(made, member)
        with pytest.raises(RuntimeError):
            ask(0)
        state = () if seed == "003" else (normal(B, U),)
        xs = [normal(T, B, I) if seed == "003" else normal(B, I) for _ in range(2)]
        results = [outputs_of(seed, made(x, *state)) for x in xs]
        for index in range(2):
            expected = [xs[index]] if "input" in member else results[index]
            found = ask(index) if "output" in member else [ask(index)]
            if "shape" in member:
                assert found == [a.shape for a in expected]
            else:
                assert all(a is b for a, b in zip(found, expected, strict=True))
        with pytest.raises(ValueError, match="node_index"):
            ask(2)
        del xs, results, expected, found
        gc.collect()
        if "shape" in member:
            assert ask(0)
        else:
            with pytest.raises(RuntimeError, match="gone"):
                ask(0)


@row("003", "input_mask", "output_mask", "get_input_mask_at", "get_output_mask_at")
def masks_are_none_for_calls_that_were_made(member):
    made = called()[0]
    by_number = member.startswith("get")
    assert (getattr(made, member)(0) if by_number else getattr(made, member)) is None
    error = RuntimeError if by_number else AttributeError
    with pytest.raises(error):
        getattr(layer(), member)(0) if by_number else getattr(layer(), member)
    made(normal(T, B, I))
    if not by_number:
        with pytest.raises(AttributeError):
            getattr(made, member)


@row("003", "inbound_nodes", "outbound_nodes")
def nodes_are_the_calls(member):
    made = called(n=2)[0]
    shapes = [node.input_shapes for node in getattr(made, member)]
    assert shapes == ([[(T, B, I)]] * 2 if member == "inbound_nodes" else [])


# --- 004: cell --------------------------------------------------------------------------------------------------------


@row("004", "__init__")
def cell_takes_its_arguments():
    cell = package.CudnnCompatibleGRUCell(U, None, "zeros")
    cell.build((None, I))
    values = {v.name.partition("/")[2]: v.numpy() for v in cell.variables}
    assert all(not values[name].any() for name in values if name.endswith("kernel"))
    assert (values["gates/bias"] == 1).all()
    assert not values["candidate/hidden_projection/bias"].any()
    with pytest.raises(TypeError):
        package.CudnnCompatibleGRUCell(U, reuse="yes")


@row("004", "name", "scope_name", "dtype", "state_size", "output_size")
def cell_says_what_it_is(member):
    cell = called_cell()[0]
    expected = {"name": "cudnn_compatible_gru_cell", "scope_name": "cudnn_compatible_gru_cell", "dtype": "float64",
                "state_size": U, "output_size": U}  # fmt: skip
    assert getattr(cell, member) == expected[member]


@row("004", "__call__", "call", "apply")
def cell_computes_the_documented_equations(member):
    cell, x, h = package.CudnnCompatibleGRUCell(U, dtype="float64"), normal(B, I), normal(B, U)
    cell.build((None, I))
    for variable in cell.variables:
        variable.assign(normal(*variable.shape))
    v = {variable.name.partition("/")[2]: variable.numpy() for variable in cell.variables}
    gates = reference.sigmoid(np.concatenate([x, h], axis=1) @ v["gates/kernel"] + v["gates/bias"])
    r, u = gates[:, :U], gates[:, U:]
    b_input, b_hidden = (v[f"candidate/{which}_projection/bias"] for which in ("input", "hidden"))
    recurrent = h @ v["candidate/hidden_projection/kernel"] + b_hidden
    candidate = np.tanh(x @ v["candidate/input_projection/kernel"] + r * recurrent + b_input)
    expected = (1 - u) * candidate + u * h
    output, state = getattr(cell, member)(x, h)
    assert np.allclose(output, expected, atol=1e-14)
    assert np.array_equal(output, state)
    with pytest.raises(ValueError, match="state"):
        getattr(cell, member)(x, normal(B, U + 1))
    if member == "__call__":
        named = package.CudnnCompatibleGRUCell(U)
        named(x, h, scope="rnn/gru")
        assert named.scope_name == "rnn/gru"
        assert named.variables[0].name == "rnn/gru/gates/kernel"


@row("004", "build")
def cell_needs_a_known_depth():
    with pytest.raises(ValueError, match=r"Expected inputs.shape\[-1\] to be known"):
        package.CudnnCompatibleGRUCell(U).build((B, None))
    cell = package.CudnnCompatibleGRUCell(U)
    cell.build((None, I))
    assert cell.built
    assert len(cell.variables) == CALLED_CELL_WEIGHTS


@row("004", "zero_state")
def zero_state_takes_an_integer_a_float_or_a_unit_array():
    cell = package.CudnnCompatibleGRUCell(U)
    for batch in (B, float(B), np.array(B), np.array([B])):
        state = cell.zero_state(batch, "float16")
        assert (state.shape, state.dtype, state.any()) == ((B, U), "float16", False)
    c, h = package.CudnnCompatibleLSTMCell(U, num_proj=1).zero_state(B, "float64")
    assert (c.shape, h.shape) == ((B, U), (B, 1))
    with pytest.raises(ValueError):
        cell.zero_state(1.5, "float32")


def test_there_is_a_row_for_every_documented_member_and_no_other():
    expected = {(seed, member) for seed, members in DOCUMENTED.items() for member in members.split()}
    assert set(ROWS) == expected
    assert len(expected) == 111


@pytest.mark.parametrize(("seed", "member"), list(ROWS), ids="-".join)
def test_member(seed, member):
    check = ROWS[seed, member]
    check(member) if check.__code__.co_argcount else check()


def test_specs_of_the_pages_are_specs():
    assert called()[0].spec == RNNSpec("lstm", 2, U, I, direction="bidirectional", dtype="float64", seed=1)
