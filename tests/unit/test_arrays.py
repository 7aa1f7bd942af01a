"""Any library's arrays go in, and come back as their own kind over the same memory: kinds x paths.

CUDA arrays and streams are in tests/shim/test_arrays.py.
"""

import gc
import os
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnLSTMSaveable, RNNParamsSaveable, Saver, _arrays, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.testing.strategies import make_problem

DTYPES = ["float16", "bfloat16", "float32", "float64"]
KINDS = ["numpy", "torch", "jax"]


def put(kind, array):
    """An array of a kind with a copy of the numbers."""
    array = np.array(array)
    if kind == "torch":
        bits = array.view("i2") if array.dtype == ml_dtypes.bfloat16 else array
        tensor = torch.from_numpy(bits)
        return tensor.view(torch.bfloat16) if bits is not array else tensor
    if kind == "jax":
        with jax.enable_x64(True):
            return jnp.array(array)
    return array


def get(array):
    """The numbers of an array of any kind, without this package."""
    if isinstance(array, torch.Tensor):
        return (
            array.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if array.dtype == torch.bfloat16 else array.numpy()
        )
    return np.asarray(array)


def address(array):
    if isinstance(array, torch.Tensor):
        return array.data_ptr()
    return array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else array.ctypes.data


def is_a(kind, array):
    return isinstance(array, {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}[kind])


class Recorder(NumpyEngine):
    """The NumPy engine, remembering where its arguments and results are."""

    def __init__(self):
        self.given, self.made = {}, {}

    def forward(self, spec, schedule, params, x, hx, cx, **keywords):
        results = super().forward(spec, schedule, params, x, hx, cx, **keywords)
        self.given = {"params": params, "x": x, "hx": hx, "cx": cx}
        self.made = dict(zip(("output", "output_h", "output_c"), results, strict=False))
        return results

    def backward_data(self, *arguments):
        results = super().backward_data(*arguments)
        self.made |= dict(zip(("input", "input_h", "input_c"), results, strict=True))
        return results

    def backward_weights(self, reserve, out, *, accumulate):
        super().backward_weights(reserve, out, accumulate=accumulate)
        self.made["params"] = out


def problem_of(dtype="float64", lengths=(5, 2, 0), kind=ops.CudnnLSTM, **options):
    op = kind(2, 6, 4, direction="bidirectional", dtype=dtype, **options)
    return make_problem(op, 5, 3, None if lengths is None else [*lengths], seed=7)


def results(problem, kind, *, time_major=True):
    """Every result and gradient of a problem run on arrays of a kind; and the arrays that were given."""

    def swapped(array):
        return array if time_major else np.ascontiguousarray(array.swapaxes(0, 1))

    given = {
        name: put(kind, swapped(getattr(problem, name)) if name in {"x", "dy"} else getattr(problem, name))
        for name in ("x", "hx", "cx", "params", "dy", "dhy", "dcy")
    }
    options = {"sequence_lengths": problem.lengths, "time_major": time_major}
    fwd = problem.op.forward(given["x"], given["hx"], given["cx"], given["params"], **options)
    grads = fwd.backward(given["dy"], given["dhy"], given["dcy"])
    found = {name: getattr(fwd, name) for name in ("output", "output_h", "output_c")}
    return found | {name: getattr(grads, name) for name in ("input", "input_h", "input_c", "params")}, given


# --- every kind on every path -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [None, (5, 2, 0)], ids=["equal", "ragged"])
@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_numpys_bits_in_the_callers_kind(kind, dtype, time_major, lengths):
    problem = problem_of(dtype, lengths)
    expected, _ = results(problem, "numpy", time_major=time_major)
    found, given = results(problem, kind, time_major=time_major)
    for name, array in found.items():
        assert is_a(kind, array), name
        assert get(array).dtype == problem.spec.dtype.numpy, name
        assert get(array).tobytes() == expected[name].tobytes(), name
    for name, array in given.items():
        if name not in {"x", "dy"}:
            assert get(array).tobytes() == getattr(problem, name).tobytes(), f"{name} was written to"


@pytest.mark.parametrize("lengths", [None, (5, 2, 0), (5, 5, 1)], ids=["equal", "ragged", "sorted"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_copied_on_the_way_in_or_out(kind, dtype, lengths):
    with use_engine(recorder := Recorder()):
        found, given = results(problem_of(dtype, lengths), kind)
    for name, native in recorder.given.items():
        assert native.ctypes.data == address(given[name]), name
    for name, array in found.items():
        assert recorder.made[name].ctypes.data == address(array), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_memory_outlives_the_array_that_it_came_from_in_both_directions(kind, dtype):
    problem = problem_of(dtype)
    expected, _ = results(problem, "numpy")
    arrays = [put(kind, getattr(problem, name)) for name in ("x", "hx", "cx", "params")]
    fwd = problem.op.forward(*arrays, sequence_lengths=problem.lengths)
    died = [weakref.ref(array) for array in arrays]
    output, dy = fwd.output, put(kind, problem.dy)
    del arrays
    gc.collect()
    junk = [np.full(size, 0xFF, np.uint8) for size in range(64, 4096, 16)]
    grads = fwd.backward(dy, put(kind, problem.dhy), put(kind, problem.dcy))
    assert get(grads.params).tobytes() == expected["params"].tobytes()
    del fwd, grads
    gc.collect()
    junk += [np.full(size, 0xFF, np.uint8) for size in range(64, 4096, 16)]
    assert get(output).tobytes() == expected["output"].tobytes()
    assert all(ref() is None for ref in died), "nothing keeps an array alive once its forward is gone"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_params_go_to_canonical_form_and_back_in_every_kind(kind, dtype):
    problem = problem_of(dtype)
    op, params = problem.op, put(kind, problem.params)
    for copy in (True, False):
        weights, biases = op.params_to_canonical(params, copy=copy)
        assert all(is_a(kind, array) for array in [*weights, *biases])
        assert get(weights[3]).tobytes() == op.params_to_canonical(problem.params)[0][3].tobytes()
        back = op.canonical_to_params(weights, biases)
        assert is_a(kind, back)
        assert get(back).tobytes() == problem.params.tobytes()
    moved = op.move_params(params, "cpu")
    assert isinstance(moved, np.ndarray)
    assert moved.tobytes() == problem.params.tobytes()
    assert not np.shares_memory(moved, get(params))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_take_every_kind_and_own_one_buffer(kind):
    x = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("f4")
    layers = [CudnnLSTM(1, 6, seed=1) for _ in range(2)]
    ours, expected = layers[0].forward(put(kind, x)), layers[1].forward(x)
    assert is_a(kind, ours.outputs)
    assert all(is_a(kind, state) for state in ours.states)
    gradient = ours.backward(put(kind, np.ones_like(expected.outputs))).params
    assert is_a(kind, gradient)
    buffer = layers[0].params
    layers[0].params -= 0.5 * get(gradient)
    layers[1].params -= 0.5 * expected.backward(np.ones_like(expected.outputs)).params
    assert layers[0].params is buffer
    assert np.array_equal(get(layers[0](put(kind, x))[0]), layers[1](x)[0])
    layers[0].params = put(kind, 2 * buffer)
    assert np.array_equal(buffer, 2 * layers[1].params)
    into = np.zeros_like(buffer)
    again = layers[0].forward(put(kind, x)).backward(put(kind, np.ones_like(expected.outputs)), out=into)
    assert again.params is into
    assert into.any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_functional_calls_take_every_kind(kind):
    problem = problem_of("float64", kind=ops.CudnnGRU)
    arguments = [put(kind, a) for a in (problem.x, problem.hx, problem.params)]
    options = {"sequence_lengths": problem.lengths, "direction": "bidirectional"}
    output, output_h = ops.cudnn_gru(*arguments, False, **options)
    expected = problem.op(problem.x, problem.hx, problem.params, False, sequence_lengths=problem.lengths)
    assert is_a(kind, output)
    assert np.array_equal(get(output), expected[0])
    assert np.array_equal(get(output_h), expected[1])


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plan_writes_into_the_callers_buffers(kind, dtype):
    problem = problem_of(dtype, None)
    expected, _ = results(problem, "numpy")
    plan = problem.op.prepare(5, 3, is_training=True)
    x, hx, cx, params = (put(kind, getattr(problem, name)) for name in ("x", "hx", "cx", "params"))
    y, hy, cy, dx, dhx, dcx, dparams = (
        put(kind, np.full_like(expected[name], 9))
        for name in ("output", "output_h", "output_c", "input", "input_h", "input_c", "params")
    )
    reserve = put(kind, np.zeros(plan.reserve_nbytes, np.uint8))
    plan.forward(params, x, hx, cx, y, hy, cy, reserve)
    dy, dhy, dcy = (put(kind, getattr(problem, name)) for name in ("dy", "dhy", "dcy"))
    plan.backward_data(params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve)
    plan.backward_weights(x, hx, y, dparams, reserve)
    for name, array in zip(expected, (y, hy, cy, dx, dhx, dcx, dparams), strict=True):
        assert get(array).tobytes() == expected[name].tobytes(), name


def test_a_plan_reads_jax_arrays_and_writes_numpy_ones():
    problem = problem_of("float64", None)
    plan = problem.op.prepare(5, 3)
    expected = problem.forward(is_training=False)
    y, hy, cy = (np.empty_like(a) for a in (expected.output, expected.output_h, expected.output_c))
    x, hx, cx, params = (put("jax", getattr(problem, name)) for name in ("x", "hx", "cx", "params"))
    plan.forward(params, x, hx, cx, y, hy, cy)
    assert np.array_equal(y, expected.output)
    for name, outputs in {"y": (put("jax", y), hy, cy), "hy": (y, put("jax", hy), cy)}.items():
        with pytest.raises(ArgumentError, match=f"Invalid {name}: a JAX array"):
            plan.forward(params, x, hx, cx, *outputs)


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("others", KINDS)
def test_kinds_may_meet_on_one_device_and_the_result_is_of_input_datas(first, others):
    problem = problem_of("float64")
    rest = [put(others, getattr(problem, name)) for name in ("hx", "cx", "params")]
    fwd = problem.op.forward(put(first, problem.x), *rest, sequence_lengths=problem.lengths)
    grads = fwd.backward(put(others, problem.dy))
    expected = problem.forward()
    assert all(is_a(first, a) for a in (fwd.output, fwd.output_c, grads.input, grads.params))
    assert np.array_equal(get(fwd.output), expected.output)
    assert np.array_equal(get(grads.params), expected.backward(problem.dy).params)


# --- what cannot be used ----------------------------------------------------------------------------------------------

OP = ops.CudnnLSTM(1, 3, 4, dtype="float64")
X = np.random.default_rng(0).normal(size=(5, 2, 4))
P = OP.init_params()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_dtype_names_both(kind):
    narrow = put(kind, X.astype("f4"))
    with pytest.raises(ArgumentError, match="Invalid input_data dtype: float32, expecting float64, the model's"):
        OP(narrow, None, None, put(kind, P))
    with pytest.raises(ArgumentError, match="Invalid params dtype: float32, expecting float64"):
        OP(put(kind, X), None, None, put(kind, P.astype("f4")))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_strided_data_is_read_and_a_strided_buffer_refused(kind):
    wide = put(kind, np.repeat(X, 2, axis=2))[..., ::2]
    assert np.array_equal(get(OP(wide, None, None, put(kind, P))[0]), OP(X, None, None, P)[0])
    with pytest.raises(ArgumentError, match=r"Invalid params: strides .*, expecting a contiguous buffer"):
        OP(put(kind, X), None, None, put(kind, np.repeat(P, 2))[::2])


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


REFUSED_AS_OUT = {
    "numpy": (lambda: read_only(P), "a read-only one, expecting a writable array"),
    "jax": (lambda: put("jax", P), "a JAX array, expecting an array that can be written"),
}


@pytest.mark.parametrize("kind", REFUSED_AS_OUT)
def test_what_cannot_be_written_is_read_and_refused_as_out(kind):
    make, text = REFUSED_AS_OUT[kind]
    array = make()
    fwd = OP.forward(X, None, None, array)
    with pytest.raises(ArgumentError, match=f"Invalid out: {text}"):
        fwd.backward(out=array)
    with pytest.raises(ArgumentError, match=f"Invalid out: {text}"):
        OP.canonical_to_params(*OP.params_to_canonical(P), out=array)
    assert np.array_equal(get(array), P)


def test_a_tensor_with_a_history_is_refused_while_torch_records_one():
    recorded = torch.tensor(P, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"Invalid params: .*expecting .*detach\(\).*interop\.torch"):
        OP(torch.tensor(X), None, None, recorded)
    with torch.no_grad():
        output = OP(torch.tensor(X), None, None, recorded)[0]
    assert not output.requires_grad
    assert np.array_equal(output.numpy(), OP(X, None, None, P)[0])


TRACES = {
    "jit": lambda f: jax.jit(f)(put("jax", X)),
    "grad": lambda f: jax.grad(lambda x: f(x).sum())(put("jax", X)),
    "vmap": lambda f: jax.vmap(f)(put("jax", X[None])),
}


@pytest.mark.parametrize("trace", TRACES)
def test_a_jax_trace_is_pointed_to_interop(trace):
    with pytest.raises(ArgumentTypeError, match=r"Invalid input_data: .*Tracer.*interop\.jax"):
        TRACES[trace](lambda x: OP(x, None, None, P)[0])


def a_fake():
    with FakeTensorMode():
        return torch.ones(5, 2, 4, dtype=torch.float64)


def deleted():
    array = put("jax", X)
    array.delete()
    return array


NO_MEMORY = {
    "fake": (a_fake, "a plain torch tensor"),
    "meta": (lambda: torch.ones(5, 2, 4, device="meta"), "an array on one device"),
    "sparse": (lambda: torch.ones(5, 2, 4).to_sparse(), "memory that numpy can share"),
    "conjugate": (lambda: torch.complex(torch.ones(5, 2, 4), torch.ones(5, 2, 4)).conj(), "memory that numpy can"),
    "negative": (lambda: torch._neg_view(torch.ones(5, 2, 4)), "resolve_neg"),
    "deleted": (deleted, "an array that has its memory"),
    "keys": (lambda: jax.random.split(jax.random.key(0), (5, 2, 4)), "a NumPy, CuPy or JAX array"),
    "text": (lambda: "text", "a NumPy, CuPy or JAX array, or a torch tensor"),
    "shape": (lambda: jax.ShapeDtypeStruct((5, 2, 4), "f8"), "a NumPy, CuPy or JAX array, or a torch tensor"),
    "numpy scalar": (lambda: np.float64(1), "a NumPy, CuPy or JAX array, or a torch tensor"),
}


@pytest.mark.parametrize("case", NO_MEMORY)
def test_what_has_no_memory_to_share_is_named(case):
    make, text = NO_MEMORY[case]
    with pytest.raises(ArgumentError, match=f"Invalid input_data: .*, expecting .*{text}"):
        OP(make(), None, None, P)


def test_a_torch_vmap_is_refused():
    with pytest.raises(ArgumentError, match="Invalid input_data: "):
        torch.func.vmap(lambda x: OP(x, None, None, P)[0])(torch.tensor(X[None]))


def test_pinned_host_memory_is_the_cpu():
    class Pinned(torch.Tensor):
        def __dlpack_device__(self):
            return 3, 0

    assert _arrays.kind_of("x", torch.tensor(X).as_subclass(Pinned)) == _arrays.Kind("torch", "cpu")


def test_a_parameter_and_other_subclasses_of_tensors_are_tensors():
    class Own(torch.Tensor):
        pass

    frozen = torch.nn.Parameter(torch.tensor(P), requires_grad=False)
    output = OP(torch.tensor(X).as_subclass(Own), None, None, frozen)[0]
    assert np.array_equal(output.numpy(), OP(X, None, None, P)[0])


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_saved_and_what_can_be_written_is_restored_in_place(kind, dtype, tmp_path):
    numbers = np.arange(12.0).reshape(3, 4).astype(problem_of(dtype).spec.dtype.numpy)
    path = Saver({"a": put(kind, numbers)}).save(tmp_path / "m")
    target = put("numpy" if kind == "jax" else kind, np.zeros_like(numbers))
    before = address(target)
    Saver({"a": target}).restore(path)
    assert address(target) == before
    assert get(target).tobytes() == numbers.tobytes()


def test_a_parameter_is_saved_and_restored_in_place(tmp_path):
    parameter = torch.nn.Parameter(torch.arange(6.0))
    path = Saver({"a": parameter}).save(tmp_path / "m")
    other = torch.nn.Parameter(torch.zeros(6))
    Saver({"a": other}).restore(path)
    assert torch.equal(parameter, other)
    assert other.requires_grad


def test_a_jax_array_is_refused_as_a_place_to_restore_into(tmp_path):
    array = put("jax", X)
    path = Saver({"a": array}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="Invalid a: a JAX array, expecting an array that can be written"):
        Saver({"a": array}).restore(path)
    assert np.array_equal(get(array), X)
    with pytest.raises(ArgumentError, match="a JAX array"):
        _arrays.overwrite(array, X)


@pytest.mark.parametrize("make", [lambda: put("jax", P), lambda: read_only(P)], ids=["jax", "read-only"])
def test_nothing_is_restored_where_one_place_cannot_be_written(make, tmp_path):
    def items(params):
        saveable = CudnnLSTMSaveable(params, 1, 3, 4)
        by_list = RNNParamsSaveable(OP.params_to_canonical, OP.canonical_to_params, params)
        return {"first": np.zeros(3), "named": saveable, "listed": by_list}

    for name in ("named", "listed"):
        target = {"first": np.ones(3), name: items(make())[name]}
        file = Saver({k: v for k, v in items(P).items() if k in target}).save(tmp_path / name)
        with pytest.raises(ArgumentError, match=r"Invalid opaque_params: a .*, expecting a.* writ"):
            Saver(target).restore(file)
        assert (target["first"] == 1).all(), "the other item is as it was"


# --- JAX's own ways ---------------------------------------------------------------------------------------------------


def test_float64_stays_float64_where_jaxs_default_types_are_narrow():
    assert not jax.config.jax_enable_x64
    output = OP(put("jax", X), None, None, P)[0]
    assert output.dtype == "float64"
    assert np.array_equal(get(output), OP(X, None, None, P)[0])


TWO_DEVICES = """
import jax, numpy as np
from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
op = ops.CudnnGRU(1, 3, 4)
x, params = np.ones((5, 2, 4), "f4"), op.init_params()
first, second = jax.devices()
for device in (first, second):
    fwd = op.forward(jax.device_put(x, device), None, jax.device_put(params, first))
    assert fwd.output.devices() == fwd.backward(fwd.output).params.devices() == {device}
mesh = jax.sharding.Mesh([first, second], ("i",))
try:
    op(jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "i"))), None, params)
except ArgumentError as error:
    print(error)
"""


def test_results_are_on_the_inputs_jax_device_and_sharded_arrays_are_refused():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Invalid input_data: ")
    assert "expecting an array on one device" in done.stdout


def test_a_layer_updated_in_place_does_not_change_what_jax_holds():
    layer = CudnnGRU(1, 6, seed=1)
    outputs, _ = layer(put("jax", X.astype("f4")))
    before = get(outputs).copy()
    gradient = layer.forward(put("jax", X.astype("f4"))).backward(outputs).params
    kept = get(gradient).copy()
    layer.params[...] = 0
    layer(put("jax", X.astype("f4")))
    assert np.array_equal(get(outputs), before)
    assert np.array_equal(get(gradient), kept)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (7,), (3, 5, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_new_memory_starts_where_jax_takes_it(shape, dtype, zeros):
    for _ in range(20):
        array = _arrays.new(shape, problem_of(dtype).spec.dtype.numpy, zeros=zeros)
        assert array.shape == shape
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert not array.size or array.ctypes.data % _arrays.ALIGNMENT_NBYTES == 0
        assert not zeros or not array.any()
