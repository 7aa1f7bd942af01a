"""cuDNN on XLA's arrays: addresses on XLA's stream, with nothing that waits."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from operator import gt
from typing import Any, Final

import jax

from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn.dropout import seed_at
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop._jax_passes import Traced, in_place, scratch

_SIZES: Final = ("workspace_nbytes", "reserve_nbytes", "states_nbytes")


@dataclasses.dataclass(frozen=True)
class CudnnRunner:
    """cuDNN on the buffers and the stream of XLA's GPU; `engine` is asked for sizes, each device's own runs."""

    engine: Any

    @property
    def states_nbytes(self) -> int:
        nbytes: int = self.engine.dropout_states_nbytes()
        return nbytes

    def states_from(self, seed: int) -> Any:
        return in_place(_CudnnSeed(self, seed), [scratch(self.states_nbytes)], ())[0]

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        run = _CudnnForward(call, keep)
        batch = run.batch(self.engine)
        plain = [call.results[0], *call.states]
        shapes = [*plain, *map(scratch, (batch.states_nbytes, batch.reserve_nbytes, batch.workspace_nbytes))]
        ins, aliases = ([dropout, *arguments], {0: len(plain)}) if call.carries else (arguments, None)
        found = in_place(run, shapes, ins, aliases)
        return found[: len(call.results)], found[len(plain) : -1]

    def backward(
        self,
        call: Traced,
        arguments: Sequence[Any],
        output: Any,
        upstream: Sequence[Any],
        kept: Sequence[Any],
        *,
        weights: bool,
    ) -> Sequence[Any]:
        run = _CudnnBackward(call, weights)
        _, reserve = kept
        gradients, ins, aliases = [call.data, *call.states], [*arguments, output, *upstream, *kept], {}
        if weights:  # cuDNN adds to what is there
            gradients.insert(0, call.params)
            ins.insert(0, jax.numpy.zeros(call.params.shape, call.params.dtype))
            aliases[0] = 0
        aliases[len(ins) - 1] = len(gradients)
        shapes = [*gradients, scratch(reserve.size), scratch(run.batch(self.engine).workspace_nbytes)]
        found: Sequence[Any] = in_place(run, shapes, ins, aliases)
        return found[: len(gradients)]

    def at(self, context: Any, outs: Sequence[Any], ins: Sequence[Any]) -> tuple[Any, int, Any, Any]:
        """Return the engine of the device that the buffers are on, XLA's stream, and the buffers' addresses."""
        try:
            sources, targets = ([_address(buffer) for buffer in buffers] for buffers in (ins, outs))
            stream = _stream(context)
        except jax.errors.JaxRuntimeError as error:
            raise EngineError("this was traced for CUDA and runs on another device: platform= says which") from error
        engine = self.engine
        index = engine.device_of(next(address for address in targets if address is not None))
        if engine.device != f"cuda:{index}":
            engine = engine_for(f"cuda:{index}")
        return engine, stream, sources, targets


@dataclasses.dataclass(frozen=True)
class _CudnnPass:
    call: Traced

    def batch(self, engine: Any) -> Any:
        """What runs it on one device."""
        return _batch(engine, self)

    @property
    def training(self) -> bool:
        return True

    def at(self, context: Any, outs: Sequence[Any], ins: Sequence[Any]) -> tuple[Any, int, Any, Any]:
        runner: Any = self.call.runner
        engine, *rest = runner.at(context, outs, ins)
        return self.batch(engine), *rest


@functools.lru_cache(maxsize=256)
def _batch(engine: Any, run: _CudnnForward | _CudnnBackward) -> Any:
    """Prepare a batch on a device; a trace has asked the current one for sizes, and for the layout of params."""
    call, asked = run.call, run.call.runner.engine
    batch = engine.addressed(0, call.spec, call.schedule, training=run.training, drops=call.drops)
    if engine is not asked:
        here, told = ([getattr(b, size) for size in _SIZES] for b in (batch, _batch(asked, run)))
        if any(map(gt, here, told)) or engine.layout(call.spec) != asked.layout(call.spec):
            needs = "needs more memory than this was traced with, or another layout of params"
            raise EngineError(f"{engine.device} {needs}: trace it with {engine.device} as the current device")
    return batch


def _address(buffer: Any) -> int | None:
    """Where a buffer is in device memory; None if it has no bytes."""
    return int(buffer.__cuda_array_interface__["data"][0]) if math.prod(buffer.shape) else None


def _stream(context: Any) -> int:
    """The stream that XLA puts its own work on."""
    return int(context.stream)


@dataclasses.dataclass(frozen=True)
class _CudnnSeed:
    runner: CudnnRunner
    seed: int

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        engine, stream, _, (states,) = self.runner.at(context, outs, ins)
        engine.write_dropout_states(stream, states, self.seed)


@dataclasses.dataclass(frozen=True)
class _CudnnForward(_CudnnPass):
    keep: bool

    @property
    def training(self) -> bool:
        return self.keep or self.call.drops

    @functools.cached_property
    def seed(self) -> int | None:
        """What stands for dropout's position, where it has one."""
        position = self.call.position
        return None if position is None else seed_at(self.call.spec.seed, position)

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        batch, stream, sources, (y, hy, *more) = self.at(context, outs, ins)
        if self.call.carries:
            del sources[0]  # the states' memory is that of the moved ones
        params, x, hx, *cx = sources
        cy = more.pop(0) if cx else None
        states, reserve, workspace = more
        batch.forward(
            stream, self.call.schedule, x, y, hx, hy, cx[0] if cx else None, cy, params, workspace, reserve,
            states=states, seed=self.seed,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _CudnnBackward(_CudnnPass):
    weights: bool

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        batch, stream, sources, targets = self.at(context, outs, ins)
        d_params = None
        if self.weights:
            del sources[0]  # its zeros: their memory is that of d_params
            d_params = targets.pop(0)
        params, x, hx, *rest = sources
        dx, dhx, *more = targets
        cx = dcy = dcx = None
        if self.call.spec.has_cell_state:
            cx, y, dy, dhy, dcy, states, _ = rest
            dcx, reserve, workspace = more
        else:
            y, dy, dhy, states, _ = rest
            reserve, workspace = more
        batch.backward(
            stream, self.call.schedule, x, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, d_params, workspace, reserve,
            states=states,
        )  # fmt: skip
