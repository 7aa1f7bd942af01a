"""Input that comes piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pycudnnrnn._arrays import ArrayT, kind_of
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.ops._forward import shapes
from pycudnnrnn.spec import Direction, RNNSpec

States = tuple[Any, ...]


def check_forward_only(direction: Direction) -> None:
    """Raise an error for a direction that starts at the end of the input."""
    if direction is not Direction.UNIDIRECTIONAL:
        expected = "'unidirectional': a backward direction starts at the end of the input"
        raise ArgumentError("direction", expected, repr(str(direction)))


def h_and_c(states: Any, spec: RNNSpec) -> tuple[Any, Any]:
    """Return h and c of a caller's states: the tuple (h, c), or (h,) of a cell without c; None for zeros."""
    if states is None:
        return None, None
    count, wanted = (2, "(h, c)") if spec.has_cell_state else (1, "(h,)")
    if not isinstance(states, tuple):
        text = f"Invalid initial_state type: {type(states)}, expecting tuple {wanted}."
        raise ArgumentTypeError("initial_state", f"a tuple {wanted}", type(states), text=text)
    if len(states) != count:
        raise ArgumentError("initial_state", f"a tuple {wanted}", f"a tuple of {len(states)}")
    return states[0], states[1] if count == 2 else None


class Stream:
    """Run a layer or an op on input that comes piece by piece, without dropout. Its method `stream` makes it.

    Each call continues from the states of the previous one, which are in `states` (None: zeros). The outputs are those
    of one call on the whole sequence.
    """

    def __init__(self, run: Callable[[Any, States | None], tuple[Any, States]], what: str, initial_state: Any) -> None:
        self._run, self._what, self._initial = run, what, initial_state
        self.states: States | None = initial_state

    def __call__(self, inputs: ArrayT) -> ArrayT:
        """Run the next piece.

        Args:
            inputs: [T, B, I], or [B, I] for one step.

        Returns:
            The outputs, [T, B, U] or [B, U]; P instead of U with a projection.

        Raises:
            ArgumentError: another number of sequences than before, or another shape.
            ArgumentTypeError: not an array.
        """
        kind_of("inputs", inputs)
        if inputs.ndim not in (2, 3):
            raise ArgumentError("inputs", "[T, B, I], or [B, I] for one step", tuple(inputs.shape), aspect="shape")
        before = next((state.shape[1] for state in self.states or () if state is not None), None)
        if before not in (None, inputs.shape[-2]):
            expected = f"{before}, those of the states: reset the stream, or make another one"
            raise ArgumentError("inputs", expected, inputs.shape[-2], aspect="number of sequences")
        one_step = inputs.ndim == 2
        outputs, self.states = self._run(inputs[None] if one_step else inputs, self.states)
        result: ArrayT = outputs[0] if one_step else outputs
        return result

    def reset(self) -> None:
        """Return to the states that the stream began with."""
        self.states = self._initial

    def __repr__(self) -> str:
        return f"<Stream of a {self._what}; {shapes(self, ('states',)) or 'states zeros'}>"
