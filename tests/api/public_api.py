"""List the public API as text: one line per name, with its signature.

`python -m tests.api.public_api` writes it to snapshot.txt.
"""

import dataclasses
import enum
import functools
import inspect
import re
import types
from pathlib import Path

import pycudnnrnn

SNAPSHOT = Path(__file__).with_name("snapshot.txt")
ROOT = pycudnnrnn.__name__
DUNDERS = {"__call__", "__enter__", "__exit__"}


def lines():
    """Every public module below the package, then every public name in it, in alphabetical order."""
    members = {f"{ROOT}.{name} = {_home(getattr(pycudnnrnn, name))}" for name in dir(pycudnnrnn)}
    for name, module in modules():
        for member in public_names(module):
            members.update(_described(f"{name}.{member}", getattr(module, member)))
    return sorted(members)


def modules():
    """(public name, module), the modules of the package with their own public modules.

    Raises:
        MissingDependencyError: torch, JAX or matplotlib is not there: some of the modules are for it.
    """
    waiting = [(f"{ROOT}.{name}", getattr(pycudnnrnn, name)) for name in dir(pycudnnrnn)]
    while waiting:
        name, module = waiting.pop(0)
        if isinstance(module, types.ModuleType):
            yield name, module
            waiting += [(f"{name}.{n}", getattr(module, n)) for n in public_names(module)]


def public_names(module):
    """What a module offers, in alphabetical order."""
    return sorted([*module.__all__, *getattr(module, "_NEEDS_HYPOTHESIS", ())])


def _home(value):
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    return f"{value.__module__}.{value.__qualname__}"


def _described(name, value):
    if isinstance(value, types.ModuleType):
        return
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: constant"


def _class(name, kind):
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    yield f"class {name}({bases})"
    if issubclass(kind, enum.Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in kind)
    elif "__init__" in _members(kind) or "__new__" in _members(kind):
        yield f"{name}.__init__{_signature(kind.__init__ if '__init__' in _members(kind) else kind.__new__)}"
    fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    fields += list(getattr(kind, "_fields", ()))
    yield from (f"{name}.{field}: field" for field in fields if not field.startswith("_"))
    for member, value in _members(kind).items():
        if (member.startswith("_") and member not in DUNDERS) or member in fields:
            continue
        if isinstance(value, (property, functools.cached_property)):
            settable = ", settable" if getattr(value, "fset", None) else ""
            yield f"{name}.{member}: property{settable}"
        elif isinstance(value, (classmethod, staticmethod)):
            yield f"{name}.{member}{_signature(value.__func__)} {type(value).__name__}"
        elif inspect.isfunction(value):
            yield f"{name}.{member}{_signature(value)}"


def _members(kind):
    """What the package's classes in the MRO define; the nearest wins."""
    members = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(ROOT):
            members |= vars(base)
    return members


def _signature(function):
    signature = inspect.signature(function)
    # An enum's member is a default as the string that it is; annotations are text already, and have no quotes then.
    parameters = [
        p.replace(default=str(p.default)) if isinstance(p.default, enum.StrEnum) else p
        for p in signature.parameters.values()
    ]
    return re.sub(r": '(.*?)'(?=[,) ])|-> '(.*)'$", _unquoted, str(signature.replace(parameters=parameters)))


def _unquoted(match):
    return f": {match[1]}" if match[1] is not None else f"-> {match[2]}"


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(lines()) + "\n")
