"""The native objects that depend on the RNN alone. The calls of all sizes share them."""

from __future__ import annotations

import contextlib
import functools

from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor, RNNDescriptor
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.layout_query import weight_space_nbytes
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.spec import Algorithm


class NativeRNN:
    """RNN descriptors of one configuration, with one dropout descriptor, and the size of params.

    `forward` and `backward` are the descriptors of the two algorithms, which may be one. Threads share them and only
    read them.

    Source: cudnnBuildRNNDynamic, cudnnGetRNNWeightSpaceSize (cudnn_adv.h, 9.28).
    """

    def __init__(self, handle: Handle, config: CallConfig, dropout: DropoutDescriptor | None) -> None:
        library, spec, schedule = handle.library, config.spec, config.schedule
        dropout = dropout or DropoutDescriptor.of_none(handle)
        algo = spec.untuned_algo
        backward_algo = config.backward_algo or algo
        self.descriptors = {
            each: RNNDescriptor(library, spec, dropout, algo=each, padded_io=not schedule.packed)
            for each in dict.fromkeys((algo, backward_algo))
        }
        dynamic = self.descriptors.get(Algorithm.PERSIST_DYNAMIC)
        if dynamic is not None:
            load_nvrtc()
            library.cudnnBuildRNNDynamic(handle, dynamic, schedule.B)
        self.forward, self.backward = self.descriptors[algo], self.descriptors[backward_algo]
        self.params_nbytes = weight_space_nbytes(handle, self.forward)

    @staticmethod
    def key(config: CallConfig) -> tuple[object, ...]:
        """Return what a configuration's objects depend on. The dynamic algorithm is compiled for a batch size."""
        dynamic = Algorithm.PERSIST_DYNAMIC in (config.spec.algo, config.backward_algo)
        schedule = config.schedule
        return config.spec, config.backward_algo, schedule.packed, schedule.B if dynamic else None


@functools.cache
def load_nvrtc() -> None:
    """Load NVRTC and its builtins, if found: cuDNN compiles the dynamic algorithm's kernels with them.

    NVRTC opens its builtins by file name only, and the library in CUDA 13.0's wheel has no path to search. Unless they
    are loaded already, it fails with "failed to open libnvrtc-builtins". Libraries not found here are left to cuDNN's
    own search.
    """
    try:
        from cuda import pathfinder  # noqa: PLC0415  comes with CuPy 14
    except ImportError:
        return
    with contextlib.suppress(RuntimeError):
        pathfinder.load_nvidia_dynamic_lib("nvrtc")  # also loads the builtins
