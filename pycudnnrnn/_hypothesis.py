"""What Hypothesis calls when it is imported: the entry point of its group "hypothesis"."""

from __future__ import annotations

import importlib


def register() -> None:
    """Let `st.from_type(RNNSpec)` draw from `testing.strategies.specs()`, which is imported at the first draw."""
    from hypothesis import strategies as st  # noqa: PLC0415  an extra, and here already imported

    from pycudnnrnn.spec import RNNSpec  # noqa: PLC0415  an import of this module for another reason needs nothing

    st.register_type_strategy(RNNSpec, lambda _: importlib.import_module("pycudnnrnn.testing.strategies").specs())
