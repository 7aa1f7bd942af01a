"""Native objects are freed once, never used after, and outlive nothing that they are built on."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import threading
import weakref
from collections import Counter
from types import SimpleNamespace

import pytest

from pycudnnrnn._libcudnn_abi import PROTOTYPES
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDescriptor
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.owned import Owned, live
from pycudnnrnn.errors import ArgumentTypeError, CudnnError, StateError
from pycudnnrnn.spec import RNNSpec
from tests.helpers.together import together
from tests.stand_in.answers import STATES_NBYTES
from tests.stand_in.shim import Shim

SPEC = RNNSpec("lstm", 2, 8, 4)


@pytest.fixture(autouse=True)
def nothing_leaks():
    """Each test gives back what it made, and no release fails."""
    gc.collect()
    before = live()
    yield
    gc.collect()
    assert live() == before
    assert owned.RELEASE_FAILURES == []


@pytest.fixture
def maker(lib):
    """One of the descriptors, which share the code that frees them."""
    return lambda: RNNDescriptor(lib, SPEC)


def test_an_owner_closes_once_and_is_not_used_after_it(maker):
    before = live()
    with maker() as owner:
        assert live() - before == Counter({type(owner).__name__: 1})
        owner.read()
    owner.close()
    assert owner.closed
    assert live() == before
    with pytest.raises(StateError, match=f"{type(owner).__name__} was used after it"):
        owner.read()


def test_an_owner_without_references_is_freed_in_a_cycle_and_in_another_thread_too(maker):
    before, objects = live(), []
    thread = threading.Thread(target=lambda: objects.append(maker()))
    thread.start()
    thread.join()
    objects.clear()
    assert live() == before, "at once"
    owner = maker()
    owner.itself = owner
    del owner
    gc.collect()
    assert live() == before


def test_an_owner_is_never_copied(maker):
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with maker() as owner, pytest.raises(ArgumentTypeError, match="a native object"):
            copier(owner)


class Plain(Owned, kind="RNNDescriptor"):
    """An object that nothing is set in."""


def pretended(destroy):
    """A library that makes and frees one kind of object, and has nothing else."""

    def create(reference):
        ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = 0x1000

    create.prototype = PROTOTYPES["cudnnCreateRNNDescriptor"]
    return SimpleNamespace(cudnnCreateRNNDescriptor=create, cudnnDestroyRNNDescriptor=destroy)


def test_each_object_is_destroyed_exactly_once():
    """Counted, since cuDNN itself aborts the process at the second time."""
    calls = []
    owners = [Plain(pretended(calls.append))]
    together(8, lambda _: owners[0].close())
    owners.clear()
    gc.collect()
    assert len(calls) == 1


def test_a_release_that_fails_is_recorded_and_not_raised(monkeypatch):
    error = CudnnError("cudnnDestroy", 5000, "CUDNN_STATUS_EXECUTION_FAILED", "EXECUTION_FAILED", 92800)

    def refuse(pointer):
        raise error

    failures = []
    monkeypatch.setattr(owned, "RELEASE_FAILURES", failures)
    Plain(pretended(refuse)).close()
    assert failures == [error]


def test_a_child_keeps_its_parent_and_the_states_and_is_closed_with_it(shim_path):
    class States(bytearray):
        """Memory with an end that can be seen."""

    states, library = States(STATES_NBYTES), Shim(shim_path).library
    address = ctypes.addressof(ctypes.c_char.from_buffer(states))
    with Handle(library) as handle:
        dropout = DropoutDescriptor(handle, 0.25, states, address=address, states_nbytes=STATES_NBYTES, seed=1)
        rnn = RNNDescriptor(library, SPEC, dropout)
        alive, memory = weakref.ref(dropout), weakref.ref(states)
        del states, dropout
        gc.collect()
        assert rnn.read()["dropoutDesc"] == ctypes.cast(alive()._as_parameter_, ctypes.c_void_p).value
        assert memory() is not None
        alive().close()
        assert rnn.closed
        with pytest.raises(StateError, match="what it is built on"):
            rnn.read()
        del rnn
        gc.collect()
        assert (alive(), memory()) == (None, None)


AT_EXIT = """
import atexit, sys
late = []
atexit.register(late.clear)  # the first to be registered is the last to run
from pycudnnrnn import libcudnn
from pycudnnrnn._libcudnn import Function
from pycudnnrnn.engines.cudnn.descriptors import TensorDescriptor
lib = libcudnn.load()
call = Function.__call__
Function.__call__ = lambda self, *a: (sys.stderr.write(self.prototype.name + "\\n"), call(self, *a))[1]
alive = TensorDescriptor(lib, "float32", [1, 2, 3])
cycle = [TensorDescriptor(lib, "float32", [1, 2, 3])]
cycle.append(cycle)
late.append(TensorDescriptor(lib, "float32", [1, 2, 3]))
raise KeyError("mine")
"""


def test_nothing_is_destroyed_at_exit_and_an_uncaught_error_shows_its_own_traceback_only(child):
    """The process gives everything back; destroying what the driver has already torn down is what crashes."""
    result = child(AT_EXIT)
    assert result.stderr.count("cudnnCreateTensorDescriptor") == 3
    assert "cudnnDestroy" not in result.stderr
    assert result.stderr.endswith("KeyError: 'mine'\n")
    assert result.stderr.count("Traceback") == 1
