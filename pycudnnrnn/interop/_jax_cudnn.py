"""cuDNN on XLA's arrays, by their addresses, on XLA's stream, without waiting."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from operator import gt
from typing import Any, Final

import jax

from pycudnnrnn import _locks
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn.dropout import seed_at
from pycudnnrnn.engines.cudnn.stream_states import Masks
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop._jax_passes import Traced, in_place, scratch
from pycudnnrnn.passes import INPUTS, RESULTS, UPSTREAM, CallConfig

_SIZES: Final = ("states_nbytes", "reserve_nbytes", "workspace_nbytes")


@dataclasses.dataclass(frozen=True)
class CudnnRunner:
    """cuDNN on XLA's buffers and stream. `engine` reports sizes; each device's own engine runs."""

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
        plain = call.there(*RESULTS)
        sizes = batch.states_nbytes if call.carries else 0, batch.reserve_nbytes, batch.workspace_nbytes
        shapes = [*map(call.shapes.__getitem__, plain), *map(scratch, sizes)]
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
        *_, reserve = kept
        ins, aliases = [*arguments, output, *upstream, *kept], {}
        if weights:  # cuDNN adds to the present values
            ins.insert(0, jax.numpy.zeros_like(arguments[0]))
            aliases[0] = 0
        aliases[len(ins) - 1] = len(run.gradients)
        gradients = map(call.shapes.__getitem__, run.gradients)
        shapes = [*gradients, scratch(reserve.size), scratch(run.batch(self.engine).workspace_nbytes)]
        found: Sequence[Any] = in_place(run, shapes, ins, aliases)
        return found[: len(run.gradients)]

    def at(self, context: Any, outs: Sequence[Any], ins: Sequence[Any]) -> tuple[Any, int, Any, Any]:
        """Return the engine of the device that the buffers are on, XLA's stream, and the buffers' addresses."""
        try:
            sources, targets = ([_address(buffer) for buffer in buffers] for buffers in (ins, outs))
            stream = _stream(context)
        except jax.errors.JaxRuntimeError as error:
            raise EngineError("this was traced for CUDA and runs on another device: platform= says which") from error
        engine = self.engine
        _, index = outs[0].__dlpack_device__()
        if engine.device != f"cuda:{index}":
            engine = engine_for(f"cuda:{index}")
        return engine, stream, sources, targets


@dataclasses.dataclass(frozen=True)
class _CudnnPass:
    call: Traced

    def batch(self, engine: Any) -> Any:
        """Return the native calls of this pass on one device."""
        return _batch(engine, self)

    @property
    def training(self) -> bool:
        return True

    def at(
        self, context: Any, outs: Sequence[Any], ins: Sequence[Any], out_names: list[str], in_names: list[str]
    ) -> tuple[Any, int, dict[str, int | None]]:
        """Return the native calls on the buffers' device, XLA's stream, and the buffers' addresses by name."""
        runner: Any = self.call.runner
        engine, stream, sources, targets = runner.at(context, outs, ins)
        at = dict(zip(in_names, sources, strict=True)) | dict(zip(out_names, targets, strict=True))
        return self.batch(engine), stream, at


@functools.lru_cache(maxsize=256)
def _batch(engine: Any, run: _CudnnForward | _CudnnBackward) -> Any:
    """Prepare the native calls on a device. Raise if it differs from the one whose sizes and layout were traced."""
    call, asked = run.call, run.call.runner.engine
    batch = engine.addressed(0, CallConfig(call.spec, call.schedule, run.training), drops=call.drops)
    if engine is not asked:
        here, told = ([getattr(b, size) for size in _SIZES] for b in (batch, _batch(asked, run)))
        if any(map(gt, here, told)) or engine.layout(call.spec) != asked.layout(call.spec):
            needs = "needs more memory than this was traced with, or another layout of params"
            raise EngineError(f"{engine.device} {needs}: trace it with {engine.device} as the current device")
    return batch


def _address(buffer: Any) -> int | None:
    """Return the address of a buffer in device memory; None if it has no bytes."""
    return int(buffer.__cuda_array_interface__["data"][0]) if math.prod(buffer.shape) else None


def _stream(context: Any) -> int:
    """Return the stream of XLA's own work."""
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

    @_locks.cached_property
    def masks(self) -> Masks | None:
        """Return the masks of the dropout position, if there is one. They depend on nothing that ran before."""
        position = self.call.position
        if position is None:
            return None
        seed = seed_at(self.call.spec.seed, position)
        return Masks(seed, lambda: seed)

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        call = self.call
        ins_are = [*(["moved"] if call.carries else []), *call.there(*INPUTS)]
        outs_are = [*call.there(*RESULTS), "states", "reserve", "workspace"]
        batch, stream, at = self.at(context, outs, ins, outs_are, ins_are)
        batch.forward(stream, call.schedule, at, states=at["states"], masks=self.masks)


@dataclasses.dataclass(frozen=True)
class _CudnnBackward(_CudnnPass):
    weights: bool

    @property
    def gradients(self) -> list[str]:
        return self.call.gradients(weights=self.weights)

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        call = self.call
        read = call.there(*INPUTS, "y", *UPSTREAM)
        ins_are = [*(["zeros"] if self.weights else []), *read, "states", "kept"]
        batch, stream, at = self.at(context, outs, ins, [*self.gradients, "reserve", "workspace"], ins_are)
        batch.backward(stream, call.schedule, at, states=at["states"])
