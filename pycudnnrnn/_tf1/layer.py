"""The members that TF 1.x gave every layer: variables, losses, recorded calls, configuration.

There is no graph here. Members that used TF's graph do what they did in its eager mode: `add_update` is ignored,
`losses` evaluates regularizers, `graph` is None.

Source: tf.layers.Layer of TF 1.9, as the public pages of tf.contrib.cudnn_rnn list its members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from pycudnnrnn import _assignment, _locks
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_text, hinted, shorten
from pycudnnrnn._tf1.arguments import check_initializer, initial_value
from pycudnnrnn._tf1.records import Losses, Node, Nodes, flatten
from pycudnnrnn._tf1.tensors import snake_case
from pycudnnrnn._tf1.variable import Variable
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.spec import DType, RNNMode, parse_dtype


class TF1Layer:
    """Base of the layers and cells, with TF's members. A subclass has `build`, `call` and `get_config`."""

    supports_masking = False
    _mode: ClassVar[RNNMode]
    _lstm_only: Mapping[str, Any] = MappingProxyType({})
    """The arguments that only the LSTM has. Its constructor sets them before it calls this one."""

    def __init__(self, name: str | None, dtype: DType | None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise ArgumentTypeError("name", "a string that is not empty, or None for the class's name", shorten(name))
        self._name = name or snake_case(type(self).__name__)
        self._scope: str | None = None
        self._dtype = dtype
        self.built = False
        self._building = _locks.rlock()
        self._variables: dict[str, Variable] = {}
        self._regularizers: dict[str, Callable[[Any], Any]] = {}
        self._activity_regularizer: Callable[[Any], Any] | None = None
        self._nodes = Nodes(self._name)
        self._losses = Losses()

    # --- description --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the layer."""
        return self._name

    @property
    def scope_name(self) -> str:
        """The scope of the first call, or else the layer's name. The variables' names begin with it.

        The first variable fixes it, as in TF.
        """
        return self._scope or self._name

    @property
    def dtype(self) -> DType | None:
        """The dtype of the data and the weights; None until it is known."""
        return self._dtype

    @property
    def graph(self) -> None:
        """None: there is no graph."""
        return

    @property
    def activity_regularizer(self) -> Callable[[Any], Any] | None:
        """A function of the outputs; each call adds its value to `losses`. None for no function."""
        return self._activity_regularizer

    @activity_regularizer.setter
    def activity_regularizer(self, function: Callable[[Any], Any] | None) -> None:
        if function is not None and not callable(function):
            raise ArgumentTypeError("activity_regularizer", "a callable or None", type(function))
        self._activity_regularizer = function

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments by name, without weights and recorded calls."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return a new layer, without weights, made with these arguments.

        Args:
            config: the dict that `get_config` returned.
        """
        return cls(**config)

    # --- calling ------------------------------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Create the variables.

        Args:
            input_shape: shape of the inputs; sizes that do not matter may be None.
        """
        raise NotImplementedError

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs. `layer(...)` calls this.

        Args:
            inputs: the input array.
            *args: the arguments of the layer's class.
            **kwargs: the same, by name.

        Returns:
            The outputs.
        """
        raise NotImplementedError

    def __call__(self, inputs: Any, *args: Any, scope: str | None = None, **kwargs: Any) -> Any:
        """Run the layer: build it if this is the first call, run `call`, and record the call.

        Args:
            inputs: the input array.
            *args: the other arguments of `call`.
            **kwargs: the same, by name.
            scope: what the variables' names begin with, if this call creates the first. None: the layer's
                name. Default: None.

        Returns:
            The outputs of `call`.

        Raises:
            TypeError: an argument that `call` does not take.
            ArgumentError: `call` returned None.
        """
        with self._alone_until_built():
            before = self._scope
            if scope is not None:
                check_text("scope", scope)
            if scope and not self.built and not self._variables:
                self._scope = scope
            try:
                outputs = self.call(inputs, *args, **kwargs)
            except BaseException as error:
                if not self._variables:  # no variable has a name yet
                    self._scope = before
                with_hint = hinted(error, self.call, args, kwargs) if isinstance(error, TypeError) else None
                if with_hint is None:
                    raise
                raise with_hint from None
        if outputs is None:
            raise ArgumentError("call", "a result", "None")
        self._record(inputs, outputs)
        return outputs

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the layer, as `layer(...)` does.

        Args:
            inputs: the input array.
            *args: the other arguments of the call.
            **kwargs: the same, by name.

        Returns:
            The outputs of the call.
        """
        return self(inputs, *args, **kwargs)

    def _alone_until_built(self) -> contextlib.AbstractContextManager[Any]:
        """Let one thread build while the others wait. The caller has to read `built` again inside."""
        return contextlib.nullcontext() if self.built else self._building

    def _record(self, inputs: Any, outputs: Any) -> None:
        flat = flatten(outputs)
        self._nodes.add([inputs], flat)
        self._losses.forget_dead()
        if self._activity_regularizer is not None:
            self.add_loss(self._activity_regularizer(flat[0]), inputs=inputs)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of the outputs, with None for a size that is unknown.

        Args:
            input_shape: shape of the inputs; each size may be None.
        """
        raise NotImplementedError

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:  # noqa: ARG002
        """Return None: outputs have no mask. `sequence_lengths` sets where sequences end.

        Args:
            inputs: the input array, which is not read.
            mask: must be None. Default: None.

        Raises:
            ArgumentTypeError: a mask was passed.
        """
        if mask is not None:
            raise ArgumentTypeError("mask", "None: give sequence_lengths instead", type(mask))

    # --- variables ----------------------------------------------------------------------------------------------------

    def add_weight(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        constraint: Callable[[Any], Any] | None = None,
        use_resource: bool | None = None,  # noqa: ARG002
        partitioner: Any = None,
    ) -> Variable:
        """Create a variable of the layer, or return the one that has this name.

        Args:
            name: name of the variable within the layer.
            shape: the sizes of the array.
            dtype: dtype of the array. None: the layer's, or float32. Default: None.
            initializer: a word of `kernel_initializer`, or a callable (shape, dtype) that returns an array.
                None: "glorot_uniform". Default: None.
            regularizer: function of the array; its value is in `losses`. None: none. Default: None.
            trainable: whether it is in `trainable_weights`. Default: True.
            constraint: function of the array, kept for the optimizer and not applied here, as in TF. Default: None.
            use_resource: ignored; there are no resource variables here. Default: None.
            partitioner: ignored; a variable always has one part. Default: None.

        Returns:
            The variable.

        Raises:
            StateError: a regularizer together with a partitioner.
            ArgumentError: a variable of this name has another shape or dtype.
        """
        if regularizer is not None and partitioner is not None:
            raise StateError("a partitioned variable cannot have a regularizer without a graph")
        name = check_text("name", name)
        shape = tuple(int(n) for n in shape)
        numpy_dtype = parse_dtype("dtype", dtype).numpy if dtype is not None else (self._dtype or DType.FLOAT32).numpy
        known = self._variables.get(name)
        if known is not None:
            if (known.shape, known.dtype) != (shape, numpy_dtype):
                raise ArgumentError(name, f"the variable's {known.shape} {known.dtype}", f"{shape} {numpy_dtype}")
            return known
        initializer = check_initializer("initializer", initializer, "glorot_uniform")
        seed = [int(n) for n in np.random.SeedSequence().generate_state(4)]
        value = initial_value("initializer", initializer, shape, numpy_dtype, seed)
        return self._add(name, value, trainable=trainable, regularizer=regularizer, constraint=constraint)

    def _add(
        self,
        name: str,
        value: Array,
        *,
        trainable: bool = True,
        regularizer: Callable[[Any], Any] | None = None,
        constraint: Callable[[Any], Any] | None = None,
    ) -> Variable:
        variable = Variable(f"{self.scope_name}/{name}", value, trainable=trainable, constraint=constraint)
        self._variables[name] = variable
        if regularizer is not None:
            self._regularizers[name] = regularizer
        return variable

    def add_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """Create a variable, as `add_weight` does.

        Args:
            *args: the arguments of `add_weight`.
            **kwargs: the same, by name.

        Returns:
            The variable.
        """
        return self.add_weight(*args, **kwargs)

    def variables_by_name(self) -> dict[str, Variable]:
        """Return all variables by their names within the layer, in the order of their creation."""
        return dict(self._variables)

    @property
    def trainable_weights(self) -> list[Variable]:
        """The variables that training changes."""
        return [variable for variable in self._variables.values() if variable.trainable]

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The variables that training does not change."""
        return [variable for variable in self._variables.values() if not variable.trainable]

    @property
    def weights(self) -> list[Variable]:
        """All variables, the trainable ones first."""
        return self.trainable_weights + self.non_trainable_weights

    @property
    def variables(self) -> list[Variable]:
        """The same as `weights`."""
        return self.weights

    @property
    def trainable_variables(self) -> list[Variable]:
        """The same as `trainable_weights`."""
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The same as `non_trainable_weights`."""
        return self.non_trainable_weights

    def count_params(self) -> int:
        """Return the number of elements of all variables.

        Raises:
            StateError: the layer is not built yet.
        """
        if not self.built:
            raise StateError(f"the layer {self._name!r} has no weights to count before it is built")
        return sum(int(variable.value.size) for variable in self.weights)

    def get_weights(self) -> list[Array]:
        """Return copies of all variables, in the order of `weights`."""
        return [variable.numpy() for variable in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Write new values into all variables.

        Args:
            weights: one array per variable, in the order of the property `weights`.

        Raises:
            ArgumentError: a wrong number of arrays, a wrong shape, no numbers, or a variable that cannot be written to.
                No variable has changed then.
        """
        variables = self.weights
        count = len(weights) if isinstance(weights, Sized) else None
        if count != len(variables):
            why = " (from_canonical takes other frameworks' weights)"
            if not self.built:
                why = ": it is not built; call it once, or build(input_shape)"
            expected = f"a list of {len(variables)}, one for each variable{why}"
            raise ArgumentError("weights", expected, type(weights) if count is None else f"{count} arrays")
        pairs = enumerate(zip(variables, weights, strict=True))
        _assignment.write_all([variable.assigning(f"weights[{i}]", array) for i, (variable, array) in pairs])

    # --- losses and updates -------------------------------------------------------------------------------------------

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Add one loss or several to `losses`.

        Args:
            losses: a loss, or a list of them.
            inputs: the array that they belong to; they are dropped with it. None: they belong to none. Default: None.
        """
        self._losses.add(losses, inputs)

    @property
    def losses(self) -> list[Any]:
        """The losses that were added and whose inputs still exist, then the present values of the regularizers."""
        return self._losses.unconditional + self._losses.standing() + self._regularization()

    def get_losses_for(self, inputs: Any) -> list[Any]:
        """Return the losses that were added for these inputs.

        Args:
            inputs: the array that they belong to. None: those that belong to no array, and the regularizers' values.
        """
        if inputs is None:
            return self._losses.unconditional + self._regularization()
        return self._losses.standing(inputs)

    def _regularization(self) -> list[Any]:
        return [regularizer(self._variables[name].value) for name, regularizer in self._regularizers.items()]

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Do nothing: without a graph, the update has already happened.

        Args:
            updates: ignored, as in TF's eager mode.
            inputs: ignored, as in TF's eager mode.
        """

    @property
    def updates(self) -> list[Any]:
        """An empty list; see `add_update`."""
        return []

    def get_updates_for(self, inputs: Any) -> list[Any]:  # noqa: ARG002
        """Return an empty list; see `add_update`.

        Args:
            inputs: ignored, as in TF's eager mode.
        """
        return []

    # --- recorded calls -----------------------------------------------------------------------------------------------

    @property
    def inbound_nodes(self) -> list[Node]:
        """The records of this layer's calls: the first one and the latest ones."""
        return self._nodes.list()

    @property
    def outbound_nodes(self) -> list[Node]:
        """An empty list: a layer does not know who uses its outputs."""
        return []

    @property
    def input(self) -> Any:
        """The input of the only call.

        Raises:
            AttributeError: there was no call, or several.
            StateError: the array no longer exists.
        """
        return self._nodes.only("input_tensors")

    @property
    def output(self) -> Any:
        """The outputs of the only call: an array, or a flat list. It raises the errors of `input`."""
        return self._nodes.only("output_tensors")

    @property
    def input_shape(self) -> Any:
        """The shape of the inputs of all calls.

        Raises:
            AttributeError: there was no call, or the shapes differ.
        """
        return self._nodes.same("input_shapes")

    @property
    def output_shape(self) -> Any:
        """The shapes of the outputs of all calls. It raises the errors of `input_shape`."""
        return self._nodes.same("output_shapes")

    @property
    def input_mask(self) -> None:
        """None: there are no masks.

        Raises:
            AttributeError: there was no call, or several.
        """
        self._nodes.only("input_shapes")

    output_mask = input_mask

    def get_input_at(self, node_index: int) -> Any:
        """Return the input of a call.

        Args:
            node_index: number of the call, from 0.

        Raises:
            StateError: the layer was never called, the record was dropped, or the array no longer exists.
            ArgumentError: there were fewer calls.
        """
        return self._nodes.at(node_index, "input_tensors")

    def get_output_at(self, node_index: int) -> Any:
        """Return the outputs of a call. It raises the errors of `get_input_at`.

        Args:
            node_index: number of the call, from 0.
        """
        return self._nodes.at(node_index, "output_tensors")

    def get_input_shape_at(self, node_index: int) -> Any:
        """Return the shape of a call's input. It raises the errors of `get_input_at`.

        Args:
            node_index: number of the call, from 0.
        """
        return self._nodes.at(node_index, "input_shapes")

    def get_output_shape_at(self, node_index: int) -> Any:
        """Return the shapes of a call's outputs. It raises the errors of `get_input_at`.

        Args:
            node_index: number of the call, from 0.
        """
        return self._nodes.at(node_index, "output_shapes")

    def get_input_mask_at(self, node_index: int) -> None:
        """Return None: there are no masks. It raises the errors of `get_input_at`.

        Args:
            node_index: number of the call, from 0.
        """
        self._nodes.at(node_index, "input_shapes")

    get_output_mask_at = get_input_mask_at

    # --- copies -------------------------------------------------------------------------------------------------------

    def _copied_state(self, *, without: str = "") -> dict[str, Any]:
        """Return the configuration, and the variables with the value of one left out.

        A copy calls `__init__` with the configuration, as in Keras, so a subclass with more arguments extends
        `get_config`.
        """
        return {
            "config": self.get_config(),
            "scope": self._scope,
            "variables": [
                (n, None if n == without else v.numpy(), v.trainable, v.constraint) for n, v in self._variables.items()
            ],
            "regularizers": dict(self._regularizers),
            "activity_regularizer": self._activity_regularizer,
        }

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items() if v is not None)
        return f"{type(self).__name__}({arguments})"

    def _set_configuration(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state["config"])  # type: ignore[misc]
        self._scope = state["scope"]

    def _set_variables(self, state: Mapping[str, Any]) -> None:
        built = self._variables
        self._variables = {}  # filled in the order of the original, which `get_weights` returns
        for name, value, trainable, constraint in state["variables"]:
            if value is None:
                self._variables[name] = built[name]
                built[name].trainable, built[name].constraint = trainable, constraint
            else:
                self._add(name, value, trainable=trainable, constraint=constraint)
        self._regularizers = dict(state["regularizers"])
        self._activity_regularizer = state["activity_regularizer"]
