"""What every converter is tried with: a dict of arrays that converts, and what is none."""

import numpy as np
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import random_canonical

MODES = {"jax_rnn": ["lstm"], "equinox": ["lstm", "gru"], "flax": ["lstm", "gru", "rnn_tanh"]}

junk_arrays = st.sampled_from([
    None, 3, "text", b"bytes", [1.0, 2.0], {}, {"kernel": 1}, object(), np.float32(1), np.ones(0, "f4"),
    np.ones((), "f4"), np.ones((2, 3, 4, 5), "f4"), np.ones((3, 4), "i8"), np.ones((3, 4), "c8"), np.ones((3, 4), bool),
    np.array(["a"]), np.array([None]), np.array([{}], dtype=object), np.zeros(2, [("a", "f4")]), np.ones(3, "M8[s]"),
])  # fmt: skip
junk_dicts = st.sampled_from(
    [None, 3, "text", [], (), {}, {1: 2}, {None: np.ones(3)}, {"": np.ones(3)}, np.ones((3, 4))]
)


def valid(framework, mode, layers, direction, seed):
    """Return a dict that converts, and the keywords it needs."""
    c = random_canonical(RNNSpec(mode, layers, 4, 3, direction=direction), seed)
    bidirectional = direction == "bidirectional"
    keywords = {
        "onnx": {"linear_before_reset": 1} if mode == "gru" else {},
        "chainer": {"bidirectional": bidirectional},
        "jax_rnn": {"input_size": 3, "hidden_size": 4, "num_layers": layers, "bidirectional": bidirectional},
        "tensorflow": {"activation": "tanh"} if mode == "rnn_tanh" else {},
    }
    return getattr(convert, framework).from_canonical(c), keywords.get(framework, {})
