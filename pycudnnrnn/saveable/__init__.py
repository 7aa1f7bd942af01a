"""Saveables: read and write a params buffer as the named tensors of TensorFlow's plain cells.

A saveable works on the buffer that it was given and keeps no copy. It needs no GPU library: names, shapes and the
merging of matrices are arithmetic (`_tf1.tensors`).

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.2, 1.4, 1.13 and 1.15.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from pycudnnrnn import _assignment
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_text, check_type, with_hints
from pycudnnrnn._tf1.tensors import from_tf, look_up, tf_tensors, to_tf
from pycudnnrnn._tf1.variable import host_of, value_of
from pycudnnrnn.canonical import to_canonical
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.ops import CudnnRNN
from pycudnnrnn.saveable._format_converters import (
    CudnnParamsFormatConverter,
    CudnnParamsFormatConverterBasic,
    CudnnParamsFormatConverterGRU,
    CudnnParamsFormatConverterLSTM,
    CudnnParamsFormatConverterRelu,
    CudnnParamsFormatConverterTanh,
    canonical_of,
    op_of,
    params_assignment,
)
from pycudnnrnn.spec import BiasModeLike, DirectionLike, InputModeLike, RNNMode, RNNSpec, parse_dtype

__all__ = [
    "CudnnGRUSaveable",
    "CudnnLSTMSaveable",
    "CudnnOpaqueParamsSaveable",
    "CudnnParamsFormatConverter",
    "CudnnParamsFormatConverterBasic",
    "CudnnParamsFormatConverterGRU",
    "CudnnParamsFormatConverterLSTM",
    "CudnnParamsFormatConverterRelu",
    "CudnnParamsFormatConverterTanh",
    "CudnnRNNReluSaveable",
    "CudnnRNNTanhSaveable",
    "RNNParamsSaveable",
    "SaveSpec",
]
__dir__ = __all__.copy


class SaveSpec(NamedTuple):
    """One tensor to save: its full name and its current value."""

    name: str
    tensor: Array


class Saveable:
    """Save and restore tensors by name. A subclass has `tensors`, `restoring` and the buffer `_opaque`."""

    name: str
    _opaque: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def tensors(self) -> dict[str, Array]:
        """Return a dict of every tensor by its full name, in the order of `specs`."""
        raise NotImplementedError

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor by its full name."""
        return {name: tensor.shape for name, tensor in self.tensors().items()}

    @property
    def specs(self) -> list[SaveSpec]:
        """A list of all tensors: first TF's, in TF's order (weights, then biases), then those that TF lacks."""
        return [SaveSpec(name, tensor) for name, tensor in self.tensors().items()]

    def restore(self, restored_tensors: Any, restored_shapes: Any = None) -> Any:  # noqa: ARG002
        """Write tensors into the buffer, and return the buffer.

        Args:
            restored_tensors: the arrays, cast to the buffer's dtype. Either a list in the order of `specs`, complete
                or with only TF's tensors; or a mapping from full names to arrays. A mapping may hold other names,
                too, so a whole TF checkpoint can be passed.
            restored_shapes: ignored; TF's signature has it. Default: None.

        Returns:
            The buffer that the saveable was made with.

        Raises:
            ArgumentError: a wrong number of tensors, a missing one, a wrong shape, or a buffer that cannot be written
                to. The buffer is unchanged then.
        """
        if isinstance(restored_tensors, (str, os.PathLike)):
            expected = "a list of arrays or a mapping to arrays; Saver.restore(path) reads a file"
            raise ArgumentTypeError("restored_tensors", expected, type(restored_tensors))
        self.restoring(restored_tensors)()
        return value_of(self._opaque)

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        """Check tensors, and return a function that writes them: `restore` in two steps.

        Args:
            restored_tensors: as in `restore`.

        Returns:
            A function without arguments that writes the tensors into the buffer and does not fail.

        Raises:
            ArgumentError: under the conditions of `restore`.
        """
        raise NotImplementedError


class CudnnOpaqueParamsSaveable(Saveable):
    """Save and restore a params buffer as the tensors of TF's plain cells. Use one of its four subclasses, or `of`.

    Args:
        opaque_params: the params buffer: an array of any library, or a `Variable`. A restore writes into it.
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        scope: prefix of every tensor's name, without a slash at the end. A TF scope object is accepted, too. None: no
            prefix. Default: None.
        name: name of the saveable itself, as in TF. No tensor's name contains it. Default: "cudnn_rnn_saveable".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support; or a buffer of another size
            than the RNN needs.
        ArgumentTypeError: a value of the wrong type, or this class itself in place of a subclass.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops, saveable
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> params = op.init_params(seed=1)
        >>> saver = saveable.CudnnOpaqueParamsSaveable.of(params, op.spec, "m", "gru")
        >>> type(saver).__name__, len(saver.specs)
        ('CudnnGRUSaveable', 8)
        >>> saved = saver.tensors()
        >>> params[:] = 0
        >>> np.array_equal(saver.restore(saved), op.init_params(seed=1))
        True
    """

    _mode: ClassVar[RNNMode]

    @with_hints
    def __init__(
        self,
        opaque_params: Any,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        scope: str | None = None,
        name: str = "cudnn_rnn_saveable",
        *,
        num_proj: int | None = None,
        bias_mode: BiasModeLike = "double",
    ) -> None:
        mode = getattr(self, "_mode", None)
        if mode is None:
            raise ArgumentTypeError("class", "one of the four saveables, each of one rnn_mode", type(self).__name__)
        dtype = value_of(opaque_params).dtype
        spec = RNNSpec(
            mode, num_layers, num_units, input_size, input_mode, direction, dtype, num_proj=num_proj,
            bias_mode=bias_mode,
        )  # fmt: skip
        self._setup(opaque_params, spec, scope, name)

    def _setup(self, opaque_params: Any, spec: RNNSpec, scope: Any, name: str) -> None:
        scope = getattr(scope, "name", scope)  # TF's VariableScope has a name
        check_type("scope", scope, (str, type(None)), "a string or None")
        self.name = check_text("name", name)
        self.scope = scope or ""
        self._opaque, self._spec = opaque_params, spec
        opaque = value_of(opaque_params)
        op_of(spec, opaque.dtype).params_to_canonical(opaque, copy=False)  # raises for a buffer of another size

    @staticmethod
    def of(opaque_params: Any, spec: RNNSpec, scope: str | None, name: str) -> CudnnOpaqueParamsSaveable:
        """Make the saveable for the RNN of a spec.

        Args:
            opaque_params: the params buffer: an array of any library, or a `Variable`. A restore writes into it.
            spec: description of the RNN.
            scope: prefix of every tensor's name, without a slash at the end; None: no prefix.
            name: name of the saveable itself.

        Returns:
            A saveable of the subclass for the spec's mode.

        Raises:
            ArgumentError: a buffer of another size than the RNN needs.
        """
        saveable = object.__new__(_SAVEABLES[spec.mode])
        saveable._setup(opaque_params, spec, scope, name)
        return saveable

    @property
    def spec(self) -> RNNSpec:
        """The description of the RNN, in the dtype that the buffer has now."""
        dtype = parse_dtype("dtype", value_of(self._opaque).dtype)
        return self._spec if dtype is self._spec.dtype else self._spec.replace(dtype=dtype)

    @property
    def format_converter(self) -> CudnnParamsFormatConverter:
        """The converter between the buffer and the tensors."""
        return CudnnParamsFormatConverter.of(self._spec)

    @property
    def op(self) -> SaveSpec:
        """The buffer, with the saveable's name."""
        return SaveSpec(self.name, value_of(self._opaque))

    def tensors(self) -> dict[str, Array]:
        """Return a dict of every tensor by its full name, in the order of `specs`."""
        named = to_tf(self._spec, *canonical_of(self._spec, value_of(self._opaque)))
        return {self.prefix + name: tensor for name, tensor in named.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor by its full name."""
        return {self.prefix + tensor.name: tensor.shape for tensor in tf_tensors(self.spec)}

    @property
    def prefix(self) -> str:
        """The beginning of every tensor's name: the scope and a slash, or an empty string."""
        return f"{self.scope}/" if self.scope else ""

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        if isinstance(restored_tensors, Mapping):
            named = self._by_name(restored_tensors)
        else:
            named = self._by_order(list(restored_tensors))
        arrays = {name: host_of(name, array) for name, array in named.items()}
        return self._assignment(*from_tf(self._spec, arrays, self.spec.dtype.numpy))

    def _assignment(self, weights: list[Array], biases: list[Array]) -> Callable[[], None]:
        opaque = value_of(self._opaque)
        to_params = op_of(self._spec, opaque.dtype).canonical_to_params
        return params_assignment("opaque_params", opaque, to_params, weights, biases)

    def restore_opaque(self, opaque_kernel: Any) -> Any:
        """Write a raw `opaque_kernel` of a TF checkpoint into the buffer, and return the buffer.

        Args:
            opaque_kernel: array of one axis in dense cuDNN order: all weights, then all biases, in canonical order,
                without padding. The buffer itself may have any layout.

        Returns:
            The buffer that the saveable was made with.

        Raises:
            ArgumentError: a size that the dense order does not have, so the layout of the kernel is unknown.

        Source: users of TF 1.1 to 2.9 reported five sizes, and all equal the dense sum (TensorFlow issues 9370, 20273,
        59281).
        """
        layout = arithmetic_layout(self.spec)
        kernel = host_of("opaque_kernel", opaque_kernel)
        if kernel.shape != (layout.size,):
            raise ArgumentError("opaque_kernel", f"{(layout.size,)}, the dense order", kernel.shape, aspect="shape")
        self._assignment(*to_canonical(kernel, layout))()
        return value_of(self._opaque)

    def _by_name(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors by their names without scope. The pairs of biases may be absent.

        Other entries are not touched: a checkpoint holds strings and bytes, too.
        """
        by_name: dict[str, Any] = {}
        for tensor, full_name in look_up(self.spec, tensors, self.prefix.__add__):
            if full_name not in tensors:
                names = sorted(map(str, tensors))
                raw = [name for name in names if name.rpartition("/")[2].startswith("opaque_kernel")]
                hint = f" ({raw[0]!r} is a raw buffer: restore_opaque reads one)" if raw and not by_name else ""
                raise ArgumentError("restored_tensors", f"{full_name} among the names{hint}", names[:8])
            by_name[tensor.name] = tensors[full_name]
        return by_name

    def _by_order(self, tensors: list[Any]) -> dict[str, Any]:
        names = [tensor.name for tensor in tf_tensors(self.spec)]
        of_tf = sum(tensor.kind in {"weight", "bias"} for tensor in tf_tensors(self.spec))
        counts = [len(names)] if self.spec.num_proj else sorted({of_tf, len(names)})
        if len(tensors) not in counts:
            expected = " or ".join(f"{n}" for n in counts) + " tensors"
            raise ArgumentError("restored_tensors", expected, f"{len(tensors)} tensors")
        return dict(zip(names, tensors, strict=False))


class CudnnLSTMSaveable(CudnnOpaqueParamsSaveable):
    """Save and restore the params of an LSTM as the tensors of TF's `CudnnCompatibleLSTMCell`.

    Args:
        opaque_params: the params buffer: an array of any library, or a `Variable`. A restore writes into it.
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        scope: prefix of every tensor's name, without a slash at the end. A TF scope object is accepted, too. None: no
            prefix. Default: None.
        name: name of the saveable itself, as in TF. No tensor's name contains it. Default: "cudnn_rnn_saveable".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support; or a buffer of another size
            than the RNN needs.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> params = ops.CudnnLSTM(1, num_units=3, input_size=2).init_params(seed=1)
        >>> saver = saveable.CudnnLSTMSaveable(params, 1, 3, 2, scope="m")
        >>> for name, shape in saver.shapes().items():
        ...     print(name.rpartition("cell_0/")[2], shape)
        cudnn_compatible_lstm_cell/kernel (5, 12)
        cudnn_compatible_lstm_cell/bias (12,)
        cudnn_compatible_lstm_cell/bias_cudnn_0 (12,)
        cudnn_compatible_lstm_cell/bias_cudnn_1 (12,)
    """

    _mode = RNNMode.LSTM


class CudnnGRUSaveable(CudnnOpaqueParamsSaveable):
    """Save and restore the params of a GRU as the tensors of TF's `CudnnCompatibleGRUCell`.

    Args:
        opaque_params: the params buffer: an array of any library, or a `Variable`. A restore writes into it.
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        scope: prefix of every tensor's name, without a slash at the end. A TF scope object is accepted, too. None: no
            prefix. Default: None.
        name: name of the saveable itself, as in TF. No tensor's name contains it. Default: "cudnn_rnn_saveable".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support; or a buffer of another size
            than the RNN needs.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> params = ops.CudnnGRU(1, num_units=3, input_size=2).init_params(seed=1)
        >>> saver = saveable.CudnnGRUSaveable(params, 1, 3, 2, scope="m")
        >>> for name, shape in saver.shapes().items():
        ...     print(name.rpartition("cell_0/")[2], shape)
        cudnn_compatible_gru_cell/gates/kernel (5, 6)
        cudnn_compatible_gru_cell/candidate/input_projection/kernel (2, 3)
        cudnn_compatible_gru_cell/candidate/hidden_projection/kernel (3, 3)
        cudnn_compatible_gru_cell/gates/bias (6,)
        cudnn_compatible_gru_cell/candidate/input_projection/bias (3,)
        cudnn_compatible_gru_cell/candidate/hidden_projection/bias (3,)
        cudnn_compatible_gru_cell/gates/bias_cudnn_0 (6,)
        cudnn_compatible_gru_cell/gates/bias_cudnn_1 (6,)
    """

    _mode = RNNMode.GRU


class CudnnRNNTanhSaveable(CudnnOpaqueParamsSaveable):
    """Save and restore the params of a tanh RNN as the tensors of TF's `BasicRNNCell`.

    Args:
        opaque_params: the params buffer: an array of any library, or a `Variable`. A restore writes into it.
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        scope: prefix of every tensor's name, without a slash at the end. A TF scope object is accepted, too. None: no
            prefix. Default: None.
        name: name of the saveable itself, as in TF. No tensor's name contains it. Default: "cudnn_rnn_saveable".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support; or a buffer of another size
            than the RNN needs.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> params = ops.CudnnRNNTanh(1, num_units=3, input_size=2).init_params(seed=1)
        >>> saver = saveable.CudnnRNNTanhSaveable(params, 1, 3, 2, scope="m")
        >>> for name, shape in saver.shapes().items():
        ...     print(name.rpartition("cell_0/")[2], shape)
        basic_rnn_cell/kernel (5, 3)
        basic_rnn_cell/bias (3,)
        basic_rnn_cell/bias_cudnn_0 (3,)
        basic_rnn_cell/bias_cudnn_1 (3,)
    """

    _mode = RNNMode.RNN_TANH


class CudnnRNNReluSaveable(CudnnOpaqueParamsSaveable):
    """Save and restore the params of a relu RNN as the tensors of TF's `BasicRNNCell`.

    Args:
        opaque_params: the params buffer: an array of any library, or a `Variable`. A restore writes into it.
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        scope: prefix of every tensor's name, without a slash at the end. A TF scope object is accepted, too. None: no
            prefix. Default: None.
        name: name of the saveable itself, as in TF. No tensor's name contains it. Default: "cudnn_rnn_saveable".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support; or a buffer of another size
            than the RNN needs.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> params = ops.CudnnRNNRelu(1, num_units=3, input_size=2).init_params(seed=1)
        >>> saver = saveable.CudnnRNNReluSaveable(params, 1, 3, 2, scope="m")
        >>> for name, shape in saver.shapes().items():
        ...     print(name.rpartition("cell_0/")[2], shape)
        basic_rnn_cell/kernel (5, 3)
        basic_rnn_cell/bias (3,)
        basic_rnn_cell/bias_cudnn_0 (3,)
        basic_rnn_cell/bias_cudnn_1 (3,)
    """

    _mode = RNNMode.RNN_RELU


_SAVEABLES = {kind._mode: kind for kind in CudnnOpaqueParamsSaveable.__subclasses__()}  # noqa: SLF001  these four


class RNNParamsSaveable(Saveable):
    """Save and restore a params buffer as TF 1.0 to 1.2 did: as the canonical arrays of cuDNN.

    Args:
        params_to_canonical: the op's method of that name.
        canonical_to_params: the op's method of that name.
        param_variables: the params buffer: an array of any library, a `Variable`, or a list with one of these. A
            restore writes into it.
        name: prefix of the names, so that one file can hold two models. Use `name=""` for TF's names. Default:
            "params_canonical".

    Raises:
        ArgumentError: more than one buffer, or a buffer of another size than the op's.
        ArgumentTypeError: a name that is not a string, or an op as the first argument, as in TF 1.3.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> params = op.init_params(seed=1)
        >>> list(saveable.RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, params).tensors())[:2]
        ['params_canonical/CudnnRNNParamsToCanonical:0', 'params_canonical/CudnnRNNParamsToCanonical:1']

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.2.
    """

    @with_hints
    def __init__(
        self,
        params_to_canonical: Callable[[Any], tuple[list[Any], list[Any]]],
        canonical_to_params: Callable[[list[Any], list[Any]], Any],
        param_variables: Any,
        name: str = "params_canonical",
    ) -> None:
        if isinstance(params_to_canonical, CudnnRNN):
            how = "the op's method; TF 1.3's 'a/rnn' is CudnnOpaqueParamsSaveable.of(params, op.spec, 'a', name)"
            raise ArgumentTypeError("params_to_canonical", how, type(params_to_canonical))
        variables = param_variables if isinstance(param_variables, (list, tuple)) else [param_variables]
        if len(variables) != 1:
            raise ArgumentError("param_variables", "one opaque buffer", f"{len(variables)} arrays")
        self._to_canonical, self._to_params = params_to_canonical, canonical_to_params
        self._opaque = variables[0]
        params_to_canonical(value_of(self._opaque, "param_variables"))  # raises for a buffer of another size
        self.name = check_text("name", name)

    def tensors(self) -> dict[str, Array]:
        """Return a dict of every tensor by its full name: the weights, then the biases."""
        weights, biases = self._to_canonical(value_of(self._opaque))
        prefix = f"{self.name}/" if self.name else ""
        return {
            f"{prefix}CudnnRNNParamsToCanonical:{i}": host_of("params", array)
            for i, array in enumerate([*weights, *biases])
        }

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        names = list(self.tensors())
        if isinstance(restored_tensors, Mapping):
            missing = [name for name in names if name not in restored_tensors]
            if missing:
                raise ArgumentError("restored_tensors", f"a tensor {missing[0]!r}", sorted(restored_tensors)[:8])
            restored_tensors = [restored_tensors[name] for name in names]
        if len(restored_tensors) != len(names):
            raise ArgumentError("restored_tensors", f"{len(names)} tensors", f"{len(restored_tensors)} tensors")
        opaque = value_of(self._opaque)
        count = len(self._to_canonical(opaque)[0])
        arrays = [host_of("restored_tensors", array) for array in restored_tensors]
        for array in arrays:
            _assignment.check_real_dtype("restored_tensors", array)
        return params_assignment("param_variables", opaque, self._to_params, arrays[:count], arrays[count:])
