"""The results of a layer's calls under its own names: a forward, its gradients, and a captured graph."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from pycudnnrnn._arrays import ArrayT
from pycudnnrnn._checks import with_hints
from pycudnnrnn.errors import ArgumentError, CaptureError
from pycudnnrnn.ops import Forward, Gradients, Graph

LAYER_WORDS: Final = {
    "input_data": "inputs", "input_h": "initial_state[0]", "input_c": "initial_state[1]", "is_training": "training",
    "d_output": "d_outputs", "d_output_h": "d_states[0]", "d_output_c": "d_states[1]",
}  # fmt: skip
"""The arguments of an op, and what a layer calls them."""


@contextlib.contextmanager
def layer_words(**others: str) -> Iterator[None]:
    """Name arguments in the block's errors as the layer does; `others` has more words, or other ones."""
    try:
        yield
    except ArgumentError as error:
        error.argument = (LAYER_WORDS | others).get(error.argument, error.argument)
        raise


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LayerGradients(Gradients[ArrayT]):
    """The gradients that `LayerForward.backward` returns, under the names of the layer's arguments, too.

    `inputs`, `initial_state` (a tuple) and `params` have the shapes of what they are gradients of.
    """

    _shown: ClassVar[tuple[str, ...]] = ("inputs", "initial_state", "params")

    @property
    def inputs(self) -> ArrayT:
        """The gradient of `inputs`; 0 past the end of each sequence."""
        return self.input

    @property
    def initial_state(self) -> tuple[ArrayT, ...]:
        """The gradients of the initial states: (h, c) for the LSTM, (h,) for the others."""
        return _tuple(self.input_h, self.input_c)


class LayerForward(Forward[ArrayT]):
    """The results of `layer.forward`: `outputs`, the tuple `states`, and `backward` for the gradients.

    Do not change the inputs, the weights or `outputs` before `backward` has run: it reads them again. A backward uses
    up the reserve that the forward kept, unless `retain=True`.
    """

    _shown: ClassVar[tuple[str, ...]] = ("outputs", "states")

    @property
    def outputs(self) -> ArrayT:
        """The outputs of the last layer at each step; 0 past the end of each sequence."""
        return self.output

    @property
    def states(self) -> tuple[ArrayT, ...]:
        """The final states of all layers: (h, c) for the LSTM, (h,) for the others."""
        return _tuple(self.output_h, self.output_c)

    @with_hints
    def backward(  # TF's layer has its own names
        self,
        d_outputs: Any = None,
        d_states: Any = None,
        d_output_c: Any = None,
        *,
        out: Any = None,
        accumulate: bool = False,
        retain: bool = False,
    ) -> LayerGradients[ArrayT]:
        """Compute all gradients: of the inputs, the initial states and the weights.

        Give the gradient of the loss for at least one of outputs and states.

        Args:
            d_outputs: gradient of the loss for `outputs`, in its shape. None: zeros. Default: None.
            d_states: gradients of the loss for the final states, a tuple like `states`; or only h's, with c's
                in `d_output_c`. None: zeros. Default: None.
            d_output_c: gradient of the loss for the LSTM's c, if `d_states` is h's. None: zeros. Default: None.
            out: the buffer to write the gradient of params to, [params_size()]. None: a new buffer. Default: None.
            accumulate: whether to add the gradient of params to the values in `out`. Default: False.
            retain: whether to keep the reserve for another backward pass, by working on a copy. Default: False.

        Returns:
            `LayerGradients`, with `inputs`, `initial_state` and `params`. `params` has the layout of the weights.

        Raises:
            ArgumentError: no gradient at all, a tuple of another length than `states` or with a `d_output_c` beside it,
                an array that does not fit its result, or an `out` that cannot hold the gradient.
            StateError: the forward kept no reserve, or an earlier backward used it up.
        """
        d_output_h, words = d_states, {"d_output_h": "d_states", "d_output_c": "d_output_c"}
        if isinstance(d_states, tuple):
            if d_output_c is not None:
                raise ArgumentError("d_output_c", "None with a tuple d_states, which contains it", "an array")
            if len(d_states) != len(self.states):
                raise ArgumentError("d_states", f"a tuple of {len(self.states)}", f"a tuple of {len(d_states)}")
            d_output_h, d_output_c = d_states if len(d_states) == 2 else (d_states[0], None)
            words = {}
        with layer_words(**words):
            grads = super().backward(d_outputs, d_output_h, d_output_c, out=out, accumulate=accumulate, retain=retain)
        return LayerGradients(grads.input, grads.input_h, grads.input_c, grads.params)


class LayerGraph(Graph):
    """A layer's call as a CUDA graph, which `layer.capture` makes: an op's `Graph` with the layer's names.

    Write into `inputs` and `initial_state`, call `replay`, read `outputs` and `states`. States are always tuples.
    """

    def __init__(self, graph: Graph, layer: Any) -> None:
        """Take over an op's graph, which captured the weights of `layer`."""
        vars(self).update(vars(graph))
        self._layer = layer

    @property
    def inputs(self) -> Any:
        """The array to write the inputs into."""
        return self.x

    @property
    def outputs(self) -> Any:
        """The array that each replay writes the outputs into."""
        return self.y

    @property
    def initial_state(self) -> tuple[Any, ...]:
        """The arrays to write the initial states into: (h, c) for the LSTM, (h,) for the others."""
        return _tuple(self.hx, self.cx)

    @property
    def states(self) -> tuple[Any, ...]:
        """The arrays that each replay writes the final states into: (h, c) or (h,)."""
        return _tuple(self.hy, self.cy)

    def replay(self) -> None:
        """Run the captured call on the current stream, with the layer's present weights.

        Raises:
            CaptureError: the layer's weights are in another array (it was moved or cast).
            StateError: the dropout state was set after the capture.
        """
        if self._layer.params is not self.params:
            raise CaptureError("the layer's weights are in another buffer than the captured one: capture it again")
        super().replay()


def _tuple(h: Any, c: Any | None) -> tuple[Any, ...]:
    return (h,) if c is None else (h, c)
