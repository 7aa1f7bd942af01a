"""The libcudnn of each version that layouts are asked of, and what is too large for all of them."""

import os
from pathlib import Path

import pytest

from pycudnnrnn import RNNSpec, libcudnn

OLDER = {"8.9.7": "8.9.7.29/nvidia/cudnn/lib/libcudnn.so.8", "9.0.0": "9.0.0.312/nvidia/cudnn/lib/libcudnn.so.9"}
"""By version, where `make test-all` puts the ones before the newest."""

VERSIONS = [*OLDER, "newest"]

BUFFERS = [
    # spec one above the limit of 2**31 - 1 elements of all weights, or all biases, and the largest that passes
    tuple(RNNSpec("rnn_tanh", 1, 1, inputs) for inputs in (2**31 - 1, 2**31 - 2)),
    tuple(RNNSpec("gru", 1, 100, inputs, bias_mode="none") for inputs in (7158179, 7158178)),
    tuple(RNNSpec("lstm", 2, 1000, inputs, direction="bidirectional", dtype="float16") for inputs in (264436, 264435)),
    tuple(RNNSpec("lstm", 1, 16384, inputs, num_proj=5, dtype="float64") for inputs in (32762, 32761)),
    tuple(RNNSpec("lstm", 1, units, units, "skip_input", num_proj=1) for units in (2**28, 2**28 - 1)),
]


def library_of(version):
    """Return the path; without an older one CI fails, and another machine skips."""
    if version == "newest":
        return Path(libcudnn.load().path)
    path = Path(__file__).parents[2] / "build" / "cudnn" / OLDER[version]
    if not path.is_file():
        message = f"needs cuDNN {version} (make test-all installs it): {path}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    return path
