"""Functions with arguments given once: what is left open stays typed, required and checked for its status."""

import ctypes

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


LEFT = ("handle", "x", "y", "hx", "hy", "cx", "cy", "weightSpace", "workSpace", "reserveSpace")


def forward(library, left=LEFT, **changes):
    data = RNNDataDescriptor(library, "float32", 3, 2, 4)
    rnn = ctypes.cast(0x40, libcudnn.cudnnRNNDescriptor_t)
    tensor = ctypes.cast(0x50, libcudnn.cudnnTensorDescriptor_t)
    given = {
        "rnnDesc": rnn, "fwdMode": 0, "devSeqLengths": None, "xDesc": data, "yDesc": data, "hDesc": tensor,
        "cDesc": None, "weightSpaceSize": 1, "workSpaceSize": 2, "reserveSpaceSize": 3,
    }  # fmt: skip
    return library.cudnnRNNForward.bind(*left, **given | changes)


def test_a_pointer_of_another_type_is_refused_by_name(played):
    other = ctypes.cast(0x40, libcudnn.cudnnRNNDescriptor_t)
    rest = [0x100, 0x200, None, 0x300, None, 0x400, 0x500, 0x600, None]
    with pytest.raises(ArgumentTypeError, match="handle"):
        forward(played.library)(other, *rest)
    for null in (None, 0):
        with pytest.raises(ArgumentError, match="weightSpace"):
            forward(played.library)(Handle(played.library).pointer, *rest[:6], null, *rest[7:])
    with pytest.raises(ArgumentTypeError, match="x"):
        forward(played.library)(Handle(played.library).pointer, 1.5, *rest[1:])
    with pytest.raises(TypeError, match=r"Invalid arguments of cudnnRNNForward: 9, expecting 10: \(handle, x, y, "):
        forward(played.library)(Handle(played.library).pointer, *rest[:-1])
    assert not played.counts["cudnnRNNForward"]


@pytest.mark.parametrize(
    "changes", [{"fwdMode": 7}, {"weightSpaceSize": -1}, {"workSpaceSize": 2**64}, {"rnnDesc": None}, {"other": 1}]
)
def test_what_is_given_is_checked_when_it_is_given(played, changes):
    with pytest.raises(ArgumentError):
        forward(played.library, **changes)


def test_a_status_is_an_error_and_a_function_that_is_not_there_too(played):
    played.fail["cudnnSetStream", 1] = 5000
    handle, stream = Handle(played.library), Stream()
    with pytest.raises(CudnnError, match=r"cudnnSetStream.*EXECUTION_FAILED"):
        handle.use(stream)
    handle.use(stream)
    handle.use(stream)
    assert played.counts["cudnnSetStream"] == 2, "again after the failure, and not when it is set"
    handle.use(Stream(0))
    assert played.counts["cudnnSetStream"] == 3
    played.fail["cudnnSetStream", 4] = 5000
    before = handle.stream
    with pytest.raises(CudnnError):
        handle.use(Stream())
    handle.use(before)
    assert played.counts["cudnnSetStream"] == 5, "nobody knows on which one it was left"
    with pytest.raises(EngineError, match="removed"):
        played.library.cudnnGetRNNLinLayerBiasParams.bind()
