"""Hints for wrong names: those that other frameworks use for arguments and classes, and the names here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from pycudnnrnn._text import cut

_Method = TypeVar("_Method", bound=Callable[..., Any])

_TRAINING: Final = "each call takes its own: is_training of an op, training of a layer"
_NO_BIAS: Final = "it is bias_mode='none' here, for no biases"
_CELL: Final = "the class decides it: CudnnRNNTanh and CudnnRNNRelu are two classes here"
_INITIAL: Final = (
    "a layer has kernel_initializer and bias_initializer, and for an op you write into params after init_params"
)

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
    "mask": "it is sequence_lengths here, in each call: lengths, not a mask",
    "kernel_initializer": _INITIAL,
    "recurrent_initializer": _INITIAL,
    "bias_initializer": _INITIAL,
    "hx": "it is input_h and input_c of an op here, initial_state of a layer",
    "lengths": "it is sequence_lengths here, in each call",
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
"""Arguments of torch, Keras and related classes that a class here does not have, and what to use instead."""

_CLASSES: Final = {"LSTM": "CudnnLSTM", "GRU": "CudnnGRU", "RNN": "CudnnRNNTanh or CudnnRNNRelu"}
"""Classes of torch and Keras, and their names here."""

_OTHER_NAMES: Final = (("training", "is_training"), ("is_training", "training"))
"""A wrong keyword, and the one that is meant if the method takes it."""

_METHODS: Final = {
    "Saver.__init__": 'name what to save: Saver({"encoder": layer}), or Saver([layer])',
    "Saver.save": "there is no session here: save(path, global_step)",
    "Saver.restore": "there is no session here: restore(path)",
}
"""Methods whose arguments were others in TensorFlow 1.x, and how they are called here."""


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
            found = hinted(error, method, arguments, keywords)
            if found is None:
                raise
            raise found from None

    return cast("_Method", call)


def hinted(error: TypeError, method: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> TypeError | None:
    """Return Python's error for wrong arguments with hints and the signature added, and the class that was called.

    Return None for a `TypeError` that was raised inside the method: its traceback has more than one frame.
    """
    if error.__traceback__ is None or error.__traceback__.tb_next is not None:
        return None
    signature = inspect.signature(method)
    taken = [p.replace(annotation=p.empty) for name, p in signature.parameters.items() if name != "self"]
    here = _HERE | {name: f"it is {ours} here" for name, ours in _OTHER_NAMES if ours in signature.parameters}
    hints = [f"{name}: {here[name]}" for name in keywords if name in here and name not in signature.parameters]
    hints += [_METHODS[method.__qualname__]] if method.__qualname__ in _METHODS else []
    if "input_c" in signature.parameters and tuple in map(type, (*arguments, *keywords.values())):
        hints.append("input_h and input_c are two arguments here")
    owner = type(getattr(method, "__self__", arguments[0] if arguments else None)).__name__
    said = str(error).replace(f"{method.__qualname__}()", f"{owner}.{method.__name__}()")
    return TypeError(cut("; ".join([said, *hints, f"taken are {inspect.Signature(taken)}"])))
