"""Ask cuDNN where it keeps each region of the params buffer."""

from __future__ import annotations

import ctypes
from typing import Final

from pycudnnrnn._libcudnn import Library, cudnnHandle_t
from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.errors import LayoutError
from pycudnnrnn.layout import ParamLayout, Region, RegionKind, canonical_shapes
from pycudnnrnn.spec import INT32_MAX, RNNSpec

Found = tuple[int | None, tuple[int, ...]]
"""Address (None: there is no such region) and dimensions."""

LEGACY_UNTIL: Final = 90000
"""First version without cudnnGetRNNLinLayerMatrixParams and ...BiasParams. Source: cudnn_adv_infer.h, 8.9.7."""


UNREADABLE: Final = 4096
"""An address that no process can read. Source: vm.mmap_min_addr of Linux; the first 64 KiB of Windows."""

NOWHERE: Final = 1 << 40
"""The address of a params buffer that does not exist: the layout calls only add to it."""


class NoHandle:
    """Pass an address that cannot be read as the handle, for calls that do not read it.

    The layout calls of 8.9.7 to 9.28 do not (observed, undocumented). One that does ends the process: it cannot answer
    wrongly.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._as_parameter_ = ctypes.cast(UNREADABLE, cudnnHandle_t)


def weight_space_nbytes(handle: Handle | NoHandle, rnn: RNNDescriptor) -> int:
    """Ask for the bytes of a params buffer. Source: cudnnGetRNNWeightSpaceSize (cudnn_adv.h, 9.28)."""
    nbytes: int = handle.library.cudnnGetRNNWeightSpaceSize.read(handle, rnn)["weightSpaceSize"]
    return nbytes


def query_layout(handle: Handle | NoHandle, rnn: RNNDescriptor, spec: RNNSpec, base: int, nbytes: int) -> ParamLayout:
    """Return the layout that cuDNN reports for a buffer of `nbytes` at the device address `base`.

    On cuDNN 8.x the older pair of calls is asked too, if its descriptor can have so many elements.

    Raises:
        LayoutError: a region that cuDNN does not have, that has another size than it must, or that is not aligned to
            its elements; or two calls that disagree.

    Source: cudnnGetRNNWeightParams (cudnn_adv.h, 9.28); cudnnGetRNNLinLayerMatrixParams (cudnn_adv_infer.h, 8.9.7).
    """
    layout = _layout_of(_Query(handle, rnn, spec, base, nbytes), spec, base, nbytes)
    if handle.library.version < LEGACY_UNTIL and nbytes // spec.dtype.itemsize <= INT32_MAX:
        legacy = _layout_of(_LegacyQuery(handle, rnn, spec, base, nbytes), spec, base, nbytes)
        if legacy != layout:
            raise LayoutError(f"cuDNN's two layout queries disagree: {layout} and {legacy}")
    return layout


def query_without_gpu(library: Library, spec: RNNSpec) -> ParamLayout:
    """Return the layout that a libcudnn reports without a GPU. A libcudnn that needs one ends the process.

    Raises:
        LayoutError: see `query_layout`.
        EngineError: the library does not support this RNN.
    """
    handle = NoHandle(library)
    with RNNDescriptor(library, spec, algo=spec.untuned_algo) as rnn:
        return query_layout(handle, rnn, spec, NOWHERE, weight_space_nbytes(handle, rnn))


def _layout_of(query: _Query | _LegacyQuery, spec: RNNSpec, base: int, nbytes: int) -> ParamLayout:
    itemsize = spec.dtype.itemsize
    regions = []
    for pseudo_layer, lin_layer_id, gate, kind, shape in canonical_shapes(spec):
        what = f"{kind} {lin_layer_id} of pseudo-layer {pseudo_layer} ({gate})"
        address, dims = query(pseudo_layer, lin_layer_id, kind)
        if 0 in shape:
            regions.append(Region(pseudo_layer, lin_layer_id, gate, kind, 0, shape, spec.num_dirs))
            if address is not None and 0 not in dims:
                raise LayoutError(f"{what} must have no elements, and cuDNN reports {dims}")
            continue
        if address is None:
            raise LayoutError(f"{what} must have the shape {shape}, and cuDNN reports none")
        if tuple(n for n in dims if n != 1) != tuple(n for n in shape if n != 1):
            raise LayoutError(f"{what} must have the shape {shape}, and cuDNN reports {dims}")
        offset, odd = divmod(address - base, itemsize)
        if odd or offset < 0:
            raise LayoutError(f"{what} is {address - base} bytes from the base, no multiple of {itemsize}")
        regions.append(Region(pseudo_layer, lin_layer_id, gate, kind, offset, shape, spec.num_dirs))
    return ParamLayout(nbytes // itemsize, tuple(regions))


class _Query:
    """Query by cudnnGetRNNWeightParams, which reports a matrix and its bias at once."""

    def __init__(self, handle: Handle | NoHandle, rnn: RNNDescriptor, spec: RNNSpec, base: int, nbytes: int) -> None:
        self.handle, self.rnn, self.base, self.nbytes = handle, rnn, base, nbytes
        self.matrix, self.bias = (TensorDescriptor(handle.library, spec.dtype, (1, 1, 1)) for _ in range(2))

    def __call__(self, pseudo_layer: int, lin_layer_id: int, kind: RegionKind) -> Found:
        found = self.handle.library.cudnnGetRNNWeightParams.read(
            self.handle, self.rnn, pseudo_layer, self.nbytes, self.base, lin_layer_id, self.matrix, self.bias
        )
        return _found(found["mAddr"], self.matrix) if kind == "weight" else _found(found["bAddr"], self.bias)


class _LegacyQuery:
    """Query by cudnnGetRNNLinLayerMatrixParams and ...BiasParams, which cuDNN had from 5 to 8."""

    def __init__(self, handle: Handle | NoHandle, rnn: RNNDescriptor, spec: RNNSpec, base: int, nbytes: int) -> None:
        library = handle.library
        self.handle, self.rnn, self.base = handle, rnn, base
        self.x = TensorDescriptor(library, spec.dtype, (1, spec.input_size, 1))
        self.w = FilterDescriptor(library, spec.dtype, (nbytes // spec.dtype.itemsize, 1, 1))
        self.found = FilterDescriptor(library, spec.dtype, (1, 1, 1))

    def __call__(self, pseudo_layer: int, lin_layer_id: int, kind: RegionKind) -> Found:
        library = self.handle.library
        call = library.cudnnGetRNNLinLayerMatrixParams if kind == "weight" else library.cudnnGetRNNLinLayerBiasParams
        (address,) = call.read(
            self.handle, self.rnn, pseudo_layer, self.x, self.w, self.base, lin_layer_id, self.found
        ).values()
        return _found(address, self.found)


def _found(address: int | None, descriptor: TensorDescriptor | FilterDescriptor) -> Found:
    return (None, ()) if address is None else (address, descriptor.read()["dimA"])
