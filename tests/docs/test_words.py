"""Phrases that readers stumbled over do not come back, in pages, docstrings, comments, errors and hints.

Each is the form of another language in English words. A pattern is narrow: it must never flag right English, so that
each row has a sentence that it flags and one close to it that it lets pass.
"""

import inspect
import io
import re
import tokenize

import pytest

from docs.api_pages import homes, public_classes
from tests.api.public_api import modules
from tests.docs.blocks import PAGES
from tests.docs.instructions import ROOT, TEXTS
from tests.helpers.oracles import need

need("torch", "jax", "matplotlib")  # some public docstrings are in modules for them

HISTORY = ROOT / "CHANGELOG.md"
QUOTES = ROOT / "docs/performance.md"
"""It quotes results files, word for word; its other sentences are a module's."""

ONE = r"(?:an?|one|two|each)"
PART = (
    r"(?:arrays?|barriers?|bias(?:es)?|blocks?|calls?|cells?|columns?|commands?|copy|copies|files?|handles?|launch(?:es)?"
    r"|lines?|matrix|matrices|names?|nouns?|numbers?|parameters?|products?|rows?|sequences?|stacks?|states?|tapes?"
    r"|threads?|values?|vectors?)"
)
WHOLE = (
    r"(?:cell|character|command|device|direction|element|file|framework|gate|layer|matrix|mode|module|noun|parameter"
    r"|process|pseudo-layer|rank|sequence|stack|step|thread|update|weight)"
)
THING = r"(?:array|constant|dict|environment|file|float|JSON|libcudnn|list|name|object|option|spec|string|tensor|tuple)"
HAS = r"(?:has|have|keeps?|takes?|bounds?|documents?|reads?|there (?:is|are))"

PHRASES = {
    "per": (
        rf"\b{ONE} {PART} an? {WHOLE}\b(?! (?:of|that|with)\b)",
        ("It has a matrix a gate.", "Two biases a gate, one file a command.", "one handle a device"),
        ("It has one matrix per gate.", "It calls a device by name.", "It gives each row a name a reader knows."),
    ),
    "per character": (
        r"\bnats an?\b",
        ("2 nats a character",),
        ("2 nats per character", "in nats, a character counts"),
    ),
    "only": (
        rf"\b{HAS} (?!to )(?:[^\s.:;()]+ ){{1,5}}?alone\b(?! (?:can|could|do|does|is|are|has|takes?|will|would)\b)",
        ("JAX has an fp32 LSTM alone.", "cuDNN has 'tanh' and 'relu' alone", "there are A and B alone"),
        ("JAX has only an LSTM.", "Names alone do not tell.", "It is left alone.", "It has to stand alone."),
    ),
    "is not a": (
        rf"(?<!there )(?<!There )\b(?:is|are) no (?:[\w-]+ )?{THING}\b",
        ("x is no regular file", "which is no JSON", "the key is no string"),
        ("there is no file", "There is no such name", "x is not a string", "x is no longer a file"),
    ),
    "migrate from": (
        r"(?m)^# Come from\b|\[coming from\b",
        ("# Come from CuPy 13", "[coming from TF](x)"),
        ("# Migrate from CuPy 13", "Results come from cuDNN."),
    ),
    "nor does": (r", and \w+ neither\b", ("no engine does, and cuDNN neither",), ("no engine does, nor does cuDNN",)),
    "raises what": (r"\bErrors as of\b", ("Errors as of `input`.",), ("It raises what `input` raises.",)),
    "because nothing": (r"\bfor want of [\w ]+ say\b", ("it failed, for want of memory say",), ("for want of memory",)),
    "do not matter": (r"\b(?:is|are) no matter\b", ("checks are no matter here",), ("no matter which one it is",)),
}


SAYS = (
    r"(?:`|\b(?:checkpoint|class|command|converter|cuDNN|engine|error|file|framework|function|header|JAX|Keras|layer"
    r"|library|name|op|program|spec|suffix|TensorFlow|torch|TF|it|It))"
)

PLAIN = {
    "except": (
        r"\b(?:but for|none but|None but)\b(?! example)|\bbut that (?:None|an?|the|it|they)\b",
        ("`output_c` is None but for LSTM.", "the same, but that None is zeros", "none but the LSTM has it"),
        ("all but the last", "It is fast, but for example not here.", "It is rare, but that happens."),
    ),
    "separately": (
        r"\bapart\b(?! from\b)",
        ("The two biases are kept apart.", "tells them apart"),
        ("Apart from the LSTM, all cells have one state.",),
    ),
    "next to, or in addition to": (r"\b[Bb]eside\b", ("beside the input's product",), ("besides, it is slow",)),
    "own": (
        r"\bof (?:its|their|your|our) own\b",
        ("It has a lock of its own.", "a file of your own"),
        ("It has its own lock.", "of its owner"),
    ),
    "compared with": (r"\bheld against\b", ("It is held against torch.",), ("held by a lock, against deadlocks",)),
    "continues": (
        r"\b(?:goes|go|going) on(?=[.,;:)]| (?:after|as|by|from|in|saying|until|where|with)\b)",
        ("Training goes on from there.", "A state goes on where it was.", "the model goes on:"),
        ("It goes on the current stream.", "calls go on CUDA"),
    ),
    "again": (r"\banew\b", ("It is resolved anew.",), ("a new file",)),
    "name the thing, not whatever": (r"\b[Ww]hatever\b", ("whatever an op takes",), ("what an op takes", "whenever")),
    "passed, or reported": (
        r"\b(?:is|are|be|been|being|was|were) told\b",
        ("The converter is told by `prefix`.",),
        ("It told them.",),
    ),
    "atomically": (r"\b[Ww]hole or not at all\b", ("It is written, whole or not at all.",), ("It is written whole.",)),
    "these, or of this kind": (
        r"(?<!no )(?<!No )(?<!any )\b[Ss]uch (?!as\b|that\b)",
        ("Such calls are not measured again.", "a GPU's on such a GPU"),
        ("arrays such as CuPy's", "There is no such function.", "T is such that T * B fits."),
    ),
    "means, or is": (
        r"\b(?:stands?|stood)\b(?!-| alone\b)",
        ("None stands for zeros.", "where dropout stands", "The rule stands beside it."),
        ("a stand-in for the GPU", "It can stand alone.", "standing"),
    ),
    "also": (r"\b[Ll]ikewise\b", ("The GRU likewise.",), ("The GRU, too.",)),
    "raises": (
        r"\b(?:is|are|was|were|be|been) refused\b",
        ("A wrong size is refused.",),
        ("It raises ArgumentError.", "It refuses to run."),
    ),
    "contains, reports or raises": (
        rf"{SAYS} (?:says?|tells?|answers?)\b(?! (?:them|it) apart)",
        ("The file says whose it is.", "`forward` says more.", "An error answers it."),
        ("NVIDIA's documentation says so.", "The page says why.", "Say it."),
    ),
    "the thing, not what": (
        r"(?m)(?:(?<=[.;:] )|^)What (?!(?:is|are|does|do|can|if)\b)[^.?!#]*\.",
        ("What cannot be had raises.", "It fails: What it holds is damaged."),
        ("# What a GPU has verified", "What does it cost?", "It returns what `save` wrote."),
    ),
    "the reserve, the state": (
        r"\bwhat (?:an? |the |its )?(?:backward|forward)s? needs?\b",
        ("It keeps what a backward needs.", "what backward needs"),
        ("It keeps the reserve.", "what a backward pass of cuDNN takes"),
    ),
    "its contents": (
        r"\bwhat (?:is|was|are) (?:here|there|left|had|asked|given|kept|meant|written)\b",
        ("It lists what is there.", "what is given is cast"),
        ("what is the order?", "what is computed"),
    ),
}
"""Phrases that a native reader reads twice, for what users read: pages, and docstrings of public names."""


def texts(path):
    """What a reader of a file meets, as (line, text), lines joined: of Python its comments and strings."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from ((1 + source.count("\n", 0, at), part) for at, part in _paragraphs(source))
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            yield token.start[0], token.string


def _paragraphs(source):
    at = 0
    for part in source.split("\n\n"):
        yield at, part
        at += len(part) + 2


def flagged(text, phrases=PHRASES):
    """The names of the phrases in a text; a line's end is a space."""
    joined = re.sub(r"[ \t]*\n[ \t]*(?![#|-])", " ", text)
    return [name for name, (pattern, _, _) in phrases.items() if re.search(pattern, joined)]


@pytest.mark.parametrize(
    ("phrases", "name"), [(phrases, name) for phrases in (PHRASES, PLAIN) for name in phrases], ids=str
)
def test_a_pattern_flags_its_phrase_and_lets_right_english_pass(phrases, name):
    _, wrong, right = phrases[name]
    assert all(name in flagged(text, phrases) for text in wrong), wrong
    assert not any(name in flagged(text, phrases) for text in right), right
    assert name in flagged(wrong[0].replace(" ", "\n    ", 1), phrases) or wrong[0].startswith("#"), "over a line's end"


def test_no_text_has_them():
    found = [
        f"{path.relative_to(ROOT)}:{line}: not English: say {name!r}"
        for path in TEXTS
        if path != QUOTES
        for line, text in texts(path)
        for name in flagged(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path not in {HISTORY, QUOTES}], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_page_is_plain_english(path):
    """Its prose: names in code are what they are."""
    prose = ((line, re.sub(r"`[^`\n]+`", "`x`", text)) for line, text in texts(path))
    assert [f"line {line}: {name}" for line, text in prose for name in flagged(text, PLAIN)] == []


def docstrings(module):
    """The docstrings that a public module's page of the reference has, each with the name of what it is about."""
    yield module.__name__, module.__doc__
    for own in module.__all__:
        value = getattr(module, own)
        if inspect.isroutine(value):
            yield own, value.__doc__
        elif inspect.isclass(value) and value in public_classes():
            yield own, value.__doc__
            yield f"{own}()", vars(value).get("__init__", value).__doc__
            for member, base in homes(value).items():
                yield f"{own}.{member}", getattr(vars(base).get(member), "__doc__", "")


@pytest.mark.parametrize("name", dict(modules()))
def test_a_public_docstring_is_plain_english(name):
    by_text = {doc: of for of, doc in docstrings(dict(modules())[name]) if doc}  # what is inherited, once
    assert [f"{of}: {phrase}" for doc, of in by_text.items() for phrase in flagged(doc, PLAIN)] == []
