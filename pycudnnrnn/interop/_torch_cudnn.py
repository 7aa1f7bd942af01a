"""cuDNN on torch's own memory: it gets the tensors' addresses, on torch's current stream.

Results, reserve and workspace are tensors from torch's allocator, which reuses memory only on the same stream. So no
memory is exchanged, and nothing waits. cuDNN's packed layout is torch's, so packed data is used unchanged, too. Equal
lengths are no special case, so all packed data of one size shares prepared calls.

Algorithms and math type are those of torch's own modules (`_torch_rules`), so that a module here is not slower.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch

from pycudnnrnn import _locks, passes
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines.cudnn.descriptors import ALIGNMENT_NBYTES
from pycudnnrnn.engines.cudnn.dropout import Masks
from pycudnnrnn.errors import LayoutError
from pycudnnrnn.interop import _torch_rules as rules
from pycudnnrnn.interop._torch_call import Arguments
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import TIME_MAX

BATCHES_MAX: Final = 128
"""Most kinds of batches that are remembered: for a forward, and by their algorithm for a backward."""

_precision: Any = torch.backends.cudnn.rnn
"""The object with the user's choice of TF32 for RNNs. Looking it up at each call takes four times as long."""

FAR: Final = 2**48
"""The amount that a generator's offset is moved by: more than is ever drawn, and a multiple of 4, as torch requires."""

_chains: Final[dict[int, tuple[int, int]]] = {}
"""By device: the seed of its generator, and the number of its latest chain."""

_lock: Final = _locks.lock()

_task: Final = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # noqa: SLF001
"""Returns the number of this thread's present backward, or -1. `torch.utils.checkpoint` uses it, too."""


def forward(call: Arguments, address: int, *, keep: bool) -> tuple[Any, ...]:
    """Return y, hy, cy and the reserve, which is empty if it is not kept.

    A batch without sequences makes no native call.
    """
    x, results = call.x, call.empty_results()
    if not call.size[1]:
        return *results, _bytes(x, 0)
    calls, _ = _calls_of(call, training=keep)
    spaces = {name: _bytes(x, getattr(calls, f"{name}_nbytes")) for name in ("reserve", "workspace")}
    tensors = _inputs(call) | dict(zip(passes.RESULTS, results, strict=True)) | spaces
    masks = None if call.seed is None else Masks(int(call.seed), functools.partial(chain_on, x.device))
    calls.forward(_stream(x.device), call.schedule, _at(address, tensors), masks=masks)
    return *results, spaces["reserve"] if keep else _bytes(x, 0)


def backward(call: Arguments, address: int, upstream: list[Any], y: Any, reserve: Any, gradients: list[Any]) -> None:
    """Write the gradients of x, hx, cx and params, from a copy of the reserve.

    A gradient of a result that is None counts as zeros.
    """
    gradients[-1].zero_()  # cuDNN adds to the present values
    if not call.size[1]:
        return
    calls, _ = _calls_of(call, training=True)
    if reserve.nbytes != calls.reserve_nbytes:  # cuDNN would believe the size
        raise rules.TorchArgumentError("reserve", f"{calls.reserve_nbytes} bytes", reserve.nbytes, aspect="size")
    pairs = zip(call.empty_results(), upstream, strict=True)
    zeros = (empty.zero_() if gradient is None else gradient for empty, gradient in pairs)
    tensors = _inputs(call) | {"y": _aligned(y)} | dict(zip(passes.UPSTREAM, map(_aligned, zeros), strict=True))
    tensors |= {"reserve": reserve.clone(), "workspace": _bytes(call.x, calls.workspace_nbytes)}
    tensors |= zip((*passes.GRADIENTS, "d_params"), gradients, strict=True)
    calls.backward(_stream(call.x.device), call.schedule, _at(address, tensors))


def _as_torch(engine: Any, call: Arguments, like: Schedule, *, training: bool, tf32: bool) -> passes.CallConfig:
    """Return the configuration that runs a batch as torch's module would.

    Raises:
        CudnnError: cuDNN does not report an algorithm's layout of params.
        LayoutError: an algorithm's layout is not that of the module's parameter.
    """
    gpu, packed = _gpu(call.x.device), call.batch_sizes is not None
    spec = call.spec.replace(math_type=rules.math_type(call.spec.dtype, gpu, tf32=tf32))
    algo, backward_algo = (
        rules.algorithm(spec, like.T, like.B, gpu, packed=packed, backward=backward) for backward in (False, True)
    )
    for each in (algo, backward_algo):
        if engine.layout(spec.replace(algo=each)) != engine.layout(call.spec):
            words = f"algo {str(each)!r} and math_type {str(spec.math_type)!r}"
            raise LayoutError(f"cuDNN lays params out in another way for {words} than the module's are")
    return passes.CallConfig(spec.replace(algo=algo), like, training, backward_algo=backward_algo if training else None)


_batches: Recent[tuple[Any, passes.CallConfig]] = Recent(BATCHES_MAX)


def _calls_of(call: Arguments, *, training: bool) -> tuple[Any, passes.CallConfig]:
    """Return the native calls for a kind of batch, and their configuration. Batch sizes may differ from call to call.

    The tensors may be fake: a compiler asks for sizes only.
    """
    engine, (T, B) = call.engine, map(int, call.size)
    if T > TIME_MAX:
        raise rules.TorchArgumentError("input", f"at most {TIME_MAX} steps on CUDA, cuDNN's limit", T, aspect="length")
    drops, packed, tf32 = call.seed is not None, call.batch_sizes is not None, _precision.fp32_precision == "tf32"
    key = engine, call.spec, T, B, packed, drops, training, tf32
    batch = _batches.get(key)
    if batch is None:
        config = _as_torch(engine, call, Schedule(T, B, packed=packed), training=training or drops, tf32=tf32)
        batch = _batches.keep(key, (engine.addressed(_stream(call.x.device), config, drops=drops), config))
    return batch


def reserve_nbytes(call: Arguments) -> int:
    """Return the bytes of the reserve that a forward keeps."""
    return int(_calls_of(call, training=True)[0].reserve_nbytes) if call.size[1] else 0


def algorithms() -> set[tuple[str, str]]:
    """Return the algorithms of forwards and backwards of the batches that are remembered."""
    configs = [config for _, config in _batches.values()]
    return {(str(config.spec.algo), str(config.backward_algo or config.spec.algo)) for config in configs}


def _bytes(like: Any, count: int) -> Any:
    return like.new_empty(count, dtype=torch.uint8)


def _inputs(call: Arguments) -> dict[str, Any]:
    """Return the tensors that every pass may read, as cuDNN takes them."""
    return {"x": _aligned(call.x), "hx": _aligned(call.hx), "cx": _aligned(call.cx)}


def _aligned(tensor: Any) -> Any:
    """Return a tensor as cuDNN takes it, contiguous and aligned; a copy if it is not."""
    if tensor is None:
        return None
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT_NBYTES else tensor


def _at(params: int, tensors: dict[str, Any]) -> dict[str, int | None]:
    """Return the addresses of params and of tensors; None for no tensor, and for an empty one."""
    at = {name: None if tensor is None else tensor.data_ptr() or None for name, tensor in tensors.items()}
    return at | {"params": params}


def _stream(device: Any) -> int:
    """Return torch's current stream on a device, by its address."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def _gpu(device: Any) -> rules.Gpu:
    properties = torch.cuda.get_device_properties(device)
    return rules.Gpu(properties.major, properties.minor, properties.multi_processor_count)


def chain_on(device: Any) -> int | None:
    """Return the dropout chain of a forward that is about to run, see `StreamStates`; None in a backward.

    A backward can only repeat a forward. A chain lasts until torch's generator of the device is set.
    `torch.manual_seed` moves its offset back to 0, and leaves no other trace. So a chain's first forward moves the
    offset far ahead, always by the same amount. The numbers that torch itself draws on the device after that are
    different ones, and the same in each run. Later forwards do not touch the generator, since torch's own RNNs seed
    their dropout again whenever its offset was set.
    """
    generator = torch.cuda.default_generators[device.index]
    with _lock:
        seed: int = generator.initial_seed()
        offset: int = generator.get_offset()
        if offset < FAR:
            generator.set_offset(offset + FAR)
        if _task() != -1:
            return None
        known, chain = _chains.get(device.index, (seed, 0))
        if offset < FAR or seed != known:
            chain += 1
        _chains[device.index] = seed, chain
        return chain
