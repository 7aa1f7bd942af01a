"""TF 1.13's format converters: an opaque buffer to and from TF-canonical tensors.

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.13 and 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, ops
from pycudnnrnn._checks import check_word
from pycudnnrnn._tf1.tensors import from_tf, tf_tensors, to_tf
from pycudnnrnn._tf1.variable import Variable
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode, RNNSpec, parse_dtype

Array = npt.NDArray[Any]


class CudnnParamsFormatConverter:
    """Convert an opaque buffer to and from TF-canonical tensors, and cuDNN-canonical ones, for one shape of RNN.

    The positional order is TF 1.13's; TF 1.15 put `num_proj` before `input_mode`, here it is named.

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for.
    """

    _mode: ClassVar[RNNMode | None] = None

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        *,
        num_proj: int | None = None,
        bias_mode: str = BiasMode.DOUBLE,
        rnn_mode: str | None = None,
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
        """Return the converter of `spec`; buffers may have any dtype."""
        converter = _CONVERTERS[spec.mode](
            spec.num_layers, spec.num_units, spec.input_size, spec.input_mode, spec.direction,
            num_proj=spec.num_proj, bias_mode=spec.bias_mode,
        )  # fmt: skip
        converter._spec = spec  # noqa: SLF001  with what TF's arguments do not say: the algorithm, for one
        return converter

    @property
    def spec(self) -> RNNSpec:
        return self._spec

    def opaque_to_tf_canonical(self, opaque: Any) -> tuple[list[Array], ...]:
        """Return (weights, biases), or (weights, biases, weights_proj) with a projection, each in TF's order.

        The biases are sums, as in TF.
        """
        named = self.named(opaque)
        lists = self._lists(named)
        return lists if self._spec.num_proj else lists[:2]

    def tf_canonical_to_opaque(self, tf_canonicals: Sequence[Any], weights_proj: Sequence[Any] | None = None) -> Array:
        """Return a new buffer from one flat list: all weights, then all biases; each bias is halved.

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
        """Return every tensor of a buffer by its name without scope, the pairs of biases too."""
        return to_tf(self._spec, *self._opaque_to_cu_canonical(opaque))

    def opaque(self, named: Mapping[str, Array], out: Any = None) -> Any:
        """Return the buffer, `out` or a new one, of tensors by name; `from_tf` says which biases count."""
        if out is not None:
            self.writing(named, out)()
            return out
        weights, biases = from_tf(self._spec, named)
        return self._cu_canonical_to_opaque([*weights, *biases])

    def writing(self, named: Mapping[str, Array], opaque: Any) -> Callable[[], None]:
        """Return what writes tensors by name into a buffer, after all that can fail has been done."""
        weights, biases = from_tf(self._spec, named, parse_dtype("dtype", value_of(opaque).dtype).numpy)
        return self._writing([*weights, *biases], opaque)

    def check(self, opaque: Any) -> None:
        """Refuse a buffer that cannot hold this RNN; nothing is copied."""
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
        kind = _arrays.kind_of("opaque_params", opaque)
        engine = engine_for(kind.device)
        target = writable(opaque)
        with engine.active():
            given = [_arrays.move(np.asarray(array, target.dtype), engine.xp) for array in cu_canonicals]
        op = self._op(target.dtype)
        count = len(op.layout().weights)
        made = op.canonical_to_params(given[:count], given[count:])  # elsewhere: `opaque` changes by one copy
        if made.shape != target.shape:
            raise ArgumentError("opaque_params", f"{made.shape}", target.shape, aspect="shape")

        def write() -> None:
            with _arrays.streams(engine, kind.library, frozenset({kind.library, "cupy"})):
                target[...] = made

        return write


class CudnnParamsFormatConverterLSTM(CudnnParamsFormatConverter):
    _mode = RNNMode.LSTM


class CudnnParamsFormatConverterGRU(CudnnParamsFormatConverter):
    _mode = RNNMode.GRU


class CudnnParamsFormatConverterTanh(CudnnParamsFormatConverter):
    _mode = RNNMode.RNN_TANH


class CudnnParamsFormatConverterRelu(CudnnParamsFormatConverter):
    _mode = RNNMode.RNN_RELU


CudnnParamsFormatConverterBasic = CudnnParamsFormatConverterTanh
"""TF's name for what its tanh and relu converters share."""

_CONVERTERS: dict[RNNMode, type[CudnnParamsFormatConverter]] = {
    RNNMode.LSTM: CudnnParamsFormatConverterLSTM,
    RNNMode.GRU: CudnnParamsFormatConverterGRU,
    RNNMode.RNN_TANH: CudnnParamsFormatConverterTanh,
    RNNMode.RNN_RELU: CudnnParamsFormatConverterRelu,
}


def value_of(array: Any) -> Any:
    return array.value if isinstance(array, Variable) else array


def writable(opaque: Any) -> Any:
    """Return the engine's array over a buffer's memory, after checking that it can be written to."""
    kind = _arrays.kind_of("opaque_params", opaque)
    target = _arrays.to_engine("opaque_params", opaque, kind.device, engine_for(kind.device).xp)
    _arrays.check_overwritable("opaque_params", opaque, target)
    return target


def host_of(name: str, array: Any) -> Array:
    """Return the NumPy array over an array's memory."""
    host: Array = _arrays.to_host(name, value_of(array))
    return host
