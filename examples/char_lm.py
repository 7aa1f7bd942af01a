"""Train a character language model on real text, and show the results: `make demo`, or `python examples/char_lm.py`.

With `--device cuda` it runs on a GPU. No GPU has run it yet: docs/gpu-verification.md lists what has run.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from char_lm_model import Adam, CharLM, ngram_losses
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pycudnnrnn import ops
from pycudnnrnn.errors import MissingDependencyError, PycudnnrnnError

Array = npt.NDArray[Any]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
REPORT_EVERY = 20
"""Updates per point of the loss curve."""

UPDATES: Final = 3000
"""Less than a minute, and enough to be far below what tests/examples/test_char_lm.py asks of the held-out loss."""

LEARNING_RATE: Final = 1e-2
WARM_UP: Final = 50
"""Updates in which the learning rate rises to its highest; from there it falls along a cosine, to 0 at the end."""

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
@click.option("--device", default="cpu", show_default=True, help="Device to run on: cpu, cuda or cuda:1.")
@click.option("--updates", type=click.IntRange(1), default=UPDATES, show_default=True, help="Number of training steps.")
@click.option("--units", type=click.IntRange(1), default=128, show_default=True, help="Number of units of the LSTM.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of weights and sample.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON; the rest goes to standard error.")
def main(text: Path | None, out: Path, device: str, updates: int, units: int, seed: int, as_json: bool) -> None:
    """Train an LSTM on English text and compare it with n-gram models.

    The command also saves and restores the model, samples text from it, and draws its loss if matplotlib is installed.
    The text is the documentation that comes with Python, or your own file. After Ctrl-C the checkpoint is written, too.

    \b
    Examples:
      python examples/char_lm.py
      python examples/char_lm.py --text book.txt --units 256 --updates 20000
      python examples/char_lm.py --updates 500
      python examples/char_lm.py --json | tail -n 1
    """  # noqa: D301  click reads the \b
    console = Console(stderr=as_json, highlight=False, markup=False, emoji=False, soft_wrap=True)
    plot = pictures(console)
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        ops.CudnnLSTM(1, 1, 1).layout(device)  # an error here if the device cannot be used
        held.enter_context(one_blas_thread(console) if device == "cpu" else current_device(device))
        result = run(console, plot, text, out, device, updates, units, seed)
    if as_json:
        click.echo(json.dumps(result))
    if not result["restored_equal"]:
        raise PycudnnrnnError(f"the model restored from {out} computes other outputs than the saved one")


def run(
    console: Console, plot: types.ModuleType | None, text: Path | None, out: Path, device: str, updates: int,
    units: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Run all parts in order, print the results, and return them."""
    started = time.perf_counter()
    train, held_out, alphabet = load_text(text)
    model = CharLM.create(alphabet, units, seed, device)
    console.print(f"{len(train):,} characters to train on, {len(held_out):,} held out, {len(alphabet)} different")
    baselines = ngram_losses(train, held_out, len(alphabet))
    trained = train_model(model, train, updates=updates, console=console)
    checkpoint = out / "char_lm.safetensors"
    model.save(checkpoint)
    if trained.interrupted:
        console.print(f"interrupted; the model so far is in {checkpoint}")
        sys.exit(130)
    restored = CharLM.restore(checkpoint, device)
    probe = held_out[:1000], (None, None)
    equal = np.array_equal(model.log_probabilities(*probe)[0], restored.log_probabilities(*probe)[0])
    losses = {**baselines, f"LSTM, {units} units": restored.loss(np.concatenate([train[-1:], held_out]))}
    prompt = opening(restored.decode(held_out[:5000]))
    sample = restored.sample(prompt, SAMPLE_LENGTH, TEMPERATURE, seed)
    if plot is not None:
        draw_losses(out / "loss.png", trained.losses, baselines, losses[f"LSTM, {units} units"])
        plot.draw_layout(model.op.layout(model.device), out / "layout.png", title=repr(model.op.spec))

    console.print(table(losses))
    console.print("restored from its checkpoint, the model gives", "equal outputs" if equal else "DIFFERENT outputs")
    console.print("\na sample, after these words of the held-out text:", style="bold")
    console.print(prompt, style="dim")
    console.print("the model continues:", style="bold")
    console.print(sample[len(prompt) :])
    console.print()
    console.print(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    seconds = time.perf_counter() - started
    console.print(f"{trained.speed:,.0f} characters/s in training; {seconds:.1f} s in all")
    return {
        **baselines,
        "held_out": losses[f"LSTM, {units} units"],
        "updates": trained.updates,
        "seconds": seconds,
        "chars_per_second": trained.speed,
        "restored_equal": bool(equal),
    }


def draw_losses(path: Path, losses: list[float], baselines: dict[str, float], held_out: float) -> None:
    """Draw the training losses, one point for each REPORT_EVERY updates, with horizontal lines to beat."""
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.plot([REPORT_EVERY * (i + 1) for i in range(len(losses))], losses, label="training")
    for (name, value), style in zip(baselines.items(), ("dotted", "dashdot", "dashed"), strict=False):
        axes.axhline(value, color="#777777", linestyle=style, label=f"{name} {value:.2f}")
    axes.axhline(held_out, color="#c44e52", label=f"LSTM, held out {held_out:.2f}")
    axes.set(xlabel="updates", ylabel="loss [nats per character]")
    axes.legend()
    figure.savefig(path)


def table(losses: dict[str, float]) -> Table:
    """Return a table of all models with the best one marked."""
    rows = Table("model", "held out, nats per character", "")
    best = min(losses, key=lambda name: losses[name])
    for name, loss in losses.items():
        rows.add_row(name, f"{loss:.3f}", "best" if name == best else "", style="bold" if name == best else None)
    return rows


# --- requirements, checked before anything that takes time ------------------------------------------------------------


def pictures(console: Console) -> types.ModuleType | None:
    """Return the module that draws; without matplotlib print that there are no pictures, and return None."""
    try:
        from pycudnnrnn import plot  # noqa: PLC0415  matplotlib is an extra, and slow to import
    except MissingDependencyError as error:
        console.print(f"no pictures: {error}")
        return None
    return plot


def current_device(name: str) -> contextlib.AbstractContextManager[Any]:
    """Make a CUDA device the current one, on which CuPy works."""
    import cupy  # noqa: PLC0415  needed on a GPU alone

    index = name.partition(":")[2]
    return cupy.cuda.Device(int(index) if index else None)


def one_blas_thread(console: Console) -> contextlib.AbstractContextManager[Any]:
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
            text = path.read_text(encoding="utf-8")
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
    model: CharLM, text: Array, *, updates: int, console: Console, batch: int = 16, steps: int = 64
) -> Trained:
    """Train by truncated backpropagation through time.

    The text is cut into `batch` streams read side by side, `steps` characters an update, the state carried over. The
    learning rate falls to zero over the updates.
    """
    steps = min(steps, len(text) // batch - 1)
    streams = text[: len(text) // batch * batch].reshape(batch, -1).T
    optimizer = Adam(model.trainable, clip=1.0)
    losses, recent, state, position, done = [], [], (None, None), 0, 0
    started = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - started

    with interruptible() as interrupted, progress_bar(console) as bar:
        task = bar.add_task("training", total=1.0, loss=float("nan"), speed=0.0)
        while done < updates and not interrupted:
            if position + steps + 1 > len(streams):
                position, state = 0, (None, None)
            window = streams[position : position + steps + 1]
            loss, gradients, state = model.loss_and_gradients(window[:-1], window[1:], state)
            falling = 0.5 * (1 + np.cos(np.pi * done / updates))
            optimizer.update(gradients, LEARNING_RATE * min(1, (done + 1) / WARM_UP) * falling)
            position, done = position + steps, done + 1
            recent.append(loss)
            if len(recent) == REPORT_EVERY:
                losses.append(sum(recent) / len(recent))
                recent.clear()
                bar.update(task, completed=done / updates, loss=losses[-1], speed=done * batch * steps / elapsed())
        bar.update(task, completed=1.0)
    return Trained(losses, done * batch * steps / elapsed(), done, bool(interrupted))


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


def program() -> None:
    """Run `main`, and end with one line if something is wrong."""
    try:
        main()
    except (PycudnnrnnError, OSError) as error:
        sys.exit(f"char_lm: {error}")


if __name__ == "__main__":
    program()
