"""Algorithms that were measured and chosen, as values, and the JSON file that keeps them.

Nothing is written unless somebody asks: by `save`, or by naming a file in the environment.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pycudnnrnn import _locks
from pycudnnrnn._atomic import locked, naming, write_atomically
from pycudnnrnn._checks import check_int, check_real, check_word
from pycudnnrnn._source import Source
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import INT32_MAX, Algorithm, MathType, RNNSpec

CACHE_VARIABLE: Final = "PYCUDNNRNN_ALGO_CACHE"
"""Names a file: choices are looked up there before anything is measured, and written there after."""

FORMAT: Final = "pycudnnrnn algorithm choices"
VERSION: Final = 1

FILE_MAX: Final = 1 << 24
"""Most bytes of a file: 10,000 choices and more."""


@dataclasses.dataclass(frozen=True)
class AlgorithmTrial:
    """One algorithm that `algo="auto"` measured, or left out.

    - `algo` and `math_type`: the candidate.
    - `time_us`: the median time of a forward in microseconds, in training with both backward passes; None if it
      failed or was left out.
    - `reason`: why there is no time; otherwise empty.
    """

    algo: Algorithm
    math_type: MathType
    time_us: float | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class CallKind:
    """What a choice is for: one exact shape on one kind of GPU and one cuDNN.

    `spec` is what was asked for, so its `algo` is "auto"; its seed is 0, and its dropout too where nothing drops.
    """

    gpu: str
    cudnn: int
    spec: RNNSpec
    T: int
    B: int
    ragged: bool
    time_major: bool
    training: bool


@dataclasses.dataclass(frozen=True)
class AlgorithmChoice:
    """A choice of `algo="auto"`, with its measurements.

    - `kind`: the calls that it is for: `gpu`, `cudnn` (version), `spec`, `T`, `B`, `ragged`, `time_major` and
      `training`.
    - `algo` and `math_type`: the choice.
    - `trials`: one `AlgorithmTrial` for each candidate.
    """

    kind: CallKind
    algo: Algorithm
    math_type: MathType
    trials: tuple[AlgorithmTrial, ...]

    @property
    def resolved(self) -> RNNSpec:
        """The spec that runs: that of `kind`, with the chosen algorithm and math type."""
        return self.kind.spec.replace(algo=self.algo, math_type=self.math_type)


class ChoiceBook:
    """The choices of one device in this process; the file named in the environment stands behind it."""

    def __init__(self, gpu: str, cudnn: int) -> None:
        self.gpu, self.cudnn = gpu, cudnn
        self._known: dict[CallKind, AlgorithmChoice] = {}
        self.lock = _locks.rlock()
        """Held while something is measured, so that nothing is measured twice or side by side."""

    def all(self) -> tuple[AlgorithmChoice, ...]:
        return tuple(self._known.values())

    def find(self, kind: CallKind) -> AlgorithmChoice | None:
        """Return what was chosen, here or in the file named in the environment."""
        known = self._known.get(kind)
        path = os.environ.get(CACHE_VARIABLE)
        if known is None and path and Path(path).exists():
            self.adopt(read(path, CACHE_VARIABLE))
            known = self._known.get(kind)
        return known

    def add(self, choice: AlgorithmChoice) -> AlgorithmChoice:
        """Keep a new choice, and write it; where another process was first, take its choice, so that all agree."""
        path = os.environ.get(CACHE_VARIABLE)
        if path:
            with locked(Path(path)):
                before = read(path, CACHE_VARIABLE) if Path(path).exists() else ()
                first = next((other for other in before if other.kind == choice.kind), None)
                if first is None:
                    _write(Path(path), [*before, choice])
                choice = first or choice
        self._known[choice.kind] = choice
        return choice

    def adopt(self, choices: Sequence[AlgorithmChoice]) -> tuple[AlgorithmChoice, ...]:
        """Keep those that are for this GPU and cuDNN, and return them."""
        ours = tuple(c for c in choices if (c.kind.gpu, c.kind.cudnn) == (self.gpu, self.cudnn))
        self._known.update((choice.kind, choice) for choice in ours)
        return ours

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all choices; what the file has for other kinds of calls, GPUs and versions stays."""
        with locked(Path(path)):
            before = read(path) if Path(path).exists() else ()
            _write(Path(path), {c.kind: c for c in (*before, *self.all())}.values())


def read(path: str | os.PathLike[str], name: str = "path") -> tuple[AlgorithmChoice, ...]:
    """Read a file of choices, strictly.

    Raises:
        ArgumentError: not such a file, or of another version; `name` is what it calls the argument.
        OSError: no file that can be read.
    """
    try:
        with naming(Path(path)), Source(path) as source:
            data = source.whole(FILE_MAX)
        return _choices(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArgumentError(name, f"a file of {FORMAT}, version {VERSION}", f"{path}: {error}") from error


def _choices(content: dict[str, Any]) -> tuple[AlgorithmChoice, ...]:
    found = [content["format"], content["version"], type(content["version"]), type(content["choices"])]
    if found != [FORMAT, VERSION, int, list]:
        raise ValueError(f"it begins with {found[:2]}")
    return tuple(_choice(entry) for entry in content["choices"])


def _choice(entry: dict[str, Any]) -> AlgorithmChoice:
    spec = RNNSpec.from_json(json.dumps(entry["spec"]))
    if spec.algo is not Algorithm.AUTO or {type(entry[flag]) for flag in _FLAGS} != {bool}:
        raise ValueError(f"algo 'auto', and true or false for {_FLAGS}")
    kind = CallKind(
        str(entry["gpu"]),
        check_int("cudnn", entry["cudnn"], 1, INT32_MAX),
        spec,
        check_int("T", entry["T"], 1, INT32_MAX),
        check_int("B", entry["B"], 1, INT32_MAX),
        *(entry[flag] for flag in _FLAGS),
    )
    trials = tuple(
        AlgorithmTrial(
            check_word(Algorithm, "algo", trial["algo"]),
            check_word(MathType, "math_type", trial["math_type"]),
            None if trial["time_us"] is None else _time(trial["time_us"]),
            str(trial["reason"]),
        )
        for trial in entry["trials"]
    )
    algo, math_type = (
        check_word(Algorithm, "algo", entry["algo"]),
        check_word(MathType, "math_type", entry["math_type"]),
    )
    if (algo, math_type) not in [(trial.algo, trial.math_type) for trial in trials if trial.time_us is not None]:
        raise ValueError(f"a choice among those that have a time, not {algo} with {math_type}")
    return AlgorithmChoice(kind, algo, math_type, trials)


_FLAGS: Final = ("ragged", "time_major", "training")


def _time(value: Any) -> float:
    time = check_real("time_us", value)
    if not 0 <= time < math.inf:
        raise ArgumentError("time_us", "a time", time)
    return time


def _write(path: Path, choices: Any) -> None:
    entries = []
    for choice in choices:
        entry = {field.name: getattr(choice.kind, field.name) for field in dataclasses.fields(choice.kind)}
        entry["spec"] = json.loads(choice.kind.spec.to_json())
        trials = [dataclasses.asdict(trial) for trial in choice.trials]
        entries.append(entry | {"algo": choice.algo, "math_type": choice.math_type, "trials": trials})
    content = {"format": FORMAT, "version": VERSION, "choices": entries}
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")
