"""How the pages are built: MyST Markdown, docstrings by autodoc, no network, and a page in a folder is in the menu."""

import sys

import pycudnnrnn

sys.modules["pycudnnrnn.libcudnn"] = pycudnnrnn.libcudnn  # documented under its public name

project = "pycudnnrnn"
author = "the pycudnnrnn authors"
version = release = pycudnnrnn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_static"]
default_role = "code"  # docstrings say `x` for what is code, as Markdown does

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "inherited-members": "Exception,tuple,str,int,dict,Protocol,Module",
    "undoc-members": True,
    "show-inheritance": True,
}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes", "Units"]
python_maximum_signature_line_length = 100
add_module_names = False

html_theme = "furo"
html_title = f"pycudnnrnn {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_copyright = False
html_copy_source = False


def _public_bases(_app, _name, _obj, _options, bases):
    """Show a private base's own bases in its place."""
    bases[:] = [b for base in bases for b in (base.__bases__ if base.__name__.startswith("_") else (base,))]


def _no_type_before_a_colon(_app, what, _name, _obj, _options, lines):
    """Keep napoleon from reading "Directions: 1 or 2." as a type and what it is of: our types are annotations."""
    if what in {"attribute", "property", "data"}:
        lines[:0] = ["..", ""]


def setup(app):
    app.connect("autodoc-process-docstring", _no_type_before_a_colon, priority=400)  # before napoleon's 500
    app.connect("autodoc-process-bases", _public_bases)
