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


def test_what_is_open_arrives_in_its_place_and_what_was_given_in_its(played):
    handle = Handle(played.library)
    played.cudnnRNNForward = lambda *arguments: arrived.append(arguments)
    arrived = []
    forward(played.library)(handle.pointer, 0x100, 0x200, None, 0x300, None, 0x400, 0x500, 0x600, None)
    (found,) = arrived
    assert found[0] == ctypes.cast(handle.pointer, ctypes.c_void_p).value
    assert found[1:4] == (0x40, 0, 0)
    assert (found[5], found[7], found[9], found[10]) == (0x100, 0x200, 0, 0x300)
    assert (found[12], found[13]) == (0, 0x400)
    assert found[14:] == (1, 0x500, 2, 0x600, 3, 0)


def test_what_is_open_comes_in_the_order_in_which_it_was_named(played):
    handle, values = Handle(played.library), [None, 0x100, 0x200, None, 0x300, None, 0x400, 0x500, 0x600, None]
    played.cudnnRNNForward = lambda *arguments: arrived.append(arguments)
    arrived = []
    values[0] = handle.pointer
    forward(played.library)(*values)
    forward(played.library, LEFT[::-1])(*values[::-1])
    assert arrived[0] == arrived[1]


@pytest.mark.parametrize("left", [LEFT[1:], (*LEFT, "x"), (*LEFT[1:], "rnnDesc"), (*LEFT, "z")])
def test_each_pointer_is_left_open_once_or_given(played, left):
    with pytest.raises(ArgumentTypeError, match="all but pointers"):
        forward(played.library, left)


@pytest.mark.parametrize("place", [0, 1, 2, 7])
def test_null_where_the_prototype_has_none_is_refused(played, place):
    handle = Handle(played.library)
    pointers = [handle.pointer, 0x100, 0x200, None, 0x300, None, 0x400, 0x500, 0x600, None]
    for null in (None, 0):
        pointers[place] = null
        with pytest.raises(ArgumentError):
            forward(played.library)(*pointers)
    assert not played.counts["cudnnRNNForward"]


def test_a_pointer_of_another_type_is_refused_by_name(played):
    other = ctypes.cast(0x40, libcudnn.cudnnRNNDescriptor_t)
    rest = [0x100, 0x200, None, 0x300, None, 0x400, 0x500, 0x600, None]
    with pytest.raises(ArgumentTypeError, match="handle"):
        forward(played.library)(other, *rest)
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


def test_only_pointers_may_stay_open(played):
    with pytest.raises(ArgumentTypeError, match="all but pointers"):
        played.library.cudnnRNNForward.bind(fwdMode=0)


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
    with pytest.raises(EngineError, match="removed"):
        played.library.cudnnGetRNNLinLayerBiasParams.bind()
