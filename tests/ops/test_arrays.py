"""Any library's arrays go in, and come back as their own kind over the same memory: kinds x paths.

CUDA arrays and streams are in tests/cudnn_engine/test_arrays.py.
"""

import dataclasses
import gc
import weakref

import jax
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.passes import INPUTS
from tests.helpers.axes import by_batch
from tests.helpers.kinds import ARRAYS, DTYPES, KINDS, address, get, is_a, on, problem_of, put
from tests.helpers.pairwise import pairwise

X = np.random.default_rng(0).normal(size=(5, 2, 4))


CASES = pairwise(KINDS, DTYPES, [None, (5, 2, 0), (5, 5, 1)], [True, False])


@pytest.mark.parametrize(("kind", "dtype", "lengths", "time_major"), CASES, ids=str)
def test_results_and_gradients_are_numpys_bits_in_the_callers_kind_over_the_engines_memory(
    engine_calls, kind, dtype, lengths, time_major
):
    problem = problem_of(dtype, lengths) if time_major else by_batch(problem_of(dtype, lengths))
    expected, given = problem.results(time_major=time_major), on(kind, problem)
    engine_calls.clear()
    found = given.results(time_major=time_major)
    natives = {name: array for _, _, arrays in engine_calls for name, array in arrays.items()}
    for name in INPUTS:
        assert natives.pop(name).ctypes.data == address(getattr(given, name)), f"{name} was copied"
    for native, (name, array) in zip(natives.values(), found.items(), strict=True):
        assert is_a(kind, array), name
        assert get(array).dtype == problem.spec.dtype.numpy, name
        assert get(array).tobytes() == expected[name].tobytes(), name
        assert native.ctypes.data == address(array), f"{name} was copied"
    for name in ARRAYS:
        assert np.array_equal(get(getattr(given, name)), getattr(problem, name)), f"{name} was written to"


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "numpy"), ("bfloat16", "torch"), ("float16", "jax")])
def test_memory_outlives_the_array_that_it_came_from_in_both_directions(kind, dtype):
    problem = problem_of(dtype)
    expected = problem.results()
    arrays = [put(kind, getattr(problem, name)) for name in ("x", "hx", "cx", "params")]
    fwd = problem.op.forward(*arrays, sequence_lengths=problem.lengths)
    died = [weakref.ref(array) for array in arrays]
    output, dy = fwd.output, put(kind, problem.dy)
    del arrays
    gc.collect()
    junk = [np.full(size, 0xFF, np.uint8) for size in range(64, 4096, 16)]
    grads = fwd.backward(dy, put(kind, problem.dhy), put(kind, problem.dcy))
    assert get(grads.params).tobytes() == expected["dparams"].tobytes()
    del fwd, grads
    gc.collect()
    junk += [np.full(size, 0xFF, np.uint8) for size in range(64, 4096, 16)]
    assert get(output).tobytes() == expected["y"].tobytes()
    assert all(ref() is None for ref in died), "nothing keeps an array alive once its forward is gone"


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_given_as_out_is_written_and_returned(kind):
    problem = problem_of()
    given = on(kind, problem)
    gradient, params = (put(kind, np.full_like(problem.params, 7)) for _ in range(2))
    assert given.forward().backward(*given.upstream(), out=gradient).params is gradient
    assert get(gradient).tobytes() == problem.results()["dparams"].tobytes()
    assert problem.op.canonical_to_params(*problem.op.params_to_canonical(given.params), out=params) is params
    assert get(params).tobytes() == problem.params.tobytes()


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("others", KINDS)
def test_kinds_may_meet_on_one_device_and_the_result_is_of_input_datas(first, others):
    problem = problem_of("float64")
    found = dataclasses.replace(on(others, problem), x=put(first, problem.x)).results()
    for name, array in problem.results().items():
        assert is_a(first, found[name])
        assert np.array_equal(get(found[name]), array)


def test_results_are_on_the_inputs_jax_device_and_sharded_arrays_are_refused():
    """`tests/conftest.py` makes two devices of the CPU."""
    op, (first, second) = ops.CudnnGRU(1, 3, 4), jax.devices()
    x, params = X.astype("f4"), op.init_params()
    for device in (first, second):
        fwd = op.forward(jax.device_put(x, device), None, jax.device_put(params, first))
        assert fwd.output.devices() == fwd.backward(fwd.output).params.devices() == {device}
    halves = jax.sharding.NamedSharding(jax.make_mesh((2,), "i"), jax.sharding.PartitionSpec(None, "i"))
    with pytest.raises(ArgumentError, match=r"Invalid input_data: .*expecting an array on one device"):
        op(jax.device_put(x, halves), None, params)
