"""Where a competitor runs: in this process, or in one of its own, so that no library's threads disturb another's."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final
from unittest import mock

from . import figures
from .adapters import Competitor, NotRun, Prepared
from .data import Array, draw
from .environment import libraries, processors
from .problems import Row
from .timing import Sample

ANSWER_WITHIN_S: Final = 600.0
"""How long a process may take over one question. One that takes longer has hung, and is not asked again in this run:
its next hang would take the time of many rows."""

START_WITHIN_S: Final = 120.0
"""How long a process may take to start and to report its versions: on a new machine it reads 2 GB of libraries."""

ENDS_WITHIN_S: Final = 5.0
"""How long a process is waited for at the end of a run: Ctrl-C may have left it in the middle of a long call."""

SETTLE_S: Final = 0.1
"""Pause before a sample: the thread pools of the process that ran before spin for a while after their last work,
onnxruntime's for 40 ms. On a GPU it is before a row's first sample: the checks are what keeps threads at work there."""

THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYCUDNNRNN_CPU_THREADS")


class Failed(Exception):  # noqa: N818  a result, not an error
    """A competitor raised, or its process died. The text says what and how."""


class Local:
    """A competitor in this process."""

    def __init__(self, competitor: Competitor) -> None:
        self._competitor = competitor
        self._prepared: Prepared | None = None
        self._sampled = False

    def start(self) -> None:
        """There is nothing to start: what is imported is imported when it is asked for."""

    def versions(self) -> dict[str, Any]:
        return self._competitor.versions()

    def libraries(self) -> list[str]:
        """Which files of cuDNN, CUDA, BLAS and OpenMP the process has loaded by now."""
        return libraries()

    def peak(self, dtype: str) -> dict[str, float]:
        return figures.peak(dtype, self._competitor.device)

    def results(self, row: Row) -> dict[str, Array]:
        """Run a row's pass once on its drawn data; a step twice, since it may leave something behind."""
        prepared = self._prepare(row)
        if row.which == "step":
            prepared.call()
        results = prepared.results()
        self._prepared = None
        return results

    def prepare(self, row: Row) -> dict[str, Any]:
        """Make ready for `sample`, warmed up, and return what belongs into the report's row."""
        self._prepared = None  # what the last row held is free before this one takes its own
        prepared = self._prepared = self._prepare(row)
        if row.caches == "cold":
            prepared.empty_caches()
        before, peak = _resident("VmRSS"), _resident("VmHWM", reset=True)
        prepared.warm_up(1)
        if peak and not prepared.on_gpu:
            prepared.figures["call_nbytes"] = max(0, _resident("VmHWM") - before)
        prepared.warm_up()
        self._sampled = False
        return prepared.figures

    def sample(self, seconds: float) -> Sample:
        """Time one round.

        The checks and preparations of a row leave threads at work on the host and a GPU idle; between the samples of
        what runs on a GPU there is nothing to wait for, and the GPU is hardly idle.
        """
        if self._prepared is None:
            raise Failed("nothing is prepared")
        if not (self._sampled and self._prepared.on_gpu):
            time.sleep(SETTLE_S)
        if not self._sampled:
            self._prepared.spin()
            self._sampled = True
        return self._prepared.sample(seconds)

    def release(self) -> None:
        self._prepared = None

    close = release

    def _prepare(self, row: Row) -> Prepared:
        data = draw(row.problem)
        return self._competitor.prepare(row.problem, row.which, row.dtype, data)


class Remote:
    """The same in a process of its own, with so many threads; a process that dies or hangs is replaced."""

    def __init__(
        self, competitor: Competitor, threads: int | None = None, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._competitor, self._threads, self._answer_within_s = competitor, threads, answer_within_s
        self._pool: ProcessPoolExecutor | None = None
        self._hung = False

    def start(self) -> None:
        """Start the process, and wait for nothing: while it imports what it needs, others do."""
        before = {*multiprocessing.active_children()}
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (self._competitor, self._threads))
        variables = dict.fromkeys(THREAD_VARIABLES, str(self._threads)) if self._threads else {}
        with mock.patch.dict(os.environ, variables):  # a process reads them as it starts
            pool.submit(os.getpid)
        (self._process,) = {*multiprocessing.active_children()} - before
        self._pool = pool

    def versions(self) -> Any:
        return self._ask("versions", within_s=max(START_WITHIN_S, self._answer_within_s))

    def libraries(self) -> Any:
        return self._ask("libraries", within_s=ENDS_WITHIN_S) if self._pool is not None else []

    def peak(self, dtype: str) -> Any:
        return self._ask("peak", dtype)

    def results(self, row: Row) -> Any:
        return self._ask("results", row)

    def prepare(self, row: Row) -> Any:
        return self._ask("prepare", row)

    def sample(self, seconds: float) -> Any:
        return self._ask("sample", seconds)

    def release(self) -> None:
        if self._pool is not None:
            self._ask("release")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._process.join(5)
            self._process.kill()
            self._pool = None

    def _ask(self, method: str, *arguments: Any, within_s: float | None = None) -> Any:
        within_s = within_s or self._answer_within_s
        if self._hung:
            raise NotRun(f"not asked again: it hung for {self._answer_within_s:g} s")
        if self._pool is None:
            self.start()
        try:
            return self._pool.submit(_answer, method, arguments).result(within_s)
        except TimeoutError as error:
            self._hung = True
            self._process.kill()
            self.close()
            raise Failed(f"{method}: no answer within {within_s:g} s") from error
        except BrokenProcessPool as error:
            self._pool.shutdown()  # its thread collects the exit code; two who collect it may both come away without
            self.close()
            raise Failed(f"{method}: the process ended with exit code {self._process.exitcode}") from error


Host = Local | Remote
"""What a competitor runs in; both answer the same questions."""

_host: Local


def _begin(competitor: Competitor, threads: int | None) -> None:
    """Make a process ready to answer.

    It stays on as many processors as it has threads: XLA reads no other setting of their number.
    """
    global _host  # noqa: PLW0603  one process has one
    if threads:
        os.sched_setaffinity(0, processors(threads))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then ends the process
    _host = Local(competitor)
    with contextlib.suppress(Exception):  # which the first question meets again
        _host.versions()


def _resident(name: str, *, reset: bool = False) -> int:
    """Return a figure of this process's memory from /proc in bytes, 0 where it cannot be read; `reset` its peak."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name)), 0)


def _answer(method: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(_host, method)(*arguments)
    except NotRun:
        raise
    except BaseException as error:  # noqa: BLE001  it goes through a pipe, whatever it is: sys.exit() too
        raise Failed(f"{type(error).__name__}: {error}") from None
