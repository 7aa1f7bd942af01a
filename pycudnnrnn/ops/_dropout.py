"""The dropout of one op, on each device that it ran on."""

from __future__ import annotations

from pycudnnrnn import _locks
from pycudnnrnn.engines import Dropout, DropoutState, Engine
from pycudnnrnn.errors import StateError
from pycudnnrnn.spec import RNNSpec


class Dropouts:
    """An op's running dropout on each device, and the state from which each engine's dropout starts."""

    def __init__(self, spec: RNNSpec, starts: dict[str, DropoutState]) -> None:
        self._spec, self._starts = spec, starts
        self._running: dict[str, tuple[Engine, Dropout]] = {}
        self._lock = _locks.rlock()

    def _start(self, engine: str) -> DropoutState:
        return self._starts.get(engine, DropoutState(engine, self._spec.seed))

    def on(self, engine: Engine) -> Dropout:
        """Return the dropout of an engine's device; start it if it has not run there."""
        with self._lock:
            if engine.device not in self._running:
                self._running[engine.device] = engine, engine.dropout(self._spec, self._start(engine.name))
            return self._running[engine.device][1]

    def check_runs(self, dropout: Dropout, engine: Engine) -> None:
        """Raise an error if another state was set since a plan or graph was given `dropout`."""
        running = self._running.get(engine.device)
        if running is None or running[1] is not dropout:
            raise StateError("a dropout state was set after this was prepared: prepare it again, and capture it again")

    def start_from(self, state: DropoutState) -> None:
        """Make all devices of the state's engine continue from it."""
        with self._lock:
            self._starts[state.engine] = state
            self._running = {k: pair for k, pair in self._running.items() if pair[0].name != state.engine}

    def states(self) -> list[DropoutState]:
        """Return one state for each engine that dropout ran on or was set on.

        Raises:
            StateError: two devices of one engine have different states.
        """
        with self._lock:
            states, ran_on = dict(self._starts), dict[str, str]()
            for device, (engine, dropout) in self._running.items():
                name, state = engine.name, dropout.state()
                ran = state.position != self._start(name).position
                if name not in ran_on:
                    states[name] = state
                    ran_on |= {name: device} if ran else {}
                elif ran and state != states[name]:
                    raise StateError(
                        f"the dropout states of {ran_on[name]} and {device} differ, and one can be kept: use one op "
                        f"per device, or choose a state, for example set_dropout_state(dropout_state({device!r}))"
                    )
            return list(states.values())
