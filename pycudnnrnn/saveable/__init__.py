"""Weights under TF's names: what a checkpoint holds, and the way between it and the opaque buffer.

A saveable reads and writes the buffer that it was given; it owns nothing. It never needs a GPU library: names, shapes
and stitching are arithmetic (`_tf1.tensors`).

Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.2, 1.4, 1.13 and 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, overload

import numpy.typing as npt

from pycudnnrnn import _overwriting
from pycudnnrnn._checks import check_text
from pycudnnrnn._tf1.tensors import look_up, tf_tensors
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
__dir__ = __all__.copy


class SaveSpec(NamedTuple):
    """One tensor to save: its full name, and its value now."""

    name: str
    tensor: Array


class _Described(NamedTuple):
    """A buffer with all of its RNN's description, of which TF's arguments are a part (not the algorithm, for one)."""

    opaque_params: Any
    spec: RNNSpec


class Saveable:
    """What saves and restores tensors by name: a subclass has `tensors`, `restoring` and the buffer `_opaque`."""

    name: str
    _opaque: Any

    def tensors(self) -> dict[str, Array]:
        """Return every tensor by its full name; the order is that of `specs`."""
        raise NotImplementedError

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor by its full name."""
        return {name: tensor.shape for name, tensor in self.tensors().items()}

    @property
    def specs(self) -> list[SaveSpec]:
        """Every tensor: TF's, in TF's order (all weights, all biases), then what TF does not write."""
        return [SaveSpec(name, tensor) for name, tensor in self.tensors().items()]

    def restore(self, restored_tensors: Any, restored_shapes: Any = None) -> Any:  # noqa: ARG002
        """Write tensors into the buffer, and return it.

        `restored_tensors` is a list in the order of `specs`, whole or only TF's tensors; or a mapping from full names
        to arrays, in which other names may be, of anything: a TF checkpoint, however it was read. Values are cast to
        the buffer's dtype. `restored_shapes` is TF's, and without effect.

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
        raise NotImplementedError


class CudnnOpaqueParamsSaveable(Saveable):
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
        scope = getattr(scope, "name", scope)  # TF's VariableScope has a name
        if scope is not None and not isinstance(scope, str):
            raise ArgumentTypeError("scope", "a string or None", type(scope))
        self.name = check_text("name", name)
        self.scope = scope or ""
        if isinstance(opaque_params, _Described):
            self._opaque, spec = opaque_params
        else:
            self._opaque = opaque_params
            spec = RNNSpec(
                mode, num_layers, num_units, input_size, input_mode, direction,
                value_of(opaque_params).dtype, num_proj=num_proj, bias_mode=bias_mode,
            )  # fmt: skip
        self._converter = CudnnParamsFormatConverter.of(spec)
        self._converter.check(self._opaque)

    @staticmethod
    def of(opaque_params: Any, spec: RNNSpec, scope: str | None, name: str) -> CudnnOpaqueParamsSaveable:
        """Return the saveable of `spec` over a buffer."""
        return _SAVEABLES[spec.mode](
            _Described(opaque_params, spec), spec.num_layers, spec.num_units, spec.input_size, spec.input_mode,
            spec.direction, scope, name, num_proj=spec.num_proj, bias_mode=spec.bias_mode,
        )  # fmt: skip

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

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        if isinstance(restored_tensors, Mapping):
            named = _own_among(restored_tensors, self.spec, lambda name: self.prefix + name)
        else:
            named = self._by_order(list(restored_tensors))
        arrays = {name: host_of(name, array) for name, array in named.items()}
        return self._converter.writing(arrays, value_of(self._opaque))

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, scope={self.scope!r}, {self.spec!r})"


def _own_among(tensors: Mapping[str, Any], spec: RNNSpec, named: Callable[[str], str]) -> dict[str, Any]:
    """Return an RNN's tensors by their names without scope, whatever else is there; pairs may be absent.

    `named` gives the full name of each. Nothing but these is looked at: a checkpoint has strings and bytes, too.
    """
    found: dict[str, Any] = {}
    for tensor, theirs in look_up(spec, tensors, named):
        if theirs not in tensors:
            given = sorted(map(str, tensors))
            raw = [name for name in given if name.rpartition("/")[2].startswith("opaque_kernel")]
            hint = f" ({raw[0]!r} is a raw buffer: restore_opaque reads one)" if raw and not found else ""
            raise ArgumentError("restored_tensors", f"{theirs} among the names{hint}", given[:8])
        found[tensor.name] = tensors[theirs]
    return found


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


class RNNParamsSaveable(Saveable):
    """The saveable of TF 1.0 to 1.3, in two forms; `param_variables` is the buffer.

    r1.2: `RNNParamsSaveable(params_to_canonical, canonical_to_params, param_variables, name="params_canonical")` with
    two methods of an op. Tensors are cuDNN's own lists, under the names of the op that made them. `name` is put before
    the names, so that two fit into one file; TF wrote them bare, which `name=""` does.

    r1.3: the op comes first, and `base_variable_scope` before `name`. A unidirectional LSTM or GRU has the tensors of
    TF's cells under that scope, "rnn" for those of `dynamic_rnn`; others are as in r1.2.

    Raises:
        ArgumentError: more than one buffer, or one of another size than the op's.

    Source: tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, TF 1.2 and 1.3.
    """

    _cells: CudnnOpaqueParamsSaveable | None

    @overload
    def __init__(
        self,
        params_to_canonical: Callable[[Any], tuple[list[Any], list[Any]]],
        canonical_to_params: Callable[[list[Any], list[Any]], Any],
        param_variables: Any,
        name: str = "params_canonical",
    ) -> None: ...

    @overload
    def __init__(
        self,
        cudnn_rnn: CudnnRNN,
        params_to_canonical: Callable[[Any], tuple[list[Any], list[Any]]],
        canonical_to_params: Callable[[list[Any], list[Any]], Any],
        param_variables: Any,
        base_variable_scope: str | None = None,
        name: str = "params_canonical",
    ) -> None: ...

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        with_op = "cudnn_rnn" in keywords or isinstance(arguments[0] if arguments else None, CudnnRNN)
        (self._setup_with_op if with_op else self._setup)(*arguments, **keywords)

    def _setup_with_op(
        self,
        cudnn_rnn: CudnnRNN,
        params_to_canonical: Any,
        canonical_to_params: Any,
        param_variables: Any,
        base_variable_scope: Any = None,
        name: str = "params_canonical",
    ) -> None:
        self._setup(params_to_canonical, canonical_to_params, param_variables, name)
        scope = getattr(base_variable_scope, "name", base_variable_scope)
        if scope is not None and not isinstance(scope, str):
            raise ArgumentTypeError("base_variable_scope", "a string or None", type(scope))
        spec = cudnn_rnn.spec
        if spec.num_dirs == 1 and spec.mode in {RNNMode.LSTM, RNNMode.GRU}:
            self._cells = CudnnOpaqueParamsSaveable.of(self._opaque, spec, None, name)
            self._scope = f"{scope}/" if scope else ""

    def _setup(
        self, params_to_canonical: Any, canonical_to_params: Any, param_variables: Any, name: str = "params_canonical"
    ) -> None:
        variables = param_variables if isinstance(param_variables, (list, tuple)) else [param_variables]
        if len(variables) != 1:
            raise ArgumentError("param_variables", "one opaque buffer", f"{len(variables)} arrays")
        self._to_canonical, self._to_params = params_to_canonical, canonical_to_params
        self._opaque = variables[0]
        self._cells = None
        self.name = check_text("name", name)

    def _of_cell(self, name: str) -> str:
        """Return the name that a tensor of a cell has here: TF 1.3's is without what `dynamic_rnn` puts before it."""
        return self._scope + name.removeprefix("rnn/")

    def tensors(self) -> dict[str, Array]:
        """Return every tensor by name: the weights, then the biases."""
        if self._cells is not None:
            return {self._of_cell(name): tensor for name, tensor in self._cells.tensors().items()}
        weights, biases = self._to_canonical(value_of(self._opaque))
        prefix = f"{self.name}/" if self.name else ""
        return {
            f"{prefix}CudnnRNNParamsToCanonical:{i}": host_of("params", array)
            for i, array in enumerate([*weights, *biases])
        }

    def restoring(self, restored_tensors: Any) -> Callable[[], None]:
        by_name = isinstance(restored_tensors, Mapping)
        if self._cells is not None:
            own = _own_among(restored_tensors, self._cells.spec, self._of_cell) if by_name else list(restored_tensors)
            return self._cells.restoring(own)
        names = list(self.tensors())
        if by_name:
            missing = [name for name in names if name not in restored_tensors]
            if missing:
                raise ArgumentError("restored_tensors", f"a tensor {missing[0]!r}", sorted(restored_tensors)[:8])
            restored_tensors = [restored_tensors[name] for name in names]
        if len(restored_tensors) != len(names):
            raise ArgumentError("restored_tensors", f"{len(names)} tensors", f"{len(restored_tensors)} tensors")
        opaque = value_of(self._opaque)
        count = len(self._to_canonical(opaque)[0])
        params = self._to_params(list(restored_tensors[:count]), list(restored_tensors[count:]))
        return _overwriting.overwriting("param_variables", opaque, host_of("params", params))
