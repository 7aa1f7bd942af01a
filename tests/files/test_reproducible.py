"""The same weights written again are the same file, byte for byte, in every format and at any time."""

import time

import pytest

from pycudnnrnn import RNNSpec, convert, ops, plot
from pycudnnrnn.cli._files import FILE_FORMATS
from tests.helpers.oracles import need, random_canonical

need("torch", "onnx", "h5py", "matplotlib")


@pytest.mark.long
def test_the_same_weights_written_at_another_time_are_the_same_bytes(tmp_path):
    c = random_canonical(RNNSpec("lstm", 2, 4, 3, bias_mode="single_input", direction="bidirectional"), 0)
    written = []
    for _ in range(2):
        images = {}
        for suffix, form in FILE_FORMATS.items():
            if form.image is not None:
                framework = form.framework or "flax"
                images[suffix] = form.image(getattr(convert, framework).from_canonical(c), framework, c, {})
        for suffix in plot.SUFFIXES:
            plot.draw_layout(ops.from_spec(c.spec).layout(), tmp_path / f"picture{suffix}")
            images[suffix] = (tmp_path / f"picture{suffix}").read_bytes()
        written.append(images)
        time.sleep(2)  # a zip file's times are even seconds
    assert [suffix for suffix, data in written[0].items() if data != written[1][suffix]] == []
    assert {".pt", ".h5", ".onnx", ".pdf"} <= set(images)
