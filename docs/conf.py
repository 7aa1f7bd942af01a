"""How the pages are built: MyST Markdown, docstrings by autodoc, no network, and a page in a folder is in the menu.

Frameworks are mocked, so that the pages need none of them and are the same wherever they are built.
"""

import re
import sys
import tomllib

from sphinx.ext.autodoc.mock import mock
from sphinx.util.inspect import signature, stringify_signature

import pycudnnrnn
from docs.api import MOCKED
from docs.api_pages import public_classes, shown_bases, shown_signature
from docs.gpu import ROOT, gpu_results

sys.modules["pycudnnrnn.libcudnn"] = pycudnnrnn.libcudnn  # documented under its public name

project = "pycudnnrnn"
author = "the pycudnnrnn authors"
version = release = pycudnnrnn.__version__

extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode",
    "sphinx_copybutton",
]  # fmt: skip
exclude_patterns = ["_static"]
default_role = "code"  # docstrings say `x` for what is code, as Markdown does
highlight_language = "text"  # equations in docstrings; Markdown blocks and examples with >>> name their own language
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autoclass_content = "both"
autodoc_mock_imports = [*MOCKED]
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = True
autosummary_generate = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # a class's attributes have entries of their own
napoleon_use_rtype = False  # what stands before the colon is a name, and no type
napoleon_custom_sections = [("Shapes", "params_style"), "Units"]
python_maximum_signature_line_length = c_maximum_signature_line_length = 100
python_display_short_literal_types = True
add_module_names = False

html_theme = "furo"
_urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
html_theme_options = {"source_repository": _urls["Source"], "source_directory": "docs/"} if _urls else {}
html_title = f"pycudnnrnn {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_copyright = False
html_copy_source = False

with mock(autodoc_mock_imports):
    public_classes()  # is kept; imports what is mocked


def _process_bases(_app, _name, _obj, _options, bases):
    """Show a framework's base class with its module: torch.nn.Module."""
    bases[:] = [
        f":py:class:`{base.__module__}.{base.__name__}`" if str(base.__module__).startswith(tuple(MOCKED)) else base
        for base in shown_bases(bases)
    ]


def _process_signature(_app, what, name, obj, _options, arguments, result):
    if arguments is None:
        return None
    if what == "class" and getattr(obj, "__sphinx_mock__", False):  # a mock's own constructor takes anything
        arguments = stringify_signature(signature(obj.__init__, bound_method=True), show_return_annotation=False)
    return shown_signature(name, obj, arguments), result


def _for_napoleon(_app, what, _name, _obj, _options, lines):
    """Keep napoleon from what it would misread.

    "Directions: 1 or 2." is no type and what it is of: our types are annotations. Of "*arguments, **keywords: text" it
    escapes the first star alone.
    """
    if what in {"attribute", "property", "data"}:
        lines[:0] = ["..", ""]
    lines[:] = [re.sub(r"^( *\*\w+, )\*\*", r"\1\\*\\*", line) for line in lines]


def _read(_app, name, source):
    """Add the menu to the first page, from its lists of pages, and show a file of the root folder as the page it is."""
    if name == "index":
        lists = re.findall(r"^### (.*)\n\n((?:- .*\n)+)", source[0], re.MULTILINE)
        for caption, pages in lists:
            names = "\n".join(re.findall(r"\]\((.*)\.md\)", pages))
            more = "\nreference/*" if caption == "Reference" else ""
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{names}{more}\n```\n"
    elif name in {"changelog", "security", "contributing"}:
        source[0] = (ROOT / f"{name.upper()}.md").read_text(encoding="utf-8")


def _announce(_app, _page, _template, context, _doctree):
    """Report on top of every page that no GPU has run the package, as long as there is no results file of one."""
    if not gpu_results():
        link = f'<a href="{context["pathto"]("gpu-verification")}">Details</a>'
        context["theme_announcement"] = f"No GPU has run pycudnnrnn yet. {link}"


def setup(app):
    app.connect("source-read", _read)
    app.connect("html-page-context", _announce)
    app.connect("autodoc-process-docstring", _for_napoleon, priority=400)  # before napoleon's 500
    app.connect("autodoc-process-bases", _process_bases)
    app.connect("autodoc-process-signature", _process_signature)
