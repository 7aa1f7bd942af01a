"""TF 1.13's format converters: a params buffer to and from TF-canonical tensors.

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.13 and 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _assignment, ops
from pycudnnrnn._checks import check_word
from pycudnnrnn._tf1.tensors import from_tf, tf_tensors, to_tf
from pycudnnrnn._tf1.variable import Variable
from pycudnnrnn.engines import engine_for, on_callers_stream
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import BiasModeLike, DirectionLike, InputModeLike, ModeLike, RNNMode, RNNSpec, parse_dtype

Array = npt.NDArray[Any]


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
        converter = _CONVERTERS[spec.mode](
            spec.num_layers, spec.num_units, spec.input_size, spec.input_mode, spec.direction,
            num_proj=spec.num_proj, bias_mode=spec.bias_mode,
        )  # fmt: skip
        converter._spec = spec  # noqa: SLF001  TF's arguments lack a part of it: the algorithm
        return converter

    @property
    def spec(self) -> RNNSpec:
        """The description of the RNN."""
        return self._spec

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
        named = self.named(opaque)
        lists = self._lists(named)
        return lists if self._spec.num_proj else lists[:2]

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
        given = {f"tf_canonicals[{i}]": array for i, array in enumerate(tf_canonicals)}
        if len(given) != len(tensors):
            raise ArgumentError("tf_canonicals", f"{len(tensors)} arrays", f"{len(given)} arrays")
        if len(weights_proj or ()) != len(projections):
            raise ArgumentError("weights_proj", f"{len(projections)} arrays", f"{len(weights_proj or ())} arrays")
        given |= {f"weights_proj[{i}]": array for i, array in enumerate(weights_proj or ())}
        arrays = {name: host_of(name, array) for name, array in given.items()}
        first = arrays["tf_canonicals[0]"].dtype
        for name, array in arrays.items():
            if array.dtype.name != first.name:
                raise ArgumentError(name, f"{first}, as tf_canonicals[0] has", array.dtype, aspect="dtype")
        named = {t.name: array for t, array in zip([*tensors, *projections], arrays.values(), strict=True)}
        opaque: Array = self.opaque(named)
        return opaque

    def named(self, opaque: Any) -> dict[str, Array]:
        """Split a buffer into named tensors, including both biases of each gate.

        Args:
            opaque: the params buffer: an array of any library, or a `Variable`.

        Returns:
            NumPy arrays by their names without scope.

        Raises:
            ArgumentError: a buffer of another size than the RNN needs.
        """
        return to_tf(self._spec, *self._opaque_to_cu_canonical(opaque))

    def opaque(self, named: Mapping[str, Array], out: Any = None) -> Any:
        """Merge named tensors into a buffer: the inverse of `named`.

        Args:
            named: arrays by their names without scope. The pair of a gate's biases is used if it is there and its sum
                equals the bias; otherwise the bias is halved.
            out: the params buffer to write into. Default: None, a new NumPy buffer.

        Returns:
            The buffer: `out`, or the new one.

        Raises:
            ArgumentError: a missing array, a wrong shape, several dtypes, or an `out` that cannot hold the tensors.
        """
        if out is not None:
            self.writing(named, out)()
            return out
        weights, biases = from_tf(self._spec, named)
        return self._cu_canonical_to_opaque([*weights, *biases])

    def writing(self, named: Mapping[str, Array], opaque: Any) -> Callable[[], None]:
        """Check named tensors, and return a function that writes them: `opaque` with `out`, in two steps.

        Args:
            named: arrays by their names without scope, as in `opaque`.
            opaque: the params buffer to write into: an array of NumPy, CuPy or torch.

        Returns:
            A function without arguments that writes the tensors into the buffer and does not fail.

        Raises:
            ArgumentError: a missing array, a wrong shape, or a buffer that cannot hold the tensors.
        """
        weights, biases = from_tf(self._spec, named, parse_dtype("dtype", value_of(opaque).dtype).numpy)
        return self._writing([*weights, *biases], opaque)

    def check(self, opaque: Any) -> None:
        """Check that a buffer can hold this RNN's params. Nothing is copied.

        Args:
            opaque: the params buffer: an array of any library, or a `Variable`.

        Raises:
            ArgumentError: a buffer of another size than the RNN needs.
        """
        opaque = value_of(opaque)
        self._op(opaque.dtype).params_to_canonical(opaque, copy=False)

    def _lists(self, named: Mapping[str, Array]) -> tuple[list[Array], list[Array], list[Array]]:
        found: dict[str, list[Array]] = {"weight": [], "bias": [], "projection": [], "pair": []}
        for tensor in tf_tensors(self._spec):
            found[tensor.kind].append(named[tensor.name])
        return found["weight"], found["bias"], found["projection"]

    def _op(self, dtype: Any) -> ops.CudnnRNN:
        return ops.from_spec(self._spec.replace(dtype=parse_dtype("dtype", dtype), dropout=0.0))

    def _opaque_to_cu_canonical(self, opaque: Any) -> tuple[list[Array], list[Array]]:
        opaque = value_of(opaque)
        weights, biases = self._op(opaque.dtype).params_to_canonical(opaque, copy=False)
        return [host_of("opaque", array) for array in weights], [host_of("opaque", array) for array in biases]

    def _cu_canonical_to_opaque(self, cu_canonicals: Sequence[Array]) -> Any:
        op = self._op(cu_canonicals[0].dtype)
        count = len(op.layout().weights)
        given = [array.astype(array.dtype.newbyteorder("="), copy=False) for array in cu_canonicals]
        return op.canonical_to_params(given[:count], given[count:])

    def _writing(self, cu_canonicals: Sequence[Array], opaque: Any) -> Callable[[], None]:
        kind, target = _arrays.kind_of("opaque_params", opaque), writable(opaque)
        engine, given = engine_for(kind.device), moved_to(opaque, cu_canonicals)
        op = self._op(target.dtype)
        count = len(op.layout().weights)
        made = op.canonical_to_params(given[:count], given[count:])  # a new buffer: `opaque` changes in one copy
        if made.shape != target.shape:
            raise ArgumentError("opaque_params", f"{made.shape}", target.shape, aspect="shape")

        def write() -> None:
            with on_callers_stream(engine, kind.library, frozenset({kind.library, "cupy"})):
                target[...] = made

        return write


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

_CONVERTERS: dict[RNNMode, type[CudnnParamsFormatConverter]] = {
    RNNMode.LSTM: CudnnParamsFormatConverterLSTM,
    RNNMode.GRU: CudnnParamsFormatConverterGRU,
    RNNMode.RNN_TANH: CudnnParamsFormatConverterTanh,
    RNNMode.RNN_RELU: CudnnParamsFormatConverterRelu,
}


def value_of(array: Any, name: str = "opaque_params") -> Any:
    """Return the array of a variable, or any other array as it is, after a check that it is one."""
    array = array.value if isinstance(array, Variable) else array
    _arrays.kind_of(name, array)
    return array


def writable(opaque: Any) -> Any:
    """Return the engine's array over a buffer's memory, after checking that it can be written to."""
    kind = _arrays.kind_of("opaque_params", opaque)
    target = _arrays.to_engine("opaque_params", opaque, kind.device, engine_for(kind.device).xp)
    _assignment.check_assignable("opaque_params", opaque, target)
    return target


def moved_to(opaque: Any, arrays: Sequence[Array]) -> list[Any]:
    """Return NumPy arrays in a buffer's dtype and on its device, whose layout they are joined in."""
    engine = engine_for(_arrays.kind_of("opaque_params", opaque).device)
    dtype = parse_dtype("dtype", opaque.dtype).numpy
    with engine.active():
        return [_arrays.move(np.asarray(array, dtype), engine.xp) for array in arrays]


def host_of(name: str, array: Any) -> Array:
    """Return the NumPy array over an array's memory."""
    host: Array = _arrays.to_host(name, array.value if isinstance(array, Variable) else array)
    return host
