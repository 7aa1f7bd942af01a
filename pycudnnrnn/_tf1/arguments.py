"""The arguments of TF's layers: checks in TF's words, and the words that name starting values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import one_of, shorten
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import AUTO_SELECT, Direction, DType, InputMode, RNNSpec, parse_dtype

_INPUT_MODES = (*map(str, InputMode), AUTO_SELECT)


def check_words(input_mode: Any, direction: Any) -> None:
    """Raise TF's own errors for unknown words, before any other check."""
    if not isinstance(direction, str) or direction not in set(map(str, Direction)):
        text = f"Invalid direction: {direction}, expecting unidirectional or bidirectional"
        raise ArgumentError("direction", "unidirectional or bidirectional", direction, text=text)
    if not isinstance(input_mode, str) or input_mode not in set(_INPUT_MODES):
        text = f"Invalid input_mode: {input_mode}, expect one of {_INPUT_MODES}"
        raise ArgumentError("input_mode", f"one of {_INPUT_MODES}", input_mode, text=text)


def layer_dtype(dtype: Any) -> DType:
    try:
        return parse_dtype("dtype", dtype)
    except ArgumentError as error:
        text = f"Only support float16, bfloat16, float32, float64, provided {dtype}"
        raise type(error)("dtype", error.expected, dtype, text=text) from None


def shape_of(shape: Any) -> tuple[int | None, ...]:
    """Read a shape: a sequence of integers and None, or TF's TensorShape."""
    try:
        sizes = shape.as_list() if hasattr(shape, "as_list") else list(shape)
        return tuple(None if n is None else operator.index(getattr(n, "value", n)) for n in sizes)
    except TypeError:
        raise ArgumentTypeError("input_shape", "a sequence of integers, or None where a size is open", shape) from None


def layer_shape(shape: Any) -> tuple[int | None, ...]:
    """Read the shape of a layer's inputs, which has three sizes."""
    sizes = shape_of(shape)
    if len(sizes) != 3:
        text = f"Expecting input_shape with 3 dims, got {len(sizes)}"
        raise ArgumentError("input_shape", "3 dimensions", sizes, text=text)
    return sizes


def h_and_c(states: Any, spec: RNNSpec) -> tuple[Any, Any]:
    """Return h and c of a caller's states: the tuple (h, c), or (h,) of a cell without c; None for zeros."""
    if states is None:
        return None, None
    count, expected = (2, "(h, c)") if spec.has_cell_state else (1, "(h,)")
    if not isinstance(states, tuple):
        text = f"Invalid initial_state type: {type(states)}, expecting tuple {expected}."
        raise ArgumentTypeError("initial_state", f"a tuple {expected}", type(states), text=text)
    if len(states) != count:
        raise ArgumentError("initial_state", f"a tuple {expected}", f"a tuple of {len(states)}")
    return states[0], states[1] if count == 2 else None


Initializer = Callable[[tuple[int, ...], np.dtype[Any]], Any]
InitializerName = Literal[
    "glorot_uniform", "glorot_normal", "orthogonal", "random_normal", "random_uniform", "zeros", "ones"
]
InitializerLike = InitializerName | Initializer


def _glorot_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    bound = (6 / _fans(shape)) ** 0.5
    return rng.uniform(-bound, bound, shape)


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if len(shape) != 2:
        raise ArgumentError("initializer", "a matrix to make orthogonal", shape, aspect="shape")
    rows, columns = shape
    q, r = np.linalg.qr(rng.normal(size=(max(shape), min(shape))))
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # without this, q is not uniform over the rotations
    return q if rows >= columns else q.T


_NAMED: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "glorot_uniform": _glorot_uniform,
    "glorot_normal": lambda rng, shape: rng.normal(0, (2 / _fans(shape)) ** 0.5, shape),
    "orthogonal": _orthogonal,
    "random_normal": lambda rng, shape: rng.normal(0, 0.05, shape),
    "random_uniform": lambda rng, shape: rng.uniform(-0.05, 0.05, shape),
    "zeros": lambda _, shape: np.zeros(shape),
    "ones": lambda _, shape: np.ones(shape),
}


def check_initializer(name: str, initializer: Any, default: InitializerName) -> InitializerLike:
    """Return an initializer's name or a callable over (shape, dtype).

    Raises:
        ArgumentError: a name that is not known.
        ArgumentTypeError: neither a string nor a callable.
    """
    value: InitializerLike = default if initializer is None else initializer
    if isinstance(value, str) and value not in _NAMED:
        raise ArgumentError(name, one_of(list(_NAMED)), shorten(value))
    if not isinstance(value, str) and not callable(value):
        raise ArgumentTypeError(name, "a name or a callable over (shape, dtype)", type(value))
    return value


def initial_value(
    name: str, initializer: str | Initializer, shape: tuple[int, ...], dtype: np.dtype[Any], seed: list[int]
) -> Array:
    """Return an array of `shape`. A named initializer draws from `seed`; a callable gets (shape, dtype).

    Raises:
        ArgumentError: a callable returned another shape.
    """
    if isinstance(initializer, str):
        return _NAMED[initializer](np.random.default_rng(seed), shape).astype(dtype)
    array = _arrays.host_values(name, initializer(shape, dtype))
    if array.shape != shape:
        raise ArgumentError(name, f"a callable that returns shape {shape}", array.shape, aspect="shape")
    return array.astype(dtype)


def _fans(shape: tuple[int, ...]) -> int:
    """Return the sum of fan-in and fan-out. A vector counts as in TF."""
    return sum(shape[-2:]) if len(shape) > 1 else 2 * sum(shape or (1,))
