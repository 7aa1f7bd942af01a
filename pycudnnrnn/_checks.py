"""Checks of arguments: their values, and their names, with hints for those that other frameworks use; and warnings."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, MissingDependencyError, PycudnnrnnError

_Enum = TypeVar("_Enum", bound=StrEnum)

NAMED_MAX: Final = 8
"""Most names that an error lists."""


def check_word(enum: type[_Enum], name: str, value: Any) -> _Enum:
    """Return the member of `enum` for a string; the error lists the allowed strings."""
    try:
        return enum(value)
    except ValueError:
        raise ArgumentError(name, one_of([str(m) for m in enum]), shorten(value)) from None


def check_int(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int in [low, high]. NumPy integers are accepted; True, 3.0 and "3" are not."""
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, "an integer", shorten(value))
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, "an integer", shorten(value)) from None
    if not low <= number <= high:
        raise ArgumentError(name, f"an integer from {low} to {high}", shorten(number))
    return number


def check_bool(name: str, value: Any) -> bool:
    """Return `value` as a bool. NumPy booleans are accepted; numbers are not."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, "a Python bool", shorten(value))
    return bool(value)


def check_text(name: str, value: Any) -> str:
    """Return `value`, which must be a string."""
    if not isinstance(value, str):
        raise ArgumentTypeError(name, "a string", shorten(value))
    return value


def check_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise if `value` is of another type."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(name, expected, type(value))


def check_real(name: str, value: Any) -> float:
    """Return `value` as a float. Booleans, strings and NaN are not accepted."""
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise ArgumentTypeError(name, "a real number", shorten(value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(name, "a real number", shorten(value)) from None
    except OverflowError:
        raise ArgumentError(name, "a number that fits a C double", "a larger one") from None
    if math.isnan(number):
        raise ArgumentError(name, "a real number", number)
    return number


def check_dropout(value: Any) -> float:
    """Return a probability of dropping."""
    dropout = check_real("dropout", value)
    if not 0.0 <= dropout <= 1.0:
        raise ArgumentError("dropout", "a probability of dropping, from 0 to 1", dropout)
    return dropout


def shorten(value: Any, most: int = 80) -> str:
    """Return a repr that is short enough for an error message. Values in errors are shown through this."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return f"a value of {type(value)} that has too many digits"
    return text if len(text) <= most else text[: most - 3] + "..."


def plain(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a NumPy array as a plain ndarray over the same memory.

    Raises:
        ArgumentTypeError: a masked array, whose mask would be ignored, or a matrix.
    """
    if type(array) is np.ndarray:
        return array
    if isinstance(array, (np.ma.MaskedArray, np.matrix)):
        raise ArgumentTypeError(name, "a plain array (filled() or np.asarray makes one)", type(array))
    return array.view(np.ndarray)


def one_of(names: list[str]) -> str:
    """Join names for an error text: 'a', 'b' or 'c'."""
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def some(names: list[str], write: Callable[[str], str]) -> str:
    """Join names for an error text: the first few, and the number of the others."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(map(write, names[:NAMED_MAX])) + more


@contextlib.contextmanager
def needs(package: str, extra: str, purpose: str, install: str | None = None) -> Iterator[None]:
    """Raise a `MissingDependencyError`, which has these arguments, if the block imports a module that is not there.

    A package that is there and fails, as CuPy without its libraries, says itself why.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(package, extra, purpose, install) from error


class Assumption(UserWarning):
    """What arrays do not contain, and a converter takes for granted."""


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and point at the line outside of this package that called it."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001  documented
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def is_file_name(name: str) -> bool:
    """Return True if this is a possible name of a file in a folder, not a path."""
    try:
        return name == Path(name).name and name not in {"", ".."} and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


_Method = TypeVar("_Method", bound=Callable[..., Any])

_TRAINING: Final = "it is is_training of an op and training of a layer, in each call"
_NO_BIAS: Final = "it is bias_mode='none' here, for no biases"
_CELL: Final = "the class decides it: CudnnRNNTanh and CudnnRNNRelu are two classes here"
_INITIAL: Final = (
    "a layer has kernel_initializer and bias_initializer, and for an op you write into params after init_params"
)
_STATES: Final = "it is input_h and input_c of an op here, initial_state of a layer"
_LENGTHS: Final = "it is sequence_lengths here, in each call"

_HERE: Final = {
    "hidden_size": "it is num_units here",
    "units": "it is num_units here",
    "proj_size": "it is num_proj of an LSTM here",
    "bidirectional": "it is direction='bidirectional' here",
    "batch_first": "it is time_major=False here, in each call",
    "nonlinearity": _CELL,
    "activation": _CELL,
    "bias": _NO_BIAS,
    "use_bias": _NO_BIAS,
    "layers": "it is num_layers here",
    "n_layers": "it is num_layers here",
    "return_sequences": "each call returns the outputs of all steps and the final states",
    "return_state": "each call returns the outputs of all steps and the final states",
    "go_backwards": "reverse the input in time, x[::-1], and the output",
    "stateful": "pass the states that a call returns to the next one",
    "recurrent_dropout": "cuDNN has dropout only between layers",
    "reset_after": "a GRU here resets after the product, as with True",
    "unit_forget_bias": "False here, and for True you add 1 to the forget gate's bias",
    "mask": "it is sequence_lengths here, in each call: lengths, not a mask",
    "kernel_initializer": _INITIAL,
    "recurrent_initializer": _INITIAL,
    "bias_initializer": _INITIAL,
    "hx": _STATES,
    "initial_carry": _STATES,
    "lengths": _LENGTHS,
    "seq_lengths": _LENGTHS,
    "device": "an op or a call runs where its arrays are",
    "training": _TRAINING,
    "is_training": _TRAINING,
    "sequence_lengths": "each call takes its own",
    "time_major": "each call takes its own",
    "input_size": "a layer learns it from its first inputs, or from build(input_shape)",
    "d_output": "it is d_outputs of a layer",
    "d_outputs": "it is d_output of an op",
    "input_c": "only an LSTM has a cell state",
    "num_proj": "only an LSTM has a projection",
    "cell_clip": "only an LSTM has a cell state to clip",
}
"""Arguments of torch, Keras, Flax and related classes that a class here does not have, and what to use instead."""

_CLASSES: Final = {"LSTM": "CudnnLSTM", "GRU": "CudnnGRU", "RNN": "CudnnRNNTanh or CudnnRNNRelu"}
"""Classes of torch and Keras, and their names here."""

_METHODS: Final = {
    "Saver.__init__": 'name what to save: Saver({"encoder": layer}), or Saver([layer])',
    "Saver.save": "there is no session here: save(path, global_step)",
    "Saver.restore": "there is no session here: restore(path)",
    "RNNParamsSaveable.__init__": 'TF 1.3\'s "a/rnn" is CudnnOpaqueParamsSaveable.of(params, op.spec, "a", name)',
    "algorithm_choices": 'it lists the choices of a device: algorithm_choices(device="cuda:0")',
}
"""Calls whose arguments people expect to be others, and how they are called here."""


def not_here(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have; for a class of another framework, with its name here."""
    hint = f": it is {_CLASSES[name]} here" if name in _CLASSES else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def with_hints(method: _Method) -> _Method:
    """Decorate a method: its `TypeError` for wrong arguments gets hints; see `hinted`."""

    @functools.wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return method(*arguments, **keywords)
        except TypeError as error:
            with_hint = hinted(error, method, arguments, keywords)
            if with_hint is None:
                raise
            raise with_hint from None

    return cast("_Method", call)


def hinted(error: TypeError, method: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> TypeError | None:
    """Return Python's error for wrong arguments with hints and the signature added, and the class that was called.

    Return None for a `TypeError` that was raised inside the method: its traceback has more than one frame.
    """
    if error.__traceback__ is None or error.__traceback__.tb_next is not None:
        return None
    signature = inspect.signature(method)
    taken = [p.replace(annotation=p.empty) for name, p in signature.parameters.items() if name != "self"]
    hints = [f"{name}: {_HERE[name]}" for name in keywords if name in _HERE and name not in signature.parameters]
    hints += [_METHODS[method.__qualname__]] if method.__qualname__ in _METHODS else []
    if "input_c" in signature.parameters and tuple in map(type, (*arguments, *keywords.values())):
        hints.append("input_h and input_c are two arguments here")
    said = str(error)
    if "." in method.__qualname__:  # a subclass may have been called
        owner = type(getattr(method, "__self__", arguments[0] if arguments else None)).__name__
        said = said.replace(f"{method.__qualname__}()", f"{owner}.{method.__name__}()")
    text = "; ".join([said, *hints, f"taken are {inspect.Signature(taken)}"])
    return TypeError(str(PycudnnrnnError(text)))  # without the middle of a very long text
