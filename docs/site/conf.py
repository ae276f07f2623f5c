"""How Sphinx makes the site of the pages in docs/ (scripts/doc_site.py, `make site`)."""

import headgate

project = "Headgate"
author = "The Headgate authors"
copyright = author
version = release = headgate.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "index"
source_suffix = {".md": "markdown"}
suppress_warnings = ["misc.highlighting_failure"]  # excerpts with … in them are no whole JSON

myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Docstrings are in Google's style, with a part of our own: where the rule comes from.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Source", "notes_style"), ("Values", "params_style")]
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"Headgate {version}"
html_static_path = ["static"]
html_css_files = ["headgate.css"]
html_js_files = ["size.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
