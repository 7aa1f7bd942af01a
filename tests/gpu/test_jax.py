"""`interop.jax.rnn` on a GPU: values and gradients by cuDNN, inside and outside of `jit`."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.testing.strategies import make_problem


@pytest.fixture
def jax(cuda):
    if cuda.on_shim:
        pytest.skip("JAX needs a GPU to have CUDA arrays; tests/interop/test_jax.py runs on the CPU")
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    return module


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
@pytest.mark.parametrize("lengths", [None, [7, 0, 3]], ids=["equal", "ragged"])
def test_values_and_gradients_are_the_numpy_engines(jax, kind, jitted, lengths):
    from pycudnnrnn.interop.jax import rnn

    problem = make_problem(kind(2, 12, 7, direction="bidirectional", dtype="float64"), 7, 3, lengths, seed=3)
    expected = problem.forward()
    gradients = expected.backward(problem.dy)

    def loss(params, x, *states):
        output = rnn(params, x, *states, spec=problem.op, sequence_lengths=lengths)[0]
        return (output * problem.dy).sum(), output

    states = (problem.hx, problem.cx) if problem.spec.has_cell_state else (problem.hx,)
    with jax.enable_x64(True):
        function = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        function = jax.jit(function) if jitted else function
        given = [jax.numpy.asarray(array) for array in (problem.params, problem.x, *states)]
        (_, output), (d_params, d_x) = function(*given)
    assert output.devices() == {jax.devices()[0]}
    for found, wanted in ((output, expected.output), (d_params, gradients.params), (d_x, gradients.input)):
        assert np.allclose(np.asarray(found), wanted, rtol=1e-9, atol=1e-9)
