"""Wrong arguments: each kind of wrong value, in each place of each function, is refused before the call."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pycudnnrnn._libcudnn import cudnnTensorDescriptor_t
from pycudnnrnn.engines.cudnn.descriptors import TensorDescriptor
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import DType

NEGATIVE_TABLE = """
import ctypes, sys
import numpy as np
from pycudnnrnn import libcudnn
from pycudnnrnn import _libcudnn_abi as types
from pycudnnrnn.errors import ArgumentError

lib = libcudnn.load()
block = ctypes.create_string_buffer(4096)  # what a call that should not happen would scribble on
OPAQUE = {p.ctype for f in libcudnn.PROTOTYPES.values() for p in f.parameters.values() if isinstance(p, types.Opaque)}


def pointer(kind):
    return ctypes.cast(block, kind)

def right(kind):
    if isinstance(kind, types.Integer):
        return 1
    if isinstance(kind, types.Real):
        return 0.5
    if isinstance(kind, types.Enumerated):
        return next(iter(kind.enum))
    if isinstance(kind, types.Opaque):
        return pointer(kind.ctype)
    if isinstance(kind, types.Address):
        return ctypes.addressof(block)
    if isinstance(kind, types.Reference):
        return ctypes.byref(kind.ctype._type_())
    if isinstance(kind, types.HostValue):
        return (ctypes.c_char * 8)()
    return (kind.ctype._type_ * 8)()


def wrong(kind):
    yield from ["3", b"12345678", object(), {}, np.zeros(8), 1.5 + 0j]
    if isinstance(kind, types.Integer):
        yield from [None, True, 3.0, np.float64(3), np.True_, kind.low - 1, kind.high + 1, 2**64 + 16, ctypes.c_int(3)]
        if kind.high < 2**32:
            yield 2**32 + 16
    elif isinstance(kind, types.Real):
        yield from [None, True, float("nan"), 10**400, ctypes.c_double(1)] + [1e39, -1e39] * (kind.c == "float")
    elif isinstance(kind, types.Enumerated):
        other = next(enum for enum in libcudnn.CEnum.__subclasses__() if enum is not kind.enum)
        yield from [None, True, 1.0, "LSTM", 2**32 + 1, other(0), 99, -1]
    elif isinstance(kind, types.Opaque):
        yield from [0, 1, id(block), ctypes.c_void_p(1), kind.ctype(), ctypes.byref(pointer(kind.ctype)), block]
        yield from [pointer(other) for other in OPAQUE if other is not kind.ctype]
        yield from [] if kind.null else [None]
    elif isinstance(kind, types.Address):
        yield from [True, 1.5, -1, 2**64, (ctypes.c_float * 4)(), ctypes.c_char_p(b"x"), pointer(types.cudnnHandle_t)]
        yield from [] if kind.null else [None, 0, ctypes.c_void_p()]
    elif isinstance(kind, types.Reference):
        yield from [None, 0, 5, True, ctypes.c_short(), ctypes.byref(ctypes.c_short()), kind.ctype()]
        yield (kind.ctype._type_ * 0)()
    elif isinstance(kind, types.HostValue):
        yield from [5, 0.0, True, (ctypes.c_char * 4)(), ctypes.byref(ctypes.c_double()), [0.0]]
    else:
        yield from [None, 5, (ctypes.c_long * 8)(), (ctypes.c_short * 8)(), (kind.ctype._type_ * 0)()]
        yield from [[3.0], [True], [2**32 + 16], np.array([True]), np.array([2**40]), np.array([[1]])]


calls = functions = 0
for name, prototype in libcudnn.PROTOTYPES.items():
    if not prototype.since <= lib.version < prototype.until:
        continue
    function = getattr(lib, name)
    functions += 1
    kinds = list(prototype.parameters.items())
    for place, (parameter, kind) in enumerate(kinds):
        for value in wrong(kind):
            print(name, parameter, repr(value), file=sys.stderr)
            arguments = [right(other) for _, other in kinds]
            arguments[place] = value
            try:
                function(*arguments)
            except ArgumentError as error:
                assert error.argument.startswith(parameter), error
                calls += 1
            else:
                raise AssertionError(f"{name} took {value!r} for {parameter}")
print(functions, calls)
"""


def test_every_wrong_kind_in_every_place_is_a_python_error_and_never_a_signal(child):
    result = child(NEGATIVE_TABLE)
    assert result.returncode == 0, result.stderr[-1500:]
    functions, calls = map(int, result.stdout.split())
    assert functions >= 42
    assert calls > 2500


def test_an_array_has_to_be_as_long_as_its_count(lib):
    with TensorDescriptor(lib, DType.FLOAT32, [1, 2, 3]) as tensor:
        with pytest.raises(ArgumentError, match="dimA length: 2"):
            lib.cudnnSetTensorNdDescriptor(tensor, 0, 3, [1, 2], [6, 3, 1])
        lib.cudnnSetTensorNdDescriptor(tensor, 0, 3, (4, 5, 6, 7), np.array([30, 6, 1, 1]))
        assert tensor.read()["dimA"] == (4, 5, 6)


def test_functions_of_one_argument_can_be_bound_and_read_names_what_it_lacks(lib):
    lib.cudnnCreateTensorDescriptor.bind(tensorDesc=ctypes.byref(tensor := cudnnTensorDescriptor_t()))()
    with pytest.raises(ArgumentTypeError, match=r"1, expecting 4: \(tensorDesc, nbDimsRequested, dimA"):
        lib.cudnnGetTensorNdDescriptor.read(tensor)
    lib.cudnnDestroyTensorDescriptor.bind("tensorDesc")(tensor)
