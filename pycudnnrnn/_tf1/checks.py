"""Checks of a layer's arguments, in the words of TF's layers."""

from __future__ import annotations

import operator
from typing import Any

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import AUTO_SELECT, Direction, DType, InputMode, parse_dtype

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
    found = shape_of(shape)
    if len(found) != 3:
        text = f"Expecting input_shape with 3 dims, got {len(found)}"
        raise ArgumentError("input_shape", "3 dimensions", found, text=text)
    return found
