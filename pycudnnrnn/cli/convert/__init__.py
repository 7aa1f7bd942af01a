"""`pycudnnrnn convert`: convert a file of weights to the file of another framework."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from pycudnnrnn import convert as converters
from pycudnnrnn._checks import Assumption, some, warn
from pycudnnrnn._tf1.tensors import from_tf, tf_tensors
from pycudnnrnn.checkpoint.folder import INDEX, is_tensorflow
from pycudnnrnn.checkpoint.items import Model
from pycudnnrnn.cli import _files
from pycudnnrnn.cli._output import console, echo_json, print_table
from pycudnnrnn.cli.convert.verify import verify as run_both
from pycudnnrnn.convert import Canonical
from pycudnnrnn.errors import ConvertError

FRAMEWORKS: Final = [name for name in converters.__all__ if inspect.ismodule(getattr(converters, name))]

PACKAGE: Final = "pycudnnrnn"
"""What takes the place of a framework's name for files of `Saver` and `checkpoint.save`."""

_MEANT: Final = {"torch": "pytorch", "tf": "tensorflow", "jax": "jax_rnn", "mxnet": "gluon"}
"""Other names of frameworks."""


class _Framework(click.Choice[str]):
    """A framework by the name of its converter."""

    def __init__(self) -> None:
        super().__init__(FRAMEWORKS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in _MEANT:
            self.fail(f"{value!r} is not a framework's name here: did you mean {_MEANT[value]!r}?", param, ctx)
        return super().convert(value, param, ctx)


def _keywords(function: Any) -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}


def _all_keys() -> str:
    """List the keys of -s and -t for each framework."""
    lines = []
    for name in FRAMEWORKS:
        module = getattr(converters, name)
        read, written = _keywords(module.to_canonical), _keywords(module.from_canonical)
        if name == "onnx":  # of a model, the file has the other keywords
            read, written = {"nodes": None}, _keywords(module.to_model)  # type: ignore[dict-item]  # names alone
        lines.append(f"{name}: -s {', '.join(read) or 'none'}; -t {', '.join(written) or 'none'}")
    return "\b\nKeys of -s and -t by framework:\n" + "\n".join(f"  {line}" for line in lines)


@click.command(epilog=_all_keys())
@click.argument("source", metavar="SRC", type=_files.FileOrCheckpoint())
@click.argument("target", metavar="DST", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--from", "from_", type=_Framework(),
              help="SRC's framework, if neither its suffix nor SRC tells it.")  # fmt: skip
@click.option("--to", type=_Framework(), help="DST's framework, if its suffix does not tell it.")
@click.option("-s", "--source-option", "source_options", multiple=True, metavar="KEY=VALUE",
              help="A keyword of to_canonical: prefix=encoder.lstm or layers=lstm,lstm_1.")  # fmt: skip
@click.option("-t", "--target-option", "target_options", multiple=True, metavar="KEY=VALUE",
              help="A keyword of from_canonical: prefix=rnn. or api=nnx.")  # fmt: skip
@click.option("--verify", is_flag=True, help="Run both models on random input and compare; needs their frameworks.")
@click.option("--force", is_flag=True, help="Overwrite DST if it exists.")
@click.option("--dry-run", is_flag=True, help="Do everything except write DST.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def convert(
    source: Path, target: Path, from_: str | None, to: str | None, source_options: tuple[str, ...],
    target_options: tuple[str, ...], verify: bool, force: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Convert RNN weights from one framework's file to another's.

    Formats: .pt (a state dict of tensors, no code) and .safetensors, as SRC under any name; .weights.h5 (Keras) and
    .onnx. SRC may also be a .h5 or .keras file of a whole model, or a .npz of any framework's arrays. Name a TensorFlow
    checkpoint by its .index file; as SRC, its prefix or its folder works, too.

    Only the RNN is converted: a Dense layer or an embedding beside it stays behind.

    A file with exactly one RNN needs no -s prefix=. Files that Saver or checkpoint.save wrote need no options, unless
    they contain several models: choose one with -s prefix=KEY.

    Nothing in a file is run. A file that the safe reader of its format rejects is an error. With --verify, DST is
    written only if at least one side could run and computes what the op computes.

    \b
    Examples:
      pycudnnrnn convert model.pt model.weights.h5 -s prefix=encoder.lstm
      pycudnnrnn convert model.weights.h5 model.onnx -s layers=lstm --verify
      pycudnnrnn convert model.ckpt-1000 model.pt -s prefix=cudnn_lstm
      pycudnnrnn convert model.onnx model.safetensors --to flax -t api=nnx
      pycudnnrnn convert model.onnx model.pt -s nodes=encoder_0,encoder_1
      pycudnnrnn convert saved.safetensors model.pt -s prefix=encoder
      pycudnnrnn convert model.pt model.onnx --json | jq '.arrays[].name'
    """  # noqa: D301  click reads the \b
    source_format, framework = framework_of(source, from_, "SRC")
    target_format, target_framework = framework_of(target, to, "DST")
    if not target_framework:
        raise click.UsageError(f"{target.name!r} may hold the arrays of any framework: pass --to")
    _files.check_target(target, target_format, force=force)
    writer = getattr(converters, target_framework)
    is_model = target_format == ".onnx"
    write_with = options_of(converters.onnx.to_model if is_model else writer.from_canonical, target_options, "-t")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        framework, source_arrays, c = open_source(source, source_format, framework, source_options)
    arrays: dict[str, Any] = writer.from_canonical(c, **({} if is_model else write_with))
    sides = {"SRC": (framework, source_arrays), "DST": (target_framework, arrays)}
    if framework == PACKAGE:
        del sides["SRC"]  # it is the op, which both sides are compared with
    verdicts = run_both(c, sides) if verify else []
    make_image = _files.FILE_FORMATS[target_format].image
    image = make_image and make_image(arrays, target_framework, c, write_with)
    out = console()
    if not as_json:
        out.say(f"{source}: {c.spec!r}")
        for warning in said:
            out.say(f"note: {warning.message}")
        print_table(out, ["in DST", "shape"], [[name, list(array.shape)] for name, array in arrays.items()])
        assumed = any(issubclass(warning.category, Assumption) for warning in said)
        for verdict in verdicts:
            rebuilt = "; rebuilt from what the notes assume" if assumed and verdict.name.endswith("(SRC)") else ""
            out.say(f"verify: {verdict}{rebuilt}")
    if not dry_run:
        _files.write(target, image, arrays)
    if as_json:
        echo_json({
            "source": str(source), "from": framework, "target": str(target), "to": target_framework,
            "spec": json.loads(c.spec.to_json()), "notes": [str(warning.message) for warning in said],
            "arrays": [{"name": n, "shape": a.shape} for n, a in arrays.items()],
            "verify": [verdict._asdict() for verdict in verdicts],
        })  # fmt: skip
        return
    out.say(f"{'not written' if dry_run else 'written'}: {target} ({target_framework}), {len(arrays)} arrays")
    if is_model:
        out.say(_axes(c, **write_with))


def _axes(c: Canonical, *, batch_first: bool = False, states: bool = False, sequence_lens: bool = False) -> str:
    """Describe the input and output of a model of ONNX that was written with these options."""
    axes, first = ("B, T", "batch first") if batch_first else ("T, B", "time first; -t batch_first=true changes it")
    more = ["initial_h", "initial_c"][: states * (1 + c.spec.has_cell_state)] + ["sequence_lens"] * sequence_lens
    optional = f"; optional inputs: {', '.join(more)}" if more else ""
    output = f"output [{axes}, {c.spec.num_units * c.spec.num_dirs}]"
    return f"input [{axes}, {c.spec.input_size}] ({first}), {output}{optional}"


def framework_of(path: Path, option: str | None, which: str) -> tuple[str, str]:
    """Return the file's format and its framework, "" if neither its name nor an option determines it."""
    reads = which == "SRC"
    formats = [end for end, form in _files.FILE_FORMATS.items() if reads or form.image or end == INDEX]
    may_be = option == "tensorflow" or (reads and option in {None, "keras"})
    if may_be and (path.is_dir() or is_tensorflow(path) if reads else path.suffix not in formats):
        return INDEX, option or "tensorflow"
    suffix = _files.suffix_of(path) if reads else path.suffix
    if suffix not in formats:
        ends = [end if reads or end != ".h5" else ".weights.h5" for end in formats]
        hint = "; tensorflowjs_converter makes a .h5 of a model.json of TensorFlow.js" if suffix == ".json" else ""
        raise click.UsageError(f"{which} has to end in {', '.join(ends)}, got {path.name!r}{hint}")
    usual = _files.FILE_FORMATS[suffix].framework
    if option and usual and option != usual:
        raise click.UsageError(f"a {suffix} file is {usual}'s, not {option}'s; .safetensors and .npz take any")
    return suffix, option or usual


def open_source(
    path: Path, format_of: str, framework: str, options: tuple[str, ...]
) -> tuple[str, dict[str, Any], Canonical]:
    """Return SRC's framework, its arrays and its RNN. If the name does not tell the framework, the metadata may."""
    form, named = _files.FILE_FORMATS[format_of], bool(framework)
    keywords: dict[str, Any] = {}
    if named:
        to_canonical = getattr(converters, framework).to_canonical
        keywords = options_of(to_canonical, options, "-s", form.parts)
    contents = form.read(path, keywords.pop(form.parts, None))
    if not named:
        framework = contents.framework if contents.models is None else PACKAGE
        if contents.models is not None:
            to_canonical = functools.partial(of_saver, contents.models)
        elif framework in FRAMEWORKS:
            to_canonical = getattr(converters, framework).to_canonical
        else:
            torchs = any(name.endswith("weight_ih_l0") for name in contents.arrays)
            names = " (pytorch, by its names)" if torchs else ""
            raise click.UsageError(f"{path.name!r} does not record the framework of its arrays: pass --from{names}")
        keywords = options_of(to_canonical, options, "-s")
    return framework, contents.arrays, _converted(to_canonical, contents.arrays, contents.keywords | keywords)


def _converted(to_canonical: Callable[..., Canonical], arrays: dict[str, Any], keywords: dict[str, Any]) -> Canonical:
    """Convert arrays. If the error offers only one choice, take it, and name it in a warning."""
    try:
        return to_canonical(arrays, **keywords)
    except ConvertError as error:
        if len(error.choices) != 1 or not keywords.keys().isdisjoint({"prefix", "layers"}):
            raise
        (choice,) = error.choices
        text = ", ".join(f"-s {key}={value}" for key, value in choice.items())
        warnings.warn(f"read with {text}: the only RNN that was found", stacklevel=1)
        return to_canonical(arrays, **keywords, **choice)


def options_of(function: Any, options: tuple[str, ...], flag: str, names: str = "") -> dict[str, Any]:
    """Read KEY=VALUE for the keywords of a converter, by their annotations; `names` takes a list of names."""
    keywords = _keywords(function)
    known = {n: p.annotation for n, p in keywords.items()} | ({names: "Sequence[str]"} if names else {})
    values: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in known:
            hint = f"; layers={value} chooses a layer" if key in {"prefix", "layer"} and "layers" in known else ""
            keys = ", ".join(known) or "none"
            raise click.UsageError(f"{flag} takes KEY=VALUE with a key of {keys}, got {option!r}{hint}")
        values[key] = value_of(str(known[key]), value)
    missing = [n for n, p in keywords.items() if p.default is p.empty and n not in values]
    if missing:
        raise click.UsageError(f"{flag} has to give {', '.join(missing)}: these arrays do not contain it")
    return values


def value_of(annotation: str, text: str) -> Any:
    """Read a value of a type such as "bool | None". Other values stay text, for which the converter raises an error."""
    kinds = annotation.split(" | ")
    word = text.lower()
    if "bool" in kinds and word in {"true", "false"}:
        return word == "true"
    if any(kind.startswith("Sequence[") for kind in kinds):
        names = text.split(",")
        return [tuple(n.split("+")) if "tuple[" in annotation and "+" in n else n for n in names]
    if "float" in kinds:
        with contextlib.suppress(ValueError):
            return float(text)
    return int(text) if "int" in kinds and text.isdecimal() and text.isascii() and len(text) < 10 else text


def of_saver(models: dict[str, Model | None], arrays: dict[str, Any], *, prefix: str = "") -> Canonical:
    """Read one model with its spec. `models` are by the keys of their saver, None for an item that is not an RNN.

    `prefix` is the model's key; a file with one model does not need it.

    Raises:
        ConvertError: no such model, or several and no prefix.
    """
    rnns = {key: model for key, model in models.items() if model is not None}
    if not rnns:
        names = some(sorted(models), repr) or "nothing"
        raise ConvertError(PACKAGE, "arrays", f"there is no RNN in this file, only {names}")
    chosen = [key for key in rnns if prefix in {key, f"{key}/"} or (not prefix and len(rnns) == 1)]
    if not chosen:
        why = f"none is called {prefix!r}" if prefix else "one is converted at a time"
        which = f"the models of this file are {some(sorted(rnns), repr)}"
        raise ConvertError(PACKAGE, "prefix", f"{which}: {why}, so give -s prefix=, with one of these names")
    if others := some(sorted(models.keys() - {chosen[0]}), repr):
        warn(f"left out, since one model is converted at a time: {others}")
    model = rnns[chosen[0]]
    tensors = {tensor.name: arrays[model.scope + tensor.name] for tensor in tf_tensors(model.spec)}
    return Canonical(model.spec, *map(tuple, from_tf(model.spec, tensors)))
