"""Weights under TF's names: what a checkpoint holds, and the way between it and the opaque buffer.

A saveable reads and writes the buffer that it was given; it owns nothing. It never needs a GPU library: names, shapes
and stitching are arithmetic (`_tf1.canonical`).

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.2, 1.4, 1.13 and 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._checks import check_text
from pycudnnrnn._tf1.canonical import tf_tensors
from pycudnnrnn.canonical import to_canonical
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.saveable._format_converters import (
    CudnnParamsFormatConverter,
    CudnnParamsFormatConverterBasic,
    CudnnParamsFormatConverterGRU,
    CudnnParamsFormatConverterLSTM,
    CudnnParamsFormatConverterRelu,
    CudnnParamsFormatConverterTanh,
    host_of,
    value_of,
)
from pycudnnrnn.spec import BiasMode, Direction, InputMode, RNNMode, RNNSpec

Array = npt.NDArray[Any]

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


class SaveSpec(NamedTuple):
    """One tensor to save: its full name, and its value now."""

    name: str
    tensor: Array


class CudnnOpaqueParamsSaveable:
    """Save and restore an opaque buffer as the tensors that TF's plain cells have, under their names.

    `opaque_params` is an array or a variable; a restore writes into it. `scope` comes before every name.

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for; or a buffer of another size.
    """

    _mode: ClassVar[RNNMode]

    def __init__(
        self,
        opaque_params: Any,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        scope: str | None = None,
        name: str = "cudnn_rnn_saveable",
        *,
        num_proj: int | None = None,
        bias_mode: str = BiasMode.DOUBLE,
    ) -> None:
        mode = getattr(self, "_mode", None)
        if mode is None:
            raise ArgumentTypeError("class", "one of the four saveables, each of one rnn_mode", type(self).__name__)
        spec = RNNSpec(
            mode, num_layers, num_units, input_size, input_mode, direction,
            value_of(opaque_params).dtype, num_proj=num_proj, bias_mode=bias_mode,
        )  # fmt: skip
        self._setup(opaque_params, spec, scope, name)

    @staticmethod
    def of(opaque_params: Any, spec: RNNSpec, scope: str | None, name: str) -> CudnnOpaqueParamsSaveable:
        """Return the saveable of `spec` over a buffer."""
        saveable = CudnnOpaqueParamsSaveable.__new__(_SAVEABLES[spec.mode])
        saveable._setup(opaque_params, spec, scope, name)  # noqa: SLF001
        return saveable

    def _setup(self, opaque_params: Any, spec: RNNSpec, scope: Any, name: str) -> None:
        scope = getattr(scope, "name", scope)  # TF's VariableScope has a name
        if scope is not None and not isinstance(scope, str):
            raise ArgumentTypeError("scope", "a string or None", type(scope))
        self._opaque = opaque_params
        self.name = check_text("name", name)
        self.scope = scope or ""
        self._converter = CudnnParamsFormatConverter.of(spec)
        self._converter.check(opaque_params)

    @property
    def spec(self) -> RNNSpec:
        return self._converter.spec

    @property
    def format_converter(self) -> CudnnParamsFormatConverter:
        return self._converter

    @property
    def op(self) -> SaveSpec:
        """The buffer under the saveable's name."""
        return SaveSpec(self.name, value_of(self._opaque))

    @property
    def specs(self) -> list[SaveSpec]:
        """Every tensor: TF's, in TF's order (all weights, all biases), then what TF does not write."""
        return [SaveSpec(name, tensor) for name, tensor in self.tensors().items()]

    def tensors(self) -> dict[str, Array]:
        """Return every tensor by its full name; the order is that of `specs`."""
        prefix = self.prefix
        return {prefix + name: tensor for name, tensor in self._converter.named(self._opaque).items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor by its full name."""
        return {self.prefix + tensor.name: tensor.shape for tensor in tf_tensors(self.spec)}

    @property
    def prefix(self) -> str:
        """What every name begins with: the scope and a slash, or nothing."""
        return f"{self.scope}/" if self.scope else ""

    def restore(self, restored_tensors: Any, restored_shapes: Any = None) -> Any:  # noqa: ARG002
        """Write tensors into the buffer, and return it.

        `restored_tensors` is a list in the order of `specs`, whole or only TF's tensors; or a mapping from full names
        to arrays, in which other names may be: a TF checkpoint, however it was read. Values are cast to the buffer's
        dtype. `restored_shapes` is TF's, and without effect.

        Raises:
            ArgumentError: a wrong number of tensors, a missing one, a wrong shape, or a buffer that cannot be written
                to. Nothing has been written then.
        """
        self.restoring(restored_tensors)()
        return value_of(self._opaque)

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        """Return what does as `restore`, after all that can fail has been done.

        Raises:
            ArgumentError: as of `restore`.
        """
        if isinstance(restored_tensors, Mapping):
            if self.prefix + tf_tensors(self.spec)[0].name not in restored_tensors:
                self._point_to_opaque(restored_tensors)
            strip = len(self.prefix)
            named = {k[strip:]: v for k, v in restored_tensors.items() if k.startswith(self.prefix)}
        else:
            named = self._by_order(list(restored_tensors))
        dtype = self.spec.dtype.numpy
        arrays = {name: host_of(name, array) for name, array in named.items()}
        cast = {name: array.astype(dtype, copy=False) for name, array in arrays.items()}
        return self._converter.writing(cast, value_of(self._opaque))

    def restore_opaque(self, opaque_kernel: Any) -> Any:
        """Write a raw `opaque_kernel` in dense cuDNN order into the buffer, and return it.

        Dense order is all weights, then all biases, in canonical order, without padding: what TF on every GPU that was
        seen wrote. The buffer itself may have any layout.

        Raises:
            ArgumentError: its size is not that of the dense order, so its layout is not known.

        Source: five sizes that users of TF 1.1 to 2.9 reported equal the dense sum (issues 9370, 20273, 59281).
        """
        layout = arithmetic_layout(self.spec)
        kernel = host_of("opaque_kernel", opaque_kernel)
        if kernel.shape != (layout.size,):
            raise ArgumentError("opaque_kernel", f"{(layout.size,)}, the dense order", kernel.shape, aspect="shape")
        weights, biases = to_canonical(kernel, layout)
        opaque = value_of(self._opaque)
        self._converter._writing([*weights, *biases], opaque)()  # noqa: SLF001
        return opaque

    def _by_order(self, given: list[Any]) -> dict[str, Any]:
        names = [tensor.name for tensor in tf_tensors(self.spec)]
        of_tf = sum(tensor.kind in {"weight", "bias"} for tensor in tf_tensors(self.spec))
        counts = [len(names)] if self.spec.num_proj else sorted({of_tf, len(names)})
        if len(given) not in counts:
            expected = " or ".join(f"{n}" for n in counts) + " tensors"
            raise ArgumentError("restored_tensors", expected, f"{len(given)} tensors")
        return dict(zip(names, given, strict=False))

    def _point_to_opaque(self, tensors: Mapping[str, Any]) -> None:
        raw = [name for name in tensors if name.rpartition("/")[2].startswith("opaque_kernel")]
        hint = f" ({raw[0]!r} is a raw buffer: restore_opaque reads one)" if raw else ""
        expected = f"{self.prefix}{tf_tensors(self.spec)[0].name!s} among the names{hint}"
        raise ArgumentError("restored_tensors", expected, sorted(tensors)[:8])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, scope={self.scope!r}, {self.spec!r})"


class CudnnLSTMSaveable(CudnnOpaqueParamsSaveable):
    _mode = RNNMode.LSTM


class CudnnGRUSaveable(CudnnOpaqueParamsSaveable):
    _mode = RNNMode.GRU


class CudnnRNNTanhSaveable(CudnnOpaqueParamsSaveable):
    _mode = RNNMode.RNN_TANH


class CudnnRNNReluSaveable(CudnnOpaqueParamsSaveable):
    _mode = RNNMode.RNN_RELU


_SAVEABLES: dict[RNNMode, type[CudnnOpaqueParamsSaveable]] = {
    RNNMode.LSTM: CudnnLSTMSaveable,
    RNNMode.GRU: CudnnGRUSaveable,
    RNNMode.RNN_TANH: CudnnRNNTanhSaveable,
    RNNMode.RNN_RELU: CudnnRNNReluSaveable,
}


class RNNParamsSaveable:
    """TF 1.2's saveable: cuDNN-canonical tensors under the names of the op that made them.

    `params_to_canonical` and `canonical_to_params` are those of an op; `param_variables` is the buffer. `name` is put
    before the names, so that two fit into one file; TF 1.2 wrote them bare, which `name=""` does.
    """

    def __init__(
        self,
        params_to_canonical: Callable[[Any], tuple[list[Any], list[Any]]],
        canonical_to_params: Callable[[list[Any], list[Any]], Any],
        param_variables: Any,
        name: str = "params_canonical",
    ) -> None:
        variables = param_variables if isinstance(param_variables, (list, tuple)) else [param_variables]
        if len(variables) != 1:
            raise ArgumentError("param_variables", "one opaque buffer", f"{len(variables)} arrays")
        self._to_canonical, self._to_params = params_to_canonical, canonical_to_params
        self._opaque = variables[0]
        self.name = check_text("name", name)

    def tensors(self) -> dict[str, Array]:
        """Return every tensor by name: the weights, then the biases."""
        weights, biases = self._to_canonical(value_of(self._opaque))
        prefix = f"{self.name}/" if self.name else ""
        return {
            f"{prefix}CudnnRNNParamsToCanonical:{i}": host_of("params", array)
            for i, array in enumerate([*weights, *biases])
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.tensors().items()}

    @property
    def specs(self) -> list[SaveSpec]:
        return [SaveSpec(name, tensor) for name, tensor in self.tensors().items()]

    def restore(self, restored_tensors: Any, restored_shapes: Any = None) -> Any:  # noqa: ARG002
        """Write tensors, a list in the order of `specs` or a mapping from their names, into the buffer; return it.

        Raises:
            ArgumentError: a wrong number of tensors, a missing one, a wrong shape, or a buffer that cannot be written
                to. Nothing has been written then.
        """
        self.restoring(restored_tensors)()
        return value_of(self._opaque)

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        """Return what does as `restore`, after all that can fail has been done.

        Raises:
            ArgumentError: as of `restore`.
        """
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
        params = self._to_params(list(restored_tensors[:count]), list(restored_tensors[count:]))
        return _arrays.overwriting("param_variables", opaque, host_of("params", params))
