"""The dict of arrays that a converter reads: each key is taken once, with its shape; an error names the others."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

import numpy as np

from pycudnnrnn._checks import plain, shorten, some
from pycudnnrnn._forms import Array
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.spec import DType, RNNMode

_DTYPES: Final = frozenset(map(str, DType))


class Named:
    """Arrays under their names, to be taken one by one.

    Nested dicts, and keys that are tuples, become names joined by "/". `joints` matches other separators in a name.
    `advice` follows the errors about a shape and about keys that are left over.

    Raises:
        ConvertError: not a dict, a key that is not a name, or nothing in it.
    """

    def __init__(self, framework: str, arrays: Any, joints: re.Pattern[str] | None = None) -> None:
        self.framework = framework
        self.advice = ""
        self._joints = joints
        if not isinstance(arrays, Mapping):
            raise ConvertError(framework, "arrays", f"expecting a dict of arrays, got {described(arrays, framework)}")
        self._dtype: np.dtype[Any] | None = None
        self._all: dict[str, Any] = {}
        for key, value in self._flat(arrays, ()):
            if key in self._all:
                raise ConvertError(framework, repr(key), "is there twice")
            self._all[key] = value
        if not self._all:
            raise ConvertError(framework, "arrays", "empty")
        self._left = dict(self._all)

    def _flat(self, arrays: Mapping[Any, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for key, value in arrays.items():
            parts = key if isinstance(key, tuple) else (key,)
            if not all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in parts):
                raise ConvertError(self.framework, f"key {shorten(key)}", "expecting a string")
            path = (*above, *map(str, parts))
            if isinstance(value, Mapping):
                yield from self._flat(value, path)
            elif self._joints is None:
                yield "/".join(path), value
            else:
                yield "/".join(part for part in self._joints.split("/".join(path)) if part), value

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def enter(self, scope: str) -> None:
        """Leave out the keys outside of a scope, and call the others by what follows it."""
        self._all = {key.removeprefix(scope): value for key, value in self._all.items() if key.startswith(scope)}
        self._left = dict(self._all)

    def keep_only(self, is_meant: Callable[[str], bool]) -> None:
        """Leave out every other key: those of other parts of the model."""
        self._all = {key: value for key, value in self._all.items() if is_meant(key)}
        self._left = dict(self._all)

    def leave_out(self, other: Callable[[str], bool]) -> str:
        """Drop the keys left that `other` accepts. Return their names, shortened, or ""."""
        aside = [key for key in self._left if other(key)]
        for key in aside:
            del self._left[key]
        return some(sorted(aside), shorten) if aside else ""

    def shape(self, key: str, *ranks: int) -> tuple[int, ...]:
        """Return the shape of an array of one of these ranks, to read sizes from it.

        Raises:
            ConvertError: missing, of another rank, or with a size of 0.
        """
        shape = tuple(self.array(key).shape)
        if len(shape) not in ranks or 0 in shape:
            self.refuse(key, f"expecting {' or '.join(map(str, ranks))} axes with elements, got shape {shape}")
        return shape

    def shape_of(self, key: str) -> tuple[int, ...]:
        """Return the shape of whatever is under a key, unchecked; () if there is nothing."""
        return tuple(getattr(self._all.get(key), "shape", ()))

    def take(self, key: str, *shape: int) -> Array:
        """Return an array of this shape, once.

        Raises:
            ConvertError: missing, of another shape, or of another dtype than the arrays taken before.
        """
        array = self.array(key)
        if array.shape != shape:
            self.refuse(key, f"expecting shape {shape}, got {array.shape}{self.advice}")
        self._dtype = self._dtype or array.dtype
        if array.dtype != self._dtype:
            self.refuse(key, f"expecting {self._dtype} like the arrays before it, got {array.dtype}")
        self._left.pop(key, None)
        return array

    def finish(self) -> None:
        """Raise a `ConvertError` if keys are left that were not taken."""
        if self._left:
            names = some(sorted(self._left), shorten)
            why = f"unexpected: it belongs to no RNN here{self.advice}"
            raise ConvertError(self.framework, names, why)

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise a `ConvertError` about a key."""
        raise ConvertError(self.framework, shorten(key), why)

    def array(self, key: str) -> Array:
        """Return an array, which can be read again.

        Raises:
            ConvertError: missing, or not an array of a dtype that cuDNN has.
        """
        if key not in self._all:
            raise ConvertError(self.framework, shorten(key), "missing")
        return as_numpy(self.framework, key, self._all[key])


_CANONICALS: Final = {
    "params_to_canonical": "convert.Canonical(op.spec, *op.params_to_canonical(params))",
    "saveable": "convert.Canonical(layer.spec, *layer.op.params_to_canonical(layer.params))",
    # before torch: on torch, the layers of Keras are its modules
    "get_weights": "convert.keras.to_canonical({w.path: w.numpy() for w in layer.weights})",
    "state_dict": "convert.pytorch.to_canonical(module.state_dict())",
    "iter_modules": "convert.flax.to_canonical(nnx.state(module, nnx.Param))",
}
"""How a model's object becomes a `Canonical`, by the first of these members that its class has."""


_READERS: Final = {
    "keras": "convert.keras.read(path)", "onnx": "convert.onnx.from_model(onnx.load(path))",
    "pytorch": "torch.load(path, weights_only=True)", "tensorflow": "checkpoint.read_tensorflow(path)",
}  # fmt: skip


def described(value: Any, framework: str = "") -> str:
    """Name the type of a value that a converter does not take, and what to give instead."""
    text = type(value).__name__
    if isinstance(value, (list, tuple)):
        return f"{text}: arrays need names (of Keras's get_weights() give {{w.path: w.numpy() for w in model.weights}})"
    if isinstance(value, (str, os.PathLike)):
        reader = f"{_READERS[framework]}, or " if framework in _READERS else ""
        return f"{text}: read the file first, with {reader}safetensors.numpy.load_file(path)"
    if framework == "jax_rnn" and getattr(value, "ndim", 0) == 1:
        return f"{text}: give the vector as {{'weights': vector}}"
    if hasattr(value, "double_biases"):
        return f"{text}: convert.{framework}.from_canonical(c) makes the arrays"
    hints = [how for member, how in _CANONICALS.items() if hasattr(type(value), member)]
    return f"{text}: its Canonical is {hints[0]}" if hints else text


def under(framework: str, prefix: str, arrays: Mapping[str, Array], joint: str = "/") -> dict[str, Array]:
    """Put a prefix before every name. The framework's `joint` follows a prefix that ends in a letter or a digit.

    Raises:
        ConvertError: it is not a string.
    """
    prefix = completed(framework, prefix, joint)
    return {prefix + name: array for name, array in arrays.items()}


def completed(framework: str, prefix: Any, joint: str) -> str:
    """Return a prefix with the framework's joint at its end, if that is a letter or a digit.

    Raises:
        ConvertError: it is not a string.
    """
    if not isinstance(prefix, str):
        raise ConvertError(framework, "prefix", f"expecting a string, got {type(prefix).__name__}")
    return prefix + joint if prefix[-1:].isalnum() else prefix


def as_numpy(framework: str, key: str, value: Any) -> Array:
    """Return an array of any CPU library as a NumPy array of a dtype that cuDNN has, in native byte order.

    Raises:
        ConvertError: not an array, not on the CPU, or of another dtype.
    """
    try:
        array = _exported(value)
    except Exception as error:  # any library may raise its own error
        why = f"cannot be read as an array on the CPU: {type(error).__name__}: {error}"
        raise ConvertError(framework, shorten(key), why) from error
    if array is None:
        raise ConvertError(framework, shorten(key), f"expecting an array, got {type(value).__name__}")
    if array.dtype.name not in _DTYPES:
        raise ConvertError(framework, shorten(key), f"expecting a floating dtype that cuDNN has, got {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _exported(value: Any) -> Array | None:
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        tensor, torch = value.detach(), sys.modules["torch"]
        if tensor.dtype is torch.bfloat16:  # NumPy has no such dtype, so the bits travel as integers
            return np.asarray(tensor.view(torch.int16).numpy()).view(DType.BFLOAT16.numpy)
        return np.asarray(tensor.numpy())
    if isinstance(value, np.ndarray):
        return plain("array", value)
    if hasattr(value, "__array__") and hasattr(value, "shape"):
        return np.asarray(value)
    return None


def flag(framework: str, name: str, value: Any) -> bool:
    """Return a keyword that must be True or False.

    Raises:
        ConvertError: it is neither.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ConvertError(framework, name, f"expecting True or False, got {shorten(value)}")
    return bool(value)


def mode_of(framework: str, key: str, rows: int, units: int, activation: str) -> RNNMode:
    """Return the cell whose number of gates fits the rows of the stack.

    Raises:
        ConvertError: not the rows of an LSTM, a GRU or a plain cell, or an activation that cuDNN does not have.
    """
    plain = plain_mode(framework, activation)
    modes = {4 * units: RNNMode.LSTM, 3 * units: RNNMode.GRU, units: plain}
    if rows not in modes:
        why = f"{rows} gate rows for {units} units: expecting 4 times (LSTM), 3 times (GRU) or once (tanh, relu)"
        raise ConvertError(framework, shorten(key), why)
    return modes[rows]


def plain_mode(framework: str, activation: str, keyword: str = "activation") -> RNNMode:
    """Return the plain cell of this activation.

    Raises:
        ConvertError: neither tanh nor relu.
    """
    modes = {"tanh": RNNMode.RNN_TANH, "relu": RNNMode.RNN_RELU}
    if not isinstance(activation, str) or activation not in modes:
        raise ConvertError(framework, f"{keyword} {shorten(activation)}", "cuDNN has only 'tanh' and 'relu'")
    return modes[activation]
