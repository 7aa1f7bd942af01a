"""What torch's way to cuDNN costs on the host: CPU tensors play CUDA tensors, and the library is the idle shim."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pycudnnrnn.engines import use_engine
from tests.stand_in import shim, torch_on_cpu

from . import torch_rules

Taken = TypeVar("Taken")

T, B, WIDTH = 20, 16, 64

LENGTHS = (20, 20, 20, 20, 15, 15, 15, 15, 7, 7, 7, 7, 7, 7, 7, 7)


def measured(
    each: Callable[[dict[str, Callable[[], Any]], int], dict[str, Taken]], path: Path, rounds: int
) -> Iterator[tuple[str, str, str, Taken]]:
    """Time them with `each`, which takes calls in turn: (what it is, its problem, its bar, times)."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    played = shim.Shim(path)
    engine, _ = played.engine_and_device()
    engine.device = "cpu"
    played.stream, played.gpu, played.generator = 0x7000, torch_rules.H200, torch_on_cpu.Generator()
    try:
        with use_engine(engine), torch_on_cpu.as_cuda(played):
            every = _calls()
            for _, _, call in every.values():
                call()
            dll = ctypes.CDLL(str(path))
            dll.shim_set_hook.argtypes = [ctypes.c_void_p]
            dll.shim_set_hook(ctypes.cast(dll.shim_idle, ctypes.c_void_p))
            for name, times in each({name: call for name, (_, _, call) in every.items()}, rounds).items():
                problem, bar, _ = every[name]
                yield f"torch: {name}", problem, bar, times
    finally:
        torch.set_num_threads(threads)


def _calls() -> dict[str, tuple[str, str, Callable[[], Any]]]:
    """Return the problem, the bar and the call of each row."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    from pycudnnrnn.interop.torch import LSTM

    plain, dropping = LSTM(WIDTH, WIDTH), LSTM(WIDTH, WIDTH, 2, dropout=0.5)
    x = torch.zeros(T, B, WIDTH)
    packed = pack_padded_sequence(x, LENGTHS)  # type: ignore[arg-type]  # its lengths may be any sequence

    def forward(module: Any, data: Any) -> Any:
        y = module(data)[0]
        return y if data is x else y.data

    def step(module: Any, data: Any) -> Callable[[], Any]:
        upstream = torch.ones_like(forward(module, data))
        return lambda: forward(module, data).backward(upstream)

    def inference() -> Any:
        with torch.no_grad():
            return plain(x)

    shape = f"T={T} B={B} I=H={WIDTH}"
    one, two, ragged = f"LSTM {shape}", f"LSTM L=2 {shape}, dropout", f"LSTM {shape}, packed"
    return {
        "inference": (one, "<= 60 us", inference),
        "forward": (one, "<= 60 us", lambda: forward(plain, x)),
        "forward and backward": (one, "<= 150 us", step(plain, x)),
        "forward with dropout": (two, "none", lambda: forward(dropping, x)),
        "forward and backward with dropout": (two, "none", step(dropping, x)),
        "packed forward": (ragged, "none", lambda: forward(plain, packed)),
        "packed forward and backward": (ragged, "none", step(plain, packed)),
        "torch's own share of a forward": (one, "none", _floor(x, plain.params)),
    }


def _floor(x: Any, params: Any) -> Callable[[], Any]:
    """Return the call of a function over an operator with as many arguments and results that computes nothing."""
    import torch

    library = torch.library.Library("pycudnnrnn_floor", "DEF")
    library.define("nothing(Tensor x, Tensor params, str spec, float p, bool a, bool b) -> (Tensor, Tensor, Tensor)")
    shapes = (T, B, WIDTH), (1, B, WIDTH), (1, B, WIDTH)
    library.impl("nothing", lambda x, *_: tuple(map(x.new_empty, shapes)), "CompositeExplicitAutograd")

    class Nothing(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not looked at
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            ctx.save_for_backward(*arguments[:2])
            return torch.ops.pycudnnrnn_floor.nothing.default(*arguments)

    module = torch.nn.Module()
    module.forward = lambda: Nothing.apply(x, params, "", 0.0, False, True)
    module.library = library  # which is gone with its last owner
    return module
