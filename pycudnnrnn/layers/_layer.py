"""What the four layers share: an RNN that owns its variable, the opaque buffer.

A layer is an op, a buffer, and TF's base-layer members (`_tf1.layer`). It learns `input_size` when it is built, by
`build` or by its first call. On the CPU the buffer is a NumPy array, whatever kind of array a call is made with.

Source: tensorflow/contrib/cudnn_rnn/python/layers/cudnn_rnn.py, TF 1.5 to 1.15.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy.typing as npt

from pycudnnrnn import _arrays, ops
from pycudnnrnn._arrays import ArrayT
from pycudnnrnn._checks import check_bool
from pycudnnrnn._keywords import told
from pycudnnrnn._overwriting import uninterrupted
from pycudnnrnn._tf1.checks import layer_dtype, shape_of, wrong_rank
from pycudnnrnn._tf1.initializers import initial_value
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import (
    ArgumentError,
    NotBuiltError,
    StateError,
    TFArgumentError,
    TFArgumentTypeError,
)
from pycudnnrnn.layers._configured import ConfiguredLayer
from pycudnnrnn.layers._forward import LAYER_NAMES, LayerForward, Stream
from pycudnnrnn.layers._graph import LayerGraph
from pycudnnrnn.layout import canonical_shapes
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]

OPAQUE_KERNEL = "opaque_kernel"
"""TF's name of the buffer, within the layer's scope."""


class RNNLayer(ConfiguredLayer):
    """What the four layers share. `RNNSpec` says what those of their arguments mean that are not here.

    Args:
        seed: decides the starting weights and the dropout; None draws one.
        kernel_initializer: what fills each canonical matrix: "glorot_uniform" (None, too), "glorot_normal",
            "orthogonal", "random_normal", "random_uniform", "zeros", "ones", or a callable over (shape, dtype), called
            once for each. A seeded layer does not get the same numbers twice.
        bias_initializer: the same for each canonical bias, but that None is "zeros".
        name: the scope of its variables; None: one of the class's name.
        device: where the layer lives, "cpu" or "cuda[:i]"; None leaves that to the first input.

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for.
        ArgumentTypeError: a value of the wrong type.
    """

    _op: ops.CudnnRNN | None = None
    _saveable: CudnnOpaqueParamsSaveable | None = None

    @property
    def device(self) -> str | None:
        """Where the layer lives; None as long as that is open."""
        return self._device

    @property
    def spec(self) -> RNNSpec:
        """The whole description.

        Raises:
            NotBuiltError: not built yet.
        """
        return self.op.spec

    @property
    def op(self) -> ops.CudnnRNN:
        """The op that runs this layer, for calls one level down.

        Raises:
            NotBuiltError: not built yet.
        """
        if self._op is None:
            raise NotBuiltError(
                f"the layer {self._name!r} has no op before it is built: call it, or build(input_shape)"
            )
        return self._op

    @property
    def params(self) -> Any:
        """The opaque buffer; assigning copies into it.

        Raises:
            NotBuiltError: not built yet.
        """
        return self.op and self._variables[OPAQUE_KERNEL].value

    @params.setter
    def params(self, value: Any) -> None:
        own = self.params
        if value is not own:
            self._variables[OPAQUE_KERNEL].assign(value)

    @property
    def saveable(self) -> CudnnOpaqueParamsSaveable | None:
        """What saves and restores the buffer, in the scope `scope_name`; None before build, as in TF."""
        return self._saveable

    # --- building -----------------------------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the buffer, for inputs of this shape. The first call does it otherwise; a second build does nothing.

        Shapes:
            input_shape: (T, B, input_size), where T and B may be None.

        Raises:
            ArgumentError: not three dimensions, or an unknown last one; also a `ValueError`.
        """
        with self._alone_until_built():
            if not self.built:
                device = self._device or "cpu"
                self._attach(*self._started(input_shape, device), device)

    def _started(self, input_shape: Any, device: str) -> tuple[ops.CudnnRNN, Any]:
        """Return the op for inputs of this shape, and a buffer of starting weights."""
        shape = shape_of(input_shape)
        if len(shape) != 3:
            raise wrong_rank(shape)
        if shape[2] is None:
            text = "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`."
            raise TFArgumentError("input_shape", "a known last dimension", shape, text)
        # Unlike TF's, a layer without a seed is not the same in every process.
        seed = secrets.randbits(32) if self._seed is None else self._seed
        spec = self._spec_for(self.num_layers, self.num_units, shape[2], self.direction, seed)
        op = ops.from_spec(spec)
        return op, op.move_params(self._starting_params(op), device)

    def _starting_params(self, op: ops.CudnnRNN) -> Array:
        weights: list[Array] = []
        biases: list[Array] = []
        for p, lin_layer_id, _, kind, shape in canonical_shapes(op.spec):
            named, initializer, lists = (
                ("kernel_initializer", self._kernel_initializer, weights)
                if kind == "weight"
                else ("bias_initializer", self._bias_initializer, biases)
            )
            seed = [op.spec.seed, p, lin_layer_id] + ([1] if kind == "bias" else [])
            lists.append(initial_value(named, initializer, shape, op.dtype.numpy, seed))
        params: Array = op.canonical_to_params(weights, biases)
        return params

    def _attach(self, op: ops.CudnnRNN, params: Any, device: str) -> None:
        with uninterrupted():
            self._op, self._spec, self._dtype, self._device = op, op.spec, op.dtype, device
            if OPAQUE_KERNEL in self._variables:
                self._variables[OPAQUE_KERNEL].value = params
            else:
                self._add(OPAQUE_KERNEL, params)
            self._saveable = None
            self._create_saveable()
            self.built = True

    def _create_saveable(self) -> None:
        if self._saveable is not None:
            raise StateError("Cudnn saveable already created.")
        variable = self._variables[OPAQUE_KERNEL]
        self._saveable = CudnnOpaqueParamsSaveable.of(
            variable, self._spec, self.scope_name, f"{variable.name}_saveable"
        )

    def to(self, device: str | None = None, *, dtype: Any = None) -> Self:
        """Move the layer to a device, cast it to a dtype, or both; the buffer is a new one. Return the layer.

        Dropout goes on from where it stands; a GPU whose random states are of another size refuses them when it drops.

        Raises:
            EngineError: no engine runs on `device`.
            ArgumentError: not a device or a dtype, or a dtype that this RNN cannot have. Nothing has changed then.
            StateError: the layer's op has dropped on several GPUs by itself.
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
        self._attach(op, params, device)
        self._options = options
        return self

    # --- running ------------------------------------------------------------------------------------------------------

    @told
    def forward(
        self,
        inputs: ArrayT,
        initial_state: tuple[Any, ...] | None = None,
        training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
        checkpoint_every: int | None = None,
    ) -> LayerForward[ArrayT]:
        """Run the layer and keep what a backward needs, unless `keep_reserve` (default: `training`) is False.

        `initial_state` is a tuple: (h, c) for LSTM, (h,) for the rest; None stands for zeros. With `checkpoint_every`
        only states are kept, every so many steps, and backward computes the rest again: see `op.memory`.

        Shapes:
            inputs: [T, B, I], or [B, T, I] with `time_major=False`; states: as `state_shape(B)`, either way;
            outputs: as inputs, with D * (P or U).

        Raises:
            ArgumentTypeError: a state that is not a tuple; also a `ValueError`, which TF to 1.12 raised.
            ArgumentError: a wrong shape, dtype or device, or a bad length.
        """
        kind = _arrays.kind_of("inputs", inputs)
        states = self._states(initial_state)
        with self._alone_until_built():
            if self._device not in {None, kind.device, kind.device.partition(":")[0]}:
                raise ArgumentError("inputs", f"an array on {self._device}, where the layer is", kind.device)
            op, params = (self.op, self.params) if self.built else self._started(inputs.shape, kind.device)
            fwd = op.run(
                inputs, *states, params, training,
                sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=keep_reserve,
                checkpoint_every=checkpoint_every, names=LAYER_NAMES, returns=LayerForward,
            )  # fmt: skip
            if not self.built:  # with what ran: a call that is refused builds nothing
                self._attach(op, params, kind.device)
        return cast("LayerForward[ArrayT]", fwd)

    if TYPE_CHECKING:  # what `call` takes and gives, through TF's base-layer call

        def __call__(  # type: ignore[override]  # TF's base takes anything
            self,
            inputs: ArrayT,
            initial_state: tuple[Any, ...] | None = None,
            training: bool = True,
            *,
            sequence_lengths: Sequence[int] | None = None,
            time_major: bool = True,
            scope: str | None = None,
        ) -> tuple[ArrayT, tuple[ArrayT, ...]]: ...

    def call(
        self,
        inputs: ArrayT,
        initial_state: tuple[Any, ...] | None = None,
        training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
    ) -> tuple[ArrayT, tuple[ArrayT, ...]]:
        """Return (outputs, states); `forward` says more, and gives gradients. `states` is always a tuple."""
        fwd = self.forward(
            inputs,
            initial_state,
            training,
            sequence_lengths=sequence_lengths,
            time_major=time_major,
            keep_reserve=False,
        )
        return fwd.outputs, fwd.states

    def stream(self, initial_state: tuple[Any, ...] | None = None) -> Stream:
        """Return a caller of this layer for inference piece by piece, which carries the states along.

        Raises:
            ArgumentError: a bidirectional layer, which has to see the end first.
        """
        if self.num_dirs == 2:
            raise ArgumentError("direction", "'unidirectional': the other way starts at the end", str(self.direction))
        self._states(initial_state)
        return Stream(self, initial_state)

    def capture(
        self,
        T: int,
        B: int,
        training: bool = False,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        carry_state: bool = False,
    ) -> LayerGraph:
        """Capture one kind of call as a CUDA graph, on buffers of its own; in training with the gradients after it.

        With `carry_state` each replay goes on from the states that the one before left: with T = 1, streaming.

        Raises:
            CaptureError: what is captured is on the CPU, or cannot be captured.
            ArgumentError: a bad size or length, or `carry_state` with both directions.
            NotBuiltError: not built yet.
        """
        training = check_bool(LAYER_NAMES.training, training)
        plan = self.op.prepare(
            T, B, is_training=training, sequence_lengths=sequence_lengths, time_major=time_major, device=self._device
        )
        return LayerGraph.of(plan.capture(self.params, carry_state=carry_state), self)

    def _states(self, initial_state: Any) -> tuple[Any, Any]:
        if initial_state is None:
            return None, None
        if not isinstance(initial_state, tuple):
            text = f"Invalid initial_state type: {type(initial_state)}, expecting tuple."
            raise TFArgumentTypeError("initial_state", "a tuple", type(initial_state), text)
        count = 2 if self._spec.has_cell_state else 1
        if len(initial_state) != count:
            raise ArgumentError("initial_state", f"a tuple of {count}", f"a tuple of {len(initial_state)}")
        return initial_state if count == 2 else (initial_state[0], None)

    # --- copies -------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return configuration and canonical weights: what a layer is, without its layout, calls and losses."""
        state: dict[str, Any] = {"config": self.get_config(), "scope": self._scope, "op": self._op}
        if self._op is not None:
            canonical = self._op.params_to_canonical(self.params)
            state["canonical"] = [[_arrays.to_host("params", array) for array in arrays] for arrays in canonical]
        return state | self._variables_state(without=OPAQUE_KERNEL if self.built else "")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["config"])  # type: ignore[misc]
        self._scope = state["scope"]
        op: ops.CudnnRNN | None = state["op"]
        if op is not None:
            device = self._device or "cpu"
            self._attach(op, op.move_params(op.canonical_to_params(*state["canonical"]), device), device)
        self._set_variables_state(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        state = self.__getstate__()
        if self._op is not None:  # an op of its own: the dropout position moves with calls
            state["op"] = copy.deepcopy(self._op)
        twin.__setstate__(state)
        return twin

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items() if v is not None)
        return f"{type(self).__name__}({given})"
