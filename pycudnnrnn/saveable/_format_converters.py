"""TF 1.13's format converters: a params buffer to and from TF-canonical tensors.

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.13 and 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pycudnnrnn import _arrays, _assignment, ops
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_word, with_hints
from pycudnnrnn._tf1.tensors import TensorKind, from_tf, tf_tensors, to_tf
from pycudnnrnn._tf1.variable import host_of, value_of
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import BiasModeLike, DirectionLike, InputModeLike, ModeLike, RNNMode, RNNSpec, parse_dtype


class CudnnParamsFormatConverter:
    """Convert a params buffer to and from the tensors of TF's plain cells. Use a subclass, `of`, or `rnn_mode`.

    A converter takes buffers of any dtype. The positional order is TF 1.13's; TF 1.15 put `num_proj` before
    `input_mode`.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        rnn_mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu". The subclasses ignore it. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type, or no `rnn_mode`.

    Example:
        >>> from pycudnnrnn import RNNSpec, ops, saveable
        >>> spec = RNNSpec("gru", num_layers=1, num_units=3, input_size=2)
        >>> converter = saveable.CudnnParamsFormatConverter.of(spec)
        >>> params = ops.from_spec(spec).init_params(seed=1)
        >>> weights, biases = converter.opaque_to_tf_canonical(params)
        >>> [weight.shape for weight in weights]
        [(5, 6), (2, 3), (3, 3)]
        >>> (converter.tf_canonical_to_opaque(weights + biases) == params).all().item()
        True
    """

    _mode: ClassVar[RNNMode | None] = None

    @with_hints
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        *,
        num_proj: int | None = None,
        bias_mode: BiasModeLike = "double",
        rnn_mode: ModeLike | None = None,
    ) -> None:
        mode = self._mode or rnn_mode
        if mode is None:
            raise ArgumentTypeError("rnn_mode", "given by name, or by one of the four classes", "None")
        self._spec = RNNSpec(
            check_word(RNNMode, "rnn_mode", mode), num_layers, num_units, input_size, input_mode, direction,
            num_proj=num_proj, bias_mode=bias_mode,
        )  # fmt: skip

    @classmethod
    def of(cls, spec: RNNSpec) -> CudnnParamsFormatConverter:
        """Make the converter for the RNN of a spec.

        Args:
            spec: description of the RNN. Buffers may have another dtype than the spec.

        Returns:
            A converter of the subclass for the spec's mode.
        """
        converter = object.__new__(_CONVERTERS[spec.mode])
        converter._spec = spec
        return converter

    @property
    def spec(self) -> RNNSpec:
        """The description of the RNN."""
        return self._spec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._spec!r})"

    def opaque_to_tf_canonical(self, opaque: Any) -> tuple[list[Array], ...]:
        """Split a buffer into TF's tensors, in lists.

        Args:
            opaque: the params buffer: an array of any library, or a `Variable`.

        Returns:
            The lists (weights, biases), or (weights, biases, weights_proj) with a projection, in TF's order. Each bias
            is the sum of cuDNN's two biases, except those of a GRU's candidate, which stay separate.

        Raises:
            ArgumentError: a buffer of another size than the RNN needs.
        """
        named = to_tf(self._spec, *canonical_of(self._spec, value_of(opaque)))
        kinds: tuple[TensorKind, ...] = ("weight", "bias", "projection") if self._spec.num_proj else ("weight", "bias")
        return tuple([named[t.name] for t in tf_tensors(self._spec) if t.kind == kind] for kind in kinds)

    def tf_canonical_to_opaque(self, tf_canonicals: Sequence[Any], weights_proj: Sequence[Any] | None = None) -> Array:
        """Merge TF's tensors into a new buffer. Each bias is halved, as in TF, except those of a GRU's candidate.

        Args:
            tf_canonicals: one flat list of arrays: all weights, then all biases, in TF's order.
            weights_proj: the projection matrices of an LSTM with `num_proj`. Default: None, for no projection.

        Returns:
            A new params buffer.

        Raises:
            ArgumentError: a wrong number of arrays, a wrong shape, or arrays of several dtypes.
        """
        tensors = [t for t in tf_tensors(self._spec) if t.kind in {"weight", "bias"}]
        projections = [t for t in tf_tensors(self._spec) if t.kind == "projection"]
        arrays: dict[str, Array] = {}
        lists = ("tf_canonicals", tensors, tf_canonicals), ("weights_proj", projections, weights_proj or ())
        for name, expected, values in lists:
            if len(values) != len(expected):
                raise ArgumentError(name, f"{len(expected)} arrays", f"{len(values)} arrays")
            arrays |= {f"{name}[{i}]": host_of(f"{name}[{i}]", array) for i, array in enumerate(values)}
        first = arrays["tf_canonicals[0]"].dtype
        for name, array in arrays.items():
            if array.dtype.name != first.name:
                raise ArgumentError(name, f"{first}, as tf_canonicals[0] has", array.dtype, aspect="dtype")
        named = {t.name: array for t, array in zip([*tensors, *projections], arrays.values(), strict=True)}
        op = op_of(self._spec, first)
        opaque: Array = op.canonical_to_params(*from_tf(self._spec, named, op.dtype.numpy))  # in native byte order
        return opaque


class CudnnParamsFormatConverterLSTM(CudnnParamsFormatConverter):
    """Convert the params of an LSTM to and from the tensors of TF's plain cell.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        rnn_mode: ignored; the class decides the cell. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> converter = saveable.CudnnParamsFormatConverterLSTM(1, 3, 2)
        >>> params = ops.CudnnLSTM(1, 3, 2).init_params(seed=1)
        >>> weights, biases = converter.opaque_to_tf_canonical(params)
        >>> print([w.shape for w in weights], [b.shape for b in biases])
        [(5, 12)] [(12,)]
    """

    _mode = RNNMode.LSTM


class CudnnParamsFormatConverterGRU(CudnnParamsFormatConverter):
    """Convert the params of a GRU to and from the tensors of TF's plain cell.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        rnn_mode: ignored; the class decides the cell. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> converter = saveable.CudnnParamsFormatConverterGRU(1, 3, 2)
        >>> params = ops.CudnnGRU(1, 3, 2).init_params(seed=1)
        >>> weights, biases = converter.opaque_to_tf_canonical(params)
        >>> print([w.shape for w in weights], [b.shape for b in biases])
        [(5, 6), (2, 3), (3, 3)] [(6,), (3,), (3,)]
    """

    _mode = RNNMode.GRU


class CudnnParamsFormatConverterTanh(CudnnParamsFormatConverter):
    """Convert the params of a tanh RNN to and from the tensors of TF's plain cell.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        rnn_mode: ignored; the class decides the cell. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> converter = saveable.CudnnParamsFormatConverterTanh(1, 3, 2)
        >>> params = ops.CudnnRNNTanh(1, 3, 2).init_params(seed=1)
        >>> weights, biases = converter.opaque_to_tf_canonical(params)
        >>> print([w.shape for w in weights], [b.shape for b in biases])
        [(5, 3)] [(3,)]
    """

    _mode = RNNMode.RNN_TANH


class CudnnParamsFormatConverterRelu(CudnnParamsFormatConverter):
    """Convert the params of a relu RNN to and from the tensors of TF's plain cell.

    Args:
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        rnn_mode: ignored; the class decides the cell. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import ops, saveable
        >>> converter = saveable.CudnnParamsFormatConverterRelu(1, 3, 2)
        >>> params = ops.CudnnRNNRelu(1, 3, 2).init_params(seed=1)
        >>> weights, biases = converter.opaque_to_tf_canonical(params)
        >>> print([w.shape for w in weights], [b.shape for b in biases])
        [(5, 3)] [(3,)]
    """

    _mode = RNNMode.RNN_RELU


CudnnParamsFormatConverterBasic = CudnnParamsFormatConverterTanh
"""TF's name for what its tanh and relu converters share."""

_CONVERTERS = {kind._mode: kind for kind in CudnnParamsFormatConverter.__subclasses__()}  # noqa: SLF001  these four


def op_of(spec: RNNSpec, dtype: Any) -> ops.CudnnRNN:
    """Return the op of a buffer's RNN, whose dtype is the buffer's."""
    return ops.from_spec(spec.replace(dtype=parse_dtype("dtype", dtype), dropout=0.0))


def canonical_of(spec: RNNSpec, opaque: Any) -> tuple[list[Array], list[Array]]:
    """Return the canonical weights and biases of a buffer as NumPy arrays."""
    lists = op_of(spec, opaque.dtype).params_to_canonical(opaque, copy=False)
    weights, biases = ([host_of("opaque", array) for array in arrays] for arrays in lists)
    return weights, biases


def params_assignment(
    name: str, opaque: Any, canonical_to_params: Callable[..., Any], weights: Sequence[Any], biases: Sequence[Any]
) -> Callable[[], None]:
    """Return a function that writes canonical arrays into a buffer, joined on its device, whose layout they get."""
    engine, dtype = engine_for(_arrays.kind_of(name, opaque).device), parse_dtype("dtype", opaque.dtype).numpy
    with engine.active():
        lists = [[_arrays.move(np.asarray(a, dtype), engine.xp) for a in arrays] for arrays in (weights, biases)]
    return _assignment.assignment(name, opaque, host_of(name, canonical_to_params(*lists)))
