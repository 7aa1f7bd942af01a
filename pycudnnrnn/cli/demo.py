"""`pycudnnrnn demo`: train a character language model on real text, and show what came of it."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pycudnnrnn._source import Source
from pycudnnrnn.cli._char_lm import Adam, CharLM
from pycudnnrnn.cli._ngrams import ngram_losses
from pycudnnrnn.cli._output import console as console_of
from pycudnnrnn.cli._output import print_table
from pycudnnrnn.errors import PycudnnrnnError

Array = npt.NDArray[Any]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
TEXT_MAX = 1 << 28
"""Most bytes of a text: numbers and one-hot rows made of it take many times as much."""

REPORT_EVERY = 20
"""Updates to a point of the loss curve."""


@click.command()
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Train on this UTF-8 file.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="demo-out", show_default=True,
              help="Folder for the checkpoint and the pictures.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="Where to run: cpu or cuda.")
@click.option("--updates", type=click.IntRange(1), default=2600, show_default=True, help="Stop after so many updates.")
@click.option("--seconds", type=click.FloatRange(1), default=65.0, show_default=True,
              help="Stop training after so many seconds, if that comes first.")  # fmt: skip
@click.option("--units", type=click.IntRange(1), default=128, show_default=True, help="Units of the LSTM.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON on standard output.")
def demo(
    text: Path | None, out: Path, device: str, updates: int, seconds: float, units: int, seed: int, as_json: bool
) -> None:
    """Train an LSTM on English text, beside n-gram models, and save, restore, sample and draw.

    The text is the documentation that every Python carries, or a file of your own. Ctrl-C stops the training between
    two updates; the checkpoint is written all the same.

    \b
    Examples:
      pycudnnrnn demo
      pycudnnrnn demo --text book.txt --units 256 --seconds 300 --updates 20000
      pycudnnrnn demo --json | tail -n 1
    """  # noqa: D301  click reads the \b
    console = console_of(stderr=as_json)
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "char_lm.safetensors"

    train, held_out, alphabet = load_text(text)
    console.say(f"{len(train):,} characters to train on, {len(held_out):,} held out, {len(alphabet)} different")
    baselines = ngram_losses(train, held_out, len(alphabet))

    model = CharLM.create(alphabet, units, seed, device)
    losses, speed, interrupted = train_model(model, train, updates=updates, seconds=seconds, console=console)
    model.save(checkpoint)
    if interrupted:
        console.say(f"interrupted; the model so far is in {checkpoint}")
        sys.exit(130)

    restored = CharLM.restore(checkpoint, device)
    probe = held_out[:1000]
    equal = np.array_equal(
        model.log_probabilities(probe, (None, None))[0], restored.log_probabilities(probe, (None, None))[0]
    )
    held_out_loss = restored.loss(np.concatenate([train[-1:], held_out]))
    sample = restored.sample("The ", 300, temperature=0.6, seed=seed)
    draw(model, losses, baselines, held_out_loss, out)

    models = {**baselines, f"LSTM, {units} units": held_out_loss}
    print_table(console, ["model", "held out, nats a character"], [[name, f"{v:.3f}"] for name, v in models.items()])
    console.say(f"restored from its checkpoint, the model gives {'equal' if equal else 'DIFFERENT'} outputs")
    console.print("\na sample:", style="bold")
    console.print(sample)
    console.print()
    console.say(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    elapsed = time.perf_counter() - started
    if as_json:
        result = {
            **baselines,
            "held_out": held_out_loss,
            "seconds": elapsed,
            "chars_per_second": speed,
            "restored_equal": bool(equal),
        }
        click.echo(json.dumps(result))
    if not equal:
        raise PycudnnrnnError(f"the model restored from {checkpoint} computes something else than the one saved there")


def load_text(path: Path | None) -> tuple[Array, Array, str]:
    """Return the training nine tenths and the held-out tenth as numbers, and the alphabet of the former.

    Raises:
        PycudnnrnnError: a file that is not UTF-8, or too short to learn from.
        OSError: no regular file, or one of more than 256 MiB.
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


def train_model(
    model: CharLM, text: Array, *, updates: int, seconds: float, console: Console, batch: int = 32, steps: int = 64
) -> tuple[list[float], float, bool]:
    """Train by truncated backpropagation through time.

    The text is cut into `batch` streams read side by side, `steps` characters an update, the state carried over. The
    learning rate falls to zero along a cosine, over updates or time, whichever runs out first.

    Returns the mean losses of each REPORT_EVERY updates, characters a second, and whether Ctrl-C ended it.
    """
    steps = min(steps, len(text) // batch - 1)
    streams = text[: len(text) // batch * batch].reshape(batch, -1).T
    optimizer = Adam(model.trainable, clip=1.0)
    losses, recent, state, position, done = [], [], (None, None), 0, 0
    started = time.perf_counter()
    with interruptible() as interrupted, progress_bar(console) as bar:
        task = bar.add_task("training", total=1.0, loss=float("nan"), speed=0.0)
        while (spent := _spent(done, updates, started, seconds)) < 1 and not interrupted:
            if position + steps + 1 > len(streams):
                position, state = 0, (None, None)
            window = streams[position : position + steps + 1]
            loss, gradients, state = model.loss_and_gradients(window[:-1], window[1:], state)
            optimizer.update(gradients, 6e-3 * 0.5 * (1 + np.cos(np.pi * spent)))
            position, done = position + steps, done + 1
            recent.append(loss)
            if len(recent) == REPORT_EVERY:
                losses.append(sum(recent) / len(recent))
                recent.clear()
                speed = done * batch * steps / (time.perf_counter() - started)
                bar.update(task, completed=spent, loss=losses[-1], speed=speed)
        bar.update(task, completed=1.0)
    return losses, done * batch * steps / (time.perf_counter() - started), bool(interrupted)


def _spent(done: int, updates: int, started: float, seconds: float) -> float:
    return max(done / updates, (time.perf_counter() - started) / seconds)


def draw(model: CharLM, losses: list[float], baselines: dict[str, float], held_out: float, out: Path) -> None:
    from pycudnnrnn import plot  # noqa: PLC0415  matplotlib is slow to import, and only needed here

    plot.draw_losses(out / "loss.png", losses, REPORT_EVERY, baselines, held_out)
    plot.draw_layout(model.op.layout(model.device), out / "layout.png", title=repr(model.op.spec))


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} characters/s"),
        TimeRemainingColumn(),
        console=console,
    )


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Give a list that Ctrl-C fills, so that work stops where it is whole; a second Ctrl-C interrupts at once."""
    caught: list[int] = []

    def first(number: int, _frame: Any) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    previous = signal.signal(signal.SIGINT, first)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, previous)
