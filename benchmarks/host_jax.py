"""What JAX's way to the engine costs on the CPU: calls without their arithmetic, in XLA's buffers and by copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.engines import EnginePlan, use_engine
from pycudnnrnn.engines.numpy_engine import NumpyEngine

LARGE = (1024, 256, 64)
"""T, B and width whose data is 64 MiB in and 64 MiB out."""

Taken = TypeVar("Taken")

SMALL = (20, 4, 64)


class _IdlePlan:
    """A plan without arithmetic. Its results are what was in the memory."""

    reserve_nbytes = 4096

    def run(self, *_: Any, **__: Any) -> None: ...


class _IdleEngine(NumpyEngine):
    def plan(self, *_: Any, **__: Any) -> EnginePlan:
        idle: Any = _IdlePlan()
        return idle


def calls() -> dict[str, tuple[str, str, Callable[[], Any]]]:
    """Return (what it is, its problem, the call) of each row, compiled; the large ones have names of their own."""
    import jax

    from pycudnnrnn.interop.jax import rnn

    def made(shape: tuple[int, int, int], platform: str, *, gradient: bool) -> Callable[[], Any]:
        op = ops.CudnnLSTM(1, shape[2], shape[2])
        params, x = jax.numpy.asarray(op.init_params(seed=1)), jax.numpy.ones(shape, np.float32)

        def output(params: Any, x: Any) -> Any:
            return rnn(params, x, spec=op, platform=platform)[0]

        def loss(params: Any, x: Any) -> Any:
            return output(params, x)[0, 0, 0]

        compiled = jax.jit(jax.grad(loss) if gradient else output)
        compiled(params, x).block_until_ready()
        return lambda: compiled(params, x).block_until_ready()

    with use_engine(_IdleEngine()):
        return {
            f"{size} {way}{' gradient' if gradient else ''}": (
                f"JAX: {'gradient' if gradient else 'forward'} without its arithmetic, {what}",
                f"LSTM T={shape[0]} B={shape[1]} I=H={shape[2]}",
                made(shape, platform, gradient=gradient),
            )
            for size, shape in (("small", SMALL), ("large", LARGE))
            for way, platform, what in (("in_place", "cpu", "in XLA's buffers"), ("host", "host", "by copies"))
            for gradient in ((False, True) if size == "small" else (False,))
        }


def measured(
    each: Callable[[dict[str, Callable[[], Any]], int], dict[str, Taken]], rounds: int
) -> Iterator[tuple[str, str, Taken]]:
    """Time them with `each`, which takes calls in turn; what is large is in a hundredth of the rounds."""
    every = calls()
    for size, count in (("small", rounds), ("large", -(-rounds // 100))):
        chosen = {name: call for name, (_, _, call) in every.items() if name.startswith(size)}
        for name, times in each(chosen, count).items():
            what, problem, _ = every[name]
            yield what, problem, times
