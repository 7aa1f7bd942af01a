"""`pycudnnrnn demo`: train a character language model on real text, and show the results."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pycudnnrnn._arrays import check_device
from pycudnnrnn._source import Source
from pycudnnrnn.cli._output import SafeConsole
from pycudnnrnn.cli._output import console as console_of
from pycudnnrnn.cli.demo.char_lm import Adam, CharLM
from pycudnnrnn.cli.demo.ngrams import ngram_losses
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import MissingDependencyError, PycudnnrnnError

Array = npt.NDArray[Any]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
REPORT_EVERY = 20
"""Updates per point of the loss curve."""

TEXT_MAX: Final = 1 << 28
"""Most bytes of a text: the arrays made from it are several times larger."""

UPDATES: Final = 3000
"""Less than a minute, and enough to be far below what tests/cli/test_demo.py asks of the held-out loss."""

LEARNING_RATE: Final = 1e-2
WARM_UP: Final = 50
"""Updates in which the learning rate rises to its highest; from there it falls along a cosine, to 0 at the end."""

ESTIMATE_AFTER: Final = 2.0
"""Seconds of training before the total time is estimated and printed."""

PROMPT_WORDS: Final = 8
"""Fewest words of the line that is the prompt."""

PROMPT_LENGTH: Final = 160
SAMPLE_LENGTH: Final = 600
TEMPERATURE: Final = 0.5
"""Below 1 the likely becomes likelier: fewer invented words, and not yet the same phrase over and over."""


@click.command()
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Train on this UTF-8 file.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="demo-out", show_default=True,
              help="Folder for the checkpoint and the pictures.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="Device to run on: cpu or cuda.")
@click.option("--updates", type=click.IntRange(1), default=UPDATES, show_default=True, help="Number of training steps.")
@click.option("--seconds", type=click.FloatRange(1), help="Stop the training after this many seconds.")
@click.option("--units", type=click.IntRange(1), default=128, show_default=True, help="Number of units of the LSTM.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of weights and sample.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON; the rest goes to standard error.")
def demo(
    text: Path | None, out: Path, device: str, updates: int, seconds: float | None, units: int, seed: int, as_json: bool
) -> None:
    """Train an LSTM on English text and compare it with n-gram models.

    The command also saves and restores the model, samples text from it, and draws its loss if matplotlib is installed.
    The text is the documentation that comes with Python, or your own file. A fast and a slow machine learn equally
    well, unless --seconds stops the training. After Ctrl-C the checkpoint is still written.

    \b
    Examples:
      pycudnnrnn demo
      pycudnnrnn demo --text book.txt --units 256 --updates 20000
      pycudnnrnn demo --seconds 20
      pycudnnrnn demo --json | tail -n 1
    """  # noqa: D301  click reads the \b
    console = console_of(stderr=as_json)
    plot = pictures(console)
    make_folder(out)
    with contextlib.ExitStack() as held:
        if device == "cpu":
            held.enter_context(one_blas_thread(console))
        held.enter_context(engine_for(check_device(device)).active())  # CuPy works on the current device
        result = run(console, plot, text, out, device, updates, seconds, units, seed)
    if as_json:
        click.echo(json.dumps(result))
    if not result["restored_equal"]:
        raise PycudnnrnnError(f"the model restored from {out} computes other outputs than the saved one")


def run(
    console: SafeConsole, plot: types.ModuleType | None, text: Path | None, out: Path, device: str, updates: int,
    seconds: float | None, units: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Run all parts in order, print the results, and return them."""
    parts = Parts()
    with parts("text and n-grams"):
        train, held_out, alphabet = load_text(text)
        model = CharLM.create(alphabet, units, seed, device)
        console.print(f"{len(train):,} characters to train on, {len(held_out):,} held out, {len(alphabet)} different")
        baselines = ngram_losses(train, held_out, len(alphabet))
    with parts("training"):
        trained = train_model(model, train, updates=updates, seconds=seconds, console=console)
    checkpoint = out / "char_lm.safetensors"
    with parts("checkpoint"):
        model.save(checkpoint)
        if trained.interrupted:
            console.say(f"interrupted; the model so far is in {checkpoint}")
            sys.exit(130)
        restored = CharLM.restore(checkpoint, device)
        probe = held_out[:1000], (None, None)
        equal = np.array_equal(model.log_probabilities(*probe)[0], restored.log_probabilities(*probe)[0])
    with parts("held-out text"):
        losses = {**baselines, f"LSTM, {units} units": restored.loss(np.concatenate([train[-1:], held_out]))}
    with parts("sample"):
        prompt = opening(restored.decode(held_out[:5000]))
        sample = restored.sample(prompt, SAMPLE_LENGTH, TEMPERATURE, seed)
    if plot is not None:
        with parts("pictures"):
            plot.draw_losses(out / "loss.png", trained.losses, REPORT_EVERY, baselines, losses[f"LSTM, {units} units"])
            plot.draw_layout(model.op.layout(model.device), out / "layout.png", title=repr(model.op.spec))

    console.print(verdict(losses, trained.updates, updates, seconds))
    console.print("restored from its checkpoint, the model gives", "equal outputs" if equal else "DIFFERENT outputs")
    console.print("\na sample, after these words of the held-out text:", style="bold")
    console.print(prompt, style="dim")
    console.print("the model continues:", style="bold")
    console.print(sample[len(prompt) :])
    console.print()
    console.say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    console.print(parts.text())
    return {
        **baselines,
        "held_out": losses[f"LSTM, {units} units"],
        "updates": trained.updates,
        "seconds": parts.total,
        "parts": parts.seconds,
        "chars_per_second": trained.speed,
        "restored_equal": bool(equal),
    }


def verdict(losses: dict[str, float], done: int, updates: int, seconds: float | None) -> Table:
    """Return a table of all models with the best one marked, and a caption if the training was stopped early."""
    table = Table("model", "held out, nats per character", "")
    best = min(losses, key=lambda name: losses[name])
    for name, loss in losses.items():
        table.add_row(name, f"{loss:.3f}", "best" if name == best else "", style="bold" if name == best else None)
    if done < updates:
        table.caption = f"stopped early by --seconds {seconds:g}: {done:,} of {updates:,} updates"
    return table


# --- requirements, checked before anything that takes time ------------------------------------------------------------


def pictures(console: SafeConsole) -> types.ModuleType | None:
    """Return the module that draws; without matplotlib print that there are no pictures, and return None."""
    try:
        from pycudnnrnn import plot  # noqa: PLC0415  matplotlib is an extra, and slow to import
    except MissingDependencyError as error:
        console.print(f"no pictures: {error}")
        return None
    return plot


def make_folder(path: Path) -> None:
    """Create a folder, and check that files can be written to it.

    Raises:
        OSError: they cannot.
    """
    path.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.NamedTemporaryFile(dir=path):
            pass
    except OSError as error:
        error.filename = str(path)  # the one that the caller knows
        raise


def one_blas_thread(console: SafeConsole) -> contextlib.AbstractContextManager[Any]:
    """Limit BLAS to one thread: for these sizes a second one mostly waits, on a processor that a kernel's thread needs.

    Without threadpoolctl, print a note and change nothing.
    """
    try:
        from threadpoolctl import threadpool_limits  # noqa: PLC0415  in the extra "demo"
    except ImportError:
        console.print("threadpoolctl is not installed: BLAS uses its default number of threads, which may be slower")
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


# --- its parts --------------------------------------------------------------------------------------------------------


class Parts:
    """Measure the seconds of each part: `with parts("training"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def text(self) -> str:
        each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return f"{each}; {self.total:.1f} s in all"


def load_text(path: Path | None) -> tuple[Array, Array, str]:
    """Return the training nine tenths and the held-out tenth as numbers, and the alphabet of the former.

    Raises:
        PycudnnrnnError: a file that is not UTF-8, or too short to learn from.
    """
    if path is None:
        from pydoc_data.topics import topics  # noqa: PLC0415  half a megabyte, for this command alone

        text = "\n".join(topics[name] for name in sorted(topics))
    else:
        try:
            with Source(path) as source:
                text = io.TextIOWrapper(io.BytesIO(source.whole(TEXT_MAX)), "utf-8").read()
        except UnicodeDecodeError as error:
            raise PycudnnrnnError(f"{path} is not UTF-8 text: {error}") from error
    cut = len(text) * 9 // 10
    if cut < 10_000:
        raise PycudnnrnnError(f"the text has {len(text)} characters, expecting at least 11,112 to learn anything from")
    alphabet = REPLACEMENT + "".join(sorted(set(text[:cut]) - {REPLACEMENT}))
    numbers = {character: i for i, character in enumerate(alphabet)}
    symbols = np.array([numbers.get(character, 0) for character in text], np.int64)
    return symbols[:cut], symbols[cut:], alphabet


def opening(text: str) -> str:
    """Return the first line of a text that is prose, so many words long; its first characters if there is none."""
    prose = (line for line in text.splitlines() if len(line.split()) >= PROMPT_WORDS)
    return next(prose, text)[:PROMPT_LENGTH]


class Trained(NamedTuple):
    """The result of a training: the mean loss of each REPORT_EVERY updates, characters per second, updates done."""

    losses: list[float]
    speed: float
    updates: int
    interrupted: bool


def train_model(
    model: CharLM, text: Array, *, updates: int, console: SafeConsole, seconds: float | None = None, batch: int = 16,
    steps: int = 64,
) -> Trained:  # fmt: skip
    """Train by truncated backpropagation through time.

    The text is cut into `batch` streams read side by side, `steps` characters an update, the state carried over. The
    learning rate falls to zero over the updates; with `seconds`, over the time where that runs out first.
    """
    steps = min(steps, len(text) // batch - 1)
    streams = text[: len(text) // batch * batch].reshape(batch, -1).T
    optimizer = Adam(model.trainable, clip=1.0)
    losses, recent, state, position, done, estimated = [], [], (None, None), 0, 0, False
    started = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - started

    with interruptible() as interrupted, progress_bar(console) as bar:
        task = bar.add_task("training", total=1.0, loss=float("nan"), speed=0.0)
        while done < updates and not interrupted:
            spent = done / updates if seconds is None else max(done / updates, elapsed() / seconds)
            if spent >= 1:
                break
            if position + steps + 1 > len(streams):
                position, state = 0, (None, None)
            window = streams[position : position + steps + 1]
            loss, gradients, state = model.loss_and_gradients(window[:-1], window[1:], state)
            falling = 0.5 * (1 + np.cos(np.pi * spent))
            optimizer.update(gradients, LEARNING_RATE * min(1, (done + 1) / WARM_UP) * falling)
            position, done = position + steps, done + 1
            recent.append(loss)
            if len(recent) == REPORT_EVERY:
                losses.append(sum(recent) / len(recent))
                recent.clear()
                bar.update(task, completed=spent, loss=losses[-1], speed=done * batch * steps / elapsed())
                if not estimated and elapsed() >= ESTIMATE_AFTER:
                    console.print(estimate(elapsed() / done * updates, updates, seconds))
                    estimated = True
        bar.update(task, completed=1.0)
    return Trained(losses, done * batch * steps / elapsed(), done, bool(interrupted))


def estimate(total: float, updates: int, seconds: float | None) -> str:
    """Return a line that estimates how long the training will take."""
    if seconds is not None and seconds < total:
        return f"{updates:,} updates would take about {total:.0f} s; --seconds stops them after {seconds:g} s"
    return f"{updates:,} updates will take about {total:.0f} s"


def progress_bar(console: SafeConsole) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} characters/s"),
        TimeRemainingColumn(),
        console=console,
    )


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Yield a list to which Ctrl-C appends, so that an update is finished first; a second Ctrl-C interrupts at once."""
    caught: list[int] = []

    def first(number: int, _frame: Any) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    previous = signal.signal(signal.SIGINT, first)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, previous)
