"""NumPy's own allocations, made to fail one after another: a data handler in the place of NumPy's (NEP 49)."""

import contextlib
import ctypes

import numpy as np

_SET_HANDLER, _GET_HANDLER = 304, 305
"""Their places in NumPy's table of functions. Source: PyDataMem_SetHandler in __multiarray_api.h, NumPy 1.22 to 2.4."""

_malloc_t = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_calloc_t = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of ndarraytypes.h."""

    _fields_ = (
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
        ("malloc", _malloc_t), ("calloc", _calloc_t), ("realloc", ctypes.c_void_p), ("free", ctypes.c_void_p),
    )  # fmt: skip


def _numpy(place, *types):
    return ctypes.PYFUNCTYPE(ctypes.py_object, *types)(_table[place])


def _pointer(capsule, name):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    return get(capsule, name)


_table = ctypes.cast(_pointer(np._core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


class _Memory:
    """What allocates as NumPy does, but for allocation number `fail_at`, counted down. NumPy frees: at any moment."""

    def __init__(self):
        self.fail_at = None
        own = self.own = _Handler.from_address(_pointer(_numpy(_GET_HANDLER)(), b"mem_handler"))

        def counted(allocate):
            # With the GIL, which NumPy's own function lets go where the memory is large.
            address = ctypes.cast(allocate, ctypes.c_void_p).value
            allocate = ctypes.PYFUNCTYPE(allocate.restype, *allocate.argtypes)(address)

            def call(context, *arguments):
                if self.fail_at is not None:
                    self.fail_at -= 1
                    if self.fail_at == -1:
                        return None
                return allocate(context, *arguments)

            return call

        self.handler = _Handler(
            b"counted", 1, own.context, _malloc_t(counted(own.malloc)), _calloc_t(counted(own.calloc)),
            own.realloc, own.free,
        )  # fmt: skip
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
        self.capsule = new(ctypes.addressof(self.handler), b"mem_handler", None)


_memory = _Memory()  # for good: arrays that it made may live longer than a test


@contextlib.contextmanager
def failing(nth):
    """Let the `nth` allocation of array memory in the block fail, counted from 0, in this thread."""
    set_handler = _numpy(_SET_HANDLER, ctypes.py_object)
    before = set_handler(_memory.capsule)
    _memory.fail_at = nth
    try:
        yield
    finally:
        _memory.fail_at = None
        set_handler(before)


def until_it_works(call, after_each_failure, failing=failing):
    """Let each allocation of a call fail in turn; return what it returns at last, and how many there were."""
    for nth in range(1000):
        try:
            with failing(nth):
                return call(), nth
        except MemoryError:
            after_each_failure()
    raise AssertionError("more than 1000 allocations")
