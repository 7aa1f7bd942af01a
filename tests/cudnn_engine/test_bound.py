"""Functions with arguments given once: what is left open stays typed, required and checked for its status."""

import ctypes

import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CudnnError
from tests.stand_in.host_device import Stream


def test_a_bound_argument_is_checked_at_once_and_an_open_one_when_the_function_is_called(shim):
    handle, rnn = Handle(shim.library).pointer, ctypes.cast(0x40, libcudnn.cudnnRNNDescriptor_t)
    bind = shim.library.cudnnBuildRNNDynamic.bind
    for bound in ({"miniBatch": 2**31}, {"miniBatch": None}, {"other": 1}):
        with pytest.raises(ArgumentError):
            bind("handle", "rnnDesc", **bound)
    call = bind("handle", "rnnDesc", miniBatch=3)
    for arguments, error in (((rnn, rnn), ArgumentTypeError), ((handle, None), ArgumentError), ((handle,), TypeError)):
        with pytest.raises(error):
            call(*arguments)
    assert not shim.counts["cudnnBuildRNNDynamic"]


def test_a_stream_that_could_not_be_set_is_set_again_and_one_that_is_set_is_not(shim):
    shim.fail = {("cudnnSetStream", nth): 5000 for nth in (1, 3)}
    handle, stream = Handle(shim.library), Stream()
    with pytest.raises(CudnnError, match=r"cudnnSetStream.*EXECUTION_FAILED"):
        handle.use(stream)
    handle.use(stream)
    handle.use(stream)
    assert shim.counts["cudnnSetStream"] == 2
    with pytest.raises(CudnnError):
        handle.use(Stream())
    handle.use(stream)
    assert shim.counts["cudnnSetStream"] == 4, "nobody knows on which one it was left"
