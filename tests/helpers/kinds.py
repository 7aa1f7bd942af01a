"""Arrays of each CPU library with the same numbers, and the numbers of each, without this package."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

from pycudnnrnn import ops
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


ARRAYS = ("params", "x", "hx", "cx", "dy", "dhy", "dcy")


def on(kind, problem):
    """A problem with copies of its arrays of a kind."""
    return dataclasses.replace(problem, **{name: put(kind, getattr(problem, name)) for name in ARRAYS})


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


def problem_of(dtype="float64", lengths=(5, 2, 0), kind=ops.CudnnLSTM, **options):
    op = kind(2, 6, 4, direction="bidirectional", dtype=dtype, **options)
    return make_problem(op, 5, 3, None if lengths is None else [*lengths], seed=7)
