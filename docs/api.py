"""What the reference has to explain: each public callable, and its parameters. A test and the pages both ask here."""

from __future__ import annotations

import ctypes
import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.api.public_api import modules, public_names

RETURNED: Final = frozenset({
    "pycudnnrnn.checkpoint.Inspection", "pycudnnrnn.checkpoint.Summary", "pycudnnrnn.layers.LayerForward",
    "pycudnnrnn.layers.LayerGradients", "pycudnnrnn.layers.LayerGraph", "pycudnnrnn.layers.RNNLayer",
    "pycudnnrnn.layers.Variable", "pycudnnrnn.layout.Region", "pycudnnrnn.libcudnn.Function",
    "pycudnnrnn.libcudnn.Library", "pycudnnrnn.ops.AlgorithmChoice", "pycudnnrnn.ops.AlgorithmTrial",
    "pycudnnrnn.ops.CudnnRNN", "pycudnnrnn.ops.Forward", "pycudnnrnn.ops.Gradients", "pycudnnrnn.ops.Graph",
    "pycudnnrnn.ops.Memory", "pycudnnrnn.ops.Plan", "pycudnnrnn.ops.Stream", "pycudnnrnn.saveable.SaveSpec",
})  # fmt: skip
"""Classes that calls return and nobody constructs: their pages show no signature, and they need no example."""

MOCKED: Final = ("torch", "jax", "matplotlib", "pycudnnrnn.interop._jax_rules")
"""What public modules import at once, and the pages are built without: frameworks, and what registers at JAX."""

C_TYPES: Final = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int).__mro__[1])

CALLED: Final = ("__call__",)
"""Methods of two underscores that a user calls by other means than their names."""


def is_constructed(name: str, kind: type) -> bool:
    """Whether users call a class, so that its page shows what it takes."""
    never = issubclass(kind, (BaseException, enum.Enum, *C_TYPES)) or getattr(kind, "_is_protocol", False)
    return name not in RETURNED and not never


class Callable(NamedTuple):
    """A public function, class or method: its name, its docstrings, and what it takes."""

    name: str
    value: Any
    doc: str
    parameters: tuple[str, ...]
    returns: bool
    needs_example: bool


def callables() -> Iterator[Callable]:
    """Every public callable of the package, its classes' methods among them; nothing twice."""
    seen: set[int] = set()
    for module_name, module in modules():
        for name in public_names(module):
            value = getattr(module, name)
            if inspect.ismodule(value) or not callable(value) or id(value) in seen:
                continue
            seen.add(id(value))
            if not str(getattr(value, "__module__", "")).startswith("pycudnnrnn"):
                continue
            if inspect.isclass(value):
                yield from _class(f"{module_name}.{name}", value, seen)
            else:
                yield _function(f"{module_name}.{name}", value, example=True)


def _class(name: str, kind: type, seen: set[int]) -> Iterator[Callable]:
    doc, parameters = inspect.getdoc(kind) or "", ()
    constructed = is_constructed(name, kind)
    if constructed:
        parameters = _parameters(kind)
        doc += "\n\n" + (inspect.getdoc(kind.__init__) or "")
    yield Callable(name, kind, doc, parameters, returns=False, needs_example=constructed)
    for base in kind.__mro__:
        if not base.__module__.startswith("pycudnnrnn"):
            continue
        for member, value in vars(base).items():
            if (member.startswith("_") and member not in CALLED) or getattr(kind, member, None) is None:
                continue
            function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if (
                inspect.isfunction(function)
                and inspect.getattr_static(kind, member) is value
                and id(function) not in seen
            ):
                seen.add(id(function))  # what a class inherits is documented once
                yield _function(f"{name}.{member}", getattr(kind, member), example=False)


def _function(name: str, value: Any, *, example: bool) -> Callable:
    returns = inspect.signature(value).return_annotation not in ("None", None, "Never", inspect.Signature.empty)
    return Callable(name, value, inspect.getdoc(value) or "", _parameters(value), returns, needs_example=example)


def _parameters(value: Any) -> tuple[str, ...]:
    try:
        names = inspect.signature(value).parameters
    except ValueError:
        return ()
    return tuple(name for name in names if name not in {"self", "cls"} and not name.startswith("_"))


def explained(doc: str) -> dict[str, str]:
    """Return what a docstring's `Args:` sections have of each name: "a, b: text" explains both."""
    texts: dict[str, str] = {}
    for section in re.findall(r"^Args:\n((?:(?:[ \t]+.*)?\n?)*)", doc, re.MULTILINE):
        entries = re.split(r"^    (?=\S)", section, flags=re.MULTILINE)
        for entry in entries:
            names, colon, text = entry.partition(":")
            if colon and re.fullmatch(r"[\w*, ]+", names):
                texts |= {n.strip().lstrip("*"): " ".join(text.split()) for n in names.split(",")}
    return texts
