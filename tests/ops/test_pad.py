"""A list of sequences of unequal lengths as one batch."""

import numpy as np
import pytest
import torch

from pycudnnrnn import ops, pad
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError


def test_a_padded_batch_is_what_torch_pads_and_runs_as_each_sequence_alone():
    rng = np.random.default_rng(0)
    sequences = [rng.normal(size=(steps, 3)) for steps in (4, 0, 6, 1)]
    batch, lengths = pad(sequences)
    assert lengths == [4, 0, 6, 1]
    theirs = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(one) for one in sequences])
    assert np.array_equal(batch, theirs.numpy())
    op = ops.CudnnGRU(1, 5, 3, dtype="float64")
    params = op.init_params(seed=1)
    _, h = op(batch, None, params, is_training=False, sequence_lengths=lengths)
    for i, one in enumerate(sequences):
        alone = op(one[:, None], None, params, is_training=False)[1]
        np.testing.assert_allclose(h[:, i : i + 1], alone, atol=1e-12)


@pytest.mark.parametrize(
    ("sequences", "error", "text"),
    [
        ([], ArgumentError, "sequences: none, expecting at least one"),
        ([np.ones(3)], ArgumentError, r"sequences\[0\] shape: \(3,\), expecting \[steps, I\]"),
        ([np.ones((2, 3)), np.ones((2, 4))], ArgumentError, r"sequences\[1\] shape: \(2, 4\), expecting \[steps, 3\]"),
        ([np.ones((2, 3)), np.ones((2, 3), "f")], ArgumentError, r"sequences\[1\] dtype: float32, expecting float64"),
        ([torch.ones(2, 3)], ArgumentTypeError, r"sequences\[0\]: an array of torch, .*asarray.*pad_sequence"),
    ],
)
def test_what_is_no_batch_is_named(sequences, error, text):
    with pytest.raises(error, match=f"^Invalid {text}"):
        pad(sequences)
