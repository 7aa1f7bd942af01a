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

from pycudnnrnn import libcudnn
from pycudnnrnn._libcudnn_abi import PROTOTYPES
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.cudnn.descriptors import (
    DropoutDescriptor,
    FilterDescriptor,
    RNNDataDescriptor,
    RNNDescriptor,
    TensorDescriptor,
)
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.owned import Owned, live
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CudnnError, StateError
from pycudnnrnn.spec import DType, RNNSpec

SPEC = RNNSpec("lstm", 2, 8, 4)

MAKERS = {
    "RNNDescriptor": lambda lib: RNNDescriptor(lib, SPEC),
    "RNNDataDescriptor": lambda lib: RNNDataDescriptor(lib, DType.FLOAT32, 5, 2, 4),
    "TensorDescriptor": lambda lib: TensorDescriptor(lib, DType.FLOAT32, [2, 3, 4]),
    "FilterDescriptor": lambda lib: FilterDescriptor(lib, DType.FLOAT32, [2, 3, 4]),
}

HANDLE_SHIM = """
/* What needs a GPU is pretended; everything else falls through to the real library that this one is linked to. */
static char context[64]; static float p; static void *s; static unsigned long long r; int destroyed;
int cudnnCreate(void **h) { *h = context; return 0; }
int cudnnDestroy(void *h) { destroyed++; return 0; }
int cudnnSetDropoutDescriptor(void *d, void *h, float dropout, void *states, unsigned long n, unsigned long long seed)
{ if (dropout == 0.125f) return FAIL; p = dropout; s = states; r = seed; return 0; }
int cudnnRestoreDropoutDescriptor(void *d, void *h, float dropout, void *states, unsigned long n, unsigned long long q)
{ p = dropout; s = states; r = 77; return 0; }
int cudnnGetDropoutDescriptor(void *d, void *h, float *dropout, void **states, unsigned long long *seed)
{ *dropout = p; *states = s; *seed = r; return 0; }
"""


class Plain(Owned, kind="RNNDescriptor"):
    """An object that nothing is set in."""


def pretended(destroy, created=lambda: None):
    """A library that makes and frees one kind of object, and has nothing else."""

    def create(reference):
        ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = 0x1000
        created()

    create.prototype = PROTOTYPES["cudnnCreateRNNDescriptor"]
    return SimpleNamespace(cudnnCreateRNNDescriptor=create, cudnnDestroyRNNDescriptor=destroy)


@pytest.fixture(autouse=True)
def nothing_leaks():
    """Each test gives back what it made, and no release fails."""
    gc.collect()
    before = live()
    yield
    gc.collect()
    assert live() == before
    assert owned.RELEASE_FAILURES == []


@pytest.fixture(params=["RNNDescriptor", "FilterDescriptor"])
def maker(request, lib):
    """They share the code that frees them."""
    return lambda: MAKERS[request.param](lib)


@pytest.fixture(scope="module")
def shim(lib, tmp_path_factory, build_shim):
    """The real library with a pretended handle."""
    bad_param = 2000 if lib.version >= 90000 else 3
    return libcudnn.load(build_shim(tmp_path_factory.mktemp("shim"), HANDLE_SHIM, f"-DFAIL={bad_param}"))


@pytest.fixture
def handle(shim):
    with Handle(shim) as handle:
        yield handle


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
    before, made = live(), []
    thread = threading.Thread(target=lambda: made.append(maker()))
    thread.start()
    thread.join()
    made.clear()
    assert live() == before, "at once"
    owner = maker()
    owner.itself = owner
    del owner
    gc.collect()
    assert live() == before


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_owner_is_never_copied(maker, copier):
    with maker() as owner, pytest.raises(ArgumentTypeError, match="a native object"):
        copier(owner)


def test_a_setter_that_fails_leaks_nothing(lib):
    before = live()
    with pytest.raises(ArgumentError):
        RNNDataDescriptor(lib, DType.FLOAT32, 5, 2, 4, layout=3)
    gc.disable()  # freed at once, without the collector
    try:
        assert live() == before
    finally:
        gc.enable()


def test_a_library_that_refuses_leaks_nothing(shim, handle):
    before = live()
    with pytest.raises(CudnnError, match="cudnnSetDropoutDescriptor returned CUDNN_STATUS_BAD_PARAM") as caught:
        DropoutDescriptor(handle, 0.125, b"", address=64, states_nbytes=8, seed=1)
    assert live() == before, caught


def test_each_object_is_destroyed_exactly_once(monkeypatch):
    """Counted, since cuDNN itself aborts the process at the second time."""
    calls = []
    owner = Plain(pretended(lambda pointer: calls.append("destroy"), lambda: calls.append("create")))
    threads = [threading.Thread(target=owner.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del owner
    gc.collect()
    assert calls == ["create", "destroy"]


def test_a_release_that_fails_is_recorded_and_not_raised(monkeypatch):
    error = CudnnError("cudnnDestroy", 5000, "CUDNN_STATUS_EXECUTION_FAILED", "EXECUTION_FAILED", 92800)

    def refuse(pointer):
        raise error

    failures = []
    monkeypatch.setattr(owned, "RELEASE_FAILURES", failures)
    Plain(pretended(refuse)).close()
    assert failures == [error]


def test_a_child_keeps_its_parent_and_the_states(shim, handle):
    class States(bytearray):
        pass

    states = States(8)
    dropout = DropoutDescriptor(handle, 0.25, states, address=64, states_nbytes=8, seed=2**64 - 1)
    assert dropout.read(handle) == {"dropout": 0.25, "states": 64, "seed": 2**64 - 1}
    rnn = RNNDescriptor(shim, SPEC, dropout)
    address = ctypes.cast(dropout._as_parameter_, ctypes.c_void_p).value
    alive, kept = weakref.ref(dropout), weakref.ref(states)
    del dropout, states
    gc.collect()
    assert rnn.read()["dropoutDesc"] == address
    assert alive() is not None
    assert kept() is not None
    rnn.close()
    del rnn
    gc.collect()
    assert alive() is None
    assert kept() is None


def test_closing_a_parent_closes_the_child(shim, handle):
    dropout = DropoutDescriptor(handle, 0.25, None, address=64, states_nbytes=8, seed=1)
    with RNNDescriptor(shim, SPEC, dropout) as rnn:
        dropout.close()
        assert rnn.closed
        with pytest.raises(StateError, match="what it is built on"):
            rnn.read()


def test_a_restored_dropout_descriptor_keeps_the_states_seed(shim, handle):
    with DropoutDescriptor(handle, 0.5, None, address=64, states_nbytes=8, seed=1, restore=True) as dropout:
        assert dropout.read(handle) == {"dropout": 0.5, "states": 64, "seed": 77}


def test_a_forked_child_frees_nothing_of_its_parent(child):
    """Nor what another thread alone owns: Python drops its locals in the child before any hook of ours runs there."""
    code = """
    import os, threading, warnings
    from pycudnnrnn import libcudnn
    from pycudnnrnn.engines.cudnn import descriptors
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python itself, at a fork beside threads
    lib, parent, local = libcudnn.load(), os.getpid(), threading.local()
    read, write = os.pipe()
    kind = type(lib.cudnnDestroyTensorDescriptor)
    call = kind.__call__

    def watched(self, *arguments):
        if os.getpid() != parent:
            os.write(write, self.prototype.name.encode())
        return call(self, *arguments)

    kind.__call__ = watched
    ready, over = threading.Event(), threading.Event()

    def hold():
        local.owner = descriptors.TensorDescriptor(lib, "float32", [1, 2, 3])
        ready.set()
        over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    owner = descriptors.TensorDescriptor(lib, "float32", [1, 2, 3])
    if os.fork() == 0:
        owner.close()
        os.write(write, b" closed " if owner.closed else b" open ")
        descriptors.TensorDescriptor(lib, "float32", [1, 2, 3]).close()
        os._exit(0)
    os.wait()
    over.set()
    thread.join()
    print(os.read(read, 200).decode(), owner.read()["dimA"])
    """
    result = child(code)
    before, closed, own = result.stdout.partition(" closed ")
    assert (before, closed, result.stderr) == ("", " closed ", ""), "nothing of the parent's is destroyed"
    assert own.endswith("cudnnDestroyTensorDescriptor (1, 2, 3)\n"), "its own is, and the parent's lives"


def test_what_outlives_the_module_at_the_interpreters_end_goes_without_a_word(lib, monkeypatch):
    """The main thread's own descriptors do: modules are emptied before it is."""
    tensor = TensorDescriptor(lib, DType.FLOAT32, [1, 2, 3])
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    monkeypatch.setattr(owned, "_LIVE", None)
    monkeypatch.setattr(owned, "_Leaving", None)
    del tensor
    gc.collect()
    assert unraisable == []
