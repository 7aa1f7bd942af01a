"""What our own tests are built from, for yours too.

`reference` is the oracle that people read, and `goldens` are numbers that others published. `PermutedLayoutEngine`
finds code that assumes a layout instead of asking for it. `pycudnnrnn.testing.strategies` (needs hypothesis) draws
specs, lengths and params.
"""

from __future__ import annotations

from pycudnnrnn.engines import use_engine
from pycudnnrnn.testing import goldens, reference
from pycudnnrnn.testing.permuted import PermutedLayoutEngine

__all__ = ["PermutedLayoutEngine", "goldens", "reference", "use_engine"]
__dir__ = __all__.copy
