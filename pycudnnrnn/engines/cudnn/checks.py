"""What is checked of sizes and arrays before anything crosses to cuDNN, beyond what every engine checks."""

from __future__ import annotations

from typing import Any, Final

from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import INT32_MAX, STANDARD_ALGORITHMS, RNNSpec

PARAMS_ALIGNMENT_NBYTES: Final = 16
"""Alignment of params. Source: the widest load that cuDNN's kernels make; CuPy's and torch's own arrays have 256."""


def check_matrices(spec: RNNSpec) -> None:
    """Refuse an RNN with a matrix that 32-bit indices cannot hold; its descriptor would be made all the same.

    Raises:
        ArgumentError: more than 2**31 - 1 elements in one matrix.

    Source: cudnnSetRNNDescriptor_v8 takes such sizes, and cudnnSetTensorNdDescriptor refuses them (observed, 9.28).
    """
    widths = {spec.state_size, spec.layer_input_size(0), spec.layer_input_size(spec.num_layers - 1)}
    if spec.num_units * max(widths) > INT32_MAX:
        raise ArgumentError("params", f"at most {INT32_MAX} elements in a matrix", (spec.num_units, max(widths)))


def check_sizes(spec: RNNSpec, schedule: Schedule) -> None:
    """Refuse a batch whose element counts cuDNN's 32-bit indices cannot hold: it accepts some of them silently.

    Raises:
        ArgumentError: more than 2**31 - 1 elements of data, of states or of a matrix, or ragged lengths with an
            algorithm that takes equal ones only.

    Source: cudnnSetRNNDataDescriptor takes such sizes, and cudnnSetTensorNdDescriptor refuses them (observed, 9.28).
    """
    check_matrices(spec)
    T, B = schedule.T, schedule.B
    for name, width in (("input_data", spec.input_size), ("output", spec.output_size), ("gates", spec.num_units)):
        if T * B * width > INT32_MAX:
            raise ArgumentError(name, f"at most {INT32_MAX} elements", f"T={T} * B={B} * {width}")
    if spec.num_pseudo_layers * B * spec.num_units > INT32_MAX:
        raise ArgumentError(
            "input_h", f"at most {INT32_MAX} elements", (spec.num_pseudo_layers, B, spec.num_units), aspect="shape"
        )
    if schedule.lengths is not None and spec.algo not in STANDARD_ALGORITHMS:
        raise ArgumentError("sequence_lengths", f"equal lengths with algo {str(spec.algo)!r}", "ragged ones")


def check_array(name: str, array: Any | None, device: CudaDevice, alignment: int | None = None) -> None:
    """Refuse what cuDNN cannot read in place; nothing is copied silently. None and what has no elements are not read.

    Without `alignment` it is that of the elements.

    Raises:
        ArgumentError: not contiguous, or not aligned.
    """
    if array is None or not array.size:
        return
    if not array.flags.c_contiguous:
        raise ArgumentError(name, "a contiguous array (cupy.ascontiguousarray makes one)", f"strides {array.strides}")
    wanted, address = alignment or array.dtype.itemsize, device.address(array)
    if address % wanted:
        raise ArgumentError(name, f"memory aligned to {wanted} bytes", hex(address))
