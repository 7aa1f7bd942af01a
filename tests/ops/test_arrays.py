"""Any library's arrays go in, and come back as their own kind over the same memory: kinds x paths.

CUDA arrays and streams are in tests/cudnn_engine/test_arrays.py.
"""

import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from tests.helpers.kinds import DTYPES, KINDS, address, get, is_a, problem_of, put
from tests.helpers.pairwise import pairwise

X = np.random.default_rng(0).normal(size=(5, 2, 4))


class Recorder(NumpyEngine):
    """The NumPy engine, remembering where its arguments and results are."""

    def __init__(self):
        self.given, self.made = {}, {}

    def forward(self, batch):
        run = super().forward(batch)

        def recorded(schedule, inputs, at):
            *results, reserve = run(schedule, inputs, at)
            self.given = inputs
            self.made = dict(zip(("output", "output_h", "output_c"), results, strict=True))
            return *results, RecordedReserve(self, reserve)

        return recorded


class RecordedReserve:
    """A reserve that tells a recorder where the gradients are."""

    def __init__(self, recorder, reserve):
        self.recorder, self.reserve = recorder, reserve

    @property
    def touched(self):
        return self.reserve.touched

    def backward_data(self, *arguments):
        results = self.reserve.backward_data(*arguments)
        self.recorder.made |= dict(zip(("input", "input_h", "input_c"), results, strict=True))
        return results

    def backward_weights(self, out, *, accumulate):
        self.reserve.backward_weights(out, accumulate=accumulate)
        self.recorder.made["params"] = out


def swapped(problem, name, time_major):
    """An array of a problem; of data, the one that a batch-major call takes."""
    array = getattr(problem, name)
    return array if time_major or name not in {"x", "dy"} else np.ascontiguousarray(array.swapaxes(0, 1))


def results(problem, kind, *, time_major=True):
    """Every result and gradient of a problem run on arrays of a kind; and the arrays that were given."""
    names = ("x", "hx", "cx", "params", "dy", "dhy", "dcy")
    given = {name: put(kind, swapped(problem, name, time_major)) for name in names}
    options = {"sequence_lengths": problem.lengths, "time_major": time_major}
    fwd = problem.op.forward(given["x"], given["hx"], given["cx"], given["params"], **options)
    grads = fwd.backward(given["dy"], given["dhy"], given["dcy"])
    found = {name: getattr(fwd, name) for name in ("output", "output_h", "output_c")}
    return found | {name: getattr(grads, name) for name in ("input", "input_h", "input_c", "params")}, given


CASES = pairwise(KINDS, DTYPES, [None, (5, 2, 0), (5, 5, 1)], [True, False])


@pytest.mark.parametrize(("kind", "dtype", "lengths", "time_major"), CASES, ids=str)
def test_results_and_gradients_are_numpys_bits_in_the_callers_kind_over_the_engines_memory(
    kind, dtype, lengths, time_major
):
    problem = problem_of(dtype, lengths)
    expected, _ = results(problem, "numpy", time_major=time_major)
    with use_engine(recorder := Recorder()):
        found, given = results(problem, kind, time_major=time_major)
    for name, native in recorder.given.items():
        assert native.ctypes.data == address(given[name]), f"{name} was copied"
    for name, array in found.items():
        assert is_a(kind, array), name
        assert get(array).dtype == problem.spec.dtype.numpy, name
        assert get(array).tobytes() == expected[name].tobytes(), name
        assert recorder.made[name].ctypes.data == address(array), f"{name} was copied"
    for name, array in given.items():
        assert np.array_equal(get(array), swapped(problem, name, time_major)), f"{name} was written to"


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "numpy"), ("bfloat16", "torch"), ("float16", "jax")])
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


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_given_as_out_is_written_and_returned(kind):
    problem = problem_of()
    expected, given = results(problem, kind)
    fwd = problem.op.forward(*(given[name] for name in ("x", "hx", "cx", "params")), sequence_lengths=problem.lengths)
    gradient, params = (put(kind, np.full_like(problem.params, 7)) for _ in range(2))
    assert fwd.backward(given["dy"], given["dhy"], given["dcy"], out=gradient).params is gradient
    assert get(gradient).tobytes() == get(expected["params"]).tobytes()
    canonical = problem.op.params_to_canonical(given["params"])
    assert problem.op.canonical_to_params(*canonical, out=params) is params
    assert get(params).tobytes() == problem.params.tobytes()


def test_a_buffer_may_be_filled_from_its_own_views_in_another_order():
    op = ops.CudnnGRU(1, 3, 3)
    params = op.init_params(1)
    weights, biases = op.params_to_canonical(params, copy=False)
    expected = op.canonical_to_params([weight.copy() for weight in weights[::-1]], biases[::-1])
    assert np.array_equal(op.canonical_to_params(weights[::-1], biases[::-1], out=params), expected)


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


# --- JAX's own ways ---------------------------------------------------------------------------------------------------


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
        [sys.executable, "-c", TWO_DEVICES], env=environment, capture_output=True, text=True, check=False
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
