"""A suite of tests for a converter of weights: subclass it, and pytest or unittest runs it."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import needs
from pycudnnrnn.canonical import to_canonical
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing import reference, strategies
from pycudnnrnn.testing.problems import Problem

with needs("hypothesis", "testing", "pycudnnrnn.testing.ConverterTests"):
    from hypothesis import given
    from hypothesis import strategies as st

Canonical = tuple[Sequence[Array], Sequence[Array]]
"""The weights and the biases of an RNN, in canonical order."""


class ConverterTests:
    """Test a converter between canonical arrays and another form of the same weights.

    Subclass it in a test file, under a name that your test runner collects, and define `to_mine` and `from_mine`. With
    `run_mine`, which runs the other form, numbers are compared, too. The tests draw RNNs from `models`: restrict it to
    those that your form has.

    Attributes:
        models: a strategy for specs.
        deep: layers of the RNN that tests the order of layers. Above 9, because then layers sorted as text ("10" before
            "9") are in another order.
        tolerance: largest error of `run_mine`, relative to 1 or to the number.

    Example:
        >>> import pickle
        >>> from pycudnnrnn import testing
        >>> class TestPickle(testing.ConverterTests):
        ...     def to_mine(self, spec, weights, biases):
        ...         return pickle.dumps((weights, biases))
        ...     def from_mine(self, spec, mine):
        ...         return pickle.loads(mine)
        >>> TestPickle().test_it_comes_back_bit_for_bit()
    """

    models: ClassVar[st.SearchStrategy[RNNSpec]] = strategies.specs(
        dtypes=["float64", "float32", "float16"], clip=False
    )
    deep: ClassVar[int] = 11
    tolerance: ClassVar[float] = 1e-10

    def to_mine(self, spec: RNNSpec, weights: Sequence[Array], biases: Sequence[Array]) -> Any:
        """Convert canonical arrays to your form.

        Args:
            spec: description of the RNN.
            weights: the canonical weights. They may be views of one buffer, which must not be changed.
            biases: the canonical biases, in the same way.

        Returns:
            The weights in your form, of any type.
        """
        raise NotImplementedError

    def from_mine(self, spec: RNNSpec, mine: Any) -> Canonical:
        """Convert your form back to canonical arrays.

        Args:
            spec: description of the RNN.
            mine: what `to_mine` has returned.

        Returns:
            The tuple (weights, biases) of lists of arrays.
        """
        raise NotImplementedError

    def run_mine(self, spec: RNNSpec, mine: Any, x: Array, hx: Array, cx: Array) -> Sequence[Array | None]:
        """Run an RNN with your form of the weights.

        Args:
            spec: description of the RNN, in float64.
            mine: what `to_mine` has returned.
            x: the input, [T, B, I].
            hx: h before the first step, [L * D, B, U], or [L * D, B, P] with a projection.
            cx: c of an LSTM before the first step, [L * D, B, U].

        Returns:
            The tuple (output, output_h, output_c), with None for an array that your form does not compute. Without
            output_c for cells that have none, as from an op.
        """
        raise unittest.SkipTest("run_mine is not defined, so numbers are not compared")

    def test_it_comes_back_bit_for_bit(self) -> None:
        """Each array comes back with its shape, dtype and bits, and none of them is changed on the way."""
        self._check_all(self.models)

    def test_a_deep_model_comes_back_in_order(self) -> None:
        """The layers of a deep RNN come back in order."""
        self._check_all(self.models.map(lambda spec: spec.replace(num_layers=self.deep)))

    def test_views_of_another_layout_with_padding_come_back(self) -> None:
        """The arrays may be anywhere in a buffer; what is next to them is not read."""
        self._check_all(self.models, strategies.layouts)

    def test_numbers_are_those_of_the_reference(self) -> None:
        """Results of `run_mine` equal those of the equations, in float64."""
        models = self.models.map(lambda spec: spec.replace(dtype="float64"))

        @given(strategies.problems(models, max_time=4, max_batch=3))
        def check(problem: Problem) -> None:
            spec, (weights, biases) = problem.spec, problem.op.params_to_canonical(problem.params)
            expected = reference.forward(spec, weights, biases, problem.x, problem.hx, problem.cx)
            mine = self.to_mine(spec, weights, biases)
            results = self.run_mine(spec, mine, problem.x, problem.hx, problem.cx)
            assert len(results) in {3, 2 + spec.has_cell_state}, f"run_mine has returned {len(results)} results"
            for name, one, other in zip(("output", "output_h", "output_c"), results, expected, strict=False):
                if one is not None:
                    assert one.shape == other.shape, f"{name} has the shape {one.shape}, not {other.shape}"
                    np.testing.assert_allclose(one, other, self.tolerance, self.tolerance, err_msg=name)

        check()

    def _check_all(self, models: st.SearchStrategy[RNNSpec], layouts: Any = None) -> None:
        """Convert views of a buffer there and back, in the layouts of a strategy; None: in the arithmetic one."""

        @given(strategies.problems(models, max_time=4, max_batch=3), st.data())
        def check(problem: Problem, data: st.DataObject) -> None:
            spec, (weights, biases) = problem.spec, problem.op.params_to_canonical(problem.params)
            layout = problem.op.layout() if layouts is None else data.draw(layouts(spec))
            buffer = np.full(layout.size, np.nan, spec.dtype.numpy)
            for region, array in zip(layout.regions, (*weights, *biases), strict=True):
                buffer[region.slice] = array.ravel()
            before = buffer.copy()
            back = self.from_mine(spec, self.to_mine(spec, *to_canonical(buffer, layout, copy=False)))
            assert buffer.tobytes() == before.tobytes(), "to_mine or from_mine has changed its arguments"
            for kind, ours, mine in zip(("weights", "biases"), (weights, biases), back, strict=True):
                assert len(mine) == len(ours), f"{len(mine)} {kind} have come back, not {len(ours)}"
                for index, (one, other) in enumerate(zip(mine, ours, strict=True)):
                    assert (one.shape, one.dtype) == (other.shape, other.dtype), f"{kind}[{index}]"
                    assert one.tobytes() == other.tobytes(), f"{kind}[{index}] has other numbers"

        check()
