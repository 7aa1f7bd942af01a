"""Tools for tests of code that uses this package.

- `reference`: the equations of all RNNs, written to be read.
- `goldens`: numbers that others published, and functions that compute them.
- `PermutedLayoutEngine` and `use_engine`: find code that assumes a layout of the params instead of asking for it.
- `queried_layout`: the layout that the installed libcudnn reports, asked without a GPU.
- `pycudnnrnn.testing.strategies`: Hypothesis strategies for specs, sequence lengths and whole calls (needs hypothesis).
"""

from __future__ import annotations

from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing import goldens, reference
from pycudnnrnn.testing.permuted import PermutedLayoutEngine
from pycudnnrnn.testing.queried import queried_layout

__all__ = ["PermutedLayoutEngine", "goldens", "queried_layout", "reference", "use_engine"]
__dir__ = __all__.copy
