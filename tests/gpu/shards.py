"""How the GPU suite is shared out and in which order it runs: what decides most comes first, for time may run out."""

import os
from pathlib import Path

VARIABLE = "PYCUDNNRNN_GPU_SHARD"

FILES = {
    "layout": "numbers",
    "numbers": "numbers",
    "questions": "numbers",
    "safe_ways": "numbers",
    "torch": "torch",
    "jax": "jax",
    "graphs": "torch",
    "arrays": "torch",
    "recompute": "numbers",
    "layers": "torch",
    "command_line": "jax",
    "demo": "torch",
    "distributed": "jax",
    "soak": "soak",
}
"""The shard of each file `test_<name>.py`, in the order of worth. `soak` reads the driver's memory: it runs alone."""

APART = ("questions", "safe_ways", "lost", "numbers", "graphs", "algorithms")
"""The files that have tests which may take their process or the device with them, in the order in which those run.

They are the shard `apart`. The last one compiles kernels for every shape, and has the persistent ones tried.
"""

SIDE_BY_SIDE = ("numbers", "torch", "jax", "apart")
"""The shards that may share a GPU."""

SHARDS = (*SIDE_BY_SIDE, "soak")


def place_of(item):
    """The shard of a test, and its place in the order; None and the last place in a file that is not listed."""
    name, apart = Path(item.path).stem.removeprefix("test_"), item.get_closest_marker("apart") is not None
    files = list(APART if apart else FILES)
    rank = files.index(name) if name in files else len(files)
    return ("apart" if name in APART else None) if apart else FILES.get(name), (apart, rank)


def arrange(items):
    """Return the tests of the shard that the environment names, all without one, in their order; and the others."""
    wanted = os.environ.get(VARIABLE)
    chosen = [item for item in items if not wanted or place_of(item)[0] == wanted]
    others = [item for item in items if wanted and place_of(item)[0] != wanted]
    return sorted(chosen, key=lambda item: place_of(item)[1]), others
