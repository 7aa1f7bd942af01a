"""What Hypothesis calls when it is imported: the entry point of its group "hypothesis"."""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Let `st.from_type(RNNSpec)` draw from `testing.strategies.specs()`, which is imported at the first draw."""
    from hypothesis import strategies as st  # noqa: PLC0415  an extra, and here already imported

    from pycudnnrnn.spec import RNNSpec  # noqa: PLC0415  nothing else is needed until then

    def specs(_: Any) -> Any:
        from pycudnnrnn.testing import strategies  # noqa: PLC0415

        return strategies.specs()

    st.register_type_strategy(RNNSpec, specs)
