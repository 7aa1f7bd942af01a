"""The pages of the API reference, one per public module: a summary, then every name with its members.

Each member has its own directive: autodoc would sort them, and a reader looks for the LSTM and for `__call__` first.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from docs.api import CALLED, RETURNED, is_constructed
from pycudnnrnn import libcudnn, spec
from pycudnnrnn._libcudnn_abi import NEVER
from pycudnnrnn._tf1.layer import TF1Layer
from pycudnnrnn.errors import version_text
from pycudnnrnn.layers import RNNLayer
from tests.api.public_api import modules, public_names

REFERENCE: Final = Path(__file__).parent / "reference"

GROUPS: Final = (
    "Classes",
    "Functions",
    "Returned by calls",
    "Exceptions",
    "Enumerations and C types",
    "Constants and types",
)

TF1_LAYER: Final = "pycudnnrnn.layers.RNNLayer"
"""The class under whose name the members of `TF1Layer` are explained: that class is private, and has many."""

TF1_SECTION: Final = "Members of every TF 1.x layer"

TF_NAMES: Final = re.compile(r"pycudnnrnn\.(ops\.cudnn_\w+|saveable\.CudnnParamsFormatConverter\w*)")
"""What only a program for TensorFlow 1.x calls; it has its own page."""

TF_PAGE: Final = """\
# TensorFlow's names

These functions and classes have the names and arguments of TensorFlow 1.x's `tf.contrib.cudnn_rnn`. They are for
programs that already call them: see [Migrate from TF 1.x](../how-to/from-tf-contrib.md). For a new program, use the
classes of [ops](ops.md) or the [layers](layers.md).
"""

OPENINGS: Final = {
    "ops": """\
An op runs an RNN: a stack of LSTM, GRU, tanh or relu layers, in one direction or two. It holds no weights. You pass
them to each call as one flat array, `params`.

| array | shape | what it is |
| --- | --- | --- |
| `input_data` | [T, B, I] | the input: T steps, B sequences, I inputs |
| `input_h`, `output_h` | [L * D, B, S] | h of each layer and direction, before the first step and after the last |
| `input_c`, `output_c` | [L * D, B, U] | c of each layer and direction; only an LSTM has it |
| `params` | [`params_size()`] | all weights and biases, see below |
| `output` | [T, B, D * S] | h of the last layer at each step |

With `time_major=False`, the input and the output have the batch first: [B, T, ...]. Letters: L layers, D directions
(1 or 2), U units, P projected units, and S for the width of h: P with a projection, otherwise U. Row
`layer * D + direction` of the states belongs to that layer and direction, forward first, as in torch. The backward
direction begins at the end of each sequence and ends at step 0: its final states are those after step 0.

For each layer and direction, `params` contains:

| part | shape | how many |
| --- | --- | --- |
| input weights W | [U, I] in layer 0 (none with skip input), [U, D * S] above | one for each gate |
| recurrent weights R | [U, S] | one for each gate |
| input biases bW, recurrent biases bR | [U] | one for each gate, as far as `bias_mode` has them |
| projection P | [P, U] | one, if there is a projection |

An LSTM has the gates input, forget, new and output, in this order; a GRU has reset, update and new; tanh and relu have
one. [The params buffer](../layout.md) gives the position of each part, and
[Migrate from `torch.nn.LSTM`](../how-to/from-torch.md) what differs from torch.
""",
}
"""What a page begins with, before the module's docstring."""

VALUE_MAX: Final = 100
"""Most characters of a constant's value that are shown."""


def api_pages() -> dict[Path, str]:
    """Return one page per public module, with the modules inside it as sections."""
    pages: dict[Path, list[str]] = {}
    for name, module in modules():
        top, *inner = name.split(".")[1:]
        heading = f"{'##' if inner else '#'} {name}\n"
        opening = "" if inner else OPENINGS.get(top, "")
        pages.setdefault(REFERENCE / f"{top}.md", []).append(f"{heading}\n{opening}\n{_rst(_module(name, module))}")
    pages[REFERENCE / "layers.md"].append(f"(tf1-layer)=\n\n## {TF1_SECTION}\n\n{_rst(_tf1_members())}")
    pages[REFERENCE / "tensorflow-names.md"] = [TF_PAGE, _rst(_tensorflow_names())]
    pages[REFERENCE / "libcudnn.md"].append(f"## C functions\n\n{_rst(_c_functions())}")
    return {path: "\n".join(parts) for path, parts in pages.items()}


def _rst(parts: Iterator[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(parts) + "```\n"


def _module(name: str, module: Any) -> Iterator[str]:
    yield f".. automodule:: {name}\n   :no-members:\n"
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for key in _in_order(name, module):
        if not TF_NAMES.fullmatch(f"{name}.{key}"):
            groups[_group(f"{name}.{key}", getattr(module, key))].append(f"{name}.{key}")
    for group, names in groups.items():
        if names:
            yield f".. rubric:: {group}\n"
            yield from _constants_summary(names, module) if group == GROUPS[-1] else _summary(names)
    kinds = [full for group in (GROUPS[0], GROUPS[2]) for full in groups[group]]
    yield from _members_summary(kinds, module)
    for names in groups.values():
        for full in names:
            yield from _described(full, getattr(module, full.rpartition(".")[2]), module)


def _tensorflow_names() -> Iterator[str]:
    """Give the names of `TF_NAMES`, those of a module together."""
    for name, module in modules():
        names = [f"{name}.{key}" for key in _in_order(name, module) if TF_NAMES.fullmatch(f"{name}.{key}")]
        if names:
            yield f".. rubric:: {name}\n"
            yield f".. currentmodule:: {name}\n"
            yield from _summary(names)
            for full in names:
                yield from _described(full, getattr(module, full.rpartition(".")[2]), module)


def _members_summary(kinds: list[str], module: Any) -> Iterator[str]:
    """List the members of a module's classes: a reader finds a method without scrolling."""
    rows = []
    for full in kinds:
        kind = getattr(module, full.rpartition(".")[2])
        members = [m for m in _ordered_homes(kind) if next(iter(_homes_of(kind, m)), full) == full]
        if members:
            links = ", ".join(f":py:obj:`{member} <{full}.{member}>`" for member in members)
            rows.append(f"   * - :py:obj:`{full.rpartition('.')[2]} <{full}>`\n     - {links}\n")
    if rows:
        yield ".. rubric:: Members\n"
        yield ".. list-table::\n   :class: longtable\n"
        yield from rows


def _summary(names: list[str]) -> Iterator[str]:
    yield ".. autosummary::\n   :nosignatures:\n"
    yield "".join(f"   {full.rpartition('.')[2]}\n" for full in names)


def _constants_summary(names: list[str], module: Any) -> Iterator[str]:
    """Do what autosummary does, which knows no text of a constant."""
    yield ".. list-table::\n   :class: autosummary longtable\n"
    for full in names:
        key = full.rpartition(".")[2]
        first = re.split(r"(?<=\.)\s|\n\n", _constant(key, getattr(module, key), module)[1])[0]
        yield f"   * - :py:data:`{key} <{full}>`\n     - {' '.join(first.split())}\n"


def _in_order(name: str, module: Any) -> list[str]:
    """Return the names that are explained here: what the module itself defines, as in its source.

    Then what its private modules define, in alphabetical order, a base class first.
    """
    defined = list(vars(module))
    values = {key: getattr(module, key) for key in public_names(module) if _is_explained_in(name, getattr(module, key))}
    bases = {base for value in values.values() if inspect.isclass(value) for base in value.__mro__[1:]}

    def place(key: str) -> tuple[Any, ...]:
        if getattr(values[key], "__module__", None) == module.__name__:
            return 0, defined.index(key)
        return 1, inspect.isclass(values[key]) and values[key] not in bases, key

    return sorted(values, key=place)


def _is_explained_in(name: str, value: Any) -> bool:
    """Whether no other public module is the one that defines it."""
    return not inspect.ismodule(value) and getattr(value, "__module__", name) not in dict(modules()).keys() - {name}


def _group(full: str, value: Any) -> str:
    if not inspect.isclass(value):
        return "Functions" if inspect.isroutine(value) else GROUPS[-1]
    if issubclass(value, BaseException):
        return "Exceptions"
    if is_constructed(full, value):
        return "Classes"
    return "Returned by calls" if full in RETURNED else "Enumerations and C types"


def _described(full: str, value: Any, module: Any) -> Iterator[str]:
    if inspect.isclass(value):
        shown = "   :show-inheritance:\n" if any(shown_bases(value.__bases__)) else ""
        yield f".. autoclass:: {full}\n   :no-members:\n{shown}"
        yield from (textwrap.indent(part, "   ") for part in _members(full, value))
    elif inspect.isroutine(value):
        yield f".. autofunction:: {full}\n"
    else:
        key = full.rpartition(".")[2]
        shown, text = _constant(key, value, module)
        yield f".. py:data:: {key}\n   :module: {full.removesuffix(f'.{key}')}"
        yield f"   :value: {shown}\n" if len(shown) <= VALUE_MAX else ""
        yield textwrap.indent(text, "   ") + "\n"


def _members(full: str, kind: type) -> Iterator[str]:
    """Give each member of a class, in the source's order, and where the members of its public bases are explained."""
    inherited: dict[str, list[str]] = {}
    tf1 = False
    for member, base in _ordered_homes(kind).items():
        home = next(iter(_homes_of(kind, member)), full)
        if base is TF1Layer and member not in CALLED:
            tf1 = True
        elif home == full:
            yield f".. {_directive(base, member)}:: {full}.{member}\n"
        else:
            inherited.setdefault(home, []).append(f":py:obj:`{member} <{home}.{member}>`")
    for home, members in inherited.items():
        yield f"Inherited from :py:class:`~{home}`: {', '.join(members)}.\n"
    if tf1:
        yield "Inherited from TF 1.x's layers: :ref:`the members of every layer <tf1-layer>`.\n"


def _tf1_members() -> Iterator[str]:
    yield f":py:class:`~{TF1_LAYER}`, its subclasses and the cells have these.\n"
    for member, base in homes(RNNLayer).items():
        if base is TF1Layer and member not in CALLED:
            yield f".. {_directive(base, member)}:: {TF1_LAYER}.{member}\n"


def _ordered_homes(kind: type) -> dict[str, type]:
    """Return `homes`, a call first: that is what a reader looks for."""
    result = homes(kind)
    return {member: result[member] for member in sorted(result, key=lambda member: member != "__call__")}


def _homes_of(kind: type, member: str) -> Iterator[str]:
    """Give the public bases of a class that have a member from the same class; the entry of the first explains it."""
    base = homes(kind)[member]
    yield from (public_classes()[c] for c in _public_bases(kind) if issubclass(c, base))


def homes(kind: type) -> dict[str, type]:
    """Return the members of a class that this package defines, each with the class that defines it."""
    result: dict[str, type] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("pycudnnrnn"):
            for member in _class_members(base, kind):
                result.setdefault(member, base)
    return result


def shown_bases(bases: Iterable[Any]) -> Iterator[Any]:
    """Give base classes as a reader knows them: a private one's own bases in its place."""
    for base in bases:
        kind = getattr(base, "__origin__", base)
        if kind in public_classes() or not kind.__module__.startswith("pycudnnrnn"):
            yield from [base] if kind is not object else []
        else:
            yield from shown_bases(kind.__bases__)


def shown_signature(full: str, value: Any, arguments: str) -> str:
    """Return what a signature shows: nothing of a class that nobody builds; words as `str`, since Args list them."""
    if inspect.isclass(value) and not is_constructed(full, value):
        return ""
    arguments = re.sub(r"\b(\w+)\.([A-Z0-9_]+)\b", _word, arguments)
    # 'relu' | 'tanh' | ~pycudnnrnn.spec.RNNMode: as Sphinx writes words and their enumeration
    return re.sub(r"(?:'\w+' \| )+(?!None\b)(~[\w.]+)", lambda m: _words_or(m[1]), arguments)


def _words_or(kind: str) -> str:
    return "str" if kind.startswith("~pycudnnrnn.") else f"str | {kind}"


def _word(match: re.Match[str]) -> str:
    kind = getattr(spec, match[1], None)
    return repr(str(kind[match[2]])) if isinstance(kind, enum.EnumType) else match[0]


def _public_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__[1:] if base in public_classes()]


def _class_members(base: type, kind: type) -> Iterator[str]:
    """Give the names of a class's own members, its fields and enumerators among them, as the source has them."""
    fields = inspect.get_annotations(base)
    for member in dict.fromkeys([*fields, *vars(base)]):
        known = member in CALLED or not member.startswith("_")
        if known and (member in fields or getattr(kind, member, None) is not None):
            yield member


def _directive(base: type, member: str) -> str:
    value = vars(base).get(member)
    if isinstance(value, (property, functools.cached_property)):
        return "autoproperty"
    is_method = inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod))
    return "automethod" if is_method and not isinstance(value, enum.Enum) else "autoattribute"


@functools.cache
def public_classes() -> dict[type, str]:
    """Return the name of the page's entry of each public class."""
    result: dict[type, str] = {}
    for name, module in modules():
        for key in public_names(module):
            value = getattr(module, key)
            if inspect.isclass(value) and _is_explained_in(name, value):
                result.setdefault(value, f"{name}.{key}")
    return result


def _constant(name: str, value: Any, module: Any) -> tuple[str, str]:
    """Return a constant's value as the source has it, and the text below it; a private module may have defined it."""
    for other in [module, *(m for n, m in sorted(sys.modules.items()) if n.startswith("pycudnnrnn."))]:
        if vars(other).get(name) is not value:
            continue
        source = inspect.getsource(other)
        body = ast.parse(source).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if name in {getattr(target, "id", None) for target in targets}:
                text = (
                    after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
                )
                return str(ast.get_source_segment(source, node.value)), inspect.cleandoc(text)
    raise LookupError(f"{name} is defined nowhere")


def _c_functions() -> Iterator[str]:
    """Give the prototype of each C function that is bound, and the versions that have it."""
    yield "Each is an attribute of :py:class:`~pycudnnrnn.libcudnn.Library`.\n"
    for prototype in libcudnn.PROTOTYPES.values():
        arguments = ", ".join(f"{parameter.c} {name}" for name, parameter in prototype.parameters.items())
        yield f".. c:function:: {prototype.result} {prototype.name}({arguments})\n"
        since = f"Since cuDNN {version_text(prototype.since)}." if prototype.since else ""
        until = f"Removed in cuDNN {version_text(prototype.until)}." if prototype.until < NEVER else ""
        yield textwrap.indent(f"{since} {until}".strip(), "   ") + "\n"
