"""Phrases that readers stumbled over do not come back, in pages, docstrings, comments, errors and hints.

Each is the form of another language in English words. A pattern is narrow: it must never flag right English, so that
each row has a sentence that it flags and one close to it that it lets pass.
"""

import io
import re
import tokenize

import pytest

from tests.docs.blocks import PAGES
from tests.docs.instructions import ROOT, TEXTS

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


def flagged(text):
    """The names of the phrases in a text; a line's end is a space."""
    joined = re.sub(r"[ \t]*\n[ \t]*(?![#|-])", " ", text)
    return [name for name, (pattern, _, _) in PHRASES.items() if re.search(pattern, joined)]


@pytest.mark.parametrize("name", PHRASES)
def test_a_pattern_flags_its_phrase_and_lets_right_english_pass(name):
    _, wrong, right = PHRASES[name]
    assert all(name in flagged(text) for text in wrong), wrong
    assert not any(flagged(text) for text in right), right
    assert name in flagged(wrong[0].replace(" ", "\n    ", 1)) or wrong[0].startswith("#"), "over a line's end"


def test_no_text_has_them():
    """But for the page that quotes results files, word for word; what else it says is a module's."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: not English: say {name!r}"
        for path in TEXTS
        if path != ROOT / "docs/performance.md"
        for line, text in texts(path)
        for name in flagged(text)
    ]
    assert found == []


COMPRESSED = re.compile(
    r"\b(but for|none but|of (?:its|their) own|held against|goes on|anew|whatever|told|whole or not at all|likewise"
    r"|stands? for)\b",
    re.IGNORECASE,
)
"""Pages have plain words instead: except, only, own, compared with, continues, again, any, passed, also, means."""

NOT_BY_HAND = {"docs/performance.md", "docs/gpu-verification.md"}
"""They quote results files and names of tests."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if str(page.relative_to(ROOT)) not in NOT_BY_HAND], ids=lambda page: page.name
)
def test_a_page_has_no_compressed_words(page):
    prose = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert COMPRESSED.findall(prose) == []


def test_compressed_words_are_found_and_their_neighbours_are_not():
    wrong = ("all but for one", "None but LSTM", "a stream of its own", "held against torch", "it goes on", "made anew")
    right = ("everything but LSTM", "its own stream", "on the page", "a new one", "on their own machine", "the total")
    assert all(COMPRESSED.search(text) for text in wrong)
    assert not any(COMPRESSED.search(text) for text in right)
