"""What a layer's forward returns, and the caller that carries states from piece to piece."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Final, Protocol

from pycudnnrnn._arrays import ArrayT
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.ops._forward import Forward, Gradients, Names

LAYER_NAMES: Final = Names(
    "inputs", "initial_state[0]", "initial_state[1]", "training", "d_outputs", "d_states[0]", "d_states[1]"
)


@dataclasses.dataclass(frozen=True, repr=False)
class LayerGradients(Gradients[ArrayT]):
    """Gradients of a layer's forward, also under the names of the layer's arguments."""

    _shown: ClassVar[tuple[str, ...]] = ("inputs", "initial_state", "params")

    @property
    def inputs(self) -> ArrayT:
        return self.input

    @property
    def initial_state(self) -> tuple[ArrayT, ...]:
        return (self.input_h,) if self.input_c is None else (self.input_h, self.input_c)


class LayerForward(Forward[ArrayT]):
    """An op's `Forward` with the layer's names: `outputs`, and `states`, always a tuple."""

    _shown: ClassVar[tuple[str, ...]] = ("outputs", "states")

    @property
    def outputs(self) -> ArrayT:
        return self.output

    @property
    def states(self) -> tuple[ArrayT, ...]:
        return (self.output_h,) if self.output_c is None else (self.output_h, self.output_c)

    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # TF's layer has names of its own
        self,
        d_outputs: Any = None,
        d_states: Any = None,
        d_output_c: Any = None,
        *,
        out: Any = None,
        accumulate: bool = False,
        retain: bool = False,
    ) -> LayerGradients[ArrayT]:
        """Return all gradients. `d_states` is a tuple like `states`, or h's gradient with c's after it; None is zeros.

        The gradient of params is in their layout: with `out` it is written there, with `accumulate` added.

        Raises:
            ArgumentError: a tuple of another length than `states`, or arrays that do not fit the results.
            StateError: nothing was kept for a backward, or an earlier one used it up.
        """
        d_output_h, names = d_states, LAYER_NAMES._replace(dhy="d_states", dcy="d_output_c")
        if isinstance(d_states, tuple):
            if len(d_states) != len(self.states) or d_output_c is not None:
                raise ArgumentError("d_states", f"a tuple of {len(self.states)}", f"a tuple of {len(d_states)}")
            d_output_h, d_output_c = d_states if len(d_states) == 2 else (d_states[0], None)
            names = LAYER_NAMES
        upstream = d_outputs, d_output_h, d_output_c
        found = self._backward(upstream, out=out, accumulate=accumulate, retain=retain, names=names)
        return LayerGradients(found.input, found.input_h, found.input_c, found.params)


class _Layer(Protocol):
    def call(self, inputs: Any, initial_state: Any, training: bool) -> tuple[Any, tuple[Any, ...]]: ...


class Stream:
    """Call a layer piece by piece, in inference: `states` goes from one call into the next; None is zeros.

    Pieces give the outputs that the whole sequence at once would give.
    """

    def __init__(self, layer: _Layer, initial_state: tuple[Any, ...] | None) -> None:
        self._layer = layer
        self._initial = initial_state
        self.states = initial_state

    def __call__(self, inputs: ArrayT) -> ArrayT:
        """Return the outputs of the next piece.

        Shapes:
            inputs: [T, B, I], or [B, I] for one step; outputs: the same with U.
        """
        one_step = inputs.ndim == 2
        outputs, self.states = self._layer.call(inputs[None] if one_step else inputs, self.states, False)
        result: ArrayT = outputs[0] if one_step else outputs
        return result

    def reset(self) -> None:
        """Go back to the states that the stream began with."""
        self.states = self._initial
