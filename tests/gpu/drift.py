"""Whether device memory grows: what can be told where a driver takes it and gives it back in pages.

What CuPy's pool has given out is known to the byte, and needs none of this. What CUDA and cuDNN take for themselves
shows in the driver's figure alone: with 10,000 models, less than 800 bytes per model are not told from a page that
comes late.
"""

import numpy as np

PAGE_NBYTES = 2 << 20
"""What CUDA's allocations come in. Source: the granularity of cuMemGetAllocationGranularity, 2 MiB on every GPU."""

SAMPLES = 100
"""How often a run is looked at."""

PAGES_MAX = 2
"""Most pages by which the last half of a run may grow: a page that comes or goes anywhere in it makes 1.5 of them."""


def growth(used):
    """Bytes by which the last half of a series of bytes in use grows, along the straight line that is nearest to it.

    The first half is for what CUDA, cuDNN and pools take while they grow into their work.
    """
    half = np.asarray(used[len(used) // 2 :], np.float64)
    slope, _ = np.polyfit(np.arange(len(half)), half, 1)
    return float(slope * (len(half) - 1))


def leaks(used, page_nbytes):
    """Whether a series grows by more than pages that come and go; where there are no pages, by anything at all."""
    return growth(used) > (PAGES_MAX * page_nbytes or 0.5)
