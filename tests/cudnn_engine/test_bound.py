"""Functions with arguments given once: what is left open stays typed, required and checked for its status."""

import ctypes

import numpy as np
import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn.engines.cudnn.descriptors import RNNDataDescriptor
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CudnnError, EngineError
from tests.stand_in.host_device import Stream


@pytest.fixture
def played(play):
    played, _, _ = play()
    return played


def test_what_is_given_is_checked_when_it_is_given_and_what_is_left_when_it_is_called(played):
    data, handle = RNNDataDescriptor(played.library, "float32", 3, 2, 4), Handle(played.library).pointer
    rnn = ctypes.cast(0x40, libcudnn.cudnnRNNDescriptor_t)
    given = {
        "rnnDesc": rnn, "fwdMode": 0, "devSeqLengths": None, "xDesc": data, "yDesc": data,
        "hDesc": ctypes.cast(0x50, libcudnn.cudnnTensorDescriptor_t), "cDesc": None, "weightSpaceSize": 1,
        "workSpaceSize": 2, "reserveSpaceSize": 3,
    }  # fmt: skip
    left = ("handle", "x", "y", "hx", "hy", "cx", "cy", "weightSpace", "workSpace", "reserveSpace")
    bind = played.library.cudnnRNNForward.bind
    for changes in ({"fwdMode": 7}, {"workSpaceSize": 2**64}, {"rnnDesc": None}, {"other": 1}):
        with pytest.raises(ArgumentError):
            bind(*left, **given | changes)
    call, addresses = bind(*left, **given), [0x100, 0x200, None, 0x300, None, 0x400, 0x500, 0x600, None]
    with pytest.raises(ArgumentTypeError, match="handle"):
        call(rnn, *addresses)
    for null in (None, 0):
        with pytest.raises(ArgumentError, match="weightSpace"):
            call(handle, *addresses[:6], null, *addresses[7:])
    with pytest.raises(ArgumentTypeError, match="Invalid x: array"):
        call(handle, np.zeros(2), *addresses[1:])
    with pytest.raises(TypeError, match=r"Invalid arguments of cudnnRNNForward: 9, expecting 10: \(handle, x, y, "):
        call(handle, *addresses[:-1])
    assert not played.counts["cudnnRNNForward"]
    with pytest.raises(EngineError, match="removed"):
        played.library.cudnnGetRNNLinLayerBiasParams.bind()


def test_a_stream_that_could_not_be_set_is_set_again_and_one_that_is_set_is_not(played):
    played.fail = {("cudnnSetStream", nth): 5000 for nth in (1, 3)}
    handle, stream = Handle(played.library), Stream()
    with pytest.raises(CudnnError, match=r"cudnnSetStream.*EXECUTION_FAILED"):
        handle.use(stream)
    handle.use(stream)
    handle.use(stream)
    assert played.counts["cudnnSetStream"] == 2
    with pytest.raises(CudnnError):
        handle.use(Stream())
    handle.use(stream)
    assert played.counts["cudnnSetStream"] == 4, "nobody knows on which one it was left"
