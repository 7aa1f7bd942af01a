"""Tools for tests of code that uses this package, or that reads or writes its params buffer.

- `strategies`: Hypothesis strategies for specs, layouts, sequence lengths and whole calls (needs hypothesis).
- `ConverterTests`: a suite of tests for a converter of weights, to subclass (needs hypothesis).
- `LayoutEngine` and `use_engine`: find code that assumes a layout of the params instead of asking for it.
- `queried_layout`: the layout that the installed libcudnn reports, asked without a GPU.
- `Problem` and `make_problem`: one call of an RNN with all of its arrays.
- `reference`: the equations of all RNNs, written to be read.
- `goldens`: numbers that others published, and functions that compute them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing import goldens, reference
from pycudnnrnn.testing.layout_engine import LayoutEngine
from pycudnnrnn.testing.problems import Problem, make_problem
from pycudnnrnn.testing.queried import queried_layout

if TYPE_CHECKING:
    from pycudnnrnn.testing import strategies as strategies
    from pycudnnrnn.testing.converters import ConverterTests as ConverterTests

__all__ = ["LayoutEngine", "Problem", "goldens", "make_problem", "queried_layout", "reference", "use_engine"]

_NEEDS_HYPOTHESIS: Final = {"ConverterTests": "converters", "strategies": "strategies"}
"""Public names by their module; not in `__all__`, because `import *` must work without hypothesis."""


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_HYPOTHESIS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_NEEDS_HYPOTHESIS[name]}")
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted([*__all__, *_NEEDS_HYPOTHESIS])
