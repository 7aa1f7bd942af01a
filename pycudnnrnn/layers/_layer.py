"""The base of the four layers: an RNN that owns its one variable, the opaque buffer.

A layer is an op, a buffer, and TF's base-layer members (`_tf1.layer`). `build` or the first call builds it, and it
learns `input_size` then. On the CPU the buffer is a NumPy array, also if the layer is called with torch tensors.

Source: tensorflow/contrib/cudnn_rnn/python/layers/cudnn_rnn.py, TF 1.5 to 1.15.
"""

from __future__ import annotations

import copy
import dataclasses
import secrets
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from pycudnnrnn import _arrays, ops
from pycudnnrnn._arrays import Array, ArrayT
from pycudnnrnn._assignment import uninterrupted
from pycudnnrnn._checks import check_bool, check_int, check_type, shorten, with_hints
from pycudnnrnn._tf1.arguments import (
    InitializerLike,
    check_initializer,
    check_words,
    h_and_c,
    initial_value,
    layer_dtype,
    layer_shape,
)
from pycudnnrnn._tf1.layer import TF1Layer
from pycudnnrnn._tf1.variable import OPAQUE_KERNEL
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.layers._forward import LayerForward, LayerGraph, layer_words
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.ops import Stream
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable
from pycudnnrnn.schedule import Lengths
from pycudnnrnn.spec import (
    INT32_MAX,
    AlgorithmLike,
    BiasModeLike,
    Direction,
    DirectionLike,
    DTypeLike,
    InputModeLike,
    MathTypeLike,
    RNNMode,
    RNNSpec,
)

if TYPE_CHECKING:
    from pycudnnrnn.convert import Canonical


def check_canonical(canonical: Any) -> Canonical:
    """Return a `Canonical`; raise an error for anything else."""
    from pycudnnrnn.convert import Canonical  # noqa: PLC0415  slow to import, and rarely needed

    check_type("canonical", canonical, Canonical, "a convert.Canonical, such as convert.pytorch.to_canonical returns")
    return cast("Canonical", canonical)


class RNNLayer(TF1Layer):
    """Base of `CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh` and `CudnnRNNRelu`: what their objects have in common.

    A layer is built by `build` or by its first call. Before that it has no input size, no op and no weights.

    Source: tf.contrib.cudnn_rnn, TF 1.5 to 1.15.
    """

    _op: ops.CudnnRNN | None = None
    _saveable: CudnnOpaqueParamsSaveable | None = None

    @with_hints
    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: DTypeLike = "float32",
        kernel_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        name: str | None = None,
        *,
        device: str | None = None,
        bias_mode: BiasModeLike = "double",
        algo: AlgorithmLike = "standard",
        math_type: MathTypeLike | None = None,
        compute_dtype: DTypeLike | None = None,
    ) -> None:
        kind = type(self).__name__
        if isinstance(input_mode, (int, np.integer)) and not isinstance(input_mode, bool):
            expected = f"a string: this {kind} is the layer; with input_size it is ops.{kind}"
            raise ArgumentTypeError("input_mode", expected, shorten(input_mode))
        check_words(input_mode, direction)
        super().__init__(name, layer_dtype(dtype))
        self._input_mode: InputModeLike = cast("InputModeLike", str(input_mode))
        self._seed = seed
        self._options: dict[str, Any] = {
            "dropout": dropout, "bias_mode": bias_mode, "algo": algo, "math_type": math_type,
            "compute_dtype": compute_dtype, **self._lstm_only,
        }  # fmt: skip
        self._kernel_initializer = check_initializer("kernel_initializer", kernel_initializer, "glorot_uniform")
        self._bias_initializer = check_initializer("bias_initializer", bias_initializer, "zeros")
        self._device = None if device is None else _arrays.check_device(device)
        # This input size suits any mode; `build` learns the real one. Everything else is checked here.
        self._spec = RNNSpec(
            self._mode, num_layers, num_units, num_units, self._input_mode, direction, self._dtype,
            seed=0 if seed is None else seed, **self._options,
        )  # fmt: skip

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return self._spec.num_layers

    @property
    def num_units(self) -> int:
        """Width U of the gates and of the states, in each layer and direction."""
        return self._spec.num_units

    @property
    def input_mode(self) -> str:
        """The input mode as it was given. `spec.input_mode` is what "auto_select" became."""
        return self._input_mode

    @property
    def input_size(self) -> int:
        """Width I of the input.

        Raises:
            StateError: the layer is not built yet.
        """
        if not self.built:
            raise StateError("'input_size' is unknown since layer has not been built.")
        return self._spec.input_size

    @property
    def rnn_mode(self) -> RNNMode:
        """The cell: "lstm", "gru", "rnn_tanh" or "rnn_relu"."""
        return self._mode

    @property
    def direction(self) -> Direction:
        """The direction: "unidirectional" or "bidirectional"."""
        return self._spec.direction

    @property
    def num_dirs(self) -> int:
        """Number of directions D: 1 or 2."""
        return self._spec.num_dirs

    @property
    def canonical_weight_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the canonical weights, in the order of `layer.op.params_to_canonical`.

        Raises:
            StateError: the layer is not built yet.
        """
        if not self.built:
            raise StateError(f"{type(self).__name__}.canonical_weight_shapes invoked before input shape is known")
        return [shape for *_, kind, shape in canonical_shapes(self._spec) if kind == "weight"]

    @property
    def canonical_bias_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the canonical biases, in the order of `layer.op.params_to_canonical`."""
        return [shape for *_, kind, shape in canonical_shapes(self._spec) if kind == "bias"]

    def state_shape(self, batch_size: int) -> tuple[list[int], ...]:
        """Return the shapes of the states: (h, c) for the LSTM, (h,) for the others.

        Args:
            batch_size: number of sequences B.
        """
        rows, batch = self._spec.num_pseudo_layers, check_int("batch_size", batch_size, 0, INT32_MAX)
        h = [rows, batch, self._spec.state_size]
        return (h, [rows, batch, self.num_units]) if self._spec.has_cell_state else (h,)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of `outputs`, with None for a size that is unknown. `state_shape` returns the states'.

        Args:
            input_shape: shape of the inputs, three sizes; each may be None.

        Raises:
            ArgumentError: not three dimensions.
        """
        return (*layer_shape(input_shape)[:2], self._spec.output_size)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments by name. An initializer that is a callable is returned as it is."""
        return {
            "num_layers": self.num_layers,
            "num_units": self.num_units,
            "input_mode": self._input_mode,
            "direction": str(self.direction),
            "seed": self._seed,
            "dtype": str(self._dtype),
            "kernel_initializer": self._kernel_initializer,
            "bias_initializer": self._bias_initializer,
            "name": self._name,
            "device": self._device,
            **{name: str(v) if isinstance(v, StrEnum) else v for name, v in self._options.items()},
        }

    @property
    def device(self) -> str | None:
        """The device that the layer runs on: "cpu", "cuda:0" ... None until `build` or the first inputs decide it."""
        return self._device

    @property
    def spec(self) -> RNNSpec:
        """The `RNNSpec` of the layer: its whole description.

        Raises:
            StateError: the layer is not built yet.
        """
        return self.op.spec

    @property
    def op(self) -> ops.CudnnRNN:
        """The op that runs this layer. It has methods that the layer does not repeat: `layout`, `memory`, `prepare` ...

        Raises:
            StateError: the layer is not built yet.
        """
        if self._op is None:
            raise StateError(f"the layer {self._name!r} has no op before it is built: call it, or build(input_shape)")
        return self._op

    @property
    def params(self) -> Any:
        """The weights: one flat array with all matrices, then all biases. Assigning copies values into it.

        Raises:
            StateError: the layer is not built yet.
        """
        return self.op and self._variables[OPAQUE_KERNEL].value

    @params.setter
    def params(self, value: Any) -> None:
        params = self.params
        if value is not params:
            self._variables[OPAQUE_KERNEL].assigning("params", value)()

    @property
    def saveable(self) -> CudnnOpaqueParamsSaveable | None:
        """The object that saves and restores `params`, under names that begin with `scope_name`.

        None before the layer is built, as in TF.
        """
        return self._saveable

    @classmethod
    def from_spec(cls, spec: RNNSpec, name: str | None = None, device: str | None = None) -> Self:
        """Return a built layer of a spec, with all weights 0.

        Args:
            spec: description of the RNN, an `RNNSpec` with the cell of this class.
            name: name of the layer. None: TF's default. Default: None.
            device: "cpu", "cuda" or "cuda:<index>". None: "cpu". Default: None.

        Raises:
            ArgumentError: the spec of another cell.
            ArgumentTypeError: not an `RNNSpec`.

        Example:
            >>> from pycudnnrnn import CudnnGRU, RNNSpec
            >>> CudnnGRU.from_spec(RNNSpec("gru", 1, num_units=8, input_size=4)).params.shape
            (336,)
        """
        check_type("spec", spec, RNNSpec, "an RNNSpec")
        if spec.mode is not cls._mode:
            expected = f"{str(cls._mode)!r}, the cell of {cls.__name__} (layers.from_canonical chooses the class)"
            raise ArgumentError("rnn_mode", expected, repr(str(spec.mode)))
        options = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
        for absent in ("mode", "input_size", *(() if spec.has_cell_state else ("num_proj", "cell_clip"))):
            del options[absent]
        layer = cls(name=name, device=device, kernel_initializer="zeros", bias_initializer="zeros", **options)
        layer.build((None, None, spec.input_size))
        return layer

    @classmethod
    def from_canonical(cls, canonical: Canonical, *, name: str | None = None, device: str | None = None) -> Self:
        """Return a built layer with the sizes and the weights of a converted model.

        Args:
            canonical: a `convert.Canonical` of this cell, such as `convert.pytorch.to_canonical` returns.
            name: name of the layer. None: TF's default. Default: None.
            device: "cpu", "cuda" or "cuda:<index>". None: "cpu". Default: None.

        Raises:
            ArgumentError: a model with another cell.
            ArgumentTypeError: not a `Canonical`.

        Example:
            >>> from pycudnnrnn import CudnnGRU, convert, ops
            >>> op = ops.CudnnGRU(num_layers=1, num_units=4, input_size=3)
            >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
            >>> layer = CudnnGRU.from_canonical(c)
            >>> layer.num_units, layer.input_size
            (4, 3)
        """
        layer = cls.from_spec(check_canonical(canonical).spec, name, device)
        layer.params = layer.op.move_params(layer.op.canonical_to_params(canonical), layer.device or "cpu")
        return layer

    # --- building -----------------------------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Create the weights. The first call does this if you do not; a second build does nothing.

        A layer without a device is built on the CPU; `to` moves it.

        Args:
            input_shape: shape of the inputs, (T, B, input_size). T and B may be None.

        Raises:
            ArgumentError: not three dimensions, or the last one is None. It is a `ValueError`, as in TF.
            EngineError: no engine runs on the layer's device.
            MissingDependencyError: a CUDA device without CuPy.
        """
        with self._alone_until_built():
            if not self.built:
                device = self._device or "cpu"
                self._attach(*self._started(input_shape, device), device)

    def _started(self, input_shape: Any, device: str) -> tuple[ops.CudnnRNN, Any]:
        """Return the op for inputs of this shape, and its starting weights."""
        shape = layer_shape(input_shape)
        if shape[2] is None:
            text = "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`."
            raise ArgumentError("input_shape", "a known last dimension", shape, text=text)
        # Without a seed the weights differ in every process. TF's did not.
        seed = secrets.randbits(32) if self._seed is None else self._seed
        op = ops.from_spec(self._spec.replace(input_size=shape[2], input_mode=self._input_mode, seed=seed))
        lists: dict[str, list[Array]] = {"weight": [], "bias": []}
        for p, lin_layer_id, _, kind, of_region in canonical_shapes(op.spec):
            name, initializer, seeds = "kernel_initializer", self._kernel_initializer, [seed, p, lin_layer_id]
            if kind == "bias":
                name, initializer, seeds = "bias_initializer", self._bias_initializer, [*seeds, 1]
            lists[kind].append(initial_value(name, initializer, of_region, op.dtype.numpy, seeds))
        return op, op.move_params(op.canonical_to_params(*lists.values()), device)

    def _attach(self, op: ops.CudnnRNN, params: Any, device: str) -> None:
        self._op, self._spec, self._dtype, self._device = op, op.spec, op.dtype, device
        if OPAQUE_KERNEL in self._variables:
            self._variables[OPAQUE_KERNEL].value = params
        else:
            self._add(OPAQUE_KERNEL, params)
        variable = self._variables[OPAQUE_KERNEL]
        self._saveable = CudnnOpaqueParamsSaveable.of(variable, op.spec, self.scope_name, f"{variable.name}_saveable")
        self.built = True

    def to(self, device: str | None = None, *, dtype: Any = None) -> Self:
        """Move the layer to a device, cast it to a dtype, or both. `params` becomes a new array.

        The dropout state moves with the layer. A GPU whose random states have another size raises an error at the
        next call with dropout.

        Args:
            device: "cpu", "cuda" or "cuda:0". None: keep the device. Default: None.
            dtype: "float16", "bfloat16", "float32" or "float64", or a library's dtype object. A new dtype resets
                `math_type` and `compute_dtype` to their defaults. None: keep the dtype. Default: None.

        Returns:
            The layer itself.

        Raises:
            EngineError: no engine runs on `device`, and the layer is built. One that is not raises it when it is built.
            MissingDependencyError: a CUDA device without CuPy.
            ArgumentError: not a device or a dtype, or a dtype that this RNN cannot have. The layer is unchanged.
            StateError: the layer has used dropout on several GPUs, so that it has several dropout states.
        """
        device = self._device if device is None else _arrays.check_device(device)
        changes = {} if dtype is None else {"dtype": layer_dtype(dtype), "compute_dtype": None, "math_type": None}
        spec = self._spec.replace(**changes)
        options = self._options | {k: v for k, v in changes.items() if k != "dtype"}
        if not self.built:
            self._spec, self._dtype, self._device, self._options = spec, spec.dtype, device, options
            return self
        old, op = self.op, ops.from_spec(spec) if changes else self.op
        device = device or "cpu"
        dropout = old.dropout_states() if changes or device != self._device else []
        params = old.move_params(self.params, device)
        if changes:
            with engine_for(device).active():
                cast = [[a.astype(op.dtype.numpy) for a in arrays] for arrays in old.params_to_canonical(params)]
            params = op.canonical_to_params(*cast)
        for state in dropout:
            op.set_dropout_state(state)
        with uninterrupted():
            self._attach(op, params, device)
            self._options = options
        return self

    # --- running ------------------------------------------------------------------------------------------------------

    @with_hints
    def forward(
        self,
        inputs: ArrayT,
        initial_state: tuple[Any, ...] | None = None,
        training: bool = True,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
        checkpoint_every: int | None = None,
    ) -> LayerForward[ArrayT]:
        """Run the layer, and keep the reserve so that gradients can follow.

        Args:
            inputs: the input array, [T, B, I], or [B, T, I] with `time_major=False`.
            initial_state: the states before the first step, with the shapes of `state_shape(B)`: the pair (h, c)
                for the LSTM, the tuple (h,) for the others. None: zeros. Default: None.
            training: whether dropout acts between the layers. Default: True.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T.
                Outputs after the end of a sequence are 0; its final states are those of its last step. None: all
                sequences have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of
                the states does not depend on it. Default: True.
            keep_reserve: whether to keep the reserve: the intermediate results that a backward pass needs. None:
                the same as `training`. Default: None.
            checkpoint_every: number of steps between kept states. If given, only these states are kept in place of
                the reserve, and the backward pass computes the rest again. This saves memory and takes about the time
                of one more forward; see `layer.op.memory`. None: keep the reserve. Default: None.

        Returns:
            A `LayerForward`: `outputs` [T, B, D * U] (D * P with a projection; B first with `time_major=False`), the
            tuple `states`, and `backward(d_outputs)`.

        Raises:
            ArgumentTypeError: `initial_state` is not a tuple. It is a `ValueError`, as TF 1.12 and older raised.
            ArgumentError: a wrong shape, dtype or device, or a bad length.

        Example:
            >>> import numpy as np
            >>> from pycudnnrnn import CudnnGRU
            >>> layer = CudnnGRU(num_layers=1, num_units=8, seed=0)
            >>> forward = layer.forward(np.ones((10, 4, 3), "float32"))
            >>> gradients = forward.backward(np.ones_like(forward.outputs))
            >>> gradients.inputs.shape, gradients.params.shape == layer.params.shape
            ((10, 4, 3), True)
        """
        kind = _arrays.kind_of("inputs", inputs)
        states = h_and_c(initial_state, self._spec)
        with self._alone_until_built():
            if self._device not in {None, kind.device, kind.device.partition(":")[0]}:
                raise ArgumentError("inputs", f"an array on {self._device}, where the layer is", kind.device)
            op, params = (self.op, self.params) if self.built else self._started(inputs.shape, kind.device)
            with layer_words():
                call = op.run(
                    inputs, *states, params, training,
                    sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=keep_reserve,
                    checkpoint_every=checkpoint_every,
                )  # fmt: skip
            if not self.built:  # after the run: a call that raises an error builds nothing
                self._attach(op, params, kind.device)
        return LayerForward(*call)

    if TYPE_CHECKING:  # the signature of `call`; at run time this is TF's base-layer call

        def __call__(  # type: ignore[override]  # TF's base takes anything
            self,
            inputs: ArrayT,
            initial_state: tuple[Any, ...] | None = None,
            training: bool = True,
            *,
            sequence_lengths: Lengths | None = None,
            time_major: bool = True,
            scope: str | None = None,
        ) -> tuple[ArrayT, tuple[ArrayT, ...]]:
            """Run the layer without keeping anything for gradients; `forward` gives gradients.

            Args:
                inputs: the input array, [T, B, I], or [B, T, I] with `time_major=False`.
                initial_state: the states before the first step, with the shapes of `state_shape(B)`: the pair
                    (h, c) for the LSTM, the tuple (h,) for the others. None: zeros. Default: None.
                training: whether dropout acts between the layers. Default: True.
                sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T.
                    Outputs after the end of a sequence are 0; its final states are those of its last step. None: all
                    sequences have T steps. Default: None.
                time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape
                    of the states does not depend on it. Default: True.
                scope: what the variables' names begin with, if this call builds the layer. None: its name.
                    Default: None.

            Returns:
                The pair (outputs, states). `states` is always a tuple.
            """

    def call(
        self,
        inputs: ArrayT,
        initial_state: tuple[Any, ...] | None = None,
        training: bool = True,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
    ) -> tuple[ArrayT, tuple[ArrayT, ...]]:
        """Run the layer without keeping anything for gradients; `forward` gives gradients. `layer(...)` calls this.

        Args:
            inputs: the input array, [T, B, I], or [B, T, I] with `time_major=False`.
            initial_state: the states before the first step, with the shapes of `state_shape(B)`: the pair (h, c)
                for the LSTM, the tuple (h,) for the others. None: zeros. Default: None.
            training: whether dropout acts between the layers. Default: True.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T.
                Outputs after the end of a sequence are 0; its final states are those of its last step. None: all
                sequences have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. The shape of
                the states does not depend on it. Default: True.

        Returns:
            The pair (outputs, states): `outputs` is [T, B, D * U] (D * P with a projection; B first with
            `time_major=False`). `states` is always a tuple, (h, c) or (h,).

        Raises:
            ArgumentTypeError: `initial_state` is not a tuple. It is a `ValueError`, as TF 1.12 and older raised.
            ArgumentError: a wrong shape, dtype or device, or a bad length.
        """
        options: dict[str, Any] = {"sequence_lengths": sequence_lengths, "time_major": time_major}
        fwd = self.forward(inputs, initial_state, training, keep_reserve=False, **options)
        return fwd.outputs, fwd.states

    def stream(self, initial_state: tuple[Any, ...] | None = None) -> Stream:
        """Return a `Stream`, which runs this layer on input that comes piece by piece.

        Args:
            initial_state: the states before the first piece, with the shapes of `state_shape(B)`: the pair (h, c) for
                the LSTM, the tuple (h,) for the others. None: zeros. Default: None.

        Raises:
            ArgumentError: the layer is bidirectional: its backward direction starts at the end of the input. Or a tuple
                of another length.
            ArgumentTypeError: `initial_state` is not a tuple, or a subclass has its own `call`.

        Example:
            >>> import numpy as np
            >>> from pycudnnrnn import CudnnGRU
            >>> layer = CudnnGRU(num_layers=1, num_units=8, seed=0)
            >>> stream = layer.stream()
            >>> [stream(np.ones((4, 3), "float32")).shape for _ in range(3)]
            [(4, 8), (4, 8), (4, 8)]
        """
        if type(self).call is not RNNLayer.call:
            expected = "a class that does not change call: a stream runs the RNN alone, so stream layer.op"
            raise ArgumentTypeError("layer", expected, type(self))
        return Stream(self._model, type(self).__name__, initial_state, self._spec)

    def _model(self, inputs: Any) -> tuple[ops.CudnnRNN, Any]:
        """Return the model of a stream; the first inputs build it."""
        if not self.built:
            self.call(inputs if inputs.ndim == 3 else inputs[None], None, False)
        return self.op, self.params

    def capture(
        self,
        T: int,
        B: int,
        training: bool = False,
        *,
        sequence_lengths: Lengths | None = None,
        time_major: bool = True,
        carry_state: bool = False,
    ) -> LayerGraph:
        """Capture a call with fixed sizes as a CUDA graph with its own buffers. CUDA only.

        With `training` the graph runs the forward pass and then both backward passes.

        Args:
            T: number of steps, at least 1.
            B: number of sequences, at least 1.
            training: whether dropout acts and the graph also runs the backward passes. Default: False.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. None:
                all sequences have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. Default: True.
            carry_state: whether a replay also writes its final states to `initial_state`, so that the next replay
                continues from there. With T = 1 this is streaming. For one direction only. Default: False.

        Returns:
            A `LayerGraph`: write into its `inputs`, call `replay()`, read its `outputs`.

        Raises:
            CaptureError: the layer is on the CPU, or the call cannot be captured.
            ArgumentError: a bad size or length, or `carry_state` with a bidirectional layer.
            StateError: the layer is not built yet.
        """
        training = check_bool("training", training)
        plan = self.op.prepare(
            T, B, is_training=training, sequence_lengths=sequence_lengths, time_major=time_major, device=self._device
        )
        return LayerGraph(plan.capture(self.params, carry_state=carry_state), self)

    # --- copies -------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return configuration and canonical weights, without layout, recorded calls and losses."""
        # A copy needs its own op, since calls move the dropout position.
        state: dict[str, Any] = {"op": copy.deepcopy(self._op)}
        if self._op is not None:
            canonical = self._op.params_to_canonical(self.params)
            state["canonical"] = [[_arrays.to_host("params", array) for array in arrays] for arrays in canonical]
        return state | self._copied_state(without=OPAQUE_KERNEL if self.built else "")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_configuration(state)
        op: ops.CudnnRNN | None = state["op"]
        if op is not None:
            device = self._device or "cpu"
            self._attach(op, op.move_params(op.canonical_to_params(*state["canonical"]), device), device)
        self._set_variables(state)
