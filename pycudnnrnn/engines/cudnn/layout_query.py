"""Ask cuDNN where it keeps each region of the params buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from pycudnnrnn._libcudnn import Library, cudnnHandle_t
from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.errors import LayoutError
from pycudnnrnn.layout import ParamLayout, Region, RegionKind, canonical_shapes
from pycudnnrnn.spec import INT32_MAX, RNNSpec

Place = tuple[int | None, tuple[int, ...]]
"""Address of a region (None: cuDNN has no such region) and dimensions."""

Query = Callable[[int, int, RegionKind], Place]
"""A function of pseudo-layer, linear-layer id and kind."""

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
    return int(handle.library.cudnnGetRNNWeightSpaceSize.read(handle, rnn)["weightSpaceSize"])


def query_layout(handle: Handle | NoHandle, rnn: RNNDescriptor, spec: RNNSpec, base: int, nbytes: int) -> ParamLayout:
    """Return the layout that cuDNN reports for a buffer of `nbytes` at the device address `base`.

    On cuDNN 8.x the older pair of calls is asked too, if its descriptor can have so many elements.

    Raises:
        LayoutError: a region that cuDNN does not have, that has another size than it must, or that is not aligned to
            its elements; or two calls that disagree.

    Source: cudnnGetRNNWeightParams (cudnn_adv.h, 9.28); cudnnGetRNNLinLayerMatrixParams (cudnn_adv_infer.h, 8.9.7).
    """
    layout = _layout_of(_weight_params(handle, rnn, spec, base, nbytes), spec, base, nbytes)
    if handle.library.version < LEGACY_UNTIL and nbytes // spec.dtype.itemsize <= INT32_MAX:
        legacy = _layout_of(_lin_layer_params(handle, rnn, spec, base, nbytes), spec, base, nbytes)
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
    with RNNDescriptor(library, spec) as rnn:
        return query_layout(handle, rnn, spec, NOWHERE, weight_space_nbytes(handle, rnn))


def _layout_of(query: Query, spec: RNNSpec, base: int, nbytes: int) -> ParamLayout:
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
        if address is None or [n for n in dims if n != 1] != [n for n in shape if n != 1]:
            raise LayoutError(f"{what} must have the shape {shape}, and cuDNN reports {dims or 'none'}")
        offset, odd = divmod(address - base, itemsize)
        if odd or offset < 0:
            raise LayoutError(f"{what} is {address - base} bytes from the base, no multiple of {itemsize}")
        regions.append(Region(pseudo_layer, lin_layer_id, gate, kind, offset, shape, spec.num_dirs))
    return ParamLayout(nbytes // itemsize, tuple(regions))


def _weight_params(handle: Handle | NoHandle, rnn: RNNDescriptor, spec: RNNSpec, base: int, nbytes: int) -> Query:
    """Query by cudnnGetRNNWeightParams, which reports a matrix and its bias at once."""
    matrix, bias = (TensorDescriptor(handle.library, spec.dtype, (1, 1, 1)) for _ in range(2))

    def query(pseudo_layer: int, lin_layer_id: int, kind: RegionKind) -> Place:
        read = handle.library.cudnnGetRNNWeightParams.read
        places = read(handle, rnn, pseudo_layer, nbytes, base, lin_layer_id, matrix, bias)
        return _place(places["mAddr"], matrix) if kind == "weight" else _place(places["bAddr"], bias)

    return query


def _lin_layer_params(handle: Handle | NoHandle, rnn: RNNDescriptor, spec: RNNSpec, base: int, nbytes: int) -> Query:
    """Query by cudnnGetRNNLinLayerMatrixParams and ...BiasParams, which cuDNN had from 5 to 8."""
    library = handle.library
    x = TensorDescriptor(library, spec.dtype, (1, spec.input_size, 1))
    w = FilterDescriptor(library, spec.dtype, (nbytes // spec.dtype.itemsize, 1, 1))
    region = FilterDescriptor(library, spec.dtype, (1, 1, 1))

    def query(pseudo_layer: int, lin_layer_id: int, kind: RegionKind) -> Place:
        call = library.cudnnGetRNNLinLayerMatrixParams if kind == "weight" else library.cudnnGetRNNLinLayerBiasParams
        (address,) = call.read(handle, rnn, pseudo_layer, x, w, base, lin_layer_id, region).values()
        return _place(address, region)

    return query


def _place(address: int | None, descriptor: TensorDescriptor | FilterDescriptor) -> Place:
    return (None, ()) if address is None else (address, descriptor.read()["dimA"])
